"""AMQP over WebSockets, for clients behind firewalls that let only HTTPS through.

The paths and the subprotocols are those that the service's clients ask for (`Constants` of @azure/core-amqp,
`_pyamqp/constants.py` of azure-servicebus; `amqp` is that of Microsoft.Azure.Amqp, of .NET's clients, and
Azure.Messaging.ServiceBus 7.21 ends the path with a slash). The bytes
in binary messages are those of a plain connection; where a message ends has no meaning (OASIS AMQP WebSocket
binding, section 2.2).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web

PATHS = ("/$servicebus/websocket", "/$servicebus/websocket/")
SUBPROTOCOLS = ("AMQPWSB10", "amqp")

_LARGEST_PENDING_BYTES = 256 * 1024
_LARGEST_MESSAGE_BYTES = 4 * 1024 * 1024
"""Of a WebSocket message, in which clients send a frame of AMQP, or a few: 64 KiB each."""
_CLOSE_TIMEOUT_S = 1.0


class WebSockets:
    """Serves each WebSocket as one connection, made by `connect`."""

    def __init__(self, connect: Callable[[], asyncio.Protocol]) -> None:
        self._connect = connect

    def routes(self) -> list[web.RouteDef]:
        return [web.get(path, self.serve) for path in PATHS]

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer one client until it goes, or the broker lets go of it."""
        socket = web.WebSocketResponse(
            protocols=SUBPROTOCOLS, max_msg_size=_LARGEST_MESSAGE_BYTES, compress=False, timeout=_CLOSE_TIMEOUT_S
        )
        if not socket.can_prepare(request):
            raise web.HTTPBadRequest(text="This address is for WebSockets only.")
        await socket.prepare(request)
        if socket.ws_protocol not in SUBPROTOCOLS:
            reason = f"The subprotocol {' or '.join(SUBPROTOCOLS)} is needed."
            await socket.close(code=WSCloseCode.PROTOCOL_ERROR, message=reason.encode())
            return socket
        if request.transport is not None:
            await _converse(socket, request.transport, self._connect())
        return socket


async def _converse(socket: web.WebSocketResponse, below: asyncio.Transport, protocol: asyncio.Protocol) -> None:
    transport = _Transport(below, protocol)
    protocol.connection_made(transport)
    writing = asyncio.create_task(transport.write_out(socket))
    try:
        async for message in socket:
            if message.type is not WSMsgType.BINARY:
                await socket.close(code=WSCloseCode.UNSUPPORTED_DATA, message=b"AMQP is binary.")
            elif not transport.is_closing():
                protocol.data_received(message.data)
                await transport.readable.wait()
    finally:
        transport.close()
        protocol.connection_lost(None)
        await writing


class _Transport(asyncio.Transport):
    """The output of a connection, instead of its own socket."""

    def __init__(self, below: asyncio.Transport, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._below = below
        self._protocol = protocol
        self._pending: deque[bytes] = deque()
        self._pending_bytes = 0
        self._paused = False
        self._closing = False
        self._changed = asyncio.Event()
        self.readable = asyncio.Event()
        self.readable.set()

    async def write_out(self, socket: web.WebSocketResponse) -> None:
        """Send what is written until the end, then close the WebSocket."""
        try:
            while not self._closing or self._pending:
                await self._changed.wait()
                self._changed.clear()
                while self._pending:
                    data = self._pending.popleft()
                    await socket.send_bytes(data)
                    self._sent(len(data))
            await socket.close()
        except ConnectionError:
            self.abort()

    def _sent(self, count: int) -> None:
        self._pending_bytes -= count
        if self._paused and self._pending_bytes <= _LARGEST_PENDING_BYTES // 2:
            self._paused = False
            self._protocol.resume_writing()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or not data:
            return
        self._pending.append(bytes(data))
        self._pending_bytes += len(data)
        self._changed.set()
        if not self._paused and self._pending_bytes > _LARGEST_PENDING_BYTES:
            self._paused = True
            self._protocol.pause_writing()

    def pause_reading(self) -> None:
        self.readable.clear()

    def resume_reading(self) -> None:
        self.readable.set()

    def close(self) -> None:
        self._closing = True
        self._changed.set()
        self.readable.set()

    def abort(self) -> None:
        self._pending.clear()
        self.close()
        self._below.abort()

    def is_closing(self) -> bool:
        return self._closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._below.get_extra_info(name, default)
