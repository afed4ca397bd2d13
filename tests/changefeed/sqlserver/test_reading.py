"""read_feed and read_events on a server with T-SQL."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from changefeed import START, ArgumentError, CursorError, FeedBusyError, IsolationError, SetupError
from changefeed.statements import Statement
from changefeed.ulid import milliseconds
from tests.changefeed.sqlserver.conftest import Database, Events

# The first call of a procedure in a session of Babelfish takes seconds.
pytestmark = pytest.mark.timeout(300)

_NOW_MS = "select datediff_big(millisecond, '1970-01-01', sysutcdatetime())"
# Without parameters, since with them SQL Server takes it for a procedure, which may not leave a transaction open.
_HOLD_THE_SHARD = (
    "begin transaction; declare @granted int; exec @granted = sp_getapplock @Resource = N'{resource}', "
    "@LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 5000; select @granted"
)


def _ulids(events: Events, shard_id: int = 0) -> list[bytes]:
    found: list[bytes] = []
    page = events.feed.read(shard_id)
    while page.entries:
        found += [entry.ulid for entry in page.entries]
        page = events.feed.read(shard_id, page.cursor)
    return found


def test_one_statement_writes_an_event_and_its_place(events: Events) -> None:
    """As docs/writing-from-any-language.md shows it."""
    for number in (1, 2):
        events.run(
            "begin transaction; insert into {events} (id, data) output 0, inserted.id "
            "into {outbox} (shard_id, id) values (?, ?); commit transaction;",
            *(number, "x"),
        )

    assert events.read() == [1, 2]


def _hold_the_shard(events: Events) -> int:
    resource = f"changefeed.feed:{events.table}/0"
    held: int = events.session.execute(Statement(_HOLD_THE_SHARD.replace("{resource}", resource))).rows[0][0]
    return held


def test_a_page_has_the_events_in_the_order_of_insertion_and_then_comes_nothing(events: Events) -> None:
    events.insert(3, 1)
    events.insert(2)

    page = events.feed.read(0)

    assert [entry.row for entry in page.entries] == [{"id": n, "data": f"event {n}"} for n in (3, 1, 2)]
    assert events.feed.read(0, page.cursor).entries == []


def test_events_move_from_the_outbox_to_the_feed_when_they_are_read(events: Events) -> None:
    events.insert(1, 2, 3)

    events.read(page_size=2)

    assert [row[0] for row in events.run("select id from {outbox}").rows] == [3]
    assert [row[0] for row in events.run("select id from {feed} order by ulid").rows] == [1, 2]
    assert (
        events.run("select ulid from {state}").rows[0][0]
        == events.run("select top (1) ulid from {feed} order by ulid desc").rows[0][0]
    )


def test_every_reader_sees_the_same_positions(events: Events, database: Database) -> None:
    events.insert(*range(50))

    first = _ulids(events)

    assert len(first) == 50
    assert first == sorted(first) == _ulids(events.on(database.session()))


def test_pages_follow_each_other_without_gap_or_overlap(events: Events) -> None:
    events.insert(*range(25))
    seen: list[int] = []
    page = events.feed.read(0, START, 7)
    while page.entries:
        seen += [entry.row["id"] for entry in page.entries if entry.row]
        page = events.feed.read(0, page.cursor, 7)

    assert seen == list(range(25))


def test_an_event_that_commits_late_comes_after_those_that_were_read_meanwhile(
    events: Events, database: Database
) -> None:
    late = events.on(database.session())
    late.run("begin transaction")
    late.insert(1)
    events.insert(2)
    page = events.feed.read(0)
    late.run("commit transaction")

    assert [entry.row["id"] for entry in page.entries if entry.row] == [2]
    assert events.read(page.cursor) == [1]


def test_an_event_that_is_rolled_back_is_never_read(events: Events) -> None:
    events.run("begin transaction")
    events.insert(1)
    events.run("rollback transaction")
    events.insert(2)

    assert events.read() == [2]


def test_a_session_that_reads_uncommitted_sees_committed_events_only(events: Events, database: Database) -> None:
    writer = events.on(database.session())
    events.insert(1)
    writer.run("begin transaction")
    writer.insert(2)
    events.run("set transaction isolation level read uncommitted")

    assert events.read() == [1]


def test_shards_are_independent(events: Events) -> None:
    events.insert(1, shard_id=1)
    events.insert(2, shard_id=2)

    assert events.read(shard_id=1) == [1]
    assert events.read(shard_id=2) == [2]
    assert events.read(shard_id=3) == []


def test_positions_within_a_millisecond_count_up_by_one(events: Events) -> None:
    events.insert(*range(100), time_hint="2020-01-01")

    numbers = [int.from_bytes(ulid, "big") for ulid in _ulids(events)]

    assert numbers == list(range(numbers[0], numbers[0] + 100))


def test_a_position_has_the_time_of_its_hint(events: Events) -> None:
    events.insert(1, time_hint="2020-01-01 00:00:00.123")
    events.insert(2, time_hint="2020-01-01 00:00:00.456")

    assert [milliseconds(ulid) for ulid in _ulids(events)] == [1577836800123, 1577836800456]


def test_a_hint_that_goes_back_takes_the_time_of_the_position_before(events: Events) -> None:
    events.insert(1, time_hint="2020-01-01 00:00:00.456")
    events.insert(2, time_hint="2020-01-01 00:00:00.123")
    first = _ulids(events)
    events.insert(3, time_hint="2019-01-01")

    again = _ulids(events)
    assert [milliseconds(ulid) for ulid in again] == [1577836800456] * 3
    assert again[:2] == first
    assert again == sorted(again)
    assert events.read() == [1, 2, 3]


def test_a_hint_in_the_future_is_cut_to_now(events: Events) -> None:
    before = events.run(_NOW_MS).rows[0][0]
    events.insert(1, time_hint="2190-01-01")
    (ulid,) = _ulids(events)

    assert before <= milliseconds(ulid) <= events.run(_NOW_MS).rows[0][0]


def test_a_clock_that_steps_back_changes_no_order(events: Events) -> None:
    events.insert(1)
    last = _ulids(events)[0]
    ahead = (milliseconds(last) + 3_600_000).to_bytes(6, "big") + last[6:]
    events.run("update {state} set ulid = ?; update {feed} set ulid = ?", ahead, ahead)
    events.insert(2)

    assert _ulids(events)[1] == (int.from_bytes(ahead, "big") + 1).to_bytes(16, "big")
    assert events.read() == [1, 2]


def test_a_counter_that_is_spent_moves_on_to_the_next_millisecond(events: Events) -> None:
    ahead = (2**41).to_bytes(6, "big") + bytes(5) + b"\xff" * 5
    events.run("insert into {state} (shard_id, ulid) values (0, ?)", ahead)
    events.insert(1, 2)
    first, second = _ulids(events)

    assert milliseconds(first) == milliseconds(second) == 2**41 + 1
    assert first > ahead
    assert int.from_bytes(second, "big") == int.from_bytes(first, "big") + 1


def test_positions_of_different_milliseconds_have_random_parts_of_their_own(events: Events) -> None:
    events.insert(1, time_hint="2020-01-01 00:00:00.001")
    events.insert(2, time_hint="2020-01-01 00:00:00.002")
    first, second = _ulids(events)

    assert first[6:11] != second[6:11]
    assert first[11] < 0x80
    assert second[11] < 0x80


def test_an_event_whose_row_is_gone_is_reported_by_its_key(events: Events) -> None:
    events.insert(1, 2)
    events.run("delete from {events} where id = 1")
    first, second = events.feed.read(0).entries

    assert (first.row, first.key) == (None, {"id": 1})
    assert (second.row, second.key) == ({"id": 2, "data": "event 2"}, {})


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


def test_news_is_seen_without_reading_it(events: Events) -> None:
    assert not events.feed.wait(0, START, timeout_s=0)
    events.insert(1)
    assert events.feed.wait(0, START, timeout_s=0)
    cursor = events.feed.read(0).cursor
    assert not events.feed.wait(0, cursor, timeout_s=0)
    assert events.feed.wait(0, START, timeout_s=0)


def test_a_reader_that_waits_is_woken_by_a_commit(events: Events, database: Database) -> None:
    waiting = events.on(database.session())
    with ThreadPoolExecutor(1) as pool:
        woken = pool.submit(waiting.feed.wait, 0, START, 20)
        events.insert(1)
        assert woken.result(20)


def test_a_cursor_ahead_of_the_shard_is_refused(events: Events) -> None:
    events.insert(1, shard_id=0)
    cursor = events.feed.read(0).cursor
    events.insert(2, shard_id=1)

    with pytest.raises(CursorError, match="shard 1"):
        events.feed.read(1, cursor)
    assert events.read(shard_id=1) == [2]


def test_a_cursor_of_a_feed_that_was_restored_is_refused(events: Events) -> None:
    events.insert(1)
    cursor = events.feed.read(0).cursor
    events.run("delete from {feed}; delete from {state}")

    with pytest.raises(CursorError, match="database was restored"):
        events.feed.read(0, cursor)


@pytest.mark.parametrize(
    "arguments", ["0, null, 10", "null, 0x00, 10", "0, 0x00, null", "0, 0x00, 0", "0, 0x00, 1001"]
)
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
    events: Events, database: Database
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


def _reading(events: Events, database: Database, started: threading.Event) -> list[int]:
    reader = events.on(database.session())
    started.set()
    return reader.read()


def test_one_reader_at_a_time_numbers_a_shard(events: Events, database: Database) -> None:
    events.insert(1)
    holder = events.on(database.session())
    granted = _hold_the_shard(holder)
    started = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        reading: Future[list[int]] = pool.submit(_reading, events, database, started)
        try:
            assert granted >= 0
            assert started.wait(20)
            # The other shards are not held.
            events.insert(2, shard_id=1)
            assert events.read(shard_id=1) == [2]
            with pytest.raises(TimeoutError):
                reading.result(0.5)
            assert len(events.run("select id from {outbox}").rows) == 1
        finally:
            holder.run("rollback transaction")
        assert reading.result(20) == [1]


def test_a_reader_that_waits_too_long_for_the_shard_is_refused(events: Events, database: Database) -> None:
    events.insert(1)
    holder = events.on(database.session())
    _hold_the_shard(holder)

    with pytest.raises(FeedBusyError, match="Try again"):
        events.feed.read(0)
    holder.run("rollback transaction")
    assert events.read() == [1]


def test_a_reader_at_the_head_takes_no_lock(events: Events, database: Database) -> None:
    events.insert(1)
    cursor = events.feed.read(0).cursor
    holder = events.on(database.session())
    _hold_the_shard(holder)

    assert events.feed.read(0, cursor).entries == []
    assert events.read() == [1]


def test_a_reader_that_dies_before_its_commit_leaves_the_events_to_the_next(
    events: Events, database: Database
) -> None:
    events.insert(1, 2)
    dying = database.session()
    dying.execute(Statement(f"begin transaction; exec {events.named('number')} 0, 0x00, 1"))
    dying.close()

    assert events.read() == [1, 2]
    assert len(_ulids(events)) == 2


def test_a_table_without_a_feed_is_named_with_the_command_that_sets_it_up(events: Events) -> None:
    from changefeed import Feed

    with pytest.raises(SetupError, match=r"app\.nothing has no feed.*setup-feed app\.nothing"):
        Feed(events.session, "app.nothing").read(0)
    with pytest.raises(SetupError, match=r"app\.nothing has no feed"):
        Feed(events.session, "app.nothing").wait(0, START, 1)


def test_a_table_of_a_feed_that_is_gone_is_named(events: Events) -> None:
    events.insert(1)
    events.run("drop table {state}")

    with pytest.raises(SetupError, match=r"state:.*python -m changefeed setup-feed"):
        events.feed.read(0)
