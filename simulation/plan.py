"""What happens in a universe, as a value that its seed gives."""

from __future__ import annotations

import random
from dataclasses import dataclass

from relay.settings import OnPoison
from simulation.faults import Fault, Kinds


@dataclass(frozen=True, slots=True)
class Plan:
    """What happens in a universe, apart from the choices that the world makes by its seed.

    Attributes:
        seed: Names the universe.
        events: Number of events.
        faults: In the order of their times.
    """

    seed: int
    events: int
    faults: tuple[Fault, ...]
    policy: OnPoison

    @classmethod
    def of(cls, seed: int, kinds: Kinds, span_s: float, *, events: int, faults: int) -> Plan:
        """The plan of a seed, with faults of these kinds within a span of time."""
        entropy = random.Random(f"{seed} plan")
        policy = entropy.choice(list(OnPoison))
        return cls(seed, events, tuple(kinds.schedule(entropy, faults, span_s)), policy)
