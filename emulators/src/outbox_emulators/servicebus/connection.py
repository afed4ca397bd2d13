"""One AMQP connection: Proton's protocol engine, fed and emptied by an asyncio protocol.

The engine does no I/O of its own. Bytes from the socket are pushed into it, its events go to the links, and what
it wants to send is popped from it: so there are no threads, and all that happens to the domain happens in order.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from proton import (
    Collector,
    Connection,
    Delivery,
    Event,
    Link,
    Session,
    Terminus,
    Transport,
    TransportException,
)

from outbox_emulators.servicebus.auth import Claim
from outbox_emulators.servicebus.errors import ServiceBusError, Unauthorized
from outbox_emulators.servicebus.fault_plans import Role
from outbox_emulators.servicebus.frame_strikes import FrameStrikes
from outbox_emulators.servicebus.frames import DeliveryTracker, FrameReader, middle_of_last
from outbox_emulators.servicebus.sasl import Sasl
from outbox_emulators.servicebus.settlement import condition_of

if TYPE_CHECKING:
    from outbox_emulators.servicebus.broker import Broker
    from outbox_emulators.servicebus.links import LinkEndpoint

Attach = Callable[["AmqpConnection", Link], "LinkEndpoint"]

LOG = logging.getLogger(__name__)

CONTAINER = "local-servicebus"
MAX_FRAME_BYTES = 65536
IDLE_TIMEOUT_S = 480.0
"""The engine announces half of it, four minutes, as the service does."""

_LINGER_0 = struct.pack("ii", 1, 0)
"""Makes closing a socket a reset, with what was not sent yet thrown away."""


class AmqpConnection(asyncio.Protocol):
    """A client's connection, with its links and the claims it has put."""

    def __init__(self, broker: Broker, attach: Attach) -> None:
        self.broker = broker
        self.claims: dict[str, Claim] = {}
        self.writable = True
        self.active_s = asyncio.get_running_loop().time()
        self.gone = asyncio.Event()
        self._attach = attach
        self._frames = FrameReader(MAX_FRAME_BYTES)
        self._deliveries = DeliveryTracker()
        self._strikes = FrameStrikes(self._deliveries, self.endpoints)
        self._endpoints: dict[Link, LinkEndpoint] = {}
        self._transport: asyncio.Transport | None = None
        self._engine = Transport(Transport.SERVER)
        self._engine.max_frame_size = MAX_FRAME_BYTES
        self._engine.idle_timeout = IDLE_TIMEOUT_S
        self._sasl = Sasl(self._accepts_key)
        self._connection = Connection()
        self._connection.container = CONTAINER
        self._collector = Collector()
        self._connection.collect(self._collector)
        self._engine.bind(self._connection)
        self._flush_scheduled = False
        self._tick_timer: asyncio.TimerHandle | None = None
        self._break_off: tuple[int, bool] | None = None

    # The socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self.broker.is_down:
            self.abort()
            return
        self.broker.connections.add(self)
        self._tick()

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._frames.feed(data):
                if Sasl.concerns(frame):
                    self._answer_sasl(frame)
                    continue
                if self.broker.faults.pending and (cut := self._strikes.find(frame)):
                    self._push(frame[: cut.taken])
                    self.abort(reset=cut.reset)
                    return
                self._push(self._deliveries.follow(frame))
                if self.breaks_off:
                    self.flush()
                if self._transport is None:
                    return
        except TransportException as error:
            LOG.info("connection closed on a protocol error: %s", error)
        self.flush()

    def _answer_sasl(self, frame: bytes) -> None:
        # The engine knows fewer mechanisms than the service: it begins with AMQP itself.
        if self._transport is not None:
            self._transport.write(self._sasl.answer(frame))
            if self._sasl.refused:
                self._transport.close()

    def _accepts_key(self, name: str, key: str) -> bool:
        try:
            self.claims[""] = self.broker.access.check_key(name, key)
        except Unauthorized:
            return False
        return True

    def _push(self, frame: bytes) -> None:
        at = 0
        while at < len(frame):
            capacity = self._engine.capacity()
            if capacity <= 0:
                break
            self._engine.push(frame[at : at + capacity])
            at += capacity
        self._process()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self.gone.set()

    def _leave(self) -> None:
        """Have the links give back what they hold: nothing goes in or out any more."""
        self.broker.connections.discard(self)
        if self._tick_timer:
            self._tick_timer.cancel()
        self._transport = None
        endpoints = list(self._endpoints.values())
        self._endpoints.clear()
        for endpoint in endpoints:
            endpoint.closed()

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        for endpoint in list(self._endpoints.values()):
            endpoint.pump()
        self.flush()

    @property
    def is_open(self) -> bool:
        """Whether the client can still be reached."""
        return self._transport is not None and not self._transport.is_closing()

    def close(self, error: ServiceBusError | None) -> None:
        """Close the connection in an orderly way, with a reason or without one."""
        if error is not None:
            self._connection.condition = condition_of(error)
        self._connection.close()
        self.flush()
        if self._transport:
            self._transport.close()

    def abort(self, *, reset: bool = False) -> None:
        """Cut the connection as it is, in the middle of whatever it does; with `reset` by a TCP reset."""
        transport = self._transport
        if transport is not None:
            if reset:
                _reset_on_close(transport)
            self._leave()
            transport.abort()

    @property
    def breaks_off(self) -> bool:
        """Whether the connection is about to end in the middle of a frame: nothing more is to be sent."""
        return self._break_off is not None

    def break_off(self, performative: int, *, reset: bool) -> None:
        """End the connection in the middle of the frame of this kind that is to be sent last."""
        self._break_off = (performative, reset)
        self.schedule_flush()

    def schedule_flush(self) -> None:
        """Send, at the end of this turn of the loop, what was handed to the engine from outside its events."""
        if not self._flush_scheduled:
            self._flush_scheduled = True
            asyncio.get_running_loop().call_soon(self._scheduled_flush)

    def _scheduled_flush(self) -> None:
        self._flush_scheduled = False
        self.flush()

    def flush(self) -> None:
        """Handle the engine's events and write out what it has to send."""
        self._process()
        if self._transport is None:
            return
        if self._break_off is not None:
            self._send_half(*self._break_off)
            return
        while (pending := self._engine.pending()) > 0:
            data = self._engine.peek(pending)
            if not data:
                break
            self._transport.write(data)
            self._engine.pop(len(data))
            self._process()
        if self._engine.pending() < 0 and not self._transport.is_closing():
            self._transport.close()

    def _send_half(self, performative: int, reset: bool) -> None:
        transport = self._transport
        assert transport is not None
        data = bytearray()
        while (pending := self._engine.pending()) > 0 and (more := self._engine.peek(pending)):
            data += more
            self._engine.pop(len(more))
            self._process()
        at = middle_of_last(bytes(data), performative)
        transport.write(bytes(data[:at]))
        if at is not None:
            if reset:
                _reset_on_close(transport)
            self._leave()
            transport.close()

    def _tick(self) -> None:
        now = time.monotonic()
        deadline = self._engine.tick(now)
        self.flush()
        if deadline and self._transport:
            self._tick_timer = asyncio.get_running_loop().call_later(
                max(0.0, deadline - time.monotonic()), self._tick
            )

    # The engine's events

    def _process(self) -> None:
        collector = self._collector
        # A handler may cut the connection: what the engine still has to tell is of no interest then.
        while self._transport is not None and (event := collector.peek()) is not None:
            handle = _HANDLERS.get(event.type)
            if handle is not None:
                handle(self, event)
            collector.pop()

    def _connection_opened(self, event: Event) -> None:
        self._connection.open()
        # The idle timeout the client announced is known only now.
        asyncio.get_running_loop().call_soon(self._restart_tick)

    def _restart_tick(self) -> None:
        if self._tick_timer:
            self._tick_timer.cancel()
        self._tick()

    def _connection_closed(self, event: Event) -> None:
        self._connection.close()

    def _session_opened(self, event: Event) -> None:
        cast(Session, event.session).open()

    def _session_closed(self, event: Event) -> None:
        session = cast(Session, event.session)
        for link, endpoint in list(self._endpoints.items()):
            if link.session == session:
                self._forget(link, endpoint)
        session.close()

    def _link_opened(self, event: Event) -> None:
        link = cast(Link, event.link)
        try:
            endpoint = self._attach(self, link)
            self._endpoints[link] = endpoint
            endpoint.open()
        except ServiceBusError as error:
            self.refuse(link, error)

    def refuse(self, link: Link, error: ServiceBusError) -> None:
        """Answer an attach with a detach. The attach that must go before it names neither source nor target."""
        LOG.info("link %s refused: %s %s", link.name, error.condition, error.description)
        link.source.type = Terminus.UNSPECIFIED
        link.target.type = Terminus.UNSPECIFIED
        link.condition = condition_of(error)
        link.close()
        self._endpoints.pop(link, None)
        self.schedule_flush()

    def detach(self, link: Link, error: ServiceBusError | None) -> None:
        """End a link that was open, with a reason or without one."""
        endpoint = self._endpoints.get(link)
        if endpoint is not None:
            self._forget(link, endpoint)
        if error is not None:
            link.condition = condition_of(error)
        link.close()
        self.schedule_flush()

    def _link_closed(self, event: Event) -> None:
        link = cast(Link, event.link)
        endpoint = self._endpoints.get(link)
        if endpoint is not None:
            self._forget(link, endpoint)
        link.close()

    def _link_detached(self, event: Event) -> None:
        link = cast(Link, event.link)
        endpoint = self._endpoints.get(link)
        if endpoint is not None:
            self._forget(link, endpoint)
        link.detach()

    def _forget(self, link: Link, endpoint: LinkEndpoint) -> None:
        self._endpoints.pop(link, None)
        self.active_s = asyncio.get_running_loop().time()
        endpoint.closed()

    def _link_flow(self, event: Event) -> None:
        endpoint = self._endpoints.get(cast(Link, event.link))
        if endpoint is not None:
            endpoint.touch()
            endpoint.pump()

    def _delivery(self, event: Event) -> None:
        delivery = cast(Delivery, event.delivery)
        endpoint = self._endpoints.get(delivery.link)
        if endpoint is not None:
            endpoint.touch()
            endpoint.on_delivery(delivery, self._deliveries.message_format)

    def _transport_error(self, event: Event) -> None:
        # A client that ends a session goes on to detach its links: of no interest but to who looks for it.
        LOG.debug("transport error: %s", self._engine.condition)

    # Claims

    def authorize(self, path: str) -> None:
        """Raise Unauthorized unless a valid token was put for this path."""
        now = self.broker.namespace.agenda.now() / 1000
        if not any(claim.covers(path) and claim.expires_s > now for claim in self.claims.values()):
            raise Unauthorized(
                f"Unauthorized access. 'Send' or 'Listen' claim(s) are required to perform this operation. "
                f"Resource: '{path}'."
            )

    def check_claims(self) -> None:
        """End the links whose token has expired and was not renewed."""
        for link, endpoint in list(self._endpoints.items()):
            if endpoint.path is None:
                continue
            try:
                self.authorize(endpoint.path)
            except Unauthorized:
                self.detach(link, Unauthorized("ExpiredToken: The token is expired."))

    def check_entities(self) -> None:
        """End the links whose entity no longer takes or gives messages."""
        for link, endpoint in list(self._endpoints.items()):
            try:
                endpoint.check()
            except ServiceBusError as error:
                self.detach(link, error)

    def receives_from(self, covers: Callable[[str], bool]) -> bool:
        """Tell whether one of the links receives from a path that is covered."""
        return any(
            endpoint.role is Role.RECEIVER and endpoint.path is not None and covers(endpoint.path)
            for endpoint in self._endpoints.values()
        )

    def endpoints(self) -> list[tuple[Link, LinkEndpoint]]:
        return list(self._endpoints.items())


def _reset_on_close(transport: asyncio.Transport) -> None:
    connected: socket.socket = transport.get_extra_info("socket")
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_0)


_HANDLERS: dict[object, Callable[[AmqpConnection, Event], None]] = {
    Event.CONNECTION_REMOTE_OPEN: AmqpConnection._connection_opened,
    Event.CONNECTION_REMOTE_CLOSE: AmqpConnection._connection_closed,
    Event.SESSION_REMOTE_OPEN: AmqpConnection._session_opened,
    Event.SESSION_REMOTE_CLOSE: AmqpConnection._session_closed,
    Event.LINK_REMOTE_OPEN: AmqpConnection._link_opened,
    Event.LINK_REMOTE_CLOSE: AmqpConnection._link_closed,
    Event.LINK_REMOTE_DETACH: AmqpConnection._link_detached,
    Event.LINK_FLOW: AmqpConnection._link_flow,
    Event.DELIVERY: AmqpConnection._delivery,
    Event.TRANSPORT_ERROR: AmqpConnection._transport_error,
}
