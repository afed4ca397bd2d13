"""A pipelining AMQP 1.0 sender: Apache Qpid Proton's protocol engine on an asyncio socket.

It keeps as many deliveries in flight on one link as the relay does; the SDK's sender keeps one. Proton cannot set
the message-format by which Service Bus recognises a batch, so this module sets it in the outgoing frames.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import cast

from azure.servicebus import parse_connection_string
from azure.servicebus._pyamqp.utils import generate_sas_token  # the token's format is public, its encoder is not
from proton import Collector, Connection, Delivery, Event, Link, Message, Sender, Transport, TransportException

from outbox_relay.emulators.servicebus import codec
from outbox_relay.emulators.servicebus.frames import TRANSFER, FrameReader, performative
from outbox_relay.emulators.servicebus.sections import BATCH_FORMAT
from relay.servicebus.pipelined.outgoing import IN_FLIGHT

LARGEST_BATCH = 65_000
"""Bytes that fit into one frame with the message-format, which makes the frame longer."""

_FRAME_BYTES = 65_536
_MESSAGE_FORMAT_FIELD = 3
_CBS = "$cbs"
_TIMEOUT_S = 30.0


class NotAccepted(Exception):
    """The broker refused a delivery, a link or the connection."""


class PipelinedSender(asyncio.Protocol):
    """One connection with one link to a topic."""

    def __init__(self, connection_string: str, topic: str) -> None:
        self._where = parse_connection_string(connection_string)
        self._topic = topic
        self._engine = Transport()
        self._collector = Collector()
        self._connection = Connection()
        self._connection.collect(self._collector)
        self._frames = FrameReader(_FRAME_BYTES)
        self._waiting: Sequence[bytes] = ()
        self._next = 0
        self._in_flight = 0
        self._finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._session = self._connection.session()
        self._requests: Sender = self._session.sender("cbs-requests")
        self._answers = self._session.receiver("cbs-answers")
        self._link: Sender = self._session.sender("events")
        self._token_put = False
        self._batches_follow = False

    @classmethod
    async def open(cls, connection_string: str, topic: str) -> PipelinedSender:
        """Connect, put a token, and attach a link to the topic. Raises NotAccepted, OSError or TimeoutError."""
        loop = asyncio.get_running_loop()
        sender = cls(connection_string, topic)
        host, _, port = sender._where.fully_qualified_namespace.partition(":")
        async with asyncio.timeout(_TIMEOUT_S):
            await loop.create_connection(lambda: sender, host, int(port))
            await sender._finished
        return sender

    async def send(self, batches: Sequence[bytes]) -> None:
        """Send encoded batches in order; returns when the last one was accepted. Raises NotAccepted."""
        self._finished = asyncio.get_running_loop().create_future()
        self._waiting, self._next = batches, 0
        self._pump()
        self._flush()
        await self._finished

    async def close(self) -> None:
        self._connection.close()
        self._flush()
        self._socket.close()

    # The socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)
        sasl = self._engine.sasl()
        sasl.allowed_mechs("ANONYMOUS")
        self._engine.bind(self._connection)
        self._connection.container = "bench"
        self._connection.hostname = self._where.fully_qualified_namespace
        self._connection.open()
        self._session.open()
        self._requests.target.address = _CBS
        self._requests.open()
        self._answers.source.address = _CBS
        self._answers.target.address = "cbs-answers"
        self._answers.open()
        self._answers.flow(1)
        self._flush()

    def data_received(self, data: bytes) -> None:
        at = 0
        try:
            while at < len(data) and (capacity := self._engine.capacity()) > 0:
                self._engine.push(data[at : at + capacity])
                at += capacity
                self._process()
        except TransportException as error:
            self._fail(str(error))
        self._pump()
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("the connection was lost")

    def _flush(self) -> None:
        self._process()
        while (pending := self._engine.pending()) > 0 and (data := self._engine.peek(pending)):
            self._engine.pop(len(data))
            frames = self._frames.feed(bytes(data))
            self._socket.write(b"".join([self._as_batch(frame) for frame in frames]))
            self._process()

    def _as_batch(self, frame: bytes) -> bytes:
        found = performative(frame) if self._batches_follow else None
        if found is None or found.code != TRANSFER:
            return frame
        fields = list(codec.items(frame, found.fields_at))
        fields[_MESSAGE_FORMAT_FIELD] = codec.encode_uint(BATCH_FORMAT)
        rest = codec.encode_list(fields) + frame[codec.skip(frame, found.fields_at) :]
        return (found.fields_at + len(rest)).to_bytes(4) + frame[4 : found.fields_at] + rest

    # The engine's events

    def _process(self) -> None:
        while (event := self._collector.peek()) is not None:
            if event.type == Event.LINK_FLOW and not self._token_put:
                self._put_token()
            elif event.type == Event.LINK_REMOTE_OPEN and event.link == self._link:
                self._opened(self._link)
            elif event.type == Event.DELIVERY:
                self._delivery(cast(Delivery, event.delivery))
            elif event.type in (Event.LINK_REMOTE_CLOSE, Event.CONNECTION_REMOTE_CLOSE, Event.TRANSPORT_ERROR):
                self._fail(f"the broker closed the link or the connection: {event.type}")
            self._collector.pop()

    def _put_token(self) -> None:
        audience = f"sb://{self._where.fully_qualified_namespace}/{self._topic}"
        name, key = self._where.shared_access_key_name, self._where.shared_access_key
        token = generate_sas_token(audience, name, key, int(time.time()) + 3600)  # type: ignore[no-untyped-call]
        request = Message(
            body=token.decode() if isinstance(token, bytes) else token, id="1", reply_to="cbs-answers"
        )
        properties = {"operation": "put-token", "type": "servicebus.windows.net:sastoken", "name": audience}
        request.properties = properties  # type: ignore[assignment]
        self._token_put = True
        self._requests.delivery("token")
        self._requests.send(request.encode())
        self._requests.advance()

    def _opened(self, link: Link) -> None:
        if link.remote_target.address is None:
            self._fail(f"the topic {self._topic} refused the link")
        elif not self._finished.done():
            self._batches_follow = True
            self._finished.set_result(None)

    def _delivery(self, delivery: Delivery) -> None:
        if delivery.link == self._answers and delivery.readable and not delivery.partial:
            delivery.settle()
            self._link.target.address = self._topic
            self._link.open()
        elif delivery.link == self._link and delivery.updated:
            if delivery.remote_state != Delivery.ACCEPTED:
                self._fail(f"a batch was not accepted: {delivery.remote_state}")
            delivery.settle()
            self._in_flight -= 1
            if not self._in_flight and self._next == len(self._waiting) and not self._finished.done():
                self._finished.set_result(None)

    def _pump(self) -> None:
        while self._next < len(self._waiting) and self._in_flight < IN_FLIGHT and self._link.credit > 0:
            self._link.delivery(str(self._next))
            self._link.stream(self._waiting[self._next])
            self._link.advance()
            self._next += 1
            self._in_flight += 1

    def _fail(self, why: str) -> None:
        if not self._finished.done():
            self._finished.set_exception(NotAccepted(why))
