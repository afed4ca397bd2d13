"""A world whose processes have a network."""

from __future__ import annotations

import socket as real
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from aiohappyeyeballs import impl

from verification.simulation.network import Network
from verification.simulation.transports import NetworkLoop
from verification.simulation.world import Process, World


class ConnectedWorld(World):
    """A world with a network between its processes."""

    def __init__(self, seed: str) -> None:
        self.network = Network(self)
        super().__init__(seed)

    def loop_of(self, process: Process) -> NetworkLoop:
        return NetworkLoop(process, self.network)  # type: ignore[abstract]  # no files, pipes or signals here


@contextmanager
def sockets_of(world: ConnectedWorld) -> Iterator[None]:
    """Let aiohttp make sockets of the world, until the block ends.

    Everything else that needs a connection asks the running loop for one. aiohttp makes a socket first, and gives
    that to the loop (aiohappyeyeballs).
    """

    def socket(**more: Any) -> Any:
        return world.network.socket(world.running)

    vars(impl)["socket"] = SimpleNamespace(socket=socket)
    try:
        yield
    finally:
        vars(impl)["socket"] = real
