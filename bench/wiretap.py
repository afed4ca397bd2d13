"""A TCP proxy between clients and the broker that counts connections, links, deliveries and bytes.

It reads whole AMQP frames and changes none of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from bench.proxy import CHUNK, Proxy
from outbox_emulators.servicebus import codec
from outbox_emulators.servicebus.frames import TRANSFER, FrameReader, performative
from outbox_emulators.servicebus.sections import BATCH_FORMAT

_ATTACH = 0x12
_HANDLE, _MESSAGE_FORMAT, _MORE = 0, 3, 5
_ROLE, _SOURCE, _TARGET = 2, 5, 6
_LARGEST_FRAME = 1 << 20
_CBS = "$cbs"


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


class Wiretap(Proxy):
    """Forwards to the broker; `work` has the counts so far."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.work = Work()

    async def _outward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.work.connections += 1
        await _pass(reader, writer, _Connection(self.work))

    async def _inward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _pass(reader, writer, None)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, counting: _Connection | None) -> None:
    while data := await reader.read(CHUNK):
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
