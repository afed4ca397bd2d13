"""Fault injection: what both services mean by a fault, and what their admin ports show of it.

An injected fault is pending until it was applied `count` times, `for_ms` has passed, or it was ended. While it is
pending it is applied to everything it matches; where several match, the oldest is applied. Nothing is left to
chance.

    POST   /admin/faults       {"kind", what it matches, "count", "for_ms", options of its kind}: {"id", "applied"}
    GET    /admin/faults       {"pending": [fault], "applied": {kind: times}}
    GET    /admin/faults/ID    {"id", what was asked for, "pending", "applied", "count_left", "ms_left"}
    DELETE /admin/faults       end all
    DELETE /admin/faults/ID    end one

If a number is null, there is no limit.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

_ENDED_KEPT = 1000


class InvalidFault(ValueError):
    """The fault that was asked for is not valid; the message names everything that is wrong with it."""


class Plan(Protocol):
    """A fault as it was asked for: its kind, how often and for how long to apply it; None is without a limit."""

    @property
    def kind(self) -> str: ...

    @property
    def count(self) -> int | None: ...

    @property
    def for_ms(self) -> int | None: ...

    def as_json(self) -> Mapping[str, Any]:
        """Return what was asked for, defaults included."""


P = TypeVar("P", bound=Plan)


def _nothing() -> None:
    return None


@dataclass(slots=True, eq=False)
class Fault(Generic[P]):
    """An injected fault. `until_ms` is a moment of the clock of its `Faults`, None if time does not end it.

    `undo` is called when the fault ends.
    """

    id: int
    plan: P
    until_ms: int | None
    applied: int = 0
    ended: bool = False
    undo: Callable[[], None] = field(default=_nothing)


class Faults(Generic[P]):
    """The faults of one service. `applied` counts by kind how often they were applied."""

    def __init__(
        self, now_ms: Callable[[], int], call_at: Callable[[int, Callable[[], None]], None] | None = None
    ) -> None:
        """Without `call_at`, a fault whose time has passed ends when somebody next asks for faults."""
        self.applied: Counter[str] = Counter()
        self._now_ms = now_ms
        self._call_at = call_at
        self._pending: dict[int, Fault[P]] = {}
        self._ended: deque[Fault[P]] = deque(maxlen=_ENDED_KEPT)
        self._ids = itertools.count(1)

    def inject(self, plan: P) -> Fault[P]:
        """Apply a fault from now on."""
        until_ms = None if plan.for_ms is None else self._now_ms() + plan.for_ms
        fault = Fault(next(self._ids), plan, until_ms)
        self._pending[fault.id] = fault
        if until_ms is not None and self._call_at is not None:
            self._call_at(until_ms, lambda: self.end(fault))
        return fault

    @property
    def any_pending(self) -> bool:
        """True if faults may be pending. It costs next to nothing, as every frame and every request asks."""
        return bool(self._pending)

    def pending(self) -> list[Fault[P]]:
        """Return the pending faults, the oldest first."""
        now = self._now_ms()
        for fault in list(self._pending.values()):
            if fault.until_ms is not None and fault.until_ms <= now:
                self.end(fault)
        return list(self._pending.values())

    def find(self, matches: Callable[[P], bool]) -> Fault[P] | None:
        """Return the oldest pending fault that matches, without applying it."""
        return next((fault for fault in self.pending() if matches(fault.plan)), None)

    def apply(self, matches: Callable[[P], bool]) -> Fault[P] | None:
        """Return the oldest pending fault that matches, for the caller to carry out. It counts as applied."""
        fault = self.find(matches)
        if fault is not None:
            self.record(fault)
        return fault

    def record(self, fault: Fault[P], times: int = 1) -> None:
        """Count how often a fault was applied; after the last time it ends."""
        fault.applied += times
        self.applied[str(fault.plan.kind)] += times
        if fault.plan.count is not None and fault.applied >= fault.plan.count:
            self.end(fault)

    def get(self, fault_id: int) -> Fault[P] | None:
        """Return a fault that is pending or among the last thousand that ended."""
        self.pending()
        return self._pending.get(fault_id) or next((f for f in self._ended if f.id == fault_id), None)

    def end(self, fault: Fault[P]) -> None:
        """Apply a fault no more, and undo what can be undone; no harm if it ended before."""
        if not fault.ended:
            fault.ended = True
            del self._pending[fault.id]
            self._ended.append(fault)
            fault.undo()

    def end_all(self) -> None:
        for fault in list(self._pending.values()):
            self.end(fault)

    def describe(self, fault: Fault[P]) -> dict[str, Any]:
        """Return a fault as the admin port shows it."""
        count, until_ms = fault.plan.count, fault.until_ms
        return {
            "id": fault.id,
            **fault.plan.as_json(),
            "pending": not fault.ended,
            "applied": fault.applied,
            "count_left": None if count is None else count - fault.applied,
            "ms_left": None if until_ms is None else max(0, until_ms - self._now_ms()),
        }

    def as_json(self) -> dict[str, Any]:
        """Return all pending faults, and how often each kind was applied."""
        return {
            "pending": [self.describe(fault) for fault in self.pending()],
            "applied": dict(sorted(self.applied.items())),
        }
