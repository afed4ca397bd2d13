"""A network in memory: who listens to which port, and how connections come about."""

from __future__ import annotations

import asyncio
import errno
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from verification.simulation.channel import Channel
from verification.simulation.sockets import Address, Socket
from verification.simulation.world import Process, World

HOST = "127.0.0.1"

_FASTEST_S, _SLOWEST_S = 0.0005, 0.005
_CAPACITY = 1 << 17
_FIRST_PORT = 10_000
# Linux repeats the first packet of a connection after this time, then each time after twice the last one, until it
# gives up (net.ipv4.tcp_syn_retries = 6).
_FIRST_KNOCK_S, _LAST_KNOCK_S = 1.0, 64.0


@dataclass(slots=True)
class Port:
    """A port, and the way to it.

    Attributes:
        process, accept: Who listens, and what is called there with each new connection; None if nobody listens.
        refuses: Whether connections are refused all the same.
    """

    number: int
    way: Channel
    process: Process | None = None
    accept: Callable[[Socket], None] | None = None
    refuses: bool = False


class Network:
    """The ports of all processes, at one address.

    Attributes:
        capacity: Bytes that can be sent on a connection and wait to be read.
    """

    def __init__(self, world: World, *, capacity: int = _CAPACITY) -> None:
        self.world = world
        self.capacity = capacity
        self.ports: dict[int, Port] = {}
        self._sockets: dict[Process, dict[Socket, None]] = {}
        self._digest = hashlib.sha256()
        self._ports_taken = 0

    def socket(self, process: Process) -> Socket:
        """Return a socket of a process, which is not connected."""
        made = Socket(self, process)
        if process not in self._sockets:
            self._sockets[process] = {}
            process.on_death(lambda: self._died(process))
        self._sockets[process][made] = None
        return made

    def forget(self, closed: Socket) -> None:
        """Forget a socket that is closed. The socket calls this."""
        self._sockets.get(closed.process, {}).pop(closed, None)

    def port(self, number: int) -> Port:
        """Return a port by its number, whether or not somebody listens."""
        if number not in self.ports:
            self.ports[number] = Port(
                number, Channel(self.world, str(number), fastest_s=_FASTEST_S, slowest_s=_SLOWEST_S)
            )
        return self.ports[number]

    def listen(self, process: Process, number: int, accept: Callable[[Socket], None]) -> Port:
        """Let a process listen to a port, or with 0 to a free one. Raises OSError if another one does."""
        port = self.port(number or self._free_port())
        if port.process is not None:
            raise OSError(errno.EADDRINUSE, f"port {number} is in use by {port.process.name}")
        port.process, port.accept = process, accept
        process.on_death(lambda: self.stop_listening(process, port))
        return port

    def stop_listening(self, process: Process, port: Port) -> None:
        """Refuse further connections. Those that are open stay."""
        if port.process is process:
            port.process = port.accept = None

    def reset(self, port: Port) -> None:
        """End all connections to a port, at both ends."""
        for sockets in self._sockets.values():
            for each in list(sockets):
                if each.way is port.way:
                    each.fail(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    async def connect(self, client: Socket, address: Address) -> None:
        """Connect a socket. Raises ConnectionRefusedError, or TimeoutError after 127 s without an answer."""
        port = self.port(address[1])
        client.way = port.way
        client.local = (HOST, self._free_port())
        outcome: asyncio.Future[None] = client.process.loop.create_future()
        self._knock(client, port, outcome, _FIRST_KNOCK_S)
        await outcome

    def trace(self, receiver: Socket, piece: bytes) -> None:
        """Keep a digest of everything that arrives, with when and where."""
        self._digest.update(f"{self.world.now!r} {receiver.process.name} {receiver.local[1]} ".encode())
        self._digest.update(piece)

    def digest(self) -> str:
        """Return a digest of everything that has arrived anywhere: equal only if two universes were."""
        return self._digest.hexdigest()

    def _free_port(self) -> int:
        self._ports_taken += 1
        return _FIRST_PORT + self._ports_taken

    def _knock(self, client: Socket, port: Port, outcome: asyncio.Future[None], patience_s: float) -> None:
        if outcome.done() or client.is_closed:
            return
        if port.way.is_open(client.process):
            self.world.outside.after(port.way.delay_s(), self._arrive, client, port, outcome)
        elif patience_s > _LAST_KNOCK_S:
            self._answer(client, outcome, TimeoutError(errno.ETIMEDOUT, "Connection timed out"))
        else:
            self.world.outside.after(patience_s, self._knock, client, port, outcome, 2 * patience_s)

    def _arrive(self, client: Socket, port: Port, outcome: asyncio.Future[None]) -> None:
        if client.is_closed:
            return
        answer: OSError | None = None
        if port.process is None or port.refuses:
            answer = ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens to port {port.number}")
        else:
            self._join(client, port)
        self.world.outside.after(port.way.delay_s(), self._answer, client, outcome, answer)

    def _join(self, client: Socket, port: Port) -> None:
        """Make the other end. Its process learns about it when it runs."""
        assert port.process is not None
        assert port.accept is not None
        server = self.socket(port.process)
        server.local = (HOST, port.number)
        server.way = port.way
        server.peer, client.peer = client, server
        port.process.loop.call_soon(port.accept, server)

    def _answer(self, client: Socket, outcome: asyncio.Future[None], answer: OSError | None) -> None:
        process = client.process
        if process.is_alive:
            process.loop.call_soon(_settle, outcome, answer)

    def _died(self, process: Process) -> None:
        for each in list(self._sockets.pop(process)):
            each.close()


def _settle(outcome: asyncio.Future[None], error: OSError | None) -> None:
    if outcome.done():
        return
    if error is None:
        outcome.set_result(None)
    else:
        outcome.set_exception(error)
