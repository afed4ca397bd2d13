"""What Service Bus has accepted from this process, so that a retried invocation sends only the rest."""

from __future__ import annotations

from collections import OrderedDict

# An entry is two strings and their slot, about 250 bytes for ids of 36 characters: 50 MB at the most.
DEFAULT_CAPACITY = 200_000


class AcceptedLedger:
    """Remembers accepted events by partition key and id, the latest `capacity` of them.

    A retry that re-sent what was accepted would lean on duplicate detection, whose window an outage of one
    partition can outlast: then every other partition's events would be told twice. It lives in memory: a new
    process knows nothing of it, and then the duplicate detection window is what protects subscribers.
    """

    def __init__(self, capacity: int = DEFAULT_CAPACITY) -> None:
        self._capacity = capacity
        self._accepted: OrderedDict[tuple[str, str], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._accepted)

    def add(self, partition_key: str, identifier: str) -> None:
        """Remember an accepted event; the oldest is forgotten once there are more than `capacity`."""
        key = (partition_key, identifier)
        self._accepted[key] = None
        self._accepted.move_to_end(key)
        if len(self._accepted) > self._capacity:
            self._accepted.popitem(last=False)

    def holds(self, partition_key: str, identifier: str) -> bool:
        """Whether this event was accepted from this process, as far as is remembered."""
        return (partition_key, identifier) in self._accepted
