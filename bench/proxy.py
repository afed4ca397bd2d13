"""A TCP proxy between clients and the broker, on a free port of 127.0.0.1."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

CHUNK = 1 << 16
"""Maximum bytes that are read at once."""


class Proxy(ABC):
    """Forwards what clients send to `port`, and what comes back.

    Attributes:
        port: Where it listens; known once it is entered.
    """

    def __init__(self, port: int) -> None:
        self._broker_port = port
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
        """Return the same connection string, with this proxy's port."""
        return connection_string.replace(f":{self._broker_port};", f":{self.port};")

    @abstractmethod
    def _outward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Coroutine[Any, Any, None]:
        """Pass on what one client sends."""

    @abstractmethod
    def _inward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Coroutine[Any, Any, None]:
        """Pass on what the broker sends to one client."""

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)
        from_broker, to_broker = await asyncio.open_connection("127.0.0.1", self._broker_port)
        try:
            # The first side to close, or to fail, closes the other.
            # In Python 3.11, asyncio logs a handler's cancellation as an error.
            with suppress(ConnectionError, asyncio.CancelledError):
                await _first_ended(self._outward(reader, to_broker), self._inward(from_broker, writer))
        finally:
            for end in (writer, to_broker):
                end.close()


async def _first_ended(*ways: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
