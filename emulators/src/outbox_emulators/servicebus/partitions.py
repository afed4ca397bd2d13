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
    timestamps", learn.microsoft.com). Messages without a key go to the partitions in turn.
    """

    def __init__(self, *, partitioned: bool) -> None:
        self._last = [0] * (PARTITIONS if partitioned else 1)
        self._turns = itertools.cycle(range(len(self._last)))

    def next(self, key: str | None) -> int:
        """Return the number of the next message with a session id or partition key."""
        partition = self._partition(key)
        self._last[partition] += 1
        return (partition << _COUNT_BITS) + self._last[partition]

    def _partition(self, key: str | None) -> int:
        if len(self._last) == 1:
            return 0
        return next(self._turns) if key is None else partition_of(key)


def partition_in(sequence_number: int) -> int:
    """Return the partition that a sequence number says."""
    return sequence_number >> _COUNT_BITS
