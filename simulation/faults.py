"""Faults of a world: values, chosen from a seed, each with its time and how long it lasts."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

SUSPEND = "suspend"
"""The kind that may outlast a duplicate detection window."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: what happens at which second, to whom, for how long."""

    at: float
    kind: str
    target: int
    service: str
    lasts_s: float
    size: float

    def data(self) -> dict[str, Any]:
        """For the journal."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Kinds:
    """The faults of a kind of universe.

    Attributes:
        weights: How often each is chosen, in relation to the others.
        services: What a fault of a service may befall.
        longest_s: No fault but `SUSPEND` lasts longer, in seconds.
        suspended_s: Maximum seconds for which a machine is suspended.
    """

    weights: Mapping[str, int]
    services: Sequence[str]
    longest_s: float
    suspended_s: float

    def schedule(self, entropy: random.Random, count: int, span_s: float) -> list[Fault]:
        """Faults within a span of time, in their order."""
        kinds = entropy.choices(list(self.weights), list(self.weights.values()), k=count)
        faults = []
        for kind in kinds:
            longest_s = self.suspended_s if kind == SUSPEND else self.longest_s
            faults.append(
                Fault(
                    at=round(entropy.uniform(0, span_s), 3),
                    kind=kind,
                    target=entropy.randrange(100),
                    service=entropy.choice(self.services),
                    lasts_s=round(longest_s * entropy.random() ** 2, 3),
                    size=round(entropy.random(), 3),
                )
            )
        return sorted(faults, key=lambda fault: fault.at)
