"""The messages of one queue by sequence number, in any state, and their number by state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from outbox_relay.emulators.servicebus.entry import Entry, State


class MessageStore:
    """All messages that a queue holds. `size_bytes` is their size."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._entries: dict[int, Entry] = {}
        self._deferred: set[int] = set()
        self._scheduled: set[int] = set()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, sequence_number: object) -> bool:
        return sequence_number in self._entries

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def get(self, sequence_number: int) -> Entry | None:
        return self._entries.get(sequence_number)

    def add(self, entry: Entry) -> None:
        self._entries[entry.sequence_number] = entry
        if entry.state is State.SCHEDULED:
            self._scheduled.add(entry.sequence_number)
        entry.size = entry.message.size
        self.size_bytes += entry.size

    def remove(self, entry: Entry) -> None:
        del self._entries[entry.sequence_number]
        self.size_bytes -= entry.size
        self._deferred.discard(entry.sequence_number)
        self._scheduled.discard(entry.sequence_number)

    def defer(self, entry: Entry) -> None:
        """Make a message deferred."""
        entry.state = State.DEFERRED
        self._deferred.add(entry.sequence_number)

    def activate(self, entry: Entry, sequence_number: int, order: int) -> None:
        """Make a scheduled message active, under a new sequence number and at another place."""
        del self._entries[entry.sequence_number]
        self._scheduled.discard(entry.sequence_number)
        entry.sequence_number, entry.order = sequence_number, order
        entry.state = State.ACTIVE
        self._entries[sequence_number] = entry

    def clear(self) -> None:
        self._entries.clear()
        self._deferred.clear()
        self._scheduled.clear()
        self.size_bytes = 0

    def peek(self, from_sequence_number: int, limit: int, now_ms: int, session_id: str | None) -> list[Entry]:
        """Return messages from a sequence number on, without those that have expired."""
        found: list[Entry] = []
        for number in sorted(number for number in self._entries if number >= from_sequence_number):
            entry = self._entries[number]
            if session_id is not None and entry.message.session_id != session_id:
                continue
            if entry.expires_ms is None or entry.expires_ms > now_ms or entry.lock is not None:
                found.append(entry)
            if len(found) >= limit:
                break
        return found

    def counts(self, locked: int) -> Counts:
        """Return how many messages are in which state, given how many are locked."""
        deferred = sum(self._entries[number].lock is None for number in self._deferred)
        counts = Counts(locked=locked, deferred=deferred, scheduled=len(self._scheduled))
        counts.active = len(self) - counts.locked - counts.deferred - counts.scheduled
        return counts


@dataclass(slots=True)
class Counts:
    """Number of messages in each state; a deferred or active one that is locked counts as locked."""

    active: int = 0
    locked: int = 0
    deferred: int = 0
    scheduled: int = 0

    def add(self, entry: Entry) -> None:
        if entry.state is State.SCHEDULED:
            self.scheduled += 1
        elif entry.lock is not None:
            self.locked += 1
        elif entry.state is State.DEFERRED:
            self.deferred += 1
        else:
            self.active += 1
