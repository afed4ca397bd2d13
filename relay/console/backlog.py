"""The events that were read and not passed yet: what is kept of them until they are."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from relay.events import EventName
from relay.outbox import Committed
from relay.place import PlaceInFeed

EntryT = TypeVar("EntryT", tuple[PlaceInFeed, EventName], tuple[float, EventName])


@dataclass(slots=True)
class Waiting:
    """An event that the relay has not passed, or of which it is not known yet whether it is in quarantine.

    Attributes:
        name: Its partition key and id.
        partition, place: Where it is now.
        committed_at: When it was committed, as close as the console knows.
        expires_at: When the outbox deletes it.
        passed_at: When the position was seen to pass it.
    """

    name: EventName
    partition: str
    place: PlaceInFeed
    committed_at: float
    expires_at: float | None
    passed_at: float = 0.0


class Backlog:
    """Events that wait, by partition and in the order of the feed."""

    def __init__(self) -> None:
        self._waiting: dict[EventName, Waiting] = {}
        # An event that is moved leaves its old entry behind, which is recognized by its place.
        self._order: dict[str, list[tuple[PlaceInFeed, EventName]]] = {}
        self._expiring: list[tuple[float, EventName]] = []
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def partitions(self) -> set[str]:
        """The partitions in which something waits."""
        return {name for name, count in self._counts.items() if count}

    def add(self, event: Committed, committed_at: float) -> bool:
        """Add an event, or move the one of its name to where it is now; returns whether it is new."""
        name = event.partition_key, event.id
        known = self._waiting.get(name)
        if known is None:
            known = Waiting(name, event.partition, event.place, committed_at, event.expires_at)
            self._waiting[name] = known
            self._counts[event.partition] += 1
            self._enter(known)
            return True
        if (known.partition, known.place) != (event.partition, event.place):
            self.move(known, event.partition, event.place)
        return False

    def move(self, event: Waiting, partition: str, place: PlaceInFeed) -> None:
        """Put an event elsewhere."""
        self._counts[event.partition] -= 1
        self._counts[partition] += 1
        event.partition, event.place = partition, place
        self._enter(event)

    def passed(self, partition: str, place: PlaceInFeed) -> Iterator[Waiting]:
        """Take out what is at or before a place of a partition, in order."""
        order = self._order.get(partition, [])
        while (first := self._first(partition)) is not None and not first.place > place:
            heapq.heappop(order)
            del self._waiting[first.name]
            self._counts[partition] -= 1
            yield first

    def within(self, partition: str) -> list[Waiting]:
        """What waits in a partition, in no order."""
        return [event for event in self._waiting.values() if event.partition == partition]

    def behind(self, partition: str) -> int:
        """How many wait in a partition."""
        return self._counts[partition]

    def oldest(self, partition: str) -> float | None:
        """When the first event of a partition was committed; None where none waits."""
        first = self._first(partition)
        return None if first is None else first.committed_at

    def expires_at(self) -> float | None:
        """When the first of all is deleted; None where none is."""
        while self._expiring:
            at, name = self._expiring[0]
            event = self._waiting.get(name)
            if event is not None and event.expires_at == at:
                return at
            heapq.heappop(self._expiring)
        return None

    def _enter(self, event: Waiting) -> None:
        order = self._order.setdefault(event.partition, [])
        heapq.heappush(order, (event.place, event.name))
        if event.expires_at is not None:
            heapq.heappush(self._expiring, (event.expires_at, event.name))
        # What was moved or passed is left behind in the heaps; they are cleared when it is the greater part.
        if len(order) > 2 * self._counts[event.partition] + 1000:
            self._order[event.partition] = _heap((each.place, each.name) for each in self.within(event.partition))
        if len(self._expiring) > 2 * len(self._waiting) + 1000:
            self._expiring = _heap(
                (each.expires_at, each.name) for each in self._waiting.values() if each.expires_at is not None
            )

    def _first(self, partition: str) -> Waiting | None:
        order = self._order.get(partition)
        while order:
            place, name = order[0]
            event = self._waiting.get(name)
            if event is not None and (event.partition, event.place) == (partition, place):
                return event
            heapq.heappop(order)
        return None


def _heap(entries: Iterable[EntryT]) -> list[EntryT]:
    heap = list(entries)
    heapq.heapify(heap)
    return heap
