"""What Service Bus has accepted from this process, so that a retried invocation sends only the rest."""

from __future__ import annotations

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

    def add(self, partition_key: str, identifier: str) -> None:
        """Add an accepted event; the older generation is dropped once the newer one is full."""
        if not self._generation_size:
            return
        if len(self._newer) >= self._generation_size:
            self._newer, self._older = set(), self._newer
        self._newer.add((partition_key, identifier))

    def holds(self, partition_key: str, identifier: str) -> bool:
        """Whether this event is known to be accepted from this process."""
        key = (partition_key, identifier)
        return key in self._newer or key in self._older
