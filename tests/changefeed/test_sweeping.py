"""The sweeper: gapless numbers for what was committed, in an order that loses nothing."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import psycopg
import pytest
from psycopg import errors

from outbox_relay import changefeed
from outbox_relay.changefeed.statements import Statement
from tests.changefeed.numbered import FEED, START, Service, append, service, until

__all__ = ["service"]

_SWEEP = "changefeed.sweep(int)"


def weaken(service: Service, function: str, old: str, new: str) -> None:
    """Replace a piece of a function's body."""
    ((definition,),) = service.rows("select pg_get_functiondef(%s::regprocedure)", function)
    assert old in definition
    service.owner.execute(definition.replace(old, new))


def test_numbers_have_no_gaps_and_follow_the_change_ids(service: Service) -> None:
    appended = [service.append() for _ in range(5)]

    swept = changefeed.sweep(service.session)

    assert (swept.change_count, swept.iterations) == (5, 1)
    assert service.numbers() == [(change_id, number) for number, change_id in enumerate(appended, 1)]


def test_each_shard_counts_for_itself_from_where_it_was_set_to_start(service: Service) -> None:
    service.owner.execute(
        "insert into changefeed.shard (feed_id, shard, last_change_sequence_number) values (37, 7, 99)"
    )
    for shard in (0, 1, 7, 0):
        service.append(shard=shard)

    changefeed.sweep(service.session)

    given = service.rows("select shard, change_sequence_number from changefeed.change order by 1, 2")
    assert given == [(0, START + 1), (0, START + 2), (1, START + 1), (7, 100)]


def test_a_change_at_a_time_that_is_no_time_is_numbered(service: Service) -> None:
    changes = []
    for moment in ("infinity", "-infinity", "4713-01-01 BC", "294276-12-31"):
        changes += [service.append(), service.append()]
        service.owner.execute(
            f"update changefeed.change set inserted_at = '{moment}' where change_id = {changes[-2]}".encode()
        )

        assert changefeed.sweep(service.session).change_count == 2, moment
        assert service.numbers() == [(change, number) for number, change in enumerate(changes, 1)], moment


def test_a_change_that_was_rolled_back_leaves_no_gap(service: Service) -> None:
    first = service.append()
    with service.connect() as rolled_back:
        append(rolled_back)
        rolled_back.rollback()
    last = service.append()

    changefeed.sweep(service.session)

    assert service.numbers() == [(first, 1), (last, 2)]


def test_a_change_that_is_committed_late_is_numbered_late_and_read(service: Service) -> None:
    slow = service.connect()
    early = append(slow, "slow")
    late = service.append("quick")
    changefeed.sweep(service.session)
    reader = changefeed.Changes(service.session)
    page = reader.read(FEED, 0)
    slow.commit()
    changefeed.sweep(service.session)

    assert early < late
    assert [change.change_id for change in page.changes] == [late]
    assert [change.change_id for change in reader.read(FEED, 0, page.cursor).changes] == [early]
    assert service.numbers() == [(late, 1), (early, 2)]


def test_control_a_reader_with_a_cursor_over_change_ids_skips_that_change(service: Service) -> None:
    slow = service.connect()
    early = append(slow, "slow")
    cursor = service.append("quick")
    slow.commit()

    behind = service.rows("select change_id from app.event where change_id > %s order by change_id", cursor)

    assert early < cursor
    assert behind == []


def test_numbers_follow_real_time_where_one_pass_sees_both(service: Service) -> None:
    connections = [service.connect() for _ in range(4)]
    for connection in connections * 5:
        append(connection)
        connection.commit()

    changefeed.sweep(service.session)

    versions = [
        version
        for (version,) in service.rows(
            "select e.version from changefeed.change c join app.event e on e.change_id = c.change_id "
            "order by c.change_sequence_number"
        )
    ]
    assert versions == list(range(1, 21))


def test_a_cached_sequence_is_refused(service: Service) -> None:
    service.owner.execute("alter sequence changefeed.change_id cache 10")
    service.append()

    with pytest.raises(changefeed.SetupError, match=r"change_id has a cache.*CACHE 1"):
        changefeed.sweep(service.session)

    assert service.numbers() == []


def test_control_a_cached_sequence_breaks_the_order_of_commits(service: Service) -> None:
    weaken(service, _SWEEP, "seqcache <> 1", "seqcache < 1")
    service.owner.execute("alter sequence changefeed.change_id cache 10")
    one, other = service.connect(), service.connect()
    for connection in (one, other, one):
        append(connection)
        connection.commit()

    changefeed.sweep(service.session)

    versions = service.rows(
        "select e.version from changefeed.change c join app.event e on e.change_id = c.change_id "
        "order by c.change_sequence_number"
    )
    assert versions == [(1,), (3,), (2,)]


def test_a_pass_numbers_at_most_a_thousand_changes_of_each_shard(service: Service) -> None:
    for shard in (0, 1):
        service.owner.execute(
            "insert into changefeed.change (feed_id, shard, change_id) "
            "select 37, %s, change_id from generate_series(1001, 1, -1) as change_id",
            (shard,),
        )
    # Whatever the plan is: no index has them in order here.
    for setting in ("enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan"):
        service.owner.execute(f"alter function {_SWEEP} set {setting} = off")

    counts = [changefeed.sweep(service.session).change_count for _ in range(3)]

    assert counts == [2000, 2, 0]
    assert service.numbers(1) == [(number, number) for number in range(1, 1002)]


def test_a_second_pass_waits_for_the_first_one_and_gives_no_number_anew(service: Service) -> None:
    with ThreadPoolExecutor(2) as threads:
        slow = service.connect()
        early = append(slow, "slow")
        late = service.append("quick")
        sessions = [service.open_session(), service.open_session()]
        holder = service.connect()
        holder.execute("select 1 from changefeed.change where change_id = %s for update", (late,))
        first = threads.submit(changefeed.sweep, sessions[0])
        until(lambda: service.blocked(service.pid(sessions[0])), "the first pass to wait for the row")
        slow.commit()
        second = threads.submit(changefeed.sweep, sessions[1])
        until(lambda: service.blocked(service.pid(sessions[1])), "the second pass to wait for the first one")
        holder.rollback()

        assert first.result(20).change_count == 1
        assert second.result(20).change_count == 1
    assert service.numbers() == [(late, 1), (early, 2)]


def test_a_pass_that_is_killed_has_numbered_nothing(service: Service) -> None:
    with ThreadPoolExecutor(1) as threads:
        appended = [service.append(), service.append()]
        killed = service.open_session()
        holder = service.connect()
        holder.execute("select 1 from changefeed.change where change_id = %s for update", (appended[1],))
        sweeping = threads.submit(changefeed.sweep, killed)
        until(lambda: service.blocked(service.pid(killed)), "the pass to wait for the row")

        service.kill(service.pid(killed))

        with pytest.raises(changefeed.DatabaseError) as failed:
            sweeping.result(20)
        assert failed.value.lost
        holder.rollback()
    assert service.numbers() == []
    changefeed.sweep(service.session)
    assert service.numbers() == [(appended[0], 1), (appended[1], 2)]


def test_a_pass_that_waits_too_long_is_reported_as_busy(service: Service) -> None:
    service.owner.execute("alter function changefeed.sweep(int) set lock_timeout = '100ms'")
    service.append()
    other = service.connect()
    other.execute("select 1 from changefeed.shard for no key update")

    with pytest.raises(changefeed.FeedBusyError, match="again"):
        changefeed.sweep(service.session)


def test_writers_do_not_wait_for_a_pass(service: Service) -> None:
    other = service.connect()
    service.append()
    other.execute("select * from changefeed.sweep(0)")

    service.append()

    other.commit()
    changefeed.sweep(service.session)
    assert [number for _, number in service.numbers()] == [1, 2]


def test_an_idle_pass_takes_no_lock(service: Service) -> None:
    other = service.connect()
    other.execute("select 1 from changefeed.shard for update")

    assert changefeed.sweep(service.session).change_count == 0


def test_a_pass_refuses_a_snapshot_that_is_older_than_its_locks(service: Service) -> None:
    for level in ("repeatable read", "serializable"):
        service.session.execute(Statement(f"set default_transaction_isolation = '{level}'"))

        with pytest.raises(changefeed.IsolationError, match="READ COMMITTED"):
            changefeed.sweep(service.session)


def test_a_change_for_an_unknown_shard_is_refused_instead_of_never_numbered(service: Service) -> None:
    with pytest.raises(errors.ForeignKeyViolation):
        service.append(shard=5)


def test_a_group_has_its_own_shards(service: Service) -> None:
    service.owner.execute("update changefeed.shard set sweep_group = 3 where shard = 1")
    service.append(shard=0)
    service.append(shard=1)

    assert changefeed.sweep(service.session, 3).change_count == 1

    assert (len(service.numbers(0)), len(service.numbers(1))) == (0, 1)


def test_a_writer_needs_no_more_than_two_rights(service: Service) -> None:
    service.owner.execute(
        "create role writing login; grant usage on schema changefeed, app to writing;"
        "grant usage on sequence changefeed.change_id to writing; grant insert on changefeed.change to writing;"
        "grant select, insert on app.event to writing"
    )
    with service.connect(user="writing") as connection:
        append(connection)
    with service.connect(user="writing") as connection, pytest.raises(errors.InsufficientPrivilege):
        connection.execute("select * from changefeed.sweep(0)")

    assert changefeed.sweep(service.session).change_count == 1


class Loop:
    """A sweep loop in a thread."""

    def __init__(self, service: Service, threads: ThreadPoolExecutor, duration_s: float = 20) -> None:
        self.session = service.open_session()
        self.pid = service.pid(self.session)
        self.stop = threading.Event()
        self.result: Future[changefeed.Swept] = threads.submit(
            changefeed.sweep_loop, self.session, wait_s=20, duration_s=duration_s, stop=self.stop
        )

    def end(self) -> changefeed.Swept:
        self.stop.set()
        return self.result.result(20)


def test_one_sweeper_is_at_work_and_another_takes_over_when_it_is_killed(service: Service) -> None:
    with ThreadPoolExecutor(2) as threads:
        first = Loop(service, threads)
        until(lambda: service.sweeper() == first.pid, "the first sweeper")
        second = Loop(service, threads)
        until(lambda: service.blocked(second.pid), "the second sweeper to wait")
        before = service.append()
        until(lambda: service.numbers() == [(before, 1)], "the first sweeper's number")
        assert service.sweeper() == first.pid

        service.kill(first.pid)

        until(lambda: service.sweeper() == second.pid, "the second sweeper to take over")
        after = service.append()
        until(lambda: service.numbers() == [(before, 1), (after, 2)], "the second sweeper's number")
        with pytest.raises(changefeed.DatabaseError):
            first.result.result(20)
        assert second.end().change_count == 1
    assert service.sweeper() is None


def test_a_sweeper_that_only_waits_returns_without_a_pass(service: Service) -> None:
    with ThreadPoolExecutor(1) as threads:
        first = Loop(service, threads)
        until(lambda: service.sweeper() == first.pid, "the first sweeper")

        assert changefeed.sweep_loop(service.session, wait_s=0.05) == changefeed.Swept(0, 0, 0)

        first.end()


def test_a_loop_returns_when_its_time_is_over_and_gives_the_lock_back(service: Service) -> None:
    swept = changefeed.sweep_loop(service.session, duration_s=0.2)

    assert swept.iterations >= 1
    assert service.sweeper() is None


def test_a_loop_that_fails_gives_the_lock_back(service: Service) -> None:
    service.owner.execute("alter sequence changefeed.change_id cache 10")
    service.append()

    with pytest.raises(changefeed.SetupError):
        changefeed.sweep_loop(service.session, duration_s=5)

    assert service.sweeper() is None


def test_a_loop_is_woken_by_commits_and_makes_few_passes(service: Service) -> None:
    with ThreadPoolExecutor(1) as threads:
        loop = Loop(service, threads)
        until(lambda: service.sweeper() == loop.pid, "the sweeper")
        for number in range(1, 11):
            service.append()
            until(lambda number=number: len(service.numbers()) == number, "the number")  # type: ignore[misc]
        swept = loop.end()

    assert swept.change_count == 10
    # One that finds the change, one that finds nothing more; and a few each second in between.
    assert swept.iterations <= 40


def test_a_loop_that_is_woken_by_commits_does_not_look_in_between(service: Service) -> None:
    assert changefeed.sweep_loop(service.session, duration_s=0.5, sleep_s=0.001).iterations <= 3


def test_a_group_that_notifies_nobody_is_looked_at_again_and_again(service: Service) -> None:
    service.owner.execute("update changefeed.shard set longpoll = 0")
    listener = service.connect(autocommit=True)
    listener.execute('listen "changefeed:sweep:0"')
    listener.execute('listen "changefeed:change:37:0"')
    with ThreadPoolExecutor(1) as threads:
        loop = Loop(service, threads)
        until(lambda: service.sweeper() == loop.pid, "the sweeper")
        service.append()
        until(service.numbers, "the number")
        loop.end()

    assert list(listener.notifies(timeout=0.2)) == []


async def test_the_async_loop_sweeps_until_its_time_is_over(service: Service) -> None:
    service.append()
    session = await changefeed.connect_async(service.url)
    try:
        swept = await changefeed.sweep_loop_async(session, duration_s=0.2)
        assert (await changefeed.sweep_async(session)).change_count == 0
    finally:
        await session.close()

    assert swept.change_count == 1
    assert service.sweeper() is None


@pytest.mark.parametrize("waits", [False, True])
async def test_a_task_that_is_cancelled_keeps_no_lock(service: Service, waits: bool) -> None:
    session = await changefeed.connect_async(service.url)
    other = service.connect(autocommit=True)
    try:
        if waits:
            other.execute("select changefeed.become_sweeper(0, 0)")
        task = asyncio.create_task(changefeed.sweep_loop_async(session, duration_s=20))
        pid = service.pid(session)
        state = (
            "select 1 from pg_stat_activity where pid = %s and (wait_event = 'advisory') = %s and query like %s"
        )
        expected = (pid, True, "%become_sweeper%") if waits else (pid, False, "%sweep(%")
        await asyncio.to_thread(until, lambda: service.rows(state, *expected), "the loop")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        other.close()
        await asyncio.to_thread(until, lambda: service.sweeper() is None, "the lock to be free")
        # The session is of use as before.
        assert (await changefeed.sweep_loop_async(session, duration_s=0.1)).iterations > 0
    finally:
        await session.close()


def test_the_procedure_sweeps_with_the_parameters_of_the_document(service: Service) -> None:
    service.append()
    call = "call changefeed.sweep_loop(0, wait_milliseconds => 100, duration_milliseconds => 200)"

    ((count, lag_ms, iterations),) = service.rows(call)

    assert (count, service.sweeper()) == (1, None)
    assert lag_ms >= 0
    assert iterations >= 2
    with service.connect() as other:
        other.execute("select changefeed.become_sweeper(0, 0)")
        assert service.rows(call) == [(0, 0, 0)]


def test_the_procedure_gives_the_lock_back_when_it_fails(service: Service) -> None:
    service.owner.execute("alter sequence changefeed.change_id cache 10")
    service.append()
    with pytest.raises(psycopg.Error, match="has a cache"):
        service.rows("call changefeed.sweep_loop(0)")
    assert service.sweeper() is None

    with service.connect() as in_transaction, pytest.raises(errors.InvalidTransactionTermination):
        in_transaction.execute("call changefeed.sweep_loop(0)")
    assert service.sweeper() is None
