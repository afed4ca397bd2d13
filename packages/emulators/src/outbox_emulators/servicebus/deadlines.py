"""When the messages of a queue expire or come due."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterator

_SPARE = 1000


class Deadlines:
    """Sequence numbers by a moment each, in milliseconds since the epoch."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, when_ms: int, sequence_number: int) -> None:
        heapq.heappush(self._heap, (when_ms, sequence_number))

    def prune(self, messages: Container[int], count: int) -> None:
        """Drop the deadlines of messages that are gone, once they outnumber those of the `count` that are there.

        Without this, the deadlines of messages that were settled would be kept until they are due.
        """
        if len(self._heap) > 2 * count + _SPARE:
            self._heap = [each for each in self._heap if each[1] in messages]
            heapq.heapify(self._heap)

    def due(self, now_ms: int) -> Iterator[int]:
        """Remove and yield the sequence numbers whose moment has come, the earliest first."""
        while self._heap and self._heap[0][0] <= now_ms:
            yield heapq.heappop(self._heap)[1]

    @property
    def next_due(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def clear(self) -> None:
        self._heap.clear()
