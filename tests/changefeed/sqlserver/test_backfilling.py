"""Backfill, retention and status on a server with T-SQL, and a weaker procedure, which the checker sees."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from outbox_relay.changefeed import START, ArgumentError, BackfillPlan, backfill, prune, shard_of, status
from outbox_relay.changefeed.ulid import milliseconds
from tests.changefeed.history import kinds
from tests.changefeed.interleavings import two_readers_at_the_head
from tests.changefeed.journal import Journal
from tests.changefeed.reading import observer
from tests.changefeed.sqlserver import open_backend
from tests.changefeed.sqlserver.backend import TsqlBackend
from tests.changefeed.sqlserver.conftest import VARIABLE, Events

_TABLE = "id bigint not null primary key, happened datetime2(3) null, account nvarchar(20) null"


def test_rows_are_put_on_the_feed_in_order_and_at_their_times(make_events: Callable[..., Events]) -> None:
    events = make_events(_TABLE)
    events.run(
        "insert into {events} (id, happened) values (1, '2020-01-03'), (2, '2020-01-01'), (3, '2020-01-02')"
    )
    events.insert(4)
    chunks: list[int] = []
    plan = BackfillPlan(order_by=["happened"], time_column="happened", shard_id=7)
    put = backfill(events.session, events.table, plan, chunk=2, progress=chunks.append)

    assert (put, chunks) == (3, [2, 3])
    entries = events.feed.read(7).entries
    assert [entry.row["id"] for entry in entries if entry.row] == [2, 3, 1]
    assert milliseconds(entries[0].ulid) == 1577836800000
    assert events.read() == [4]
    # What is on the feed is not put there twice.
    assert backfill(events.session, events.table, plan, anyway=True) == 0


def test_rows_are_spread_over_shards_by_a_column(make_events: Callable[..., Events]) -> None:
    events = make_events(_TABLE)
    accounts = ["ä", "b", "B", "ж", "a" * 20]
    for number, account in enumerate(accounts):
        events.run("insert into {events} (id, account) values (?, ?)", number, account)
    backfill(events.session, events.table, BackfillPlan(["id"], shard_column="account", shards=3))

    for shard in range(3):
        expected = [number for number, account in enumerate(accounts) if shard_of(account, 3) == shard]
        assert events.read(shard_id=shard) == expected


def test_a_plan_that_cannot_be_carried_out_leaves_nothing(make_events: Callable[..., Events]) -> None:
    events = make_events(_TABLE)
    events.insert(1)
    events.read()
    events.run("insert into {events} (id) values (2)")

    with pytest.raises(ArgumentError, match="no column nothing"):
        backfill(events.session, events.table, BackfillPlan(["nothing"]))
    with pytest.raises(ArgumentError, match="which is NULL there"):
        backfill(events.session, events.table, BackfillPlan(["id"], shard_column="account", shards=2))
    with pytest.raises(ArgumentError, match=r"have been read or written to: 0.*--anyway"):
        backfill(events.session, events.table, BackfillPlan(["id"]))
    left = events.run("select @@trancount, object_id(?)", events.named("backfill")).rows[0]
    assert tuple(left) == (0, None)
    assert backfill(events.session, events.table, BackfillPlan(["id"]), anyway=True) == 1
    assert events.read() == [1]


def test_old_positions_are_pruned(events: Events) -> None:
    events.insert(1, time_hint="2020-01-01")
    events.insert(2)
    events.feed.read(0)
    (pruned,) = prune(events.session, events.table, datetime.now(UTC) - timedelta(days=1))

    assert (pruned.shard_id, pruned.rows) == (0, 1)
    assert events.read(START) == [2]


def test_the_status_tells_what_waits_and_what_was_read(events: Events) -> None:
    events.insert(1)
    cursor = events.feed.read(0).cursor
    events.insert(2, 3)
    feed = next(feed for feed in status(events.session).feeds if feed.table == events.table)

    assert [(shard.shard_id, shard.outbox_rows, shard.last_ulid) for shard in feed.shards] == [(0, 2, cursor)]
    assert feed.shards[0].oldest_s is not None


# A weaker procedure, judged by the interleaving and the checker that the real one passes


_LOCK = """exec @granted = sp_getapplock @Resource = @resource, @LockMode = 'Exclusive',
        @LockOwner = 'Transaction', @LockTimeout = 10000;"""


@pytest.fixture
def backend() -> Iterator[TsqlBackend]:
    """A feed of app.event on the server with T-SQL."""
    url = os.environ.get(VARIABLE)
    if not url:
        pytest.skip(f"{VARIABLE} holds no connection string of a server with T-SQL")
    opened = open_backend(url)
    yield opened
    opened.close()


def test_without_the_lock_of_the_shard_an_event_is_numbered_twice(backend: TsqlBackend, journal: Journal) -> None:
    backend.change_procedures((_LOCK, "set @granted = 0;"))

    two_readers_at_the_head(backend, journal, observer)

    assert "twice" in kinds(journal.faults())
