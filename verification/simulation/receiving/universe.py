"""One universe of receivers: a topic's messages, two consumers in several processes, and their faults."""

from __future__ import annotations

import json
from collections import Counter

from relay.servicebus.messages import Message
from verification.journal import checker
from verification.journal.entries import Accepted, Committed, Entry, digest_of
from verification.simulation import determinism
from verification.simulation.plan import EVENTS, FAULTS, Plan, Result
from verification.simulation.receiving.consumers import KINDS, Consumers
from verification.simulation.receiving.sdk import UNREADABLE
from verification.simulation.world import World

_KEYS = 12

# Messages come and faults happen within this time, in seconds.
_SPAN_S = 240.0

# What is not settled after all faults have ended, within this time, is stuck.
_PATIENCE_S = 3600.0

# The shares of events that never reach the topic, that no consumer can handle, and that nobody can read.
_MISSING, _POISON, _UNREADABLE = 0.03, 0.03, 0.01


def plan(seed: int, events: int = EVENTS, faults: int = FAULTS) -> Plan:
    """Return the plan of a seed."""
    return Plan.of(seed, events, faults, kinds=KINDS, services=("broker",), span_s=_SPAN_S)


def simulate(chosen: Plan) -> Result:
    """Run the universe of a plan to its end."""
    world = World(f"{chosen.seed} receiving")
    universe = _Universe(world, chosen)
    with determinism.of(world):
        try:
            is_over = universe.run()
            seen = universe.consumers.violations()
        finally:
            world.close()
    violations = list(seen)
    for journal in universe.consumers.journals():
        violations += checker.check(journal, is_complete=is_over).findings
    if not is_over:
        violations.append(f"stuck: not everything was settled {_PATIENCE_S:g} s after the last fault")
    return Result(universe.journal, violations, world.now)


class _Universe:
    def __init__(self, world: World, chosen: Plan) -> None:
        self.world = world
        self.plan = chosen
        self.journal: list[Entry] = []
        self.consumers = Consumers(world, self.journal)
        self._number = 0
        self._ids: Counter[str] = Counter()
        self._sequences: Counter[str] = Counter()

    def run(self) -> bool:
        """Run it; returns whether everything was settled in time."""
        entropy = self.world.entropy
        for when in sorted(entropy.uniform(0, _SPAN_S) for _ in range(self.plan.events)):
            self.world.outside.at(when, self._publish)
        for fault in self.plan.faults:
            self.world.outside.at(fault.at, self.consumers.strike, fault)
        last = max((fault.at + fault.lasts_s for fault in self.plan.faults), default=0.0)
        self.world.run(lambda: False, max(last, _SPAN_S) + 1)
        self.consumers.keep()
        return self.world.run(self._is_quiet, _PATIENCE_S)

    def _is_quiet(self) -> bool:
        return not self.world.rounds % 64 and self.consumers.are_done

    def _publish(self) -> None:
        entropy = self.world.entropy
        key = f"key-{entropy.randrange(_KEYS)}"
        order = f"{key}/{entropy.randrange(2)}"
        self._sequences[order] += 1
        if entropy.random() < _MISSING:
            return
        self._number += 1
        # Of a partitioned topic, several keys may have the same id.
        self._ids[key] += 1
        body = json.dumps({"orderId": order, "number": self._number})
        message = Message(
            f"e{self._ids[key]}", key, "Changed", body.encode(), {"sequence": self._sequences[order]}
        )
        is_unreadable = entropy.random() < _UNREADABLE
        if is_unreadable:
            message.application_properties[UNREADABLE] = 1
        if is_unreadable or entropy.random() < _POISON:
            self.consumers.spoil((key, message.id), unreadable=is_unreadable)
        digest, at = digest_of(body, "Changed"), round(self.world.now, 6)
        self.journal += [
            Committed(at=at, key=key, id=message.id, position=(self._number,), digest=digest),
            Accepted(at=at, key=key, id=message.id, digest=digest, number=self._number),
        ]
        self.consumers.put(self._number, message)
