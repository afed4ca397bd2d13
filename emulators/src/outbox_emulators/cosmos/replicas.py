"""Replicas that lag behind: what a read may be answered that does not name the write it must have seen.

Under session consistency a read sees at least what its session token says, and without one it is eventually
consistent: https://learn.microsoft.com/azure/cosmos-db/consistency-levels#session-consistency. How far a replica
may lag is not documented; here by the commits of the last tenth of a second.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from outbox_emulators.cosmos.catalog import Partition
from outbox_emulators.cosmos.documents import Item
from outbox_emulators.cosmos.edges import Edge, Edges

LAG_S = 0.1

_COMMITS_KEPT = 64
_STALE = 1 / 4

Name = tuple[str, str]
"""The logical partition's text and the item's id."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """What a commit did away with: the items as they were before, None where there was none."""

    before: int
    """The LSN of the partition before the commit."""
    lsn: int
    at: float
    items: dict[Name, Item | None] = field(default_factory=dict)


class Replicas:
    """The last commits of every partition. `clock` gives seconds that only grow."""

    def __init__(self, edges: Edges, clock: Callable[[], float] = time.monotonic) -> None:
        self._edges = edges
        self._clock = clock
        self._commits: dict[int, deque[Replaced]] = {}

    def committed(self, partition: Partition, lsn: int, items: dict[Name, Item | None]) -> None:
        """A commit took the partition from where it stands to this LSN."""
        if self._edges.seed is None:
            return
        commits = self._commits.setdefault(partition.number, deque(maxlen=_COMMITS_KEPT))
        commits.append(Replaced(partition.lsn, lsn, self._clock(), items))

    def choose(self, partition: Partition, demanded: int | None) -> int:
        """The LSN up to which the replica has everything that answers a read which demands so much."""
        recent = self._clock() - LAG_S
        unseen = [
            commit.before
            for commit in self._commits.get(partition.number, ())
            if commit.at > recent and commit.before >= (demanded or 0)
        ]
        if unseen and self._edges.drawn(Edge.STALE_READ, _STALE):
            return self._edges.stream(Edge.STALE_READ).choice(unseen)
        return partition.lsn

    def item_at(self, partition: Partition, lsn: int, name: Name, latest: Item | None) -> Item | None:
        """An item as a replica has it that has everything up to this LSN."""
        found = latest
        for commit in reversed(self._commits.get(partition.number, ())):
            if commit.lsn <= lsn:
                break
            found = commit.items.get(name, found)
        if found != latest:
            self._edges.met(Edge.STALE_READ)
        return found
