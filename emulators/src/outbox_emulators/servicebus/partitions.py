"""The partitions of a partitioned entity, each of them a message broker of its own."""

from __future__ import annotations

import zlib

PARTITIONS = 16
"""How many the service gives a partitioned entity ("Partitioned queues and topics", learn.microsoft.com)."""


def partition_of(key: str, partitions: int = PARTITIONS) -> int:
    """Return the partition, counted from 0, that a session id or partition key belongs to.

    The service's own hash is not public; this one (CRC-32 of the UTF-8 bytes) is stable, so that whoever injects a
    fault can compute which keys it is applied to.
    """
    return zlib.crc32(key.encode()) % partitions
