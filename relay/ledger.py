"""What Service Bus has accepted from this process, so that a retried invocation sends only the rest."""

from __future__ import annotations

# An entry is two strings and their slot, about 300 bytes for ids of 36 characters: 60 MB at the most.
DEFAULT_CAPACITY = 200_000


class AcceptedLedger:
    """Remembers accepted events by partition key and id: the latest, at most `capacity` and at least half of it.

    A retry that re-sent what was accepted would lean on duplicate detection, whose window an outage of one
    partition can outlast: then every other partition's events would be told twice. It lives in memory: a new
    process knows nothing of it, and then the duplicate detection window is what protects subscribers.

    Entries are forgotten by generations, not one by one: a table that both gains and loses entries all the time
    is enlarged again and again, and the process would grow for long after the ledger is full.
    """

    def __init__(self, capacity: int = DEFAULT_CAPACITY) -> None:
        self._generation_size = capacity // 2
        self._newer: set[tuple[str, str]] = set()
        self._older: set[tuple[str, str]] = set()

    def __len__(self) -> int:
        return len(self._newer | self._older)

    def add(self, partition_key: str, identifier: str) -> None:
        """Remember an accepted event; the older generation is forgotten once the newer one is full."""
        if not self._generation_size:
            return
        if len(self._newer) >= self._generation_size:
            self._newer, self._older = set(), self._newer
        self._newer.add((partition_key, identifier))

    def holds(self, partition_key: str, identifier: str) -> bool:
        """Whether this event was accepted from this process, as far as is remembered."""
        key = (partition_key, identifier)
        return key in self._newer or key in self._older
