"""The timer trigger: its binding, and the listener that invokes a function when its schedule is due."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any

from outbox_relay.emulators.functions.crashing import Crash, CrashPoint
from outbox_relay.emulators.functions.errors import HostError, UnableToStart
from outbox_relay.emulators.functions.executor import Executor
from outbox_relay.emulators.functions.pause import pause
from outbox_relay.emulators.functions.schedules import Schedule, localized, parse_schedule
from outbox_relay.emulators.functions.settings import Settings
from outbox_relay.emulators.functions.status import FunctionStatus
from outbox_relay.emulators.functions.storage import ScheduleStatus, Storage

KEY = "timer"
"""Name of a timer in the status, where a Cosmos DB trigger has the tokens of its leases."""

_NEXT_OCCURRENCES = 5
_NEVER = "0001-01-01T00:00:00"

logger = logging.getLogger(__name__)


class SystemClock:
    """The time of this machine, and waits by it."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def pause(self, seconds: float, *, until: asyncio.Event) -> bool:
        """Wait that long, or until the event is set; returns whether it was set."""
        return await pause(seconds, until=until)


@dataclass(frozen=True, slots=True)
class TimerTrigger:
    """A timer with its expression resolved. `uses_monitor` is whether its status is stored."""

    schedule: Schedule
    run_on_startup: bool
    uses_monitor: bool

    @classmethod
    def from_binding(
        cls, function: str, binding: Mapping[str, Any], settings: Settings, zone: tzinfo = UTC
    ) -> TimerTrigger:
        """Read a binding, with the defaults of TimerTriggerAttribute of Azure/azure-webjobs-sdk-extensions.

        Raises:
            HostError: The schedule is wrong, or names a setting that is missing.
        """
        try:
            schedule = parse_schedule(settings.resolve(str(binding.get("schedule") or "")), zone)
        except HostError as error:
            raise HostError(f"function {function}: {error}") from error
        return cls(
            schedule,
            run_on_startup=str(binding.get("runOnStartup")).casefold() == "true",
            # No status is stored more often than each minute (TimerSchedule.Create).
            uses_monitor=str(binding.get("useMonitor")).casefold() != "false" and not schedule.is_frequent,
        )


class TimerListener:
    """Invokes a function at each occurrence, one invocation at a time.

    As TimerListener of Azure/azure-webjobs-sdk-extensions: the next occurrence is the first one after an
    invocation's beginning. Of those that a long invocation misses, one follows at once.
    """

    def __init__(
        self,
        name: str,
        trigger: TimerTrigger,
        *,
        executor: Executor,
        storage: Storage | None,
        status: FunctionStatus,
        crash: Crash,
        clock: SystemClock | None = None,
    ) -> None:
        self._name = name
        self._trigger = trigger
        self._executor = executor
        self._storage = storage
        self._status = status
        self._crash = crash
        self._clock = clock or SystemClock()
        self._ended = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Invoke at once if an occurrence was missed or the trigger asks for it, then at each occurrence.

        Raises UnableToStart if the status cannot be stored.
        """
        schedule, moment = self._trigger.schedule, self._now()
        stored = self._checked(moment) if self._trigger.uses_monitor else None
        missed = stored.next if stored is not None and stored.next and moment > stored.next else None
        state = stored or ScheduleStatus(None, schedule.after(moment), None)
        logger.info(
            "The next %d occurrences of the '%s' schedule (%s) will be:\n%s",
            _NEXT_OCCURRENCES,
            self._name,
            schedule,
            "\n".join(_occurrences(schedule, moment)),
        )
        self._ended = asyncio.Event()
        self._running = asyncio.create_task(self._run(state, missed, self._ended), name=f"timer {self._name}")

    async def stop(self, *, within_s: float) -> bool:
        """Begin no further invocation, and wait that long for the running one; returns whether it has ended."""
        self._ended.set()
        if self._running is None:
            return True
        done, _ = await asyncio.wait({self._running}, timeout=within_s)
        if not done:
            logger.warning("%s did not end within %.1f s and is abandoned", self._running.get_name(), within_s)
        return bool(done)

    async def abandon(self) -> None:
        """Wait no longer for the running invocation: the host ends, and the worker with it."""
        if self._running is not None and not self._running.done():
            self._running.cancel()
            await asyncio.wait({self._running})

    def _now(self) -> datetime:
        return localized(self._clock.now(), self._trigger.schedule.zone)

    def _checked(self, moment: datetime) -> ScheduleStatus:
        """Return the stored status, initialized, and computed anew after a change of the schedule."""
        if self._storage is None:
            raise UnableToStart(
                "Could not create BlobContainerClient for ScheduleMonitor: give the host a storage (--storage), "
                "or the trigger use_monitor=False"
            )
        schedule = self._trigger.schedule
        stored = self._storage.read_status(self._name)
        if stored is None:
            stored = ScheduleStatus(None, schedule.after(moment), moment)
        else:
            basis = stored.last or stored.updated or moment
            expected = schedule.after(basis)
            if stored.next == expected:
                return stored
            # An occurrence of a schedule that is new here has not been missed.
            if expected is not None and moment > expected:
                basis, expected = moment, schedule.after(moment)
            stored = ScheduleStatus(None, expected, basis)
        self._storage.write_status(self._name, stored)
        return stored

    async def _run(self, state: ScheduleStatus, missed: datetime | None, ended: asyncio.Event) -> None:
        if missed is not None:
            logger.debug("Function '%s' is past due on startup. Executing now.", self._name)
            state = await self._invoke(state, "IsPastDue", original=missed)
        elif self._trigger.run_on_startup:
            logger.debug("Function '%s' is configured to run on startup. Executing now.", self._name)
            state = await self._invoke(state, "RunOnStartup")
        while not await self._until(state.next, ended):
            state = await self._invoke(state)

    async def _until(self, occurrence: datetime | None, ended: asyncio.Event) -> bool:
        """Wait for the occurrence; returns whether the listener has ended instead."""
        if occurrence is None:
            return await ended.wait()
        left = occurrence - self._clock.now()
        return await self._clock.pause(max(0.0, left.total_seconds()), until=ended)

    async def _invoke(
        self, state: ScheduleStatus, reason: str | None = None, *, original: datetime | None = None
    ) -> ScheduleStatus:
        self._crash.reached(CrashPoint.BEFORE_INVOCATION)
        moment = self._now()
        self._status.invoking = [KEY]
        try:
            await self._executor.execute(
                self._argument(state, past_due=original is not None), key=KEY, details=_details(reason, original)
            )
        finally:
            self._status.invoking = []
        # One that began too early, by its clock, must not occur again.
        basis = max(moment, state.next) if reason is None and state.next is not None else moment
        state = ScheduleStatus(basis, self._trigger.schedule.after(basis), basis)
        self._crash.reached(CrashPoint.BEFORE_CHECKPOINT)
        if self._trigger.uses_monitor and self._storage is not None:
            try:
                self._storage.write_status(self._name, state)
            except OSError as error:
                logger.error("Function '%s' failed to update the timer trigger status: %s", self._name, error)
            self._crash.reached(CrashPoint.AFTER_CHECKPOINT)
        return state

    def _argument(self, state: ScheduleStatus, *, past_due: bool) -> str:
        """TimerInfo as JSON."""
        moments = {"Last": state.last, "Next": state.next, "LastUpdated": state.updated}
        return json.dumps(
            {
                "Schedule": {"AdjustForDST": self._trigger.schedule.adjusts_for_dst},
                "ScheduleStatus": (
                    {name: moment.isoformat() if moment else _NEVER for name, moment in moments.items()}
                    if self._trigger.uses_monitor
                    else None
                ),
                "IsPastDue": past_due,
            }
        )


def _occurrences(schedule: Schedule, moment: datetime) -> list[str]:
    found: list[str] = []
    following = schedule.after(moment)
    while following is not None and len(found) < _NEXT_OCCURRENCES:
        found.append(following.strftime("%m/%d/%Y %H:%M:%S%z"))
        following = schedule.after(following)
    return found


def _details(reason: str | None, original: datetime | None) -> str:
    named = {"UnscheduledInvocationReason": reason, "OriginalSchedule": original and original.isoformat()}
    return ", ".join(f"{name}: {value}" for name, value in named.items() if value)
