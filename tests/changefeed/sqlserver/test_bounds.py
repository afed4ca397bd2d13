"""Pages bounded in bytes, retention, low-water marks and owners of consumers, on a server with T-SQL."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from outbox_relay.changefeed import (
    START,
    ArgumentError,
    BackfillPlan,
    CursorPrunedError,
    Feed,
    IsolationError,
    backfill,
    set_keep,
    setup_feed,
)
from outbox_relay.changefeed.statements import Statement
from relay.backends.sql.catalog import SQLSERVER
from tests.changefeed.sqlserver.conftest import Events

_OLD = "2020-01-01T00:00:00"


def fill(events: Events, count: int, shard_id: int = 0) -> None:
    """Commit old events with 100 characters of data each."""
    outbox = f"changefeed.[outbox:{events.table}]"
    for number in range(1, count + 1):
        events.run(f"insert into {events.table} (id, data) values (?, ?)", number, "x" * 100)
        events.run(
            f"insert into {outbox} (shard_id, time_hint, id) values (?, cast(? as datetime2(3)), ?)",
            *(shard_id, _OLD, number),
        )


def test_a_page_is_bounded_in_bytes(events: Events) -> None:
    fill(events, 5)

    # nvarchar: two bytes a character.
    page = events.feed.read(0, START, max_bytes=500)

    assert [entry.row and entry.row["id"] for entry in page.entries] == [1, 2]
    assert len(events.feed.read(0, page.cursor, max_bytes=1).entries) == 1


def test_check_asks_whether_retention_is_decided(events: Events) -> None:
    asked = SQLSERVER.maintenance(events.table)
    assert [row[2] for row in events.session.execute(asked).rows] == [1]

    set_keep(events.session, events.table, "30d")

    assert [row[2] for row in events.session.execute(asked).rows] == [0]


def test_the_policy_is_carried_out_and_a_cursor_behind_it_is_refused(events: Events) -> None:
    fill(events, 3)
    first, *_, last = (entry.ulid for entry in events.feed.read(0).entries)
    assert events.feed.carry_out_retention() == 0
    set_keep(events.session, events.table, "30d")

    assert events.feed.carry_out_retention() == 3

    assert events.feed.wait(0, first, 0)
    with pytest.raises(CursorPrunedError, match="low-water mark"):
        events.feed.read(0, first)
    assert events.feed.read(0, last).entries == []
    assert events.feed.read(0, START).entries == []
    assert not events.feed.wait(0, START, 0)
    with pytest.raises(ArgumentError, match="cannot be proved"):
        backfill(events.session, events.table, BackfillPlan(["id"]), anyway=True)


def test_retention_in_an_open_transaction_is_refused_and_the_transaction_stays(events: Events) -> None:
    set_keep(events.session, events.table, "30d")
    events.run("begin transaction")
    events.insert(1)
    with pytest.raises(IsolationError, match="open transaction"):
        events.feed.carry_out_retention()
    events.run("commit transaction")

    assert events.read() == [1]


@pytest.mark.parametrize("keep", ["", "0d", "30", "100000d", "1.5d", "never"])
def test_what_is_no_policy_is_refused(events: Events, keep: str) -> None:
    with pytest.raises(ArgumentError, match="such as 30d or 12h, or to forever"):
        set_keep(events.session, events.table, keep)


def test_a_feed_that_was_filled_by_hand_is_read_to_its_end(events: Events) -> None:
    events.run(f"insert into {events.table} (id) values (1)")
    events.run(
        f"insert into changefeed.[feed:{events.table}] (shard_id, ulid, id) "
        "values (0, changefeed.ulid(1500000000000, 1, 1), 1)"
    )
    page = events.feed.read(0)

    assert len(page.entries) == 1
    assert not events.feed.wait(0, page.cursor, 0)
    assert events.feed.read(0, page.cursor).entries == []
    set_keep(events.session, events.table, "30d")
    assert events.feed.carry_out_retention() == 1
    assert events.feed.read(0, page.cursor).entries == []

    # Also once its only position is deleted.
    set_keep(events.session, events.table, "30d")
    assert events.feed.carry_out_retention() == 1
    assert not events.feed.wait(0, page.cursor, 0)
    assert events.feed.read(0, page.cursor).entries == []


def test_placeholders_in_names_are_names(make_events: Callable[..., Events]) -> None:
    table = "app.{feed} of {table}"
    session = make_events().session

    # Not `Events.run`, which has placeholders too.
    for statement in (
        "create table app.[{feed} of {table}] ([{keys}] int not null primary key, [{events}] int null)",
        "insert into app.[{feed} of {table}] ([{keys}]) values (1)",
    ):
        session.execute(Statement(statement))
    setup_feed(session, table, roles=False)
    session.execute(
        Statement("insert into changefeed.[outbox:app.{feed} of {table}] (shard_id, [{keys}]) values (0, 1)")
    )

    (entry,) = Feed(session, table).read(0).entries

    assert entry.row == {"{keys}": 1, "{events}": None}
