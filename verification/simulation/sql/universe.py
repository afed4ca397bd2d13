"""One universe of an SQL outbox: workers in several processes, writers, and a model of the database."""

from __future__ import annotations

import random
from dataclasses import replace
from operator import attrgetter

from outbox_relay.operator.backends.sql.reader import SqlOutbox
from relay.config.settings import CONSUMER
from relay.core.holds import PARKED_TYPE
from verification.simulation import determinism
from verification.simulation.faults import schedule
from verification.simulation.operators import Operator
from verification.simulation.plan import EVENTS, FAULTS, Plan, Result
from verification.simulation.sql import relays
from verification.simulation.sql.fault_injection import KINDS, OF_CLOCK, SERVICES, Strikes
from verification.simulation.sql.observer import Observer
from verification.simulation.sql.relays import RelayProcess
from verification.simulation.sql.services import Services
from verification.simulation.sql.writers import Writers
from verification.simulation.world import World

# Transactions begin, and faults happen, within this time, in seconds.
_SPAN_S = 90.0

# What is not published after all faults have ended, within this time, is stuck.
_PATIENCE_S = 2400.0

# Seconds between two events after that.
_TRICKLE_S = 15.0

# What a universe may have, each as likely as the others.
_PROCESSES, _SHARDS, _CLAIMS_S, _KEEPS_H = (2, 3), (1, 2, 3), (5.0, 10.0, 20.0), (None, 0.01)


def plan(seed: int, events: int = EVENTS, faults: int = FAULTS) -> Plan:
    """Return the plan of a seed. In each third universe, the database's clock is set back as well."""
    chosen = Plan.of(seed, events, faults, kinds=KINDS, services=SERVICES, span_s=_SPAN_S)
    if seed % 3 != 2:
        return chosen
    more = schedule(random.Random(f"{seed} clock"), OF_CLOCK, SERVICES, 1, _SPAN_S)
    return replace(chosen, faults=tuple(sorted((*chosen.faults, *more), key=attrgetter("at"))))


def simulate(chosen: Plan) -> Result:
    """Run the universe of a plan to its end."""
    world = World(f"{chosen.seed} sql world")
    universe = Universe(world, chosen)
    with determinism.of(world), relays.connected(universe.services):
        try:
            is_over = universe.run()
        finally:
            world.close()
    result = universe.services.judged(chosen, is_over=is_over)
    return replace(result, violations=[*result.violations, *universe.observer.violations(is_complete=is_over)])


class Universe:
    """The processes, the writers and the faults of one plan."""

    def __init__(self, world: World, chosen: Plan) -> None:
        self.world = world
        self.plan = chosen
        self.services = Services(world, chosen)
        self.relays: list[RelayProcess] = []
        choice = world.entropy.choice
        self._processes = choice(_PROCESSES)
        self._settings = relays.feed(choice(_SHARDS), choice(_CLAIMS_S))
        self._writers = Writers(self.services, self._settings.shards)
        self.services.server.tables.keep_h = choice(_KEEPS_H)
        self.services.server.statements.channel = "changefeed:events" if world.entropy.random() < 0.9 else None
        self.observer = Observer(self.services, self._settings.shards)
        self._made = 0

    def run(self) -> bool:
        """Run it; returns whether everything was published in time."""
        self.keep_relays()
        outbox = SqlOutbox(self._settings)
        Operator(self.services, 1, outbox.document_of, outbox.event_of)
        self._writers.plan(self.plan.events, _SPAN_S)
        strikes = Strikes(self.services, lambda: [each for each in self.relays if each.works], self.keep_relays)
        for fault in self.plan.faults:
            self.world.outside.at(fault.at, strikes.strike, fault)
        last = max((fault.at + fault.lasts_s for fault in self.plan.faults), default=0.0)
        self.world.run(lambda: False, max(last, _SPAN_S) + 1)
        self.keep_relays()
        self._trickle(0)
        return self.world.run(self._is_quiet, _PATIENCE_S)

    def keep_relays(self) -> None:
        """Start processes in place of those that do not work."""
        self.relays = [each for each in self.relays if each.process.is_alive]
        self.world.bury()
        for _ in range(self._processes - sum(each.works for each in self.relays)):
            self._made += 1
            ticks = self.world.entropy.random() < 0.3
            self.relays.append(RelayProcess(self.services, f"relay-{self._made}", self._settings, ticks=ticks))

    def _trickle(self, number: int) -> None:
        """Commit a sound event now and then: while nothing at all is accepted, nothing is poison."""
        self._writers.write(number)
        self.world.outside.after(_TRICKLE_S, self._trickle, number + 1)

    def _is_quiet(self) -> bool:
        """Return True if no transaction is open, every shard was read to its end, and no key is parked."""
        tables = self.services.server.tables
        if self.world.rounds % 64 or self._writers.open or any(tables.outbox.values()):
            return False
        if any(item["type"] == PARKED_TYPE for item in self.services.store.stored):
            return False
        cursors = {
            shard: row.last_ulid for (consumer, shard), row in tables.claims.items() if consumer == CONSUMER
        }
        return self.observer.has_read_all and all(
            not rows or cursors.get(shard, b"") >= rows[-1].ulid for shard, rows in tables.feed.items()
        )
