"""Physical partitions, and what splits and merges make of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outbox_relay.emulators.cosmos.partitioning import KeyRange, PartitionKeyDefinition

MERGE = ""
"""In the place of the key at which a partition was split."""


@dataclass(slots=True)
class Partition:
    """A physical partition: a range of effective partition keys, and the number of its last commit."""

    number: int
    index: int
    key_range: KeyRange
    lsn: int
    parents: tuple[str, ...] = ()
    """The ids of the partitions that were split into this one, or merged, the oldest first."""
    oldest: int = 0
    """The number of the first of these, or its own: no item of it has a lower number."""
    whole: int = 0
    """Up to this LSN, numbers of transactions may overlap, as they come from partitions that were merged: there a
    reader's position is never within a transaction."""

    def __post_init__(self) -> None:
        self.oldest = self.oldest or self.number

    @property
    def id(self) -> str:
        """The partition key range id."""
        return str(self.index)


def children_of(
    parent: Partition, cut: str, numbers: Sequence[int], lsns: Sequence[int], first_index: int
) -> list[Partition]:
    """Return the two partitions that a split at this key makes."""
    ranges = (KeyRange(parent.key_range.minimum, cut), KeyRange(cut, parent.key_range.maximum))
    return [
        Partition(number, index, key_range, lsn, (*parent.parents, parent.id), parent.oldest, parent.whole)
        for index, (number, key_range, lsn) in enumerate(zip(numbers, ranges, lsns, strict=True), first_index)
    ]


def merged(first: Partition, second: Partition, number: int, lsn: int, index: int) -> Partition:
    """Return the partition that takes the place of two."""
    key_range = KeyRange(first.key_range.minimum, second.key_range.maximum)
    parents = (*first.parents, first.id, *second.parents, second.id)
    oldest, whole = min(first.oldest, second.oldest), max(first.lsn, second.lsn)
    return Partition(number, index, key_range, lsn, parents, oldest, whole)


def replacing(
    partitions: Sequence[Partition], old: Sequence[Partition], new: Sequence[Partition]
) -> list[Partition]:
    """Return the partitions of a container, in the order of their keys, with others in the place of neighbours."""
    place = list(partitions).index(old[0])
    return [*partitions[:place], *new, *partitions[place + len(old) :]]


def replayed(
    partition_key: PartitionKeyDefinition, rows: Sequence[tuple[int, int]], changes: Sequence[tuple[int, str]]
) -> list[Partition]:
    """Return the partitions of a container after all of its splits and merges.

    Args:
        partition_key: That of the container.
        rows: Number and LSN of every partition it ever had, in the order in which they were made.
        changes: The number of each partition that was split, and the key where; or MERGE, with the next one.
    """
    used = len(rows) - sum(1 if cut == MERGE else 2 for _, cut in changes)
    ranges = partition_key.split(used)
    partitions = [
        Partition(number, index, key_range, lsn)
        for index, ((number, lsn), key_range) in enumerate(zip(rows[:used], ranges, strict=True))
    ]
    for changed, cut in changes:
        (place,) = [at for at, each in enumerate(partitions) if each.number == changed]
        if cut == MERGE:
            old = partitions[place : place + 2]
            number, lsn = rows[used]
            new = [merged(old[0], old[1], number, lsn, used)]
        else:
            old = [partitions[place]]
            numbers, lsns = zip(*rows[used : used + 2], strict=True)
            new = children_of(old[0], cut, numbers, lsns, used)
        partitions = replacing(partitions, old, new)
        used += len(new)
    return partitions
