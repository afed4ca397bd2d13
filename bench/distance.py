"""A TCP proxy that makes the broker as far away as a network does: whatever passes arrives later."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

_CHUNK = 1 << 16


class Distance:
    """Listens on a free port of 127.0.0.1, and forwards to `port`, each byte after half of a round trip.

    Args:
        port: Of the broker.
        round_trip_ms: How long a request and its answer take longer.
    """

    def __init__(self, port: int, *, round_trip_ms: float) -> None:
        self._to = port
        self._half_s = round_trip_ms / 2000
        self._server: asyncio.Server | None = None
        self._passing: set[asyncio.Task[Any]] = set()
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._passing:
            task.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)

    def through(self, connection_string: str) -> str:
        """The same connection string, with this proxy's port."""
        return connection_string.replace(f":{self._to};", f":{self.port};")

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)
        from_broker, to_broker = await asyncio.open_connection("127.0.0.1", self._to)
        ways = [
            asyncio.ensure_future(each)
            for each in (self._pass(reader, to_broker), self._pass(from_broker, writer))
        ]
        # In Python 3.11, asyncio logs a handler's cancellation as an error.
        with suppress(ConnectionError, asyncio.CancelledError):
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
                for end in (writer, to_broker):
                    end.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while data := await reader.read(_CHUNK):
            # Timers of the same length run in order.
            loop.call_later(self._half_s, _write, writer, data)
        await asyncio.sleep(2 * self._half_s)


def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    if not writer.is_closing():
        writer.write(data)
