"""Replicas that lag behind, and answer reads whose session token does not demand the latest writes.

Under session consistency a read sees at least what its session token demands. Without one it is eventually
consistent: https://learn.microsoft.com/azure/cosmos-db/consistency-levels#session-consistency. How far a replica
may lag is not documented; here it is the commits of the last tenth of a second.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from outbox_relay.emulators.cosmos.documents import Item
from outbox_relay.emulators.cosmos.edges import Edge, Edges
from outbox_relay.emulators.cosmos.physical_partitions import Partition

LAG_S = 0.1

_COMMITS_KEPT = 64
_STALE = 1 / 4

Name = tuple[str, str]
"""The logical partition's text and the item's id."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """The items before a commit, None for those it created."""

    before: int
    """The LSN of the partition before the commit."""
    lsn: int
    at: float
    items: dict[Name, Item | None] = field(default_factory=dict)


class Replicas:
    """The last commits of every partition. `clock` is monotonic, in seconds."""

    def __init__(self, edges: Edges, clock: Callable[[], float] = time.monotonic) -> None:
        self._edges = edges
        self._clock = clock
        self._commits: dict[int, deque[Replaced]] = {}

    def committed(self, partition: Partition, lsn: int, items: dict[Name, Item | None]) -> None:
        """Note a commit that takes the partition from its present LSN to this one."""
        if self._edges.seed is None:
            return
        commits = self._commits.setdefault(partition.number, deque(maxlen=_COMMITS_KEPT))
        commits.append(Replaced(partition.lsn, lsn, self._clock(), items))

    def choose(self, partition: Partition, demanded: int | None) -> int:
        """Return the LSN of the replica that answers a read with this demand."""
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
        """Return an item as stored on a replica at this LSN."""
        found = latest
        for commit in reversed(self._commits.get(partition.number, ())):
            if commit.lsn <= lsn:
                break
            found = commit.items.get(name, found)
        if found != latest:
            self._edges.met(Edge.STALE_READ)
        return found
