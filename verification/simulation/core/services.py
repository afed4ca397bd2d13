"""The services of the core's world: a container and its leases, beside what every world has."""

from __future__ import annotations

from typing import Any

from verification.journal import entries
from verification.simulation import services
from verification.simulation.channel import RpcChannel
from verification.simulation.core.container import Container
from verification.simulation.core.leases import Lease, Leases
from verification.simulation.plan import Plan
from verification.simulation.world import World


class Services(services.Services):
    """The services, in one world."""

    def __init__(self, world: World, plan: Plan) -> None:
        super().__init__(world, plan)
        self.container = Container(world.entropy)
        self.leases = Leases(self.container, self._noted)
        self.to_container = RpcChannel(world, "container")
        self.to_leases = RpcChannel(world, "leases")

    def _noted(self, kind: type[entries.OfLease], process: str, lease: Lease, **more: Any) -> None:
        covers = lease.minimum, lease.maximum
        name, owner = str(lease.number), lease.owner or process
        self.journal.append(kind(at=self.at, by=process, lease=name, owner=owner, covers=covers, **more))
