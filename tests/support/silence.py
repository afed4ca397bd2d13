"""A proxy between a client and the Service Bus emulator that falls silent at a frame of the service."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass, field

from outbox_relay.emulators.servicebus.frames import FrameReader, performative
from tests.support.network import Listener

_LARGEST = 1_048_576
_NAMES = dict(
    zip(
        range(0x10, 0x19),
        ("open", "begin", "attach", "flow", "transfer", "disposition", "detach", "end", "close"),
        strict=True,
    )
)


@dataclass(frozen=True, slots=True)
class Step:
    """The first frame that is withheld: the `number`th of its kind, from 1, of those the service sends.

    Kinds: `header`, `sasl`, and the performatives of AMQP. With `middle`, the first half of it is forwarded.
    """

    kind: str
    number: int = 1
    middle: bool = False

    def __str__(self) -> str:
        return f"{'half of ' if self.middle else ''}{self.kind} {self.number}"


@dataclass(slots=True)
class Conversation:
    """One connection of the client.

    Attributes:
        frames: What the service has sent, by kind.
        silent: Set when something was withheld. Nothing is forwarded from then on, either way.
        ended: Set when the client has closed its socket.
    """

    frames: list[str] = field(default_factory=list)
    silent: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class SilentProxy(Listener):
    """Falls silent at `step` of each of the first `times` connections that reach it; serves the rest.

    With `step` None at `times` connections, it accepts them at the level of TCP and forwards nothing.
    """

    def __init__(self, port: int, step: Step | None, *, times: int = 1) -> None:
        super().__init__()
        self._port = port
        self._step = step
        self._left = times
        self.conversations: list[Conversation] = []

    @property
    def silenced(self) -> list[Conversation]:
        """The conversations in which something was withheld."""
        return [each for each in self.conversations if each.silent.is_set()]

    def silence(self) -> None:
        """Fall silent on every connection that there is."""
        for each in self.conversations:
            each.silent.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conversation = Conversation()
        self.conversations.append(conversation)
        if self._step is None and self._left:
            self._left -= 1
            conversation.silent.set()
        service_reader, service_writer = await asyncio.open_connection("127.0.0.1", self._port)
        upwards = self._start(self._upwards(reader, service_writer, conversation))
        downwards = self._start(self._downwards(service_reader, writer, conversation))
        try:
            await asyncio.wait({upwards})
        finally:
            conversation.ended.set()
            downwards.cancel()
            service_writer.close()
            writer.close()

    async def _upwards(
        self, reader: asyncio.StreamReader, service: asyncio.StreamWriter, conversation: Conversation
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(16_384):
                if not conversation.silent.is_set():
                    service.write(data)

    async def _downwards(
        self, service: asyncio.StreamReader, writer: asyncio.StreamWriter, conversation: Conversation
    ) -> None:
        frames, seen = FrameReader(_LARGEST), Counter[str]()
        with contextlib.suppress(OSError):
            while data := await service.read(16_384):
                for frame in frames.feed(data):
                    kind = _kind(frame)
                    seen[kind] += 1
                    conversation.frames.append(kind)
                    self._forward(frame, Step(kind, seen[kind]), writer, conversation)
            if not conversation.silent.is_set():
                writer.close()

    def _forward(self, frame: bytes, step: Step, writer: asyncio.StreamWriter, conversation: Conversation) -> None:
        if conversation.silent.is_set():
            return
        if self._left and self._step in (step, Step(step.kind, step.number, middle=True)):
            self._left -= 1
            conversation.silent.set()
            if self._step is not None and self._step.middle:
                writer.write(frame[: len(frame) // 2])
            return
        writer.write(frame)


def _kind(frame: bytes) -> str:
    if frame.startswith(b"AMQP"):
        return "header"
    found = performative(frame)
    return "sasl" if found is None else _NAMES.get(found.code, "other")
