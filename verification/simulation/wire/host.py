"""A host of the wire's world: the emulator's, in a process of its own, with the worker in another."""

from __future__ import annotations

import contextlib

from azure.core.exceptions import AzureError

from outbox_relay.emulators.functions import host
from outbox_relay.emulators.functions.edges import Edges
from verification.simulation.wire.services import APP, Services
from verification.simulation.wire.worker import SimulatedWorker


class Host:
    """A Functions host and its worker."""

    def __init__(self, services: Services, name: str) -> None:
        world = services.world
        self.process = world.process(name)
        edges = Edges(world.entropy.randrange(1 << 32))
        settings = services.settings()
        self.worker = SimulatedWorker(world, self.process, APP, settings)
        self._host = host.Host(APP, settings, instance=name, edges=edges, worker=self.worker)
        self.process.start(self._host.start())

    @property
    def works(self) -> bool:
        """Neither killed nor frozen."""
        return self.process.is_alive and not self.process.is_frozen

    def steal(self, number: int) -> None:
        """Take a lease from whoever has it."""
        self.process.start(self._steal(number))

    async def _steal(self, number: int) -> None:
        # As the balancer, it tries again at another time.
        with contextlib.suppress(AzureError):
            await self._host.steal(str(number % 4))
