"""The plan of a universe, and its result."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from relay.config.settings import OnPoison
from verification.journal.entries import Entry
from verification.simulation.faults import Fault, schedule
from verification.simulation.faults import Kind as FaultKind

EVENTS, FAULTS = 200, 20


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters and faults of a universe, apart from the choices that its world makes by its seed.

    Attributes:
        seed: Names the universe, among those of one kind.
        events: Number of events that are committed.
        faults: In the order of their times.
        policy: What becomes of events behind a poisoned one.
    """

    seed: int
    events: int
    faults: tuple[Fault, ...]
    policy: OnPoison

    @classmethod
    def of(
        cls,
        seed: int,
        events: int,
        faults: int,
        *,
        kinds: Mapping[str, FaultKind],
        services: Sequence[str],
        span_s: float,
    ) -> Plan:
        """Return the plan of a seed, with that number of faults of these kinds within a span of time."""
        entropy = random.Random(f"{seed} plan")
        policy = entropy.choice(list(OnPoison))
        return cls(seed, events, schedule(entropy, kinds, services, faults, span_s), policy)

    def without(self, faults: Collection[int]) -> Plan:
        """Return the same plan without the faults of these numbers, counted from 0."""
        left = [fault for number, fault in enumerate(self.faults) if number not in faults]
        return replace(self, faults=tuple(left))


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a universe.

    Attributes:
        journal: Everything that happened, in order.
        violations: What must not have happened, a line each.
        virtual_s: How long it lasted, in its own seconds.
        excused: Number of events that came again beyond what is guaranteed.
    """

    journal: Sequence[Entry]
    violations: list[str]
    virtual_s: float
    excused: int = 0

    def text(self) -> str:
        """Return the journal, a line for each entry."""
        return "".join(entry.to_line() + "\n" for entry in self.journal)


class Kind(Protocol):
    """A kind of universe: a module that has these."""

    def plan(self, seed: int, events: int = EVENTS, faults: int = FAULTS) -> Plan:
        """Return the plan of a seed."""

    def simulate(self, plan: Plan) -> Result:
        """Run the universe of a plan to its end."""
