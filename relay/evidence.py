"""Evidence that the service refuses one event, and not everything: only then is what it refuses poison.

A wrong rule, limit or setting of the service is answered with a condition that blames the content of whatever is
sent meanwhile. It may end at any moment, and come back. So a refusal stops the partition key, and the attempt
fails. What is refused at three attempts, with another transfer of this process accepted between each two, is
refused for its own content; unless something that had been refused was accepted meanwhile, which shows that
refusals come and go: then all of it starts anew.
"""

from __future__ import annotations

from collections.abc import Iterable

from relay.events import Event, EventName

_REFUSALS = 3

# Each is an event that stops its partition key, of which there are few; those that were settled elsewhere, after
# the lease was lost, are forgotten in the end.
_DOUBTS_AT_MOST = 10_000


class Evidence:
    """What this process has seen accepted and refused."""

    def __init__(self) -> None:
        self._accepted = 0
        # How often an event was refused, and how many transfers had been accepted by the last time.
        self._doubts: dict[EventName, tuple[int, int]] = {}

    def accepted(self, events: Iterable[Event]) -> None:
        """One transfer was accepted, with these events."""
        self._accepted += 1
        if any(event.name in self._doubts for event in events):
            self._doubts.clear()

    def refused(self, event: Event) -> bool:
        """An event was refused, alone; whether that is its own fault by now."""
        name = event.name
        if name not in self._doubts and len(self._doubts) >= _DOUBTS_AT_MOST:
            del self._doubts[next(iter(self._doubts))]
        refusals, accepted = self._doubts.get(name, (0, -1))
        if self._accepted > accepted:
            refusals += 1
        self._doubts[name] = (refusals, self._accepted)
        return refusals >= _REFUSALS
