"""Faults of the core's world: values, chosen from a seed, each with its time and how long it lasts."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import Any

KINDS = {
    "kill-worker": 4,
    "kill-worker-within": 6,
    "kill-host": 3,
    "freeze-worker": 3,
    "suspend": 3,
    "cut": 3,
    "down": 3,
    "lossy": 5,
    "slow": 2,
    "refuse-all": 2,
    "busy": 1,
    "skew": 2,
    "split": 2,
    "steal": 4,
    "busy-worker": 1,
}
"""How often each is chosen, in relation to the others."""

SERVICES = ("topic", "container", "leases", "store")

# No fault but "suspend" lasts longer, in seconds. A machine can be suspended for longer than the window.
_LONGEST_S = 45.0
_SUSPENDED_S = 1500.0


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


def schedule(entropy: random.Random, count: int, span_s: float) -> list[Fault]:
    """Faults within a span of time, in their order."""
    kinds = entropy.choices(list(KINDS), list(KINDS.values()), k=count)
    faults = []
    for kind in kinds:
        longest = _SUSPENDED_S if kind == "suspend" else _LONGEST_S
        faults.append(
            Fault(
                at=round(entropy.uniform(0, span_s), 3),
                kind=kind,
                target=entropy.randrange(100),
                service=entropy.choice(SERVICES),
                lasts_s=round(longest * entropy.random() ** 2, 3),
                size=round(entropy.random(), 3),
            )
        )
    return sorted(faults, key=lambda fault: fault.at)
