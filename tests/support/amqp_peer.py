"""A Service Bus that answers the session of the pipelined sender as a test says.

It stands between the SDK and the emulator. The connection, its authentication and the renewal of tokens are the
emulator's; the session of the relay's link never gets there: its frames come to the test, which answers each.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from azure.servicebus import TransportType
from azure.servicebus.aio import ServiceBusClient

from outbox_relay.emulators.servicebus import codec
from outbox_relay.emulators.servicebus.certificates import issue
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.frames import FrameReader, encode_frame, performative
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from relay.config.clients import Connection, servicebus_client
from tests.support.network import Listener
from tests.support.watchdog import WATCHDOG_S

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
ACCEPTED, REJECTED, RELEASED, MODIFIED = range(0x24, 0x28)

TOPIC = "domain-events"
# The channel that the relay's session has on its side, and one that the emulator never uses.
_THEIRS, _OURS = 2, 9
_LARGEST = 1_048_576
_LINGER_0 = struct.pack("ii", 1, 0)

TRUE, FALSE = b"\x41", b"\x42"


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame of the relay's session: its code, its fields, and what follows them."""

    code: int
    fields: list[Any]
    payload: bytes

    def __getitem__(self, position: int) -> Any:
        return self.fields[position] if position < len(self.fields) else None


@dataclass(slots=True)
class Delivery:
    """A delivery whose last frame has come."""

    id: int
    tag: bytes
    message_format: int
    payload: bytes
    frames: int


def described(code: int, fields: Sequence[bytes] = ()) -> bytes:
    """A described list: a delivery state, or an error."""
    return bytes((codec.DESCRIBED, 0x53, code)) + codec.encode_list(list(fields))


def error(condition: str, *more: bytes) -> bytes:
    """An error of a condition and what else is given: a description, a map."""
    return described(0x1D, [codec.encode_symbol(condition), *more])


class Peer(Listener):
    """The service's end of one connection at a time.

    Attributes:
        idle_timeout_ms: The idle timeout that it announces.
        empty_frames: How many frames without a performative have come.
        transfers: The frames of deliveries that have come.
        other_transfers: The transfers of the SDK's own session: a token is one.
        attach_properties: Encoded properties of the link.
        message_limit: What the link says that it takes.
        settles_second: Whether it lets the sender settle first, which it may, though it is asked not to.
    """

    def __init__(self, entities: Entities, *, secure: bool = False) -> None:
        """`secure`: whether it speaks TLS, as the service always does."""
        super().__init__()
        self._emulator = ServiceBusServer(entities)
        self._issued = issue() if secure else None
        self._frames: asyncio.Queue[Frame] = asyncio.Queue()
        self._reads = asyncio.Event()
        self._reads.set()
        self._writer: asyncio.StreamWriter | None = None
        self._noted = asyncio.Condition()
        self.idle_timeout_ms: int | None = None
        self.message_limit = 262_144
        self.window = 5_000
        self.settles_second = False
        self.refuses_link: bytes | None = None
        self.empty_frames = 0
        self.transfers = 0
        self.other_transfers = 0

    async def __aenter__(self) -> Self:
        await self._emulator.start()
        return await super().__aenter__()

    async def _listen(self) -> asyncio.Server:
        listening = socket.create_server(("127.0.0.1", 0))
        # What is not read stays with the sender, but for a little.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        context = None if self._issued is None else self._issued.context
        return await asyncio.start_server(self._accept, sock=listening, ssl=context)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, trace)
        await self._emulator.stop()

    @property
    def admin_port(self) -> int:
        """The admin port of the emulator that serves the SDK's own session."""
        return self._emulator.admin_port

    def client(self) -> ServiceBusClient:
        """A client that reaches it."""
        port = self.port
        string = self._emulator.connection_string
        if self._issued is None:
            return servicebus_client(
                Connection(string.replace(f":{self._emulator.port};", f":{port};")), retry_total=0
            )
        # With TLS, the SDK takes a port other than the service's as a custom endpoint only.
        return ServiceBusClient.from_connection_string(
            string.replace("UseDevelopmentEmulator=true;", ""),
            custom_endpoint_address=f"sb://localhost:{port}",
            transport_type=TransportType.Amqp,
            ssl_context=ssl.create_default_context(cadata=self._issued.authority.decode()),
            retry_total=0,
        )

    # What the test does

    async def next(self, code: int) -> Frame:
        """The next frame of the relay's session, which must be of this kind."""
        async with asyncio.timeout(WATCHDOG_S):
            frame = await self._frames.get()
        assert frame.code == code, f"{frame.code:#x} came instead of {code:#x}"
        return frame

    async def delivery(self) -> Delivery:
        """The next delivery, whole."""
        frame = await self.next(TRANSFER)
        made = Delivery(frame[1], bytes(frame[2]), frame[3], frame.payload, 1)
        while frame[5]:
            frame = await self.next(TRANSFER)
            assert frame[1] in (None, made.id)
            made.payload += frame.payload
            made.frames += 1
        return made

    def nothing_more(self) -> bool:
        """Return True if no frame of the relay's session is left that the test has not asked for."""
        return self._frames.empty()

    async def until(self, condition: Any) -> None:
        """Wait until `condition()` is true of what has come."""
        async with asyncio.timeout(WATCHDOG_S), self._noted:
            await self._noted.wait_for(condition)

    def flow(
        self,
        credit: int | None,
        *,
        count: int = 0,
        received: int | None = None,
        window: int | None = None,
        drain: bool = False,
        echo: bool = False,
    ) -> None:
        """Grant `credit` from the delivery-count `count` on; None for a flow of the session alone."""
        link = [b"\x40"] * 3 if credit is None else [codec.encode_uint(each) for each in (0, count, credit)]
        self.send(
            FLOW,
            [
                codec.encode_uint(self.transfers if received is None else received),
                codec.encode_uint(self.window if window is None else window),
                codec.encode_uint(0),
                codec.encode_uint(5_000),
                *link,
                b"\x40",
                TRUE if drain else FALSE,
                TRUE if echo else FALSE,
            ],
        )

    def settle(
        self, first: int, last: int | None = None, state: bytes | None = None, *, settled: bool = True
    ) -> None:
        """Settle deliveries, accepted if no state is given; `state` b"" leaves it out."""
        chosen = described(ACCEPTED) if state is None else state or b"\x40"
        self.send(
            DISPOSITION,
            [
                TRUE,
                codec.encode_uint(first),
                b"\x40" if last is None else codec.encode_uint(last),
                TRUE if settled else FALSE,
                chosen,
            ],
        )

    def detach(self, reason: bytes | None = None) -> None:
        """Detach the link for good."""
        self.send(DETACH, [codec.encode_uint(0), TRUE, reason or b"\x40"])

    def end(self, reason: bytes | None = None) -> None:
        """End the session."""
        self.send(END, [reason or b"\x40"])

    def close(self, reason: bytes | None = None) -> None:
        """Close the connection, by AMQP."""
        self.send(CLOSE, [reason or b"\x40"], channel=0)

    def send(self, code: int, fields: list[bytes], *, channel: int = _OURS) -> None:
        """Send a frame of encoded fields."""
        frame = encode_frame(0, code, fields)
        self.write(frame[:6] + channel.to_bytes(2, "big") + frame[8:])

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        assert self._writer is not None
        self._writer.write(data)

    def stop_reading(self) -> None:
        """Leave in the socket what comes from now on."""
        self._reads.clear()

    def go_on_reading(self) -> None:
        """Read again."""
        self._reads.set()

    def reset(self) -> None:
        """Reset the connection."""
        assert self._writer is not None
        connection = self._writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_0)
        self._writer.transport.abort()

    def end_of_stream(self) -> None:
        """Close the connection without a word of AMQP."""
        assert self._writer is not None
        self._writer.close()

    # What happens meanwhile

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        their_reader, their_writer = await asyncio.open_connection("127.0.0.1", self._emulator.port)
        pumps = [
            self._start(self._upwards(reader, their_writer)),
            self._start(self._downwards(their_reader, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            their_writer.close()
            writer.close()

    async def _upwards(self, reader: asyncio.StreamReader, emulator: asyncio.StreamWriter) -> None:
        frames = FrameReader(_LARGEST)
        with contextlib.suppress(OSError):
            while data := await reader.read(16_384):
                for frame in frames.feed(data):
                    found = performative(frame)
                    if found is not None and found.channel == _THEIRS:
                        await self._take(frame, found.fields_at, found.code)
                        continue
                    if found is None and len(frame) == 8 and not frame.startswith(b"AMQP"):
                        self.empty_frames += 1
                    self.other_transfers += found is not None and found.code == TRANSFER
                    emulator.write(frame)
                async with self._noted:
                    self._noted.notify_all()
                await self._reads.wait()

    async def _take(self, frame: bytes, at: int, code: int) -> None:
        encoded = list(codec.items(frame, at))
        fields = [codec.decode(each)[0] for each in encoded]
        if code == BEGIN:
            numbers = [codec.encode_uint(number) for number in (0, self.window, 5_000, 255)]
            self.send(BEGIN, [b"\x60" + _THEIRS.to_bytes(2, "big"), *numbers])
        elif code == ATTACH:
            self._attach(encoded)
        else:
            self.transfers += code == TRANSFER
            self._frames.put_nowait(Frame(code, fields, frame[codec.skip(frame, at) :]))

    def _attach(self, encoded: list[bytes]) -> None:
        terminuses = [encoded[5], b"\x40" if self.refuses_link else encoded[6]]
        limit = codec.encode_value(None) if not self.message_limit else b"\x80" + self.message_limit.to_bytes(8)
        mode = b"P\x01" if self.settles_second else b"P\x00"
        self.send(
            ATTACH,
            [encoded[0], codec.encode_uint(0), TRUE, b"P\x00", mode, *terminuses, b"@", b"@", b"@", limit],
        )
        if self.refuses_link:
            self.detach(self.refuses_link)

    async def _downwards(self, emulator: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = FrameReader(_LARGEST)
        with contextlib.suppress(OSError):
            while data := await emulator.read(16_384):
                for frame in frames.feed(data):
                    found = performative(frame)
                    if found is not None and found.code == OPEN and self.idle_timeout_ms is not None:
                        fields = list(codec.items(frame, found.fields_at))
                        fields[4] = codec.encode_uint(self.idle_timeout_ms)
                        writer.write(encode_frame(0, OPEN, fields))
                    else:
                        writer.write(frame)
