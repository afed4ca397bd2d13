"""Evidence that the service refuses one event and not everything: only then is the event poison.

While a rule, limit or setting of the service is wrong, it refuses every transfer with a condition that blames
the content. That can end at any moment, and come back. So a refusal stops the partition key, and the attempt
fails. An event that is refused at three attempts, with another transfer of this process accepted between each
two, is refused for its own content. If an event that had been refused is accepted in the meantime, refusals
come and go, and the count starts again for all events.
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
        """Note that a transfer with these events was accepted."""
        self._accepted += 1
        if self._doubts and any(event.name in self._doubts for event in events):
            self._doubts.clear()

    def refused(self, event: Event) -> bool:
        """Note the refusal of an event that was sent alone; returns whether its own content is the cause."""
        name = event.name
        if name not in self._doubts and len(self._doubts) >= _DOUBTS_AT_MOST:
            del self._doubts[next(iter(self._doubts))]
        refusals, accepted = self._doubts.get(name, (0, -1))
        if self._accepted > accepted:
            refusals += 1
        self._doubts[name] = (refusals, self._accepted)
        return refusals >= _REFUSALS
