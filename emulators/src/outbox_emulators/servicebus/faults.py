"""Misbehaviour on demand: who asks decides what, where and how often; nothing here is left to chance.

Where several faults of a kind match, the oldest strikes.
"""

from __future__ import annotations

import itertools
import zlib
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from outbox_emulators.servicebus.fault_plans import FaultKind, FaultPlan
from outbox_emulators.servicebus.timers import TimerQueue

_ENDED_KEPT = 1000


def partition_of(partition_key: str, partitions: int) -> int:
    """Return the partition of the broker, counted from 0, that a partition key or session id belongs to.

    The service's own hash is not public; this one (CRC-32 of the UTF-8 bytes) is stable, so that who asks for a
    fault can tell which keys it strikes.
    """
    return zlib.crc32(partition_key.encode()) % partitions


def _nothing() -> None:
    return None


@dataclass(slots=True, eq=False)
class Fault:
    """A plan at work. `until_ms` is a moment in milliseconds since the epoch, None where time does not end it."""

    id: int
    plan: FaultPlan
    until_ms: int | None
    applied: int = 0
    ended: bool = False
    undo: Callable[[], None] = field(default=_nothing)

    def as_object(self, now_ms: int) -> dict[str, Any]:
        """As the admin port tells it, with what is left of its count and its time; None is without end."""
        plan = self.plan
        return {
            "id": self.id,
            **plan.as_object(),
            "pending": not self.ended,
            "applied": self.applied,
            "count_left": None if plan.count is None else plan.count - self.applied,
            "ms_left": None if self.until_ms is None else max(0, self.until_ms - now_ms),
        }


class Faults:
    """The faults of one broker; `applied` counts by kind how often they struck."""

    def __init__(self, timers: TimerQueue) -> None:
        self.applied: Counter[str] = Counter()
        self.pending: dict[int, Fault] = {}
        self._timers = timers
        self._ended: deque[Fault] = deque(maxlen=_ENDED_KEPT)
        self._ids = itertools.count(1)

    def add(self, plan: FaultPlan) -> Fault:
        """Begin to strike, at what matches from now on."""
        until = None if plan.for_ms is None else self._timers.now() + plan.for_ms
        fault = Fault(next(self._ids), plan, until)
        self.pending[fault.id] = fault
        if until is not None:
            self._timers.call_at(until, lambda: self.end(fault))
        return fault

    def get(self, fault_id: int) -> Fault | None:
        """Return a fault that is pending or among the last thousand that ended."""
        self._end_overdue()
        return self.pending.get(fault_id) or next((f for f in self._ended if f.id == fault_id), None)

    def end(self, fault: Fault) -> None:
        """Have a fault strike no more, and what it did undone if that can be; no harm if it ended before."""
        if not fault.ended:
            fault.ended = True
            del self.pending[fault.id]
            self._ended.append(fault)
            fault.undo()

    def end_all(self) -> None:
        for fault in list(self.pending.values()):
            self.end(fault)

    def strike(
        self, kind: FaultKind, path: str, where: Callable[[FaultPlan], bool] | None = None
    ) -> FaultPlan | None:
        """Return the plan that strikes now at a path, counted as applied; None when there is none."""
        fault = self.find(kind, path, where)
        if fault is None:
            return None
        self.note(fault)
        return fault.plan

    def find(self, kind: FaultKind, path: str, where: Callable[[FaultPlan], bool] | None = None) -> Fault | None:
        """Return the oldest pending fault of a kind for a path, without counting it."""
        self._end_overdue()
        for fault in self.pending.values():
            plan = fault.plan
            if plan.kind is kind and plan.covers(path) and (where is None or where(plan)):
                return fault
        return None

    def _end_overdue(self) -> None:
        # The timers may come to it a little later.
        now = self._timers.now()
        for fault in list(self.pending.values()):
            if fault.until_ms is not None and fault.until_ms <= now:
                self.end(fault)

    def note(self, fault: Fault, times: int = 1) -> None:
        """Count what a fault did; it ends when that was all."""
        fault.applied += times
        self.applied[fault.plan.kind.value] += times
        if fault.plan.count is not None and fault.applied >= fault.plan.count:
            self.end(fault)

    def as_object(self) -> dict[str, Any]:
        """All that are pending, and how often each kind has struck."""
        self._end_overdue()
        now = self._timers.now()
        return {
            "pending": [fault.as_object(now) for fault in self.pending.values()],
            "applied": dict(sorted(self.applied.items())),
        }

    def describe(self, fault: Fault) -> dict[str, Any]:
        """One of them."""
        return fault.as_object(self._timers.now())
