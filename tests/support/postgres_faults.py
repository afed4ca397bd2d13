"""A PostgreSQL that does not answer: frozen as a whole, or behind a proxy that goes silent."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from outbox_relay.inbox.event_loop import end_tasks
from tests.support.network import Listener

_READY = b"Z\x00\x00\x00\x05"
"""How the server's ReadyForQuery begins: it ends the authentication, and each statement."""


def _processes(folder: str) -> list[int]:
    """The server's processes, the first one first."""
    first = int((Path(folder) / "postmaster.pid").read_text().split()[0])
    children = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with suppress(OSError):
                if int((process / "stat").read_text().rpartition(")")[2].split()[1]) == first:
                    children.append(int(process.name))
    return [first, *children]


@contextmanager
def frozen(folder: str) -> Iterator[None]:
    """Stop every process of the server that has its socket in this folder; its kernel still takes what is sent."""
    stopped = []
    try:
        for process in _processes(folder):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGSTOP)
                stopped.append(process)
        yield
    finally:
        for process in stopped:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)


class SilentProxy(Listener):
    """Forwards connections to a server's socket; from an order on, connections get no more answers, forever.

    Attributes:
        silent: Where new connections get no more answers: `connect`, `authentication`, `query`, or None.
        silenced: Number of connections that get no more answers.
    """

    def __init__(self, socket: str) -> None:
        super().__init__()
        self._socket = socket
        self._mute: list[asyncio.Event] = []
        self.silent: str | None = None
        self.silenced = 0

    def url(self, database: str) -> str:
        """The URL of a database behind it, with a limit for connecting that suits a test."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}?connect_timeout=2"

    def silence(self) -> None:
        """From now on, no connection that is open gets an answer."""
        for mute in self._mute:
            mute.set()
        self.silenced += len(self._mute)
        self._mute.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError), closing(writer):
            await self._pass_on(reader, writer)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        silent, mute = self.silent, asyncio.Event()
        if silent is not None:
            self.silenced += 1
        if silent == "connect":
            await reader.read(-1)
            return
        if silent is None:
            self._mute.append(mute)
        server_reader, server_writer = await asyncio.open_unix_connection(self._socket)

        async def answers() -> None:
            ready = 0
            while data := await server_reader.read(65536):
                ready += data.count(_READY)
                muted = silent == "authentication" or (silent == "query" and ready > 1) or mute.is_set()
                if not muted:
                    writer.write(data)
                    await writer.drain()

        with closing(server_writer):
            answering = asyncio.create_task(answers())
            try:
                while data := await reader.read(65536):
                    server_writer.write(data)
                    await server_writer.drain()
            finally:
                await end_tasks([answering])


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[tuple[SilentProxy, str]]:
    """A proxy before the server of this URL, and the URL of the same database behind it."""
    parts = urlsplit(url)
    async with SilentProxy(f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.5432") as proxy:
        yield proxy, proxy.url(parts.path.removeprefix("/"))
