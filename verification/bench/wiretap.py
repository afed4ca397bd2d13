"""A TCP proxy between clients and the broker that counts connections, links, deliveries and bytes.

It reads whole AMQP frames and changes none of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from types import TracebackType
from typing import Any, Self

from outbox_relay.emulators.servicebus import codec
from outbox_relay.emulators.servicebus.frames import TRANSFER, FrameReader, performative
from outbox_relay.emulators.servicebus.sections import BATCH_FORMAT

_ATTACH = 0x12
_HANDLE, _MESSAGE_FORMAT, _MORE = 0, 3, 5
_ROLE, _SOURCE, _TARGET = 2, 5, 6
_LARGEST_FRAME = 1 << 20
_CBS = "$cbs"
_CHUNK = 1 << 16


@dataclass(slots=True)
class Work:
    """Counts of the clients' actions.

    Attributes:
        connections: Connections opened.
        links: Links attached to entities, without those that carry tokens.
        sends: Deliveries to entities.
        batches: Deliveries that are batches.
        bytes: From clients to the broker: whole frames, including those that open connections and links.
        payload_bytes: Of the transfers to entities.
    """

    connections: int = 0
    links: int = 0
    sends: int = 0
    batches: int = 0
    bytes: int = 0
    payload_bytes: int = 0

    def __sub__(self, before: Work) -> Work:
        return Work(*(getattr(self, name) - getattr(before, name) for name in self.__slots__))

    def copy(self) -> Work:
        """Return the current counts."""
        return self - Work()


class Wiretap:
    """Listens on a free port of 127.0.0.1 and forwards to the broker.

    Attributes:
        port: Where it listens; known once it is entered.
        work: The counts so far.
    """

    def __init__(self, port: int) -> None:
        """`port` is the broker's."""
        self._broker_port = port
        self._server: asyncio.Server | None = None
        self._passing: set[asyncio.Task[Any]] = set()
        self.port = 0
        self.work = Work()

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

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)
        from_broker, to_broker = await asyncio.open_connection("127.0.0.1", self._broker_port)
        self.work.connections += 1
        try:
            # The first side to close, or to fail, closes the other.
            # In Python 3.11, asyncio logs a handler's cancellation as an error.
            with suppress(ConnectionError, asyncio.CancelledError):
                await _first_ended(
                    _pass(reader, to_broker, _Connection(self.work)), _pass(from_broker, writer, None)
                )
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


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, counting: _Connection | None) -> None:
    while data := await reader.read(_CHUNK):
        if counting is not None:
            counting.feed(data)
        writer.write(data)
        await writer.drain()


@dataclass(slots=True)
class _Connection:
    """Counts the frames of one client."""

    work: Work
    _frames: FrameReader = field(default_factory=lambda: FrameReader(_LARGEST_FRAME))
    _entity_links: set[int] = field(default_factory=set)
    _unfinished: set[int] = field(default_factory=set)

    def feed(self, data: bytes) -> None:
        self.work.bytes += len(data)
        for frame in self._frames.feed(data):
            found = performative(frame)
            if found is None:
                continue
            if found.code == _ATTACH:
                self._attach(_fields(frame, found.fields_at))
            elif found.code == TRANSFER:
                self._transfer(_fields(frame, found.fields_at), len(frame))

    def _attach(self, fields: list[bytes]) -> None:
        handle = codec.decode(fields[1])[0]
        if _CBS.encode() not in fields[_SOURCE] + fields[_TARGET]:
            self._entity_links.add(handle)
            self.work.links += 1

    def _transfer(self, fields: list[bytes], size: int) -> None:
        handle = codec.decode(fields[_HANDLE])[0]
        if handle not in self._entity_links:
            return
        self.work.payload_bytes += size
        if handle not in self._unfinished:
            self.work.sends += 1
            self.work.batches += _decoded(fields, _MESSAGE_FORMAT) == BATCH_FORMAT
        if _decoded(fields, _MORE):
            self._unfinished.add(handle)
        else:
            self._unfinished.discard(handle)


def _fields(frame: bytes, at: int) -> list[bytes]:
    found: Iterator[bytes] = codec.items(frame, at)
    return list(islice(found, 8))


def _decoded(fields: list[bytes], position: int) -> Any:
    return codec.decode(fields[position])[0] if position < len(fields) else None
