"""Where the service leaves room, and how often the worst that it may do was done.

    transaction-reordered   the documents of one transaction came in another order than they were written
    page-cut                a page of changes ended before it was full
    transaction-cut         a page of changes ended within a transaction
    stale-read              a read without the write's session token saw the state before
    session-token-ahead     a read was answered 404/1002: the replica asked had not what the token demands
    partition-split         a physical partition was split

Each is drawn from a stream of its own, made of the seed and the edge's name.
"""

from __future__ import annotations

import argparse
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


class Edges:
    """The draws of one server. Without a seed nothing is drawn, and the kindest is done."""

    def __init__(self, seed: int | None) -> None:
        self.seed = seed
        self._met: Counter[Edge] = Counter()
        self._streams = {edge: random.Random(f"{seed}:{edge}") for edge in Edge}

    def drawn(self, edge: Edge, chance: float) -> bool:
        """Whether it is to happen this time."""
        return self.seed is not None and self._streams[edge].random() < chance

    def stream(self, edge: Edge) -> random.Random:
        """Where to draw from how it happens."""
        return self._streams[edge]

    def met(self, edge: Edge) -> None:
        """It happened."""
        self._met[edge] += 1

    def as_json(self) -> dict[str, Any]:
        """As the admin port tells it: `{"seed": …, "edges": {name: count}}`, those that were met alone."""
        return {"seed": self.seed, "edges": {edge: self._met[edge] for edge in Edge if self._met[edge]}}


def seed_of(text: str) -> int | None:
    """The value of `--edges`: a whole number, or `off` for None."""
    if text == OFF:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{text}' is neither a whole number nor '{OFF}'") from error
