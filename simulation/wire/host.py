"""A host of the wire's world: the emulator's, in a process of its own, with the worker in another."""

from __future__ import annotations

from outbox_emulators.functions import host
from outbox_emulators.functions.edges import Edges
from simulation.wire.services import APP, Services
from simulation.wire.worker import SimulatedWorker


class Host:
    """A Functions host and its worker."""

    def __init__(self, services: Services, name: str) -> None:
        world = services.world
        self.process = world.process(name)
        self.worker = SimulatedWorker(world, self.process, APP, services.settings())
        self.process.start(self._run(services))
        self.host: host.Host | None = None

    @property
    def works(self) -> bool:
        """Neither killed nor frozen."""
        return self.process.is_alive and not self.process.is_frozen

    async def _run(self, services: Services) -> None:
        edges = Edges(services.world.entropy.randrange(1 << 32))
        self.host = host.Host(
            APP, services.settings(), instance=self.process.name, edges=edges, worker=self.worker
        )
        await self.host.start()
