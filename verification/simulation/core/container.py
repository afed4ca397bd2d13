"""A container of Cosmos DB and its change feed, as the relay sees them: ranges, LSNs, pages, splits."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from relay.backends.cosmos.effective_keys import effective_key

Document = dict[str, Any]

# The ranges of effective partition keys go from "" to this.
END = "FF"


class GoneError(Exception):
    """The physical partition was split: its children have its changes."""


@dataclass(slots=True)
class Partition:
    """A physical partition: effective keys from `minimum` to `maximum`, and its changes in the order of LSNs."""

    number: int
    minimum: str
    maximum: str
    lsn: int = 0
    changes: list[Document] = field(default_factory=list)

    @property
    def last(self) -> int:
        """The LSN of its last change; 0 if it has none."""
        return int(self.changes[-1]["_lsn"]) if self.changes else 0

    def covers(self, effective: str) -> bool:
        return self.minimum <= effective < self.maximum


class Container:
    """The container; its clock is the service's."""

    def __init__(self, entropy: random.Random) -> None:
        self._entropy = entropy
        self.partitions = {0: Partition(0, "", END)}
        self._made = 1
        self._effective: dict[str, str] = {}

    def effective(self, key: str) -> str:
        """Return the effective partition key of a key."""
        known = self._effective.get(key)
        if known is None:
            known = self._effective[key] = effective_key(key)
        return known

    def partition_of(self, key: str) -> Partition:
        """Return the physical partition that has a key now."""
        effective = self.effective(key)
        return next(each for each in self.partitions.values() if each.covers(effective))

    def commit(self, key: str, documents: Sequence[Document], now: float) -> int:
        """Commit documents of one key together; returns their LSN. The feed may have them in any order."""
        partition = self.partition_of(key)
        partition.lsn += self._entropy.randint(1, 3)
        stored = [{**document, "_lsn": partition.lsn, "_ts": int(now)} for document in documents]
        self._entropy.shuffle(stored)
        partition.changes += stored
        return partition.lsn

    def read(self, number: int, after: int, at_most: int) -> list[Document]:
        """Read the changes of a physical partition behind an LSN, in whole transactions. Raises GoneError."""
        partition = self.partitions.get(number)
        if partition is None:
            raise GoneError
        page: list[Document] = []
        for commit in _commits_behind(partition.changes, after):
            if page and len(page) + len(commit) > at_most:
                break
            page += commit
        return page

    def split(self, number: int) -> None:
        """Split a physical partition in the middle of its keys, unless it is too small for that."""
        parent = self.partitions[number]
        effective = sorted({self.effective(each["partitionKey"]) for each in parent.changes})
        middle = effective[len(effective) // 2] if effective else ""
        if not parent.minimum < middle < parent.maximum:
            middle = parent.minimum + "7"
        if middle >= parent.maximum:
            return
        del self.partitions[number]
        for minimum, maximum in ((parent.minimum, middle), (middle, parent.maximum)):
            child = Partition(self._made, minimum, maximum, parent.lsn)
            child.changes = [each for each in parent.changes if child.covers(self.effective(each["partitionKey"]))]
            self.partitions[self._made] = child
            self._made += 1


def _commits_behind(changes: Sequence[Document], lsn: int) -> Iterator[list[Document]]:
    start = len(changes)
    while start and changes[start - 1]["_lsn"] > lsn:
        start -= 1
    for _, commit in groupby(changes[start:], lambda document: document["_lsn"]):
        yield list(commit)
