"""This process's record of one destination: accepted events, and refusals with time and condition.

The ledger has what was accepted, so that a retried invocation sends only the rest.

While a rule, limit or setting of the service is wrong, it refuses every transfer with a condition that blames
the content. That can end at any moment, and come back. So a refusal says something of an event only together with
what else the service accepts: `Evidence` remembers that, and `relay.core.verdict` decides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from relay.core.errors import PoisonError
from relay.core.events import Event, EventName
from relay.core.verdict import ALIKE, REFUSALS, History

# Maximum number of events in doubt. Each stops its partition key, so there are few; those that another process
# settled after the lease was lost are forgotten in the end.
_DOUBTS_AT_MOST = 10_000


@dataclass(slots=True)
class _Doubt:
    """A refused event: its refusals, and how many transfers had been accepted by the last one."""

    condition: str
    refusals: int
    accepted: int
    # Serial numbers of the first and the last refusal among all refusals.
    first: int
    last: int
    # Number of transfers accepted for the first time before the attempt of the first refusal began.
    fresh_before: int


class Evidence:
    """Accepted and refused events; one for each publisher."""

    def __init__(self, window_s: float, clock: Callable[[], float] = time.time) -> None:
        """Create the evidence.

        `window_s` is the topic's duplicate detection window, in seconds; `clock` gives seconds since 1970.
        """
        self._repeatable_s = window_s / 2
        self._clock = clock
        self._accepted = 0
        self._fresh = 0
        self._refusals = 0
        self._doubts: dict[EventName, _Doubt] = {}
        self._witness: tuple[Event, float] | None = None

    @property
    def fresh(self) -> int:
        """Transfers that were accepted for the first time."""
        return self._fresh

    def accepted(self, events: Iterable[Event], witness: Event | None = None) -> None:
        """Note that a transfer with these events was accepted; `witness` is one of them that may be repeated."""
        self._accepted += 1
        self._fresh += 1
        if witness is not None:
            self._witness = witness, self._clock()
        if self._doubts and any(event.name in self._doubts for event in events):
            # An event that is refused and then accepted shows that refusals come and go.
            self._doubts.clear()

    def repeated(self) -> None:
        """Note that the service has accepted the repeat of an event it had accepted before."""
        self._accepted += 1

    def witness(self) -> Event | None:
        """Return an event that the topic knows as a duplicate: its repeat reaches no subscriber.

        That is certain if this process was the first to have it accepted, or within half a window of the first.
        None if none was accepted within half the window, which leaves the other half for clocks that differ and
        for a transfer that waits.
        """
        if self._witness is None:
            return None
        event, at = self._witness
        return event if 0 <= self._clock() - at < self._repeatable_s else None

    def wants_repeat(self, event: Event) -> bool:
        """Return True if an acceptance now would be evidence about the event, which was refused before.

        It is not if something was accepted since, or if there were enough refusals with acceptances in between.
        """
        doubt = self._doubts.get(event.name)
        return doubt is not None and doubt.refusals < REFUSALS and self._accepted == doubt.accepted

    def refused(self, event: Event, refusal: PoisonError, fresh_before: int) -> History:
        """Note the refusal of an event that was sent alone; `fresh_before` was `fresh` when the attempt began."""
        self._refusals += 1
        doubt = self._doubts.pop(event.name, None)
        if doubt is None or doubt.condition != refusal.condition:
            if len(self._doubts) >= _DOUBTS_AT_MOST:
                del self._doubts[next(iter(self._doubts))]
            doubt = _Doubt(refusal.condition, 0, -1, self._refusals, 0, fresh_before)
        if self._accepted > doubt.accepted:
            doubt.refusals += 1
        doubt.accepted, doubt.last = self._accepted, self._refusals
        # The latest is the last.
        self._doubts[event.name] = doubt
        accepted = self._fresh - doubt.fresh_before
        return History(doubt.refusals, self._alike(doubt, enough=max(ALIKE, accepted + 1)), accepted)

    def _alike(self, doubt: _Doubt, enough: int) -> int:
        """Count the partition keys refused with the same condition since this event was first refused.

        Counts to `enough` at most.
        """
        keys: set[str] = set()
        for (key, _), other in reversed(self._doubts.items()):
            if other.last < doubt.first or len(keys) >= enough:
                break
            if other.condition == doubt.condition:
                keys.add(key)
        return len(keys)

    def forget(self, name: EventName) -> None:
        """Forget an event that is set aside: it is no longer evidence about others."""
        self._doubts.pop(name, None)


# An entry is two strings and their slot, about 300 bytes for ids of 36 characters: 60 MB at the most.
DEFAULT_CAPACITY = 200_000


class AcceptedLedger:
    """The latest accepted events by partition key and id: at most `capacity` of them, and at least half of it.

    Without it, a retry would send accepted events again and rely on duplicate detection alone. An outage of one
    partition key can last longer than the duplicate detection window, and the events of every other key would then
    be published twice. The ledger is in memory only: a new process starts with an empty one, and relies on the
    duplicate detection window.

    Entries are dropped by generation, not one by one: a set that gains and loses entries all the time is enlarged
    again and again, and the process would keep growing long after the ledger is full.
    """

    def __init__(self, capacity: int = DEFAULT_CAPACITY) -> None:
        self._generation_size = capacity // 2
        self._newer: set[tuple[str, str]] = set()
        self._older: set[tuple[str, str]] = set()

    def __len__(self) -> int:
        return len(self._newer | self._older)

    def add(self, events: Iterable[Event]) -> None:
        """Add accepted events; the older generation is dropped once the newer one is full."""
        if not self._generation_size:
            return
        for event in events:
            if len(self._newer) >= self._generation_size:
                self._newer, self._older = set(), self._newer
            self._newer.add((event.partition_key, event.id))

    def holds(self, partition_key: str, identifier: str) -> bool:
        """Return True if this event is known to be accepted from this process."""
        key = (partition_key, identifier)
        return key in self._newer or key in self._older
