"""The behaviour that the service leaves open: drawn from a seed, and counted.

    transaction-reordered   the documents of one transaction came in another order than they were written
    page-cut                a page of changes ended before it was full
    transaction-cut         a page of changes ended within a transaction
    stale-read              a read without the write's session token returned the state before the write
    session-token-ahead     a read was refused with 404/1002, as its session token was ahead of the partition
    partition-split         a physical partition was split
    partition-merged        two physical partitions were merged

Each edge has its own stream of random numbers, seeded with the seed and the edge's name.
"""

from __future__ import annotations

import random
from collections import Counter
from enum import StrEnum
from typing import Any

DEFAULT_SEED = 1
OFF = "off"


class Edge(StrEnum):
    TRANSACTION_REORDERED = "transaction-reordered"
    PAGE_CUT = "page-cut"
    TRANSACTION_CUT = "transaction-cut"
    STALE_READ = "stale-read"
    SESSION_TOKEN_AHEAD = "session-token-ahead"
    PARTITION_SPLIT = "partition-split"
    PARTITION_MERGED = "partition-merged"


class Edges:
    """The draws of one server. Without a seed nothing is drawn, and the kindest behaviour is chosen."""

    def __init__(self, seed: int | None) -> None:
        self.seed = seed
        self._met: Counter[Edge] = Counter()
        self._streams: dict[Edge, random.Random] = {}
        self.restart()

    def restart(self) -> None:
        """Draw the same again from the start, and count from zero."""
        self._met.clear()
        self._streams = {edge: random.Random(f"{self.seed}:{edge}") for edge in Edge}

    def drawn(self, edge: Edge, chance: float) -> bool:
        """Return True if the edge is met this time."""
        return self.seed is not None and self._streams[edge].random() < chance

    def stream(self, edge: Edge) -> random.Random:
        """Return the edge's random numbers, for a draw of how it is met."""
        return self._streams[edge]

    def met(self, edge: Edge) -> None:
        """Count the edge."""
        self._met[edge] += 1

    def as_json(self) -> dict[str, Any]:
        """Return the answer of the admin port.

        It is `{"seed": …, "edges": {name: count}}`, with the edges that were met.
        """
        return {"seed": self.seed, "edges": {edge: self._met[edge] for edge in Edge if self._met[edge]}}


def seed_of(text: str) -> int | None:
    """Parse the value of `--edges`: a whole number, or `off` for None. Raises ValueError."""
    if text == OFF:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise ValueError(f"'{text}' is neither a whole number nor '{OFF}'") from error
