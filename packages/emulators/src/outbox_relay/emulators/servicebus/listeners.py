"""The ports of a broker: AMQP and HTTP, each plain and, where asked for, with TLS."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

_SHUTDOWN_TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS in addition to the plain ports. Port 0 takes any free port.

    Attributes:
        port: For AMQP.
        https_port: For the administration API, and for WebSockets if they are served.
        ca_file: Where to write the certificate that clients are to trust; a temporary file by default.
        names: Host names and IP addresses of the certificate besides those of this machine.
    """

    port: int = 0
    https_port: int = 0
    ca_file: Path | None = None
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Secured:
    """The listeners with TLS.

    Attributes:
        port: For AMQP.
        https_port: For the administration API, and for WebSockets if they are served.
        ca_file: The certificate that clients must trust.
    """

    port: int
    https_port: int
    ca_file: Path


class Listeners:
    """Opens the ports, and closes them. `http` is opened last: what it answers says that the broker serves."""

    def __init__(self, host: str, connect: Callable[[], asyncio.Protocol], http: web.Application) -> None:
        self._host = host
        self._connect = connect
        self._amqp: list[asyncio.Server] = []
        self._web = web.AppRunner(http, access_log=None, shutdown_timeout=_SHUTDOWN_TIMEOUT_S)
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    async def open(self, port: int, http_port: int, tls: Tls | None) -> tuple[int, int, Secured | None]:
        """Listen; returns the ports as they are. Raises OSError when one is taken; `close` is to follow."""
        await self._web.setup()
        port = await self._listen(port)
        secured = None if tls is None else await self._secure(tls)
        return port, await self._serve(http_port), secured

    async def _secure(self, tls: Tls) -> Secured:
        # Needs the package `cryptography`, an extra.
        from outbox_relay.emulators.servicebus.certificates import LOCAL_NAMES, issue

        issued = issue(dict.fromkeys((*LOCAL_NAMES, *tls.names)))
        ca_file = tls.ca_file or self._temporary() / "ca.pem"
        ca_file.write_bytes(issued.authority)
        port = await self._listen(tls.port, issued.context)
        return Secured(port, await self._serve(tls.https_port, issued.context), ca_file.absolute())

    def _temporary(self) -> Path:
        self._directory = tempfile.TemporaryDirectory(prefix="outbox-relay-emulators-")
        return Path(self._directory.name)

    async def _listen(self, port: int, context: ssl.SSLContext | None = None) -> int:
        server = await asyncio.get_running_loop().create_server(self._connect, self._host, port, ssl=context)
        self._amqp.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _serve(self, port: int, context: ssl.SSLContext | None = None) -> int:
        await web.TCPSite(self._web, self._host, port, ssl_context=context).start()
        return int(self._web.addresses[-1][1])

    def stop_accepting(self) -> None:
        """Accept no more AMQP connections. Those that are open stay."""
        for server in self._amqp:
            server.close()

    async def close(self) -> None:
        """Close every port, once no AMQP connection is open."""
        for server in self._amqp:
            await server.wait_closed()
        self._amqp.clear()
        await self._web.cleanup()
        if self._directory is not None:
            self._directory.cleanup()
