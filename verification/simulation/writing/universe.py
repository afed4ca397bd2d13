"""One universe of writers: services in several processes, the container that they write, and their faults."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from relay.core import jsontext
from verification.journal.entries import Committed, Entry, digest_of
from verification.simulation import determinism
from verification.simulation.plan import EVENTS, FAULTS, Plan, Result
from verification.simulation.world import World
from verification.simulation.writing.documents import Document
from verification.simulation.writing.writers import KINDS, Writers

# Commits and faults happen within this time, in seconds.
_SPAN_S = 240.0

# Writers get so long to finish, after all faults have ended.
_PATIENCE_S = 60.0


def plan(seed: int, events: int = EVENTS, faults: int = FAULTS) -> Plan:
    """Return the plan of a seed. The writers stop after `events` events."""
    return Plan.of(seed, events, faults, kinds=KINDS, services=("documents",), span_s=_SPAN_S)


def simulate(chosen: Plan) -> Result:
    """Run the universe of a plan to its end."""
    world = World(f"{chosen.seed} writing")
    universe = _Universe(world, chosen)
    with determinism.of(world):
        try:
            universe.run()
        finally:
            world.close()
    return Result(universe.journal, universe.writers.promises.violations(), world.now)


class _Universe:
    def __init__(self, world: World, chosen: Plan) -> None:
        self.world = world
        self.plan = chosen
        self.journal: list[Entry] = []
        self.writers = Writers(world, self.journal, self._committed)
        self._commits = 0
        self._events = 0

    def run(self) -> None:
        """Run it to its end."""
        for fault in self.plan.faults:
            self.world.outside.at(fault.at, self.writers.strike, fault)
        last = max((fault.at + fault.lasts_s for fault in self.plan.faults), default=0.0)
        self.world.run(lambda: self._events >= self.plan.events, _SPAN_S)
        self.writers.stop()
        left_s = max(last - self.world.now, 0.0) + _PATIENCE_S
        self.world.run_task(self.world.outside, asyncio.sleep(left_s), left_s + 1)

    def _committed(self, key: str, documents: Sequence[Document]) -> None:
        self._commits += 1
        for document in documents:
            if "order" in document:
                self._events += 1
                self.journal.append(
                    Committed(
                        at=round(self.world.now, 6),
                        by=self.world.running.name,
                        key=key,
                        id=document["id"],
                        position=(self._commits, document["order"]),
                        digest=digest_of(jsontext.encode(document["data"]).decode(), document["data"]["action"]),
                    )
                )
