"""A network that loses connections without telling either end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable


class Network:
    """Passes connections on, until those that are open are lost without either side noticing."""

    def __init__(
        self, connect: Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
    ) -> None:
        """`connect` opens a connection to what is behind the network."""
        self._to_server = connect
        self._open: set[asyncio.Task[None]] = set()
        self._lost: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[int]:
        """Yields the port that takes connections."""
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for connection in self._open:
                connection.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)

    def lose(self) -> int:
        """Lose the connections that are open; returns their number."""
        self._lost = {connection for connection in self._open if not connection.done()}
        return len(self._lost)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self._open.add(connection)
        there, back = await self._to_server()
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await asyncio.gather(self._pass(connection, reader, back), self._pass(connection, there, writer))
        writer.close()
        back.close()

    async def _pass(
        self, connection: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(65536):
            if connection not in self._lost:
                writer.write(data)
                await writer.drain()
