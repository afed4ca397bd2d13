"""The messages of a queue that are ready to be received."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable

from outbox_relay.emulators.servicebus.edges import Edge, Edges
from outbox_relay.emulators.servicebus.entry import Entry
from outbox_relay.emulators.servicebus.partitions import PARTITIONS, partition_in

_AHEAD = 4
"""Number of first dead letters of which any may be the next."""


class ReadyQueue:
    """The messages that wait to be received, in the order in which they came.

    New ones are added at the end; one that is requeued returns to its place.
    """

    def __init__(self) -> None:
        self._fresh: deque[Entry] = deque()
        self._returned: list[tuple[int, int, Entry]] = []
        self._ties = itertools.count()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, entry: Entry) -> None:
        """Add an entry that comes after all before."""
        entry.waiting = True
        self._length += 1
        self._fresh.append(entry)

    def requeue(self, entry: Entry) -> None:
        """Add an entry at its place."""
        entry.waiting = True
        self._length += 1
        heapq.heappush(self._returned, (entry.order, next(self._ties), entry))

    def remove(self, entry: Entry) -> None:
        """Remove an entry wherever it is; no harm if it does not wait here."""
        if entry.waiting:
            entry.waiting = False
            self._length -= 1

    def head(self) -> Entry | None:
        """Return the first entry."""
        while self._fresh and not self._fresh[0].waiting:
            self._fresh.popleft()
        while self._returned and not self._returned[0][2].waiting:
            heapq.heappop(self._returned)
        if self._returned_is_next():
            return self._returned[0][2]
        return self._fresh[0] if self._fresh else None

    def take(self) -> Entry | None:
        """Remove and return the first entry."""
        entry = self.head()
        if entry is None:
            return None
        if self._returned_is_next():
            heapq.heappop(self._returned)
        else:
            self._fresh.popleft()
        self.remove(entry)
        return entry

    def _returned_is_next(self) -> bool:
        if not self._returned:
            return False
        return not self._fresh or self._returned[0][0] < self._fresh[0].order


class PartitionedReadyQueue(ReadyQueue):
    """The messages of a partitioned entity: in order within each partition only."""

    def __init__(self, edges: Edges) -> None:
        self._edges = edges
        self._partitions = [ReadyQueue() for _ in range(PARTITIONS)]

    def __len__(self) -> int:
        return sum(map(len, self._partitions))

    def append(self, entry: Entry) -> None:
        self._of(entry).append(entry)

    def requeue(self, entry: Entry) -> None:
        self._of(entry).requeue(entry)

    def remove(self, entry: Entry) -> None:
        self._of(entry).remove(entry)

    def head(self) -> Entry | None:
        heads = [head for partition in self._partitions if (head := partition.head()) is not None]
        return min(heads, key=lambda head: head.order, default=None)

    def take(self) -> Entry | None:
        """Remove and return the first entry of any partition."""
        earliest = self.head()
        if earliest is None:
            return None
        entry = self._edges.partitions.choice([each for each in self._partitions if len(each)]).take()
        if entry is not earliest:
            self._edges.meet(Edge.PARTITIONS_INTERLEAVED)
        return entry

    def _of(self, entry: Entry) -> ReadyQueue:
        return self._partitions[partition_in(entry.sequence_number)]


class DeadLetterReadyQueue(ReadyQueue):
    """The messages of a dead-letter queue: any of the first ones may be the next."""

    def __init__(self, edges: Edges) -> None:
        super().__init__()
        self._edges = edges

    def take(self) -> Entry | None:
        """Remove and return one of the first entries."""
        first: list[Entry] = []
        while len(first) < _AHEAD and (entry := super().take()) is not None:
            first.append(entry)
        if not first:
            return None
        chosen = self._edges.dead_letters.choice(first)
        for entry in first:
            if entry is not chosen:
                self.requeue(entry)
        if chosen is not first[0]:
            self._edges.meet(Edge.DEAD_LETTERS_INTERLEAVED)
        return chosen


ReadyQueueFactory = Callable[[], ReadyQueue]


def dead_letter_queue_factory(edges: Edges | None) -> ReadyQueueFactory:
    """Return the kind of ready queue for dead letters; a seed interleaves them."""
    if edges is None or edges.seed is None:
        return ReadyQueue
    return lambda: DeadLetterReadyQueue(edges)


def ready_queue_factory(edges: Edges | None, *, partitioned: bool) -> ReadyQueueFactory:
    """Return the kind of ready queue for an entity without sessions; a seed interleaves partitions."""
    if edges is None or edges.seed is None or not partitioned:
        return ReadyQueue
    return lambda: PartitionedReadyQueue(edges)
