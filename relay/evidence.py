"""Evidence that the service refuses one event, and not everything: only then is what it refuses poison.

A wrong rule, limit or setting of the service is answered with a condition that blames the content of whatever is
sent meanwhile, and may end at any moment. So a first refusal stops the partition key, and the attempt fails. What
is refused again, after this process has seen another transfer accepted, is refused for its own content.
"""

from __future__ import annotations

from relay.events import DomainEvent

# Each is an event that stops its partition key, of which there are few; those that were settled elsewhere, after
# the lease was lost, are forgotten in the end.
_DOUBTS_AT_MOST = 10_000


class Evidence:
    """What this process has seen accepted since events were refused for the first time."""

    def __init__(self) -> None:
        self._accepted = 0
        self._doubts: dict[tuple[str, str], int] = {}

    def accepted(self) -> None:
        """A transfer was accepted."""
        self._accepted += 1

    def refused(self, event: DomainEvent) -> bool:
        """An event was refused, alone; whether it had been before, with another transfer accepted since."""
        name = (event.partition_key, event.id)
        if name not in self._doubts and len(self._doubts) >= _DOUBTS_AT_MOST:
            del self._doubts[next(iter(self._doubts))]
        return self._accepted > self._doubts.setdefault(name, self._accepted)
