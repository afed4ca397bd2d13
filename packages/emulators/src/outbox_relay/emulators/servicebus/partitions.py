"""The partitions of a partitioned entity, each of them a message broker of its own."""

from __future__ import annotations

import itertools
import zlib

PARTITIONS = 16
"""How many the service gives a partitioned entity ("Partitioned queues and topics", learn.microsoft.com)."""

_COUNT_BITS = 48


def partition_of(key: str, partitions: int = PARTITIONS) -> int:
    """Return the partition, counted from 0, that a session id or partition key belongs to.

    The service's own hash is not public; this one (CRC-32 of the UTF-8 bytes) is stable, so that whoever injects a
    fault can compute which keys it is applied to.
    """
    return zlib.crc32(key.encode()) % partitions


class SequenceNumbers:
    """The sequence numbers of an entity.

    The topmost 16 bits of a partitioned one's are the partition, which counts for itself ("Message sequencing and
    timestamps", learn.microsoft.com). Transfers without a key go to the partitions in turn, each as a whole: all
    messages of a batch are peeked at once (PeekAsyncTest of azure-service-bus-dotnet, with a partitioned queue).
    """

    def __init__(self, *, partitioned: bool) -> None:
        self._last = [0] * (PARTITIONS if partitioned else 1)
        self._turns = itertools.cycle(range(len(self._last)))
        self._turn: int | None = None

    def begin_transfer(self) -> None:
        """Forget the partition of the last transfer: its messages without a key share one."""
        self._turn = None

    def next(self, key: str | None, of_topic: int | None = None) -> int:
        """Return the number of the next message with a session id or partition key, or None.

        `of_topic` is its number in the topic, whose partition it stays in without a key.
        """
        partition = self._partition(key, of_topic)
        self._last[partition] += 1
        return (partition << _COUNT_BITS) + self._last[partition]

    def _partition(self, key: str | None, of_topic: int | None) -> int:
        if len(self._last) == 1:
            return 0
        if key is not None:
            return partition_of(key)
        if of_topic is not None:
            return partition_in(of_topic)
        self._turn = next(self._turns) if self._turn is None else self._turn
        return self._turn


def partition_in(sequence_number: int) -> int:
    """Return the partition that a sequence number says."""
    return sequence_number >> _COUNT_BITS
