"""When a timer invokes its function: in time that the test controls, and between hosts that share a storage."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from outbox_relay.emulators.functions.crashing import Crash, CrashPoint, Victim
from outbox_relay.emulators.functions.errors import HostError, UnableToStart
from outbox_relay.emulators.functions.executor import Executor
from outbox_relay.emulators.functions.settings import Settings
from outbox_relay.emulators.functions.singleton import LockTimings, Singleton
from outbox_relay.emulators.functions.status import FunctionStatus
from outbox_relay.emulators.functions.storage import Storage
from outbox_relay.emulators.functions.timer import KEY, SystemClock, TimerListener, TimerTrigger
from outbox_relay.emulators.functions.worker.interface import IndexedFunction, Invocation, InvocationFailed
from packages.emulators.tests.integration.apps import eventually
from tests.support.watchdog import WATCHDOG_S

NOON = datetime(2026, 11, 23, 12, 0, 0, tzinfo=UTC)


class Clock(SystemClock):
    """A clock that waits let run, up to `end`: what waits beyond it waits for its event."""

    def __init__(self, moment: datetime, end: datetime) -> None:
        self.moment = moment
        self.end = end
        self.over = asyncio.Event()

    def now(self) -> datetime:
        return self.moment

    async def pause(self, seconds: float, *, until: asyncio.Event) -> bool:
        if self.moment + timedelta(seconds=seconds) > self.end:
            self.over.set()
            return await until.wait()
        self.moment += timedelta(seconds=seconds)
        await asyncio.sleep(0)
        return until.is_set()


class Function:
    """A worker with one function, which takes the times in `lasts_s`, the last of them again and again."""

    def __init__(self, clock: Clock, lasts_s: Sequence[float] = (0,)) -> None:
        self.begun: list[str] = []
        self.values: list[dict[str, Any]] = []
        self.behaviour: Callable[[], Awaitable[None]] | None = None
        self._clock = clock
        self._lasts_s = list(lasts_s)

    async def start(self) -> Sequence[IndexedFunction]:
        return ()

    async def invoke(self, invocation: Invocation, *, timeout_s: float | None) -> None:
        self.begun.append(self._clock.moment.strftime("%H:%M:%S"))
        self.values.append(json.loads(invocation.value))
        self._clock.moment += timedelta(seconds=self._lasts_s[0])
        if len(self._lasts_s) > 1:
            self._lasts_s.pop(0)
        if self.behaviour is not None:
            await self.behaviour()

    def kill(self) -> None: ...

    async def stop(self) -> None: ...


class Timer:
    """A timer's listener on a clock that ends a few minutes after its start."""

    def __init__(
        self,
        schedule: str = "0 * * * * *",
        *,
        start: datetime = NOON + timedelta(seconds=30),
        minutes: float = 3,
        lasts_s: Sequence[float] = (0,),
        storage: Storage | None = None,
        **binding: Any,
    ) -> None:
        self.clock = Clock(start, start + timedelta(minutes=minutes))
        self.function = Function(self.clock, lasts_s)
        self.status = FunctionStatus("tick")
        self.killed: list[str] = []
        self.crash = Crash({Victim.MACHINE: lambda: self.killed.append(self.clock.moment.strftime("%H:%M:%S"))})
        trigger = TimerTrigger.from_binding(
            "tick", {"schedule": schedule, "useMonitor": storage is not None, **binding}, Settings({})
        )
        self.executor = Executor(
            IndexedFunction("tick", {}, None),
            worker=self.function,
            reason="Timer fired",
            timeout_s=None,
            stopping=asyncio.Event(),
            status=self.status,
        )
        self.listener = TimerListener(
            "tick",
            trigger,
            executor=self.executor,
            storage=storage,
            status=self.status,
            crash=self.crash,
            clock=self.clock,
        )

    async def run(self) -> list[str]:
        """Start, let the time pass, and stop; returns when invocations began."""
        self.listener.start()
        async with asyncio.timeout(WATCHDOG_S):
            await self.clock.over.wait()
        assert await self.listener.stop(within_s=10)
        return self.function.begun


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path / "storage", tmp_path / "app")


async def test_a_timer_is_invoked_at_each_occurrence() -> None:
    timer = Timer()

    assert await timer.run() == ["12:01:00", "12:02:00", "12:03:00"]
    assert timer.function.values[0] == {
        "Schedule": {"AdjustForDST": True},
        "ScheduleStatus": None,
        "IsPastDue": False,
    }
    assert timer.status.invocations == 3


async def test_an_interval_counts_from_the_beginning_of_an_invocation() -> None:
    timer = Timer("00:00:40", lasts_s=[10])

    assert await timer.run() == ["12:01:10", "12:01:50", "12:02:30", "12:03:10"]
    assert timer.function.values[0]["Schedule"] == {"AdjustForDST": False}


@pytest.mark.parametrize(
    ("timer", "begun"),
    [
        pytest.param(
            {"minutes": 1.5, "runOnStartup": True}, ["12:00:30", "12:01:00", "12:02:00"], id="on startup"
        ),
        # Of 12:02 and 12:03, which the invocation passes, one is made up for, at its end.
        pytest.param(
            {"minutes": 4, "lasts_s": [150, 0]}, ["12:01:00", "12:03:30", "12:04:00"], id="a long invocation"
        ),
        # As seen of the real host.
        pytest.param(
            {"minutes": 2, "lasts_s": [57, 0], "runOnStartup": True},
            ["12:00:30", "12:01:27", "12:02:00"],
            id="one begun on startup that passes an occurrence",
        ),
    ],
)
async def test_what_an_invocation_missed_follows_at_once_and_only_once(
    timer: dict[str, Any], begun: list[str]
) -> None:
    listener = Timer(**timer)
    assert await listener.run() == begun
    assert not any(value["IsPastDue"] for value in listener.function.values)


async def test_a_function_that_fails_is_invoked_at_the_next_occurrence() -> None:
    timer = Timer(minutes=2)

    async def fail() -> None:
        raise InvocationFailed("RuntimeError: no")

    timer.function.behaviour = fail

    assert await timer.run() == ["12:01:00", "12:02:00"]
    assert timer.status.failures == 2


async def test_a_schedule_without_another_occurrence_is_never_due() -> None:
    timer = Timer("0 0 0 30 2 *")
    timer.listener.start()

    assert await timer.listener.stop(within_s=10)
    assert timer.function.begun == []


async def test_no_invocation_begins_after_the_end_and_a_running_one_is_awaited() -> None:
    timer, begun, release = Timer(runOnStartup=True), asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        begun.set()
        await release.wait()

    timer.function.behaviour = hold
    timer.listener.start()
    await begun.wait()
    assert timer.status.invoking == [KEY]

    assert not await timer.listener.stop(within_s=0)
    release.set()
    assert await timer.listener.stop(within_s=10)
    assert timer.function.begun == ["12:00:30"]


async def test_a_running_invocation_that_is_abandoned_leaves_no_task() -> None:
    timer, begun = Timer(runOnStartup=True), asyncio.Event()

    async def hold() -> None:
        begun.set()
        await asyncio.Event().wait()

    timer.function.behaviour = hold
    timer.listener.start()
    await begun.wait()

    assert not await timer.listener.stop(within_s=0)
    await timer.listener.abandon()

    assert timer.listener._running is not None
    assert timer.listener._running.cancelled()


async def test_an_occurrence_missed_between_two_hosts_is_past_due_once(storage: Storage) -> None:
    first = Timer(minutes=1, storage=storage)
    assert await first.run() == ["12:01:00"]
    assert first.function.values[0]["ScheduleStatus"] == {
        "Last": "0001-01-01T00:00:00",
        "Next": "2026-11-23T12:01:00+00:00",
        "LastUpdated": "2026-11-23T12:00:30+00:00",
    }

    second = Timer(start=NOON + timedelta(minutes=10, seconds=5), minutes=1, storage=storage)

    assert await second.run() == ["12:10:05", "12:11:00"]
    assert [value["IsPastDue"] for value in second.function.values] == [True, False]
    assert second.function.values[1]["ScheduleStatus"] == {
        "Last": "2026-11-23T12:10:05+00:00",
        "Next": "2026-11-23T12:11:00+00:00",
        "LastUpdated": "2026-11-23T12:10:05+00:00",
    }


async def test_a_timer_that_was_never_invoked_is_past_due_after_its_first_occurrence(storage: Storage) -> None:
    await Timer("0 0 13 * * *", minutes=1, storage=storage).run()

    late = Timer("0 0 13 * * *", start=NOON + timedelta(hours=2), minutes=1, storage=storage)

    assert await late.run() == ["14:00:00"]
    assert late.function.values[0]["IsPastDue"] is True


async def test_a_missed_occurrence_comes_before_run_on_startup_and_instead_of_it(storage: Storage) -> None:
    await Timer(minutes=1, storage=storage).run()

    timer = Timer(start=NOON + timedelta(minutes=9), minutes=0.5, storage=storage, runOnStartup=True)

    assert await timer.run() == ["12:09:00"]
    assert timer.function.values[0]["IsPastDue"] is True


async def test_a_host_that_is_back_in_time_misses_nothing(storage: Storage) -> None:
    await Timer(minutes=1, storage=storage).run()

    assert await Timer(start=NOON + timedelta(seconds=110), minutes=1, storage=storage).run() == ["12:02:00"]


async def test_occurrences_of_a_schedule_that_is_new_were_not_missed(storage: Storage) -> None:
    await Timer(minutes=1, storage=storage).run()

    changed = Timer("30 */2 * * * *", start=NOON + timedelta(minutes=9), minutes=2, storage=storage)

    assert await changed.run() == ["12:10:30"]
    assert changed.function.values[0]["IsPastDue"] is False


async def test_a_schedule_of_less_than_a_minute_stores_no_status(storage: Storage) -> None:
    frequent = Timer("*/20 * * * * *", minutes=0.5, storage=storage)
    assert await frequent.run() == ["12:00:40", "12:01:00"]

    late = Timer("*/20 * * * * *", start=NOON + timedelta(minutes=5), minutes=0.4, storage=storage)

    assert await late.run() == ["12:05:20"]
    assert storage.read_status("tick") is None


async def test_a_status_that_was_not_written_before_the_crash_makes_the_occurrence_past_due(
    storage: Storage,
) -> None:
    timer = Timer(minutes=1, storage=storage)

    class Killed(BaseException):
        pass

    def kill() -> None:
        raise Killed

    timer.crash._killers = {Victim.MACHINE: kill}
    timer.crash.arm(CrashPoint.BEFORE_CHECKPOINT)
    timer.listener.start()
    assert timer.listener._running is not None
    await asyncio.wait({timer.listener._running}, timeout=WATCHDOG_S)
    assert isinstance(timer.listener._running.exception(), Killed)

    again = Timer(start=NOON + timedelta(minutes=1, seconds=20), minutes=0.5, storage=storage)

    assert await again.run() == ["12:01:20"]
    assert again.function.values[0]["IsPastDue"] is True


async def test_a_timer_whose_status_has_no_storage_cannot_start() -> None:
    with pytest.raises(UnableToStart, match="--storage"):
        Timer(useMonitor=True).listener.start()


def test_a_schedule_may_be_a_setting_and_a_wrong_one_is_refused() -> None:
    binding = {"schedule": "%SCHEDULE%", "runOnStartup": True}
    trigger = TimerTrigger.from_binding("tick", binding, Settings({"SCHEDULE": "0 30 9 * * *"}))
    assert (str(trigger.schedule), trigger.run_on_startup, trigger.uses_monitor) == (
        "Cron: '0 30 9 * * *'",
        True,
        True,
    )

    with pytest.raises(HostError, match="function tick: '%SCHEDULE%' does not resolve to a value"):
        TimerTrigger.from_binding("tick", binding, Settings({}))
    with pytest.raises(HostError, match="function tick: The schedule expression 'daily' was not recognized"):
        TimerTrigger.from_binding("tick", {"schedule": "daily"}, Settings({}))


class Inner:
    """A listener that notes when it runs."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.runs = False
        self.ends = True

    def start(self) -> None:
        self.runs = True
        self.changed.set()

    async def stop(self, *, within_s: float) -> bool:
        self.runs = False
        self.changed.set()
        return self.ends

    async def abandon(self) -> None:
        self.changed.set()


class Host:
    """One of several hosts that want the same lock."""

    def __init__(self, storage: Storage | None, period_s: float) -> None:
        self.inner = Inner()
        self.stopping = asyncio.Event()
        self.held: list[bool] = []
        self.singleton = Singleton(
            self.inner,
            storage=storage,
            timings=LockTimings(period_s, 0.02),
            stopping=self.stopping,
            status=FunctionStatus("tick"),
            held=self.held.append,
        )

    async def runs(self, expected: bool) -> None:
        async with asyncio.timeout(WATCHDOG_S):
            while self.inner.runs is not expected:
                self.inner.changed.clear()
                await self.inner.changed.wait()

    async def stop(self) -> None:
        self.stopping.set()
        await self.singleton.stop(within_s=1)

    async def kill(self) -> None:
        """End without releasing anything."""
        for task in self.singleton._tasks:
            task.cancel()
        await asyncio.gather(*self.singleton._tasks, return_exceptions=True)


@pytest.fixture
async def hosts(storage: Storage) -> AsyncIterator[list[Host]]:
    made = [Host(storage, period_s) for period_s in (0.2, 0.2)]
    yield made
    for host in made:
        await host.stop()


def lock_file(folder: Path, name: str) -> Path:
    (found,) = folder.glob(f"storage/locks/*/{name}")
    return found


async def test_one_of_several_hosts_has_the_timer_and_hands_it_over_when_it_stops(
    hosts: list[Host], tmp_path: Path
) -> None:
    first, second = hosts
    assert await first.singleton.start() is True
    assert await second.singleton.start() is False
    file = lock_file(tmp_path, "tick.Listener")
    begun = file.read_text()
    await eventually(lambda: file.read_text() not in ("", begun))
    assert (first.inner.runs, second.inner.runs) == (True, False)

    await first.stop()
    await second.runs(True)
    assert first.inner.runs is False


async def test_the_lock_of_a_killed_host_lasts_until_it_expires_even_for_one_of_its_name(
    storage: Storage,
) -> None:
    killed, again = Host(storage, 0.3), Host(storage, 0.3)
    await killed.singleton.start()
    await killed.kill()

    assert await again.singleton.start() is False
    await again.runs(True)
    await again.stop()


async def test_a_host_that_was_frozen_for_longer_than_its_lock_ends_its_listener(storage: Storage) -> None:
    frozen = Host(storage, 0.2)
    await frozen.singleton.start()
    assert storage.try_lock("tick.Listener", frozen.singleton._owner, -1.0)
    assert storage.try_lock("tick.Listener", "another host", 60.0)

    await frozen.runs(False)
    assert frozen.held == [True, False]
    await frozen.stop()
    assert not storage.try_lock("tick.Listener", "a third host", 60.0)


async def test_an_invocation_that_does_not_end_leaves_the_lock_to_expire(storage: Storage) -> None:
    host = Host(storage, 60.0)
    await host.singleton.start()
    host.inner.ends = False
    await host.stop()

    assert not storage.try_lock("tick.Listener", "another host", 60.0)


async def test_without_a_storage_each_host_has_the_timer() -> None:
    hosts = [Host(None, 60.0) for _ in range(2)]

    assert [await host.singleton.start() for host in hosts] == [True, True]
    for host in hosts:
        await host.stop()


def test_a_lock_that_was_half_written_is_free(storage: Storage, tmp_path: Path) -> None:
    assert storage.try_lock("tick", "one", 60.0)
    lock_file(tmp_path, "tick").write_text('{"owner": "on')

    assert storage.try_lock("tick", "two", 60.0)
    assert not storage.try_lock("tick", "one", 60.0)
