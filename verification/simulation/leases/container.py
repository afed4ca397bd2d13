"""A container of Cosmos DB: physical partitions that split and merge, and the change feed of each."""

from __future__ import annotations

import random
from bisect import bisect_right
from dataclasses import dataclass, field

SLOTS = 16
"""Number of keys. Key `n` lies between the bounds `n` and `n + 1`, at which ranges begin and end."""


@dataclass(frozen=True, slots=True)
class Change:
    """An event as the change feed has it; events of a key are numbered in the order of their commits."""

    number: int
    slot: int
    lsn: int


@dataclass(slots=True)
class Partition:
    """Physical partition of the keys from `minimum` to before `maximum`, with its changes in the order of LSNs."""

    token: str
    minimum: int
    maximum: int
    parents: frozenset[str] = frozenset()
    lsn: int = 0
    changes: list[Change] = field(default_factory=list)


class Container:
    """The container. It begins with two physical partitions."""

    def __init__(self, entropy: random.Random) -> None:
        self._entropy = entropy
        self.partitions = [Partition("0", 0, SLOTS // 2), Partition("1", SLOTS // 2, SLOTS)]
        self.changes: list[Change] = []
        self._made = 2

    def commit(self, slot: int) -> Change:
        """Commit an event of a key."""
        partition = self.overlapping(slot, slot + 1)[0]
        partition.lsn += self._entropy.randint(1, 3)
        change = Change(len(self.changes), slot, partition.lsn)
        self.changes.append(change)
        partition.changes.append(change)
        return change

    def split(self, target: int) -> None:
        """Split a partition at a bound within it; its children continue its LSNs."""
        wide = [each for each in self.partitions if each.maximum - each.minimum > 1]
        if not wide:
            return
        parent = wide[target % len(wide)]
        middle = self._entropy.randrange(parent.minimum + 1, parent.maximum)
        index = self.partitions.index(parent)
        self.partitions[index : index + 1] = [
            self._of([parent], minimum, maximum)
            for minimum, maximum in ((parent.minimum, middle), (middle, parent.maximum))
        ]

    def merge(self, target: int) -> None:
        """Merge two neighbours; items keep their LSNs, and the next commit's is above both."""
        if len(self.partitions) > 1:
            index = target % (len(self.partitions) - 1)
            pair = self.partitions[index : index + 2]
            self.partitions[index : index + 2] = [self._of(pair, pair[0].minimum, pair[1].maximum)]

    def _of(self, parents: list[Partition], minimum: int, maximum: int) -> Partition:
        changes = [each for parent in parents for each in parent.changes if minimum <= each.slot < maximum]
        changes.sort(key=lambda each: (each.lsn, each.number))
        older = frozenset().union(*({each.token, *each.parents} for each in parents))
        made = Partition(str(self._made), minimum, maximum, older, max(each.lsn for each in parents), changes)
        self._made += 1
        return made

    def overlapping(self, minimum: int, maximum: int) -> list[Partition]:
        """Return the partitions that have some of these keys, in their order."""
        return [each for each in self.partitions if each.minimum < maximum and minimum < each.maximum]


def page_of(partition: Partition, minimum: int, maximum: int, after: int, at_most: int) -> list[Change]:
    """Return the changes of a range behind an LSN; all those of one LSN are on one page."""
    start = bisect_right(partition.changes, after, key=lambda each: each.lsn)
    page: list[Change] = []
    for change in partition.changes[start:]:
        if minimum <= change.slot < maximum:
            if len(page) >= at_most and change.lsn != page[-1].lsn:
                break
            page.append(change)
    return page
