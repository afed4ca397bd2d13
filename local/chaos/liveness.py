"""Liveness: when the faults are over, everything is settled within a bound, and no process had to be restarted."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from local.chaos.operators import Operator

# Events a second that a relay on a busy machine publishes at least, once faults are over.
_AT_LEAST_PER_S = 50
_SHOWN = 5
# Faults that were injected last end a process a little later: SIGTERM gives it some seconds.
_GRACE_S = 5.0


def bound_s(patience_s: float, backlog: int) -> float:
    """Return the seconds within which a backlog of that many events is to be settled, once the faults are over."""
    return patience_s + backlog / _AT_LEAST_PER_S


@dataclass(slots=True)
class Phase:
    """The time after the last fault.

    Attributes:
        restarts: The processes that ended in it, and had to be started again.
    """

    clock: Callable[[], float] = time.monotonic
    restarts: list[str] = field(default_factory=list)
    _until_s: float | None = None
    _began_s: float = 0.0

    @property
    def has_begun(self) -> bool:
        return self._until_s is not None

    def begin(self, within_s: float) -> None:
        """Begin the last phase: the faults are over, and everything is to be settled within that many seconds."""
        self._began_s = self.clock()
        self._until_s = self._began_s + within_s

    @property
    def lasted_s(self) -> float:
        """Seconds since the faults were over."""
        return self.clock() - self._began_s if self.has_begun else 0.0

    @property
    def is_overdue(self) -> bool:
        return self._until_s is not None and self.clock() > self._until_s

    def ended(self, process: str) -> None:
        """Note that a process ended. While faults are injected, and shortly after, that is their doing."""
        if self.lasted_s > _GRACE_S:
            self.restarts.append(process)


def standing(
    outstanding: Mapping[str, Sequence[str]], operator: Operator, owners: Sequence[str], waiting: int
) -> list[str]:
    """Describe what is stuck when a campaign is not live. The lines name events, processes and leases.

    Args:
        outstanding: By key, the ids of the events that are not settled.
        operator: Knows what the errors named, and what it ordered.
        owners: A line for each lease or shard, with its owner.
        waiting: Messages that the subscription still holds.
    """
    events = sum(map(len, outstanding.values()))
    lines = [f"Not live: {events} event(s) of {len(outstanding)} partition key(s) are not settled."]
    if waiting:
        lines.append(f"  the subscription holds {waiting} message(s) that no consumer has settled")
    for key, identifiers in sorted(outstanding.items())[:_SHOWN]:
        lines.append(f"  {key!r}: {len(identifiers)} event(s), the first is {identifiers[0]!r}")
    if len(outstanding) > _SHOWN:
        lines.append(f"  and {len(outstanding) - _SHOWN} more partition key(s)")
    blocking = [(name, each) for name, each in operator.named.items() if name[0] in outstanding]
    for (key, identifier), named in blocking[:_SHOWN]:
        ordered = "was ordered" if identifier in operator.aside.ordered else "could not be ordered"
        lines.append(
            f"  {named.by} named {identifier!r} of {key!r} as blocking {named.times} time(s), the last "
            f"{time.monotonic() - named.last_s:.0f} s ago; setting it aside {ordered}"
        )
    if not blocking:
        lines.append("  no error names an event that blocks them")
    return lines + [f"  {line}" for line in owners]
