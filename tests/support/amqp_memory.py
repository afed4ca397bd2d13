"""A connection that the SDK has opened, whose peer is in this process: a test gives and takes its frames."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from outbox_relay.emulators.servicebus import codec
from outbox_relay.emulators.servicebus.frames import FrameReader, encode_frame, performative
from relay.servicebus.pipelined import sdk

_LARGEST = 1_048_576
SDKS_CHANNEL = 1
OURS = 9
"""The peer's channel for the session of the relay's link; the tests begin it there."""

Frame = tuple[int, list[Any], bytes]


class _Transport:
    def get_write_buffer_size(self) -> int:
        return 0


class _Writer:
    """The written frames."""

    transport = _Transport()

    def __init__(self, take: Callable[[int, list[Any], bytes], None]) -> None:
        self._frames = FrameReader(_LARGEST)
        self._take = take

    def write(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            found = performative(frame)
            if found is not None:
                encoded = list(codec.items(frame, found.fields_at))
                payload = frame[codec.skip(frame, found.fields_at) :]
                self._take(found.code, [codec.decode(each)[0] for each in encoded], payload)

    async def drain(self) -> None:
        await asyncio.sleep(0)

    def get_extra_info(self, _: str) -> None:
        return None


class _Sdk:
    """The SDK's connection: whose its channels are, and what was given back to it."""

    _remote_max_frame_size = 1_000
    _remote_idle_timeout = 60.0

    def __init__(self) -> None:
        self._incoming_endpoints = {0: object(), SDKS_CHANNEL: object()}
        self.taken: list[tuple[int, int]] = []

    async def _process_incoming_frame(self, channel: int, frame: tuple[int, list[Any]]) -> None:
        self.taken.append((channel, frame[0]))


class MemoryConnection(sdk.Connection):
    """An open `sdk.Connection` without the sockets and the SDK.

    Attributes:
        written: The frames of the relay's link, when nobody else takes them.
        given_back: The channel and the code of each frame that the SDK was given.
    """

    target = "sb://memory/topic"

    def __init__(self, take: Callable[[int, list[Any], bytes], None] | None = None) -> None:
        self.written: list[Frame] = []
        self._stream = asyncio.StreamReader()
        self._reader = self._stream
        self._writer: Any = _Writer(take or (lambda *frame: self.written.append(frame)))
        self._below = None
        self._buffer = bytearray()
        self._wrote_at = 0.0
        self._sdk = _Sdk()
        self.closed = asyncio.Event()

    @property
    def given_back(self) -> list[tuple[int, int]]:
        return list(self._sdk.taken)

    def send(self, code: int, fields: Sequence[bytes], *, channel: int = OURS) -> None:
        """A frame of the peer's, of encoded fields."""
        frame = encode_frame(0, code, list(fields))
        self.feed(frame[:6] + channel.to_bytes(2, "big") + frame[8:])

    def feed(self, data: bytes) -> None:
        """Bytes of the peer's, unless it has ended the connection."""
        if not self._stream.at_eof() and not self.closed.is_set():
            self._stream.feed_data(data)

    def end(self, error: OSError | None = None) -> None:
        """End the connection: with an error, or as a stream ends."""
        if error is not None:
            self._stream.set_exception(error)
        else:
            self._stream.feed_eof()

    async def renew(self) -> None:
        """Tokens last."""

    async def close(self) -> None:
        self.closed.set()
