"""Misbehaviour on demand: who asks decides what, when and how often; nothing here is left to chance.

A fault strikes each request it matches until it has struck `count` times or `for_ms` has passed. Where several
match one request, the oldest strikes.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from outbox_emulators.cosmos.fault_plans import FaultKind, FaultPlan
from outbox_emulators.cosmos.fault_targets import Target

_ENDED_KEPT = 1000


class ConnectionCut(Exception):
    """The request gets no answer, and its connection no further one."""


@dataclass(slots=True)
class Fault:
    """A plan at work. `ends` is a moment of the clock in seconds, None where only the count ends it."""

    id: int
    plan: FaultPlan
    ends: float | None
    applied: int = 0
    removed: bool = False

    def is_pending(self, now: float) -> bool:
        exhausted = self.plan.count is not None and self.applied >= self.plan.count
        return not (exhausted or self.removed or (self.ends is not None and now >= self.ends))

    def as_json(self, now: float) -> dict[str, Any]:
        """As the admin port tells it; what is left of the count and of the milliseconds, None where unlimited."""
        plan = self.plan
        return {
            "id": self.id,
            "kind": plan.kind,
            "match": plan.match.as_json(),
            "pending": self.is_pending(now),
            "applied": self.applied,
            "count_left": None if plan.count is None else plan.count - self.applied,
            "ms_left": None if self.ends is None else max(0, round((self.ends - now) * 1_000)),
        }


class Faults:
    """The faults of one server. `clock` gives seconds that only ever grow; `applied` counts by kind."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.applied: Counter[FaultKind] = Counter()
        self._pending: dict[int, Fault] = {}
        self._ended: deque[Fault] = deque(maxlen=_ENDED_KEPT)
        self._ids = itertools.count(1)
        self._stopping = asyncio.Event()

    def add(self, plan: FaultPlan) -> Fault:
        """Begin to strike."""
        ends = None if plan.for_ms is None else self.clock() + plan.for_ms / 1_000
        fault = Fault(next(self._ids), plan, ends)
        self._pending[fault.id] = fault
        return fault

    def get(self, fault_id: int) -> Fault | None:
        """The fault, pending or among the last thousand that ended."""
        ended = (fault for fault in self._ended if fault.id == fault_id)
        return self._pending.get(fault_id) or next(ended, None)

    def remove(self, fault: Fault) -> None:
        """Strike no more with this one."""
        fault.removed = True
        self._retire()

    def remove_all(self) -> None:
        for fault in list(self._pending.values()):
            self.remove(fault)

    def pending(self) -> list[Fault]:
        """Those that can still strike, the oldest first."""
        self._retire()
        return list(self._pending.values())

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing that could strike; cheap, as every request asks."""
        return not self._pending

    def strike(self, target: Target) -> Fault | None:
        """The fault that this request meets; it counts as applied."""
        for fault in self.pending():
            if fault.plan.match.covers(target):
                fault.applied += 1
                self.applied[fault.plan.kind] += 1
                self._retire()
                return fault
        return None

    async def hang(self, milliseconds: int) -> None:
        """Wait that long, but never longer than the server runs."""
        try:
            async with asyncio.timeout(milliseconds / 1_000):
                await self._stopping.wait()
        except TimeoutError:
            return

    def stop(self) -> None:
        """Let go of the requests that hang."""
        self._stopping.set()

    def _retire(self) -> None:
        now = self.clock()
        for fault in [fault for fault in self._pending.values() if not fault.is_pending(now)]:
            self._ended.append(self._pending.pop(fault.id))
