"""Servers on free ports, and a network that loses connections without either end noticing."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self


class Listener(ABC):
    """Takes connections on a free port of this machine, and ends them and all tasks for them with itself."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._ended = False

    @property
    def port(self) -> int:
        """Where it listens, on 127.0.0.1."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def __aenter__(self) -> Self:
        self._server = await self._listen()
        return self

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self._ended = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # One whose task had not begun has not closed its connection.
        for writer in self._writers:
            writer.transport.abort()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._ended:  # The system had accepted it already.
            writer.transport.abort()
            return
        self._writers.add(writer)
        self._start(self._serve(reader, writer))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that ends with the server."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @abstractmethod
    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""


class Network(Listener):
    """Passes connections on, until those that are open are lost without either side noticing."""

    def __init__(
        self, connect: Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
    ) -> None:
        """`connect` opens a connection to what is behind the network."""
        super().__init__()
        self._to_server = connect
        self._lost: set[asyncio.Task[None]] = set()

    def lose(self) -> int:
        """Lose the connections that are open; returns their number."""
        self._lost = set(self._tasks)
        return len(self._lost)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        there, back = await self._to_server()
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await asyncio.gather(self._pass(connection, reader, back), self._pass(connection, there, writer))
        writer.close()
        back.close()

    async def _pass(
        self, connection: asyncio.Task[None] | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(65536):
            if connection not in self._lost:
                writer.write(data)
                await writer.drain()
