"""The behaviour that the platform leaves open: drawn from a seed, and counted."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

DEFAULT_SEED = 1

T = TypeVar("T")


class Edge(StrEnum):
    """Behaviour of the real host that a kind emulator would leave out."""

    WORKER_KILLED = "worker-killed"
    """Only the worker died, and all its invocations failed at once."""
    HOST_KILLED = "host-killed"
    """Only the host died, and its worker went on."""
    WORKER_OUTLIVED_HOST = "worker-outlived-host"
    """A worker finished an invocation whose host was dead."""
    LEASE_LOST_MID_INVOCATION = "lease-lost-mid-invocation"
    """A lease was stolen from its owner, whose function continues."""
    LEASE_GIVEN_UP = "lease-given-up"
    """A failed request cost the lease, which was released until the next acquire interval."""
    LEASE_LEFT_TO_EXPIRE = "lease-left-to-expire"
    """A lease that was given up could not be released either."""
    PARENT_LEASE_LEFT = "parent-lease-left"
    """The lease of a partition that was split or merged remained next to those of its children."""
    CHECKPOINT_CONFLICT = "checkpoint-conflict"
    """A checkpoint met a newer ETag, and was written again."""
    PAGE_WITHHELD = "page-withheld"
    """A page could not be parsed, and was not delivered."""
    TIMEOUT_KILLED_WORKER = "timeout-killed-worker"
    """functionTimeout killed the worker, with all its invocations."""
    LOCK_AWAITED = "lock-awaited"
    """Another host's initialization lock was found and waited for."""


class Edges:
    """Draws edges, and counts them.

    Without a `seed` nothing is drawn. `journal` is a file to which the name of each edge is appended, in a line
    each: unlike the counts it survives a process that is killed.
    """

    def __init__(self, seed: int | None = DEFAULT_SEED, journal: Path | None = None) -> None:
        self._seed = seed
        self.journal = journal
        self._counts: Counter[str] = Counter()

    def met(self, edge: Edge) -> None:
        self._counts[edge.value] += 1
        if self.journal is not None:
            descriptor = os.open(self.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(descriptor, f"{edge.value}\n".encode())
            finally:
                os.close(descriptor)

    def random(self, what: str) -> random.Random | None:
        """Return the random numbers of one concern, or None without a seed."""
        return None if self._seed is None else random.Random(f"{self._seed}:{what}")

    def as_json(self) -> dict[str, Any]:
        return {"seed": self._seed, "edges": dict(sorted(self._counts.items()))}


def shuffled(items: Sequence[T], drawn: random.Random | None) -> Sequence[T]:
    """Return the items in an order that is drawn; as they are without random numbers."""
    return items if drawn is None else drawn.sample(items, len(items))


def read_journal(path: Path) -> Counter[str]:
    """Return the number of times each edge is in a journal; empty if the file does not exist."""
    return Counter(path.read_text().split()) if path.exists() else Counter()
