"""The sweeper on a server with T-SQL: numbers for committed changes, and long polls."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from outbox_relay.changefeed import ArgumentError, IsolationError, Session, SetupError
from outbox_relay.changefeed.statements import Statement
from tests.changefeed.sqlserver.backend import TsqlDatabase

_START = 2_000_000_000_000_000
_feeds = itertools.count(100)
_CHANGE = (
    "set nocount on; declare @i int = 0, @change_id bigint; while @i < ? begin "
    "set @change_id = next value for changefeed.change_id; "
    "insert into changefeed.change (feed_id, shard, change_id) values (?, ?, @change_id); set @i = @i + 1; end"
)
_LOOP = (
    "declare @changes int, @lag bigint, @iterations int; exec changefeed.sweep_loop @sweep_group = ?, "
    "@wait_milliseconds = ?, @duration_milliseconds = ?, @sleep_milliseconds = 20, "
    "@change_count = @changes output, @max_lag_milliseconds = @lag output, @iterations = @iterations output; "
    "select @changes, @lag, @iterations"
)


class Changes:
    """A feed with two shards and a sweep group of its own."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.feed_id = next(_feeds)
        self.run("insert into changefeed.feed (feed_id, name) values (?, ?)", self.feed_id, f"feed {self.feed_id}")
        for shard in (0, 1):
            self.run(
                "insert into changefeed.shard (feed_id, shard, sweep_group) values (?, ?, ?)",
                self.feed_id,
                shard,
                self.feed_id,
            )

    def run(self, sql: str, *parameters: object, session: Session | None = None) -> list[tuple[object, ...]]:
        """The rows that a statement returns."""
        result = (session or self.session).execute(Statement(sql, parameters))
        return [tuple(row) for row in result.rows]

    def insert(self, count: int = 1, *, shard: int = 0, session: Session | None = None) -> None:
        """Insert changes."""
        self.run(_CHANGE, count, self.feed_id, shard, session=session)

    def sweep(self) -> tuple[object, ...]:
        """One pass; the number of changes and the lag in milliseconds."""
        return self.run(
            "declare @changes int, @lag bigint; exec changefeed.sweep ?, @changes output, @lag output; "
            "select @changes, @lag",
            self.feed_id,
        )[0]

    def numbers(self, shard: int = 0) -> list[object]:
        """The numbers in the order of change_id, less the start; None for those without."""
        rows = self.run(
            "select change_sequence_number - ? from changefeed.change where feed_id = ? and shard = ? "
            "order by change_id",
            _START,
            self.feed_id,
            shard,
        )
        return [row[0] for row in rows]


@pytest.fixture
def changes(database: TsqlDatabase) -> Changes:
    """A feed with two shards."""
    return Changes(database.session())


def test_committed_changes_are_numbered_without_gaps_in_the_order_of_their_ids(changes: Changes) -> None:
    changes.insert(3)
    changes.insert(2, shard=1)
    swept, lag = changes.sweep()
    changes.insert(1)
    changes.sweep()

    assert swept == 5
    assert isinstance(lag, int)
    assert lag >= 0
    assert changes.numbers() == [1, 2, 3, 4]
    assert changes.numbers(shard=1) == [1, 2]
    assert changes.run(
        "select last_change_sequence_number - ? from changefeed.shard where feed_id = ? order by shard",
        _START,
        changes.feed_id,
    ) == [(4,), (2,)]


def test_a_change_that_is_rolled_back_leaves_no_gap(changes: Changes) -> None:
    changes.insert()
    changes.run("begin transaction")
    changes.insert()
    changes.run("rollback transaction")
    changes.insert()
    changes.sweep()

    assert changes.numbers() == [1, 2]


def test_a_change_that_commits_late_is_numbered_after_those_that_were_swept(
    changes: Changes, database: TsqlDatabase
) -> None:
    late = database.session()
    changes.run("begin transaction", session=late)
    changes.insert(session=late)
    changes.insert()
    assert changes.sweep()[0] == 1
    changes.run("commit transaction", session=late)
    assert changes.sweep()[0] == 1

    assert changes.numbers() == [2, 1]


def test_a_pass_numbers_a_thousand_changes_of_a_shard(changes: Changes) -> None:
    changes.run("begin transaction")
    changes.insert(1001)
    changes.run("commit transaction")

    assert [changes.sweep()[0] for _ in range(3)] == [1000, 1, 0]
    assert changes.numbers() == list(range(1, 1002))


def test_a_sweep_leaves_other_groups_alone(changes: Changes, database: TsqlDatabase) -> None:
    other = Changes(database.session())
    other.insert()
    changes.insert()
    changes.sweep()

    assert other.numbers() == [None]
    assert changes.numbers() == [1]


def test_an_open_transaction_is_refused_and_stays_open(changes: Changes) -> None:
    changes.run("begin transaction")
    changes.insert()
    with pytest.raises(IsolationError):
        changes.sweep()
    with pytest.raises(IsolationError):
        changes.run(_LOOP, changes.feed_id, 0, 0)

    assert changes.run("select @@trancount") == [(1,)]


@pytest.mark.parametrize("level", ["serializable", "repeatable read"])
def test_a_sweep_does_not_wait_for_an_open_writer_of_any_isolation_level(
    changes: Changes, database: TsqlDatabase, level: str
) -> None:
    changes.insert()
    writer = database.session()
    changes.run(f"set transaction isolation level {level}; begin transaction", session=writer)
    changes.insert(session=writer)
    try:
        began = time.monotonic()
        assert changes.sweep()[0] == 1
        assert time.monotonic() - began < 5
    finally:
        changes.run("rollback transaction; set transaction isolation level read committed", session=writer)


@contextmanager
def _cached_sequence(session: Session) -> Iterator[None]:
    def create(cache: str) -> None:
        (next_id,) = session.execute(Statement("select next value for changefeed.change_id")).rows[0]
        session.execute(Statement("drop sequence changefeed.change_id"))
        session.execute(
            Statement(
                f"create sequence changefeed.change_id as bigint start with {next_id} increment by 1 {cache}"
            )
        )

    babelfish = session.execute(Statement("select serverproperty('Babelfish')")).rows[0][0] == 1
    create("cache 100")
    try:
        yield
    finally:
        create("" if babelfish else "no cache")


def test_a_sequence_with_a_cache_is_refused(changes: Changes) -> None:
    with _cached_sequence(changes.session):
        changes.insert()
        with pytest.raises(SetupError, match="NO CACHE"):
            changes.sweep()
    assert changes.sweep()[0] == 1


def test_the_loop_sweeps_until_its_time_is_over(changes: Changes) -> None:
    changes.insert(2)

    ((swept, _, iterations),) = changes.run(_LOOP, changes.feed_id, 0, 300)

    assert swept == 2
    assert isinstance(iterations, int)
    assert iterations >= 1
    assert changes.numbers() == [1, 2]


def test_a_second_loop_waits_and_takes_over(changes: Changes, database: TsqlDatabase) -> None:
    holder, waiting = database.session(), database.session()
    resource = f"changefeed.sweep_loop/{changes.feed_id}"
    take = "exec sp_getapplock @Resource = ?, @LockMode = 'Exclusive', @LockOwner = 'Session', @LockTimeout = 0"
    changes.run(take, resource, session=holder)
    changes.insert()
    assert changes.run(_LOOP, changes.feed_id, 100, 300) == [(0, 0, 0)]
    with ThreadPoolExecutor(1) as pool:
        taking_over = pool.submit(changes.run, _LOOP, changes.feed_id, 60_000, 0, session=waiting)
        assert changes.numbers() == [None]
        changes.run("exec sp_releaseapplock @Resource = ?, @LockOwner = 'Session'", resource, session=holder)
        assert taking_over.result(60)[0][0] == 1


def test_the_loop_gives_back_its_locks(changes: Changes, database: TsqlDatabase) -> None:
    changes.insert()
    changes.run(_LOOP, changes.feed_id, 0, 0)

    assert changes.run(_LOOP, changes.feed_id, 0, 0, session=database.session())[0][2] == 1


def test_the_loops_arguments_are_checked(changes: Changes) -> None:
    with pytest.raises(ArgumentError, match="wait_milliseconds"):
        changes.run(_LOOP, changes.feed_id, -1, 0)


def test_a_long_poll_is_woken_when_a_change_is_numbered(changes: Changes, database: TsqlDatabase) -> None:
    looping, polling = database.session(), database.session()
    poll = (
        "exec changefeed.longpoll @feed_id = ?, @shard = 0, @change_sequence_number = ?, @timeout_milliseconds = ?"
    )
    with ThreadPoolExecutor(2) as pool:
        loop = pool.submit(changes.run, _LOOP, changes.feed_id, 0, 15_000, session=looping)
        # Until the loop holds the lock of the position.
        position = f"changefeed.longpoll/{changes.feed_id}/0/{_START}"
        held = f"select applock_test('public', '{position}', 'Shared', 'Session')"
        while changes.run(held) == [(1,)]:
            assert not loop.done(), loop.result()
            time.sleep(0.05)
        waiting = pool.submit(changes.run, poll, changes.feed_id, _START, 60_000, session=polling)
        with pytest.raises(TimeoutError):
            waiting.result(1)
        changes.insert()
        waiting.result(60)

        assert changes.numbers() == [1]
        assert not loop.done()
        # A poll behind the head returns at once.
        changes.run(poll, changes.feed_id, _START, 60_000)
        assert loop.result(60)[0][0] == 1
