"""Faults as values, chosen from a seed: each with its time, what it befalls, and how long it lasts."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault.

    Attributes:
        at: When it strikes, in seconds.
        kind: What happens.
        target: Which process, partition or lease it befalls: a number that is counted off among those that exist.
        service: Which service it is about, if it is about one.
        lasts_s: How long it lasts, in seconds.
        size: How bad it is, from 0 to 1.
    """

    at: float
    kind: str
    target: int
    service: str
    lasts_s: float
    size: float

    def __str__(self) -> str:
        return f"{self.at:8.3f} s  {self.kind}, {self.service} or {self.target}, {self.lasts_s:g} s, {self.size:g}"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault: how often it is chosen, in relation to the others, and how long it lasts at most."""

    weight: int
    longest_s: float = 45.0


def schedule(
    entropy: random.Random, kinds: Mapping[str, Kind], services: Sequence[str], count: int, span_s: float
) -> tuple[Fault, ...]:
    """Return faults within a span of time, in their order. Short ones are more frequent than long ones."""
    chosen = entropy.choices(list(kinds), [kind.weight for kind in kinds.values()], k=count)
    faults = [
        Fault(
            at=round(entropy.uniform(0, span_s), 3),
            kind=kind,
            target=entropy.randrange(100),
            service=entropy.choice(services),
            lasts_s=round(kinds[kind].longest_s * entropy.random() ** 2, 3),
            size=round(entropy.random(), 3),
        )
        for kind in chosen
    ]
    return tuple(sorted(faults, key=lambda fault: fault.at))
