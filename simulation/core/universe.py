"""One universe of the core: the relay's pipeline and publisher in workers of several hosts, on ports in memory."""

from __future__ import annotations

import random
from typing import Any

from journal import entries
from journal.entries import digest_of
from relay import jsontext
from relay.cosmos.source import event_of
from relay.holds import PARKED_TYPE
from simulation import faults, reality
from simulation.core.host import Host
from simulation.core.services import Services
from simulation.core.strikes import KINDS, SERVICES, Strikes
from simulation.core.worker import EVENT_TYPE
from simulation.judging import judged
from simulation.operators import Operator
from simulation.plan import EVENTS, FAULTS, Plan, Result
from simulation.services import WINDOW_S
from simulation.topic import CONDITIONS
from simulation.world import World

_KEYS = 12

# Commits and faults happen within this time, in seconds.
SPAN_S = 240.0

# What is not published after all faults have ended, within this time, is stuck.
PATIENCE_S = 7200.0

# Seconds between two events after that.
_TRICKLE_S = 60.0

# Hosts that work at any time, others being killed or frozen.
_HOSTS = 2


def plan(seed: int, events: int = EVENTS, faults_: int = FAULTS) -> Plan:
    """The plan of a seed."""

    def chosen(entropy: random.Random, count: int) -> tuple[faults.Fault, ...]:
        return faults.schedule(entropy, KINDS, SERVICES, count, SPAN_S)

    return Plan.of(seed, chosen, events, faults_)


def simulate(chosen: Plan) -> Result:
    """Run the universe of a plan to its end."""
    world = World(f"{chosen.seed} world")
    universe = Universe(world, chosen)
    with reality.of(world):
        try:
            is_over = universe.run()
        finally:
            world.close()
    services = universe.services
    return judged(
        chosen,
        services.journal,
        window_s=WINDOW_S,
        learned=services.topic.learned,
        virtual_s=world.now,
        is_over=is_over,
    )


class Universe:
    """The processes, the writer and the faults of one plan."""

    def __init__(self, world: World, chosen: Plan, services: Services | None = None) -> None:
        self.world = world
        self.plan = chosen
        self.services = services or Services(world, chosen)
        self.hosts: list[Host] = []
        self._hosts_made = 0

    def run(self) -> bool:
        """Run it; returns whether everything was published in time."""
        self.services.leases.begin()
        self.keep_hosts()
        Operator(self.services, 1, event_of, EVENT_TYPE)
        self.plan_commits()
        strikes = self.strikes()
        for fault in self.plan.faults:
            self.world.outside.at(fault.at, strikes.strike, fault)
        last = max((fault.at + fault.lasts_s for fault in self.plan.faults), default=0.0)
        self.world.run(lambda: False, max(last, SPAN_S) + 1)
        self.keep_hosts()
        self._trickle(0)
        return self.world.run(self.is_quiet, PATIENCE_S)

    def keep_hosts(self) -> None:
        """Start hosts in place of those that do not work."""
        self.hosts = [host for host in self.hosts if host.process.is_alive]
        self.world.bury()
        for _ in range(_HOSTS - sum(host.works for host in self.hosts)):
            self._hosts_made += 1
            self.hosts.append(Host(self.services, f"host-{self._hosts_made}"))

    def strikes(self) -> Strikes:
        """What strikes with the faults."""
        return Strikes(self.services, lambda: [host for host in self.hosts if host.works], self.keep_hosts)

    def is_quiet(self) -> bool:
        """Whether every lease has passed everything, and no key is parked."""
        if self.world.rounds % 64 or any(item["type"] == PARKED_TYPE for item in self.services.store.stored):
            return False
        leases, partitions = self.services.leases.all, self.services.container.partitions
        return leases.keys() == partitions.keys() and all(
            (leases[number].position or 0) >= each.last for number, each in partitions.items()
        )

    def plan_commits(self) -> None:
        """Have the events committed, some time in the span."""
        entropy = self.world.entropy
        left, number = self.plan.events, 0
        while left > 0:
            size = min(left, entropy.choice((1, 1, 1, 2, 3, 4)))
            left -= size
            number += 1
            self.world.outside.at(entropy.uniform(0, SPAN_S), self._commit, number, size)

    def _trickle(self, number: int) -> None:
        """Commit a sound event now and then: while nothing at all is accepted, nothing is poison."""
        key = f"key-{number % _KEYS}"
        self._store(key, [_document(key, f"t{number}", 0)])
        self.world.outside.after(_TRICKLE_S, self._trickle, number + 1)

    def _commit(self, number: int, size: int) -> None:
        key = f"key-{self.world.entropy.randrange(_KEYS)}"
        documents = [_document(key, f"e{number}", order) for order in range(size)]
        for document in documents:
            if self.world.entropy.random() < 0.02:
                document["refused"] = self.world.entropy.choice(CONDITIONS)
            elif self.world.entropy.random() < 0.01:
                document["data"] = "no object"
        self._store(key, documents)

    def _store(self, key: str, documents: list[dict[str, Any]]) -> None:
        lsn = self.services.container.commit(key, documents, self.world.outside.wall())
        self.note(key, lsn, documents, "writer")

    def note(self, key: str, lsn: int, events: list[dict[str, Any]], by: str) -> None:
        """Write into the journal that events were committed."""
        services = self.services
        for document in events:
            data = document["data"]
            is_sound = "refused" not in document and isinstance(data, dict)
            services.journal.append(
                entries.Committed(
                    at=services.at,
                    by=by,
                    key=key,
                    id=document["id"],
                    position=(lsn, document["order"]),
                    digest=digest_of(jsontext.encode(data).decode(), action_of(data)),
                    place=services.container.effective(key),
                    sound=is_sound,
                )
            )


def action_of(data: Any) -> str:
    """The subject of an event's message; of what is no object, nothing is published."""
    return str(data["action"]) if isinstance(data, dict) else ""


def _document(key: str, commit: str, order: int) -> dict[str, Any]:
    return {
        "id": f"{commit}-{order}",
        "partitionKey": key,
        "type": EVENT_TYPE,
        "order": order,
        "data": {"action": "Changed", "commit": commit},
    }
