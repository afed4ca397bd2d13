"""The parts of read_feed and read_events that only T-SQL has; the rest is in the tests with `backend`."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from outbox_relay.changefeed import ArgumentError, IsolationError, SetupError
from tests.changefeed.sqlserver.backend import TsqlDatabase
from tests.changefeed.sqlserver.conftest import Events

# The first call of a procedure in a session of Babelfish takes seconds.


def _ulids(events: Events, shard_id: int = 0) -> list[bytes]:
    found: list[bytes] = []
    page = events.feed.read(shard_id)
    while page.entries:
        found += [entry.ulid for entry in page.entries]
        page = events.feed.read(shard_id, page.cursor)
    return found


def test_one_statement_writes_an_event_and_its_place(events: Events) -> None:
    """Write with the statement that docs/writing-from-any-language.md shows."""
    for number in (1, 2):
        events.run(
            "begin transaction; insert into {events} (id, data) output 0, inserted.id "
            "into {outbox} (shard_id, id) values (?, ?); commit transaction;",
            *(number, "x"),
        )

    assert events.read() == [1, 2]


def test_a_session_that_reads_uncommitted_sees_committed_events_only(
    events: Events, database: TsqlDatabase
) -> None:
    writer = events.on(database.session())
    events.insert(1)
    writer.run("begin transaction")
    writer.insert(2)
    events.run("set transaction isolation level read uncommitted")

    assert events.read() == [1]


def test_a_key_of_several_columns_and_foreign_letters_is_kept(make_events: Callable[..., Events]) -> None:
    events = make_events(
        "[naïve key] nvarchar(20) not null, at datetime2(3) not null, price decimal(10, 2) not null, "
        "id uniqueidentifier not null, primary key (id, [naïve key], at, price)"
    )
    number = uuid.uuid4()
    values = (number, "Ωmega-ж", "2024-02-03 04:05:06.789", "12.50")
    events.run(
        "insert into {events} (id, [naïve key], at, price) values (?, ?, ?, ?); "
        "insert into {outbox} (shard_id, id, [naïve key], at, price) values (0, ?, ?, ?, ?)",
        *values,
        *values,
    )
    (entry,) = events.feed.read(0).entries

    assert entry.row is not None
    assert (entry.row["id"], entry.row["naïve key"], str(entry.row["price"])) == (number, "Ωmega-ж", "12.50")


def test_a_feed_that_was_filled_by_hand_is_read_before_what_comes(events: Events) -> None:
    events.run("insert into {events} (id) values (1), (2)")
    old = (1577836800000).to_bytes(6, "big")
    events.run("insert into {feed} (shard_id, ulid, id) values (0, ?, 1)", old + bytes(9) + b"\1")
    events.run("insert into {feed} (shard_id, ulid, id) values (0, ?, 2)", old + bytes(9) + b"\2")
    page = events.feed.read(0)

    assert events.feed.read(0, page.cursor).entries == []
    events.insert(3, time_hint="2010-01-01")
    assert events.read(page.cursor) == [3]
    assert events.read() == [1, 2, 3]


@pytest.mark.parametrize("arguments", ["0, null, 10", "null, 0x00, 10", "0, 0x00, null"])
def test_arguments_out_of_their_bounds_are_refused_and_move_nothing(events: Events, arguments: str) -> None:
    events.insert(1)

    with pytest.raises(ArgumentError, match="pagesize from 1 to 1000"):
        events.run(f"exec {{read_events}} {arguments}")
    assert len(events.run("select id from {outbox}").rows) == 1


def test_an_open_transaction_is_refused_and_stays_open(events: Events) -> None:
    events.insert(1)
    events.run("begin transaction")
    events.insert(2)

    with pytest.raises(IsolationError, match="Commit it before you read"):
        events.feed.read(0)
    assert events.run("select @@trancount").rows[0][0] == 1
    events.run("commit transaction")
    assert events.read() == [1, 2]


def test_implicit_transactions_of_the_session_neither_open_one_nor_are_turned_off(
    events: Events, database: TsqlDatabase
) -> None:
    events.insert(1)
    events.run("set implicit_transactions on")
    assert events.read() == [1]

    assert events.run("select @@trancount").rows[0][0] == 0
    # What was numbered is committed: another reader sees it at the same position.
    committed = _ulids(events.on(database.session()))
    assert committed == [row[0] for row in events.run("exec {read_events} 0, 0x00").rows]


def test_without_a_table_to_read_into_the_error_says_so(events: Events) -> None:
    events.insert(1)

    with pytest.raises(SetupError, match="Create it first, with the column ulid binary"):
        events.run("exec {read_feed} @shard_id = 0, @cursor = 0x00, @pagesize = 10")
    assert len(events.run("select id from {outbox}").rows) == 1


def test_a_page_can_be_read_into_a_table_of_the_callers(events: Events) -> None:
    events.insert(1, 2)

    rows = events.run(
        "create table #read (ulid binary(16) not null, id bigint not null); "
        "exec {read_feed} @shard_id = 0, @cursor = 0x00, @pagesize = 100; "
        "select e.data from #read as r join {events} as e on e.id = r.id order by r.ulid; drop table #read;"
    ).rows

    assert [row[0] for row in rows] == ["event 1", "event 2"]


def test_a_table_of_a_feed_that_is_gone_is_named(events: Events) -> None:
    events.insert(1)
    events.run("drop table {state}")

    with pytest.raises(SetupError, match=r"state:.*python -m outbox_relay.changefeed setup-feed"):
        events.feed.read(0)
