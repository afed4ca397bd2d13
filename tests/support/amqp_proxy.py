"""A proxy of AMQP frames between the relay and the Service Bus emulator, made to do what a peer may do."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable

from outbox_relay.emulators.servicebus import codec
from outbox_relay.emulators.servicebus.frames import FrameReader, Performative, encode_frame, performative
from tests.support.network import Listener

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
_SASL_MECHANISMS, _SASL_OUTCOME = 0x40, 0x44
_LARGEST = 1_048_576
_LINGER_0 = struct.pack("ii", 1, 0)
_RELAYS_CHANNEL = 2
_NULL = b"\x40"

STEPS = (
    "connect",
    "SASL header",
    "SASL mechanisms",
    "SASL outcome",
    "header",
    "open",
    "begin",
    "attach of $cbs",
    "token",
    "begin of the link's session",
    "attach of the link",
)
"""A peer's answers while a link opens, in this order."""


class Connection:
    """One connection of the relay's, and what was seen on it."""

    def __init__(self, proxy: Proxy, up: asyncio.StreamWriter, down: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._silent_at = proxy.silent_at
        self._up = up
        self._down = down
        self._names: dict[tuple[int, int], str] = {}
        self._attached: dict[str, tuple[int, int]] = {}
        self._sessions: dict[int, int] = {}
        self._ended = False
        if self._silent_at == STEPS[0]:
            self._ended = True

    @property
    def is_silent(self) -> bool:
        """True if nothing is answered any more."""
        return self._ended

    # What a test makes it do, on a transfer

    def reset(self) -> None:
        """Reset the connection."""
        self._ended = True
        self._down.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_0)
        self._down.transport.abort()
        self._up.transport.abort()

    def end_of_stream(self) -> None:
        """Close it without a word of AMQP."""
        self._ended = True
        self._down.close()
        self._up.transport.abort()

    def close(self, reason: bytes | None = None) -> None:
        """Close it by AMQP."""
        self._send(CLOSE, 0, [reason or _NULL])

    def detach(self, transfer: bytes, reason: bytes | None = None) -> None:
        """Detach the link of a transfer."""
        channel, handle = self._attached[self._name_of(transfer)]
        self._send(DETACH, channel, [codec.encode_uint(handle), b"\x41", reason or _NULL])

    def end(self, transfer: bytes, reason: bytes | None = None) -> None:
        """End the session of a transfer."""
        channel, _ = self._attached[self._name_of(transfer)]
        self._send(END, channel, [reason or _NULL])

    def widen(self, received: int) -> None:
        """Give the session of the relay's link room for more frames, after those that it has received."""
        channel = next(theirs for theirs, ours in self._sessions.items() if ours == _RELAYS_CHANNEL)
        self._write(FLOW, channel, [codec.encode_uint(each) for each in (received, 5_000, 0, 5_000)])

    def _name_of(self, transfer: bytes) -> str:
        found = performative(transfer)
        assert found is not None
        return self._names[found.channel, codec.decode(next(codec.items(transfer, found.fields_at)))[0]]

    def _send(self, code: int, channel: int, fields: list[bytes]) -> None:
        self._ended = True
        self._write(code, channel, fields)

    def _write(self, code: int, channel: int, fields: list[bytes]) -> None:
        frame = encode_frame(0, code, fields)
        self._down.write(frame[:6] + channel.to_bytes(2, "big") + frame[8:])

    # What passes

    async def upwards(self, reader: asyncio.StreamReader) -> None:
        frames = FrameReader(_LARGEST)
        while data := await reader.read(65_536):
            if self._proxy.is_raw:
                self._up.write(data)
                continue
            for frame in frames.feed(data):
                found = performative(frame)
                if found is not None and found.code == ATTACH:
                    name, handle = (
                        codec.decode(each)[0] for each in list(codec.items(frame, found.fields_at))[:2]
                    )
                    self._names[found.channel, handle] = name
                is_transfer = found is not None and found.code == TRANSFER
                if is_transfer and not self._ended:
                    self._proxy.on_transfer(self, frame)
                if not self._ended:
                    self._up.write(frame)

    async def downwards(self, reader: asyncio.StreamReader) -> None:
        frames = FrameReader(_LARGEST)
        while data := await reader.read(65_536):
            if self._proxy.is_raw:
                self._down.write(data)
                continue
            for frame in frames.feed(data):
                step = self._step(frame)
                if step is not None and step == self._silent_at:
                    self._ended = True
                if not self._ended:
                    self._down.write(self._proxy.rewrite(frame))

    def _step(self, frame: bytes) -> str | None:
        """The peer's answer in this frame, if it belongs to the opening of a link."""
        if frame.startswith(b"AMQP"):
            return "SASL header" if frame[4] == 3 else "header"
        if len(frame) > 10 and frame[5] == 1:
            return {_SASL_MECHANISMS: "SASL mechanisms", _SASL_OUTCOME: "SASL outcome"}.get(frame[10])
        found = performative(frame)
        return None if found is None else self._opening_step(frame, found)

    def _opening_step(self, frame: bytes, found: Performative) -> str | None:
        encoded = list(codec.items(frame, found.fields_at))
        if found.code == OPEN:
            return "open"
        if found.code == BEGIN:
            ours = self._sessions[found.channel] = codec.decode(encoded[0])[0]
            return "begin of the link's session" if ours == _RELAYS_CHANNEL else "begin"
        if found.code == ATTACH:
            name = codec.decode(encoded[0])[0]
            self._attached[name] = (found.channel, codec.decode(encoded[1])[0])
            return "attach of $cbs" if b"$cbs" in frame else "attach of the link"
        if found.code == TRANSFER:
            return "token"
        return None


class Proxy(Listener):
    """Passes frames on, unless a test says otherwise.

    Attributes:
        silent_at: The step of `STEPS` that is not answered, and nothing after it, on connections made from now on.
        on_transfer: Called with each transfer frame of the relay's before it is passed on.
        rewrite: What each frame of the emulator's is replaced with.
        connections: How many were made.
        open_connections: How many of them the relay has not closed.
        is_raw: Whether bytes pass as they are, as those of TLS have to.
    """

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port
        self.silent_at: str | None = None
        self.on_transfer: Callable[[Connection, bytes], None] = lambda connection, frame: None
        self.rewrite: Callable[[bytes], bytes] = lambda frame: frame
        self.connections = 0
        self.open_connections = 0
        self.is_raw = False

    def through(self, connection_string: str) -> str:
        """A connection string of the emulator's that leads through here."""
        return connection_string.replace(f":{self._port};", f":{self.port};")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open_connections += 1
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._port)
        connection = Connection(self, up_writer, writer)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            pumps = (connection.upwards(reader), connection.downwards(up_reader))
            tasks = [self._start(pump) for pump in pumps]
            try:
                # The relay's end closes first, unless a test has closed the other.
                await asyncio.wait(
                    tasks[:1] if connection.is_silent else tasks, return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                self.open_connections -= 1
                # Before the wait, which the end of the proxy may cancel.
                up_writer.transport.abort()
                writer.close()
                for each in tasks:
                    each.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


def with_window(frame: bytes, frames: int) -> bytes:
    """The emulator's frame, with room for this many frames in all, if it grants room in a session."""
    found = performative(frame)
    if found is None or found.code not in (BEGIN, FLOW):
        return frame
    fields = list(codec.items(frame, found.fields_at))
    if found.code == BEGIN:
        fields[2] = codec.encode_uint(frames)
    else:
        fields[0], fields[1] = codec.encode_uint(0), codec.encode_uint(frames)
    made = encode_frame(0, found.code, fields)
    return made[:6] + found.channel.to_bytes(2, "big") + made[8:]
