"""The transports of asyncio over simulated sockets, and the loop that makes them."""

from __future__ import annotations

import asyncio
import socket as real
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from verification.simulation.loop import ProcessLoop
from verification.simulation.network import HOST, Network, Port
from verification.simulation.sockets import Address, Socket

if TYPE_CHECKING:
    from verification.simulation.world import Process

# The limits of asyncio's own transports.
_HIGH = 1 << 16
_LOW = _HIGH // 4

Factory = Callable[[], asyncio.BaseProtocol]


class StreamTransport(asyncio.Transport):
    """A transport as that of a selector loop: with a buffer of what the socket has no room for, and its limits."""

    def __init__(self, loop: ProcessLoop, socket: Socket, protocol: asyncio.BaseProtocol) -> None:
        extra = {"socket": socket, "sockname": socket.getsockname(), "peername": socket.getpeername()}
        super().__init__(extra)
        self._loop = loop
        self._socket = socket
        self._protocol = cast("asyncio.Protocol", protocol)
        self._buffer = bytearray()
        self._low, self._high = _LOW, _HIGH
        self._has_paused = False
        self._is_closing = False
        self._is_lost = False
        self._has_ended = False
        self._is_paused = False
        self._is_reading = False
        loop.call_soon(protocol.connection_made, self)
        loop.call_soon(self._begin)

    def _begin(self) -> None:
        if not self._is_closing:
            self._socket.on_readable = self._ready
            self._socket.on_writable = self._has_room
            self._ready()

    # Reading.

    def is_reading(self) -> bool:
        return not self._is_closing and not self._is_paused

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        if self._is_paused and not self._is_closing:
            self._is_paused = False
            self._ready()

    def _ready(self) -> None:
        """Read at the next opportunity."""
        if not self._is_reading and self._socket.is_readable:
            self._is_reading = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._is_reading = False
        if self._is_closing or self._is_paused:
            return
        try:
            data = self._socket.receive()
        except OSError as error:
            self._fail(error)
            return
        if data:
            self._protocol.data_received(data)
            self._ready()
        elif self._socket.has_ended and not self._protocol.eof_received():
            self.close()

    # Writing.

    def get_write_buffer_size(self) -> int:
        return len(self._buffer)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _HIGH if high is None else high
        self._low = self._high // 4 if low is None else low

    def _maybe_pause_protocol(self) -> None:
        if not self._has_paused and len(self._buffer) > self._high:
            self._has_paused = True
            self._protocol.pause_writing()

    def _maybe_resume_protocol(self) -> None:
        if self._has_paused and len(self._buffer) <= self._low:
            self._has_paused = False
            self._protocol.resume_writing()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._has_ended:
            raise RuntimeError("Cannot call write() after write_eof()")
        if not data or self._is_lost:
            return
        # What the caller has may change.
        data = bytes(data)
        if not self._buffer:
            try:
                sent = self._socket.send(data)
            except OSError as error:
                self._fail(error)
                return
            data = data[sent:]
        if data:
            self._buffer += data
            self._maybe_pause_protocol()

    def _has_room(self) -> None:
        if self._is_lost or not self._buffer:
            return
        try:
            sent = self._socket.send(bytes(self._buffer))
        except OSError as error:
            self._fail(error)
            return
        del self._buffer[:sent]
        self._maybe_resume_protocol()
        if self._buffer:
            return
        if self._is_closing:
            self._lose(None)
        elif self._has_ended:
            self._socket.shut_down()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._has_ended and not self._is_closing:
            self._has_ended = True
            if not self._buffer:
                self._socket.shut_down()

    # The end.

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast("asyncio.Protocol", protocol)

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            if not self._buffer:
                self._lose(None)

    def abort(self) -> None:
        self._fail(None)

    def _fail(self, error: OSError | None) -> None:
        self._is_closing = True
        self._buffer.clear()
        self._lose(error)

    def _lose(self, error: OSError | None) -> None:
        # Of a killed process, aiohttp closes what is collected, whenever that is: it must change nothing.
        if not self._is_lost and self._socket.process.is_alive:
            self._is_lost = True
            self._loop.call_soon(self._was_lost, error)

    def _was_lost(self, error: OSError | None) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            self._socket.close()


class Server(asyncio.AbstractServer):
    """A port that a process listens to."""

    def __init__(self, loop: NetworkLoop, network: Network, port: Port) -> None:
        self._loop = loop
        self._network = network
        self._port = port
        self._is_serving = True
        listening = network.socket(loop.process)
        listening.local = (HOST, port.number)
        self.sockets: tuple[Socket, ...] = (listening,)

    def get_loop(self) -> ProcessLoop:
        return self._loop

    def is_serving(self) -> bool:
        return self._is_serving

    async def start_serving(self) -> None:
        pass

    async def serve_forever(self) -> None:
        await self._loop.create_future()

    def close(self) -> None:
        if self._is_serving:
            self._is_serving = False
            self._network.stop_listening(self._loop.process, self._port)
            for each in self.sockets:
                each.close()

    async def wait_closed(self) -> None:
        pass


class NetworkLoop(ProcessLoop):
    """The loop of a process that is connected to the network."""

    process: Process

    def __init__(self, process: Process, network: Network) -> None:
        super().__init__(process)
        self.network = network

    async def getaddrinfo(  # type: ignore[override]
        self, host: str | None, port: int | str | None, **more: Any
    ) -> list[tuple[int, int, int, str, Address]]:
        """Return the address of the only host: every host is the same one."""
        return [(real.AF_INET, real.SOCK_STREAM, real.IPPROTO_TCP, "", (HOST, int(port or 0)))]

    async def sock_connect(self, sock: Any, address: Any) -> None:
        await self.network.connect(sock, address)

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Factory,
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: Any = None,
        sock: Any = None,
        **more: Any,
    ) -> tuple[StreamTransport, asyncio.BaseProtocol]:
        if ssl:
            raise NotImplementedError("there is no TLS in a simulated network")
        if sock is None:
            assert port is not None
            sock = self.network.socket(self.process)
            try:
                await self.network.connect(sock, (HOST, port))
            except BaseException:
                sock.close()
                raise
        protocol = protocol_factory()
        made = self.create_future()
        transport = StreamTransport(self, sock, protocol)
        self.call_soon(made.set_result, None)
        await made
        return transport, protocol

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Factory, host: str | None = None, port: int = 0, *, ssl: Any = None, **more: Any
    ) -> Server:
        if ssl:
            raise NotImplementedError("there is no TLS in a simulated network")

        def accept(accepted: Socket) -> None:
            if not accepted.is_closed:
                StreamTransport(self, accepted, protocol_factory())

        return Server(self, self.network, self.network.listen(self.process, port or 0, accept))
