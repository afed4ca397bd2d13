"""One universe of the core: the relay's pipeline and publisher in workers of several hosts, on ports in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relay.backends.cosmos.source import event_of
from relay.core import jsontext
from relay.core.documents import SourceDocument
from relay.core.holds import PARKED_TYPE
from verification.journal import entries
from verification.journal.entries import digest_of
from verification.simulation import determinism
from verification.simulation.core.fault_injection import KINDS, SERVICES, Strikes
from verification.simulation.core.host import Host
from verification.simulation.core.services import Services
from verification.simulation.faults import Fault
from verification.simulation.operators import Operator
from verification.simulation.plan import EVENTS, FAULTS, Plan, Result
from verification.simulation.universe import SPAN_S, BaseUniverse, Document
from verification.simulation.world import World


def plan(seed: int, events: int = EVENTS, faults: int = FAULTS) -> Plan:
    """Return the plan of a seed."""
    return Plan.of(seed, events, faults, kinds=KINDS, services=SERVICES, span_s=SPAN_S)


def simulate(chosen: Plan) -> Result:
    """Run the universe of a plan to its end."""
    world = World(f"{chosen.seed} world")
    universe = Universe(world, chosen)
    with determinism.of(world):
        try:
            is_over = universe.run()
        finally:
            world.close()
    return universe.services.judged(chosen, is_over=is_over)


class Universe(BaseUniverse[Host]):
    """The processes, the writer and the faults of one plan, with services in memory."""

    def __init__(self, world: World, chosen: Plan, services: Services | None = None) -> None:
        super().__init__(world, chosen)
        self.services = services or Services(world, chosen)

    def _begin(self) -> Callable[[Fault], None]:
        self.services.leases.begin()
        Operator(self.services, 1, lambda stored, _: SourceDocument.plain(stored), event_of)
        return Strikes(self.services, lambda: self.working, self.keep_hosts).strike

    def _host(self, name: str) -> Host:
        return Host(self.services, name)

    def _is_quiet(self) -> bool:
        if self.world.rounds % 64 or any(item["type"] == PARKED_TYPE for item in self.services.store.stored):
            return False
        leases, partitions = self.services.leases.all, self.services.container.partitions
        return leases.keys() == partitions.keys() and all(
            (leases[number].position or 0) >= each.last for number, each in partitions.items()
        )

    def _store(self, key: str, documents: list[Document]) -> None:
        lsn = self.services.container.commit(key, documents, self.world.outside.wall())
        self._note(key, lsn, documents, "writer")

    def _note(self, key: str, lsn: int, events: list[Document], by: str) -> None:
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
                    digest=digest_of(jsontext.encode(data).decode(), _action_of(data)),
                    place=services.container.effective(key),
                    sound=is_sound,
                )
            )


def _action_of(data: Any) -> str:
    """Return the subject of an event's message. What is no object is not published."""
    return str(data["action"]) if isinstance(data, dict) else ""
