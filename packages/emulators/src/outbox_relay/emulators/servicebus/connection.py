"""One AMQP connection: an asyncio protocol between the socket, the protocol engine and the links.

There are no threads: bytes from the socket go into the engine, its events go to the links, and what the engine has
to send goes to the socket. So everything that happens to an entity happens in one order.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

from proton import Delivery, Event, Link, TransportException

from outbox_relay.emulators.servicebus.auth import Claims
from outbox_relay.emulators.servicebus.broker import Broker
from outbox_relay.emulators.servicebus.engine import MAX_FRAME_BYTES, Engine
from outbox_relay.emulators.servicebus.errors import (
    ConnectionForced,
    DetachForced,
    Refused,
    ServiceBusError,
    Unauthorized,
)
from outbox_relay.emulators.servicebus.fault_plans import INTERNAL_ERROR, Ending, FaultPlan
from outbox_relay.emulators.servicebus.frame_faults import FrameFaults
from outbox_relay.emulators.servicebus.frames import (
    HEARTBEAT,
    DeliveryTracker,
    FrameReader,
    middle_of_last,
    without_states,
)
from outbox_relay.emulators.servicebus.handshakes import BEFORE_OPEN, Handshake, Held
from outbox_relay.emulators.servicebus.link_table import LinkTable
from outbox_relay.emulators.servicebus.links import LinkEndpoint
from outbox_relay.emulators.servicebus.sasl import Sasl
from outbox_relay.emulators.servicebus.settlement import condition_of

Attach = Callable[["AmqpConnection", Link], LinkEndpoint]

LOG = logging.getLogger(__name__)

_ENDED = "An injected fault ends it."
_HEARTBEAT_S = 1.0
_SMALL_BUFFER = 2048
# Of a client that sends on though it gets no answer. As with a peer that is frozen, the rest fills the buffers.
_MOST_HELD = 1 << 20
_LINGER_0 = struct.pack("ii", 1, 0)
"""Makes closing a socket a reset, with what was not sent yet thrown away."""


class AmqpConnection(asyncio.Protocol):
    """A client's connection, with its links and the claims it has put."""

    def __init__(self, broker: Broker, attach: Attach) -> None:
        self.broker = broker
        self.claims = Claims(lambda: broker.namespace.timers.now() / 1000, broker.namespace.address)
        self.writable = True
        self.gone = asyncio.Event()
        self._engine = Engine()
        self._frames = FrameReader(MAX_FRAME_BYTES)
        self._deliveries = DeliveryTracker()
        self.links = LinkTable(partial(attach, self), self._deliveries, self.schedule_flush, broker.idle_clock)
        self._frame_faults = FrameFaults(self._deliveries, self.links)
        self._handshake = Handshake(broker.faults, self._deliveries, self.links)
        self._held: Held | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sasl = Sasl(self._accepts_key)
        self._transport: asyncio.Transport | None = None
        self._flush_scheduled = False
        self._tick_timer: asyncio.TimerHandle | None = None
        self._cut: tuple[int, bool] | None = None

    # From the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self.broker.is_down:
            self.abort()
            return
        self.broker.connections.add(self)
        if self.broker.faults.any_pending and (plan := self._handshake.silenced_at_once()):
            self._fall_silent(plan, b"")
        self._tick()

    def data_received(self, data: bytes) -> None:
        if self._held is not None:
            self._held.rest += data
            if len(self._held.rest) > _MOST_HELD and self._transport is not None:
                self._transport.pause_reading()
            return
        self._take(self._frames.feed(data))

    def _take(self, frames: Iterator[bytes], *, as_it_is: bytes = b"") -> None:
        """Handle frames until one ends the connection or is held. `as_it_is` is handled first, without a fault."""
        try:
            if as_it_is:
                self._handle(as_it_is)
            for frame in frames:
                if self._transport is None:
                    return
                if self.broker.faults.any_pending and self._is_faulty(frame):
                    break
                self._handle(frame)
        except TransportException as error:
            LOG.info("connection closed on a protocol error: %s", error)
        self.flush()

    def _is_faulty(self, frame: bytes) -> bool:
        """Return True if a fault is applied to the frame, after which no further one is handled for now."""
        if plan := self._handshake.silenced_by(frame):
            self._fall_silent(plan, frame)
        elif Sasl.concerns(frame):
            return False
        elif cut := self._frame_faults.find_cut(frame):
            self._push(frame[: cut.taken])
            self.abort(reset=cut.reset)
        elif plan := self._frame_faults.find_stall(frame):
            self._handle(frame)
            self._stall(plan)
        else:
            return False
        return True

    def _handle(self, frame: bytes) -> None:
        if Sasl.concerns(frame):
            self._answer_sasl(frame)
            return
        self._push(self._deliveries.follow(frame))
        if self.is_cutting:
            self.flush()

    def _fall_silent(self, plan: FaultPlan, frame: bytes) -> None:
        """Answer nothing from this frame on: for the time of the plan, or forever."""
        self.flush()
        self._held = Held(frame)
        if plan.delay_ms:
            self._timer = asyncio.get_running_loop().call_later(plan.delay_ms / 1000, self._go_on)
        if plan.heartbeats and plan.step not in BEFORE_OPEN:
            self._beat()

    def _beat(self) -> None:
        if self._transport is not None and self._held is not None:
            self._transport.write(HEARTBEAT)
            asyncio.get_running_loop().call_later(_HEARTBEAT_S, self._beat)

    def _stall(self, plan: FaultPlan) -> None:
        """Read nothing for a while, so that the client can send no more than the buffers hold."""
        if self._transport is not None:
            self._held = Held(b"", mute=False)
            connected: socket.socket = self._transport.get_extra_info("socket")
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL_BUFFER)
            self._transport.pause_reading()
            self._timer = asyncio.get_running_loop().call_later(plan.delay_ms / 1000, self._go_on)

    def _go_on(self) -> None:
        held, self._held = self._held, None
        if self._transport is None or held is None:
            return
        self._read_again()
        self._take(self._frames.feed(bytes(held.rest)), as_it_is=held.first)

    def _answer_sasl(self, frame: bytes) -> None:
        # The engine supports fewer mechanisms than the service: it begins with AMQP itself.
        if self._transport is not None:
            self._transport.write(self._sasl.answer(frame))
            if self._sasl.refused:
                self._transport.close()
                self._leave()

    def _accepts_key(self, name: str, key: str) -> bool:
        try:
            for claim in self.broker.access.check_key(name, key, self.broker.namespace.paths()):
                self.claims.put(claim.path, claim)
        except Unauthorized:
            return False
        return True

    def _push(self, frame: bytes) -> None:
        self._engine.push(frame)
        self._handle_events()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self.gone.set()

    def _leave(self) -> None:
        """End the links, which release what they hold: nothing goes in or out any more."""
        self.broker.connections.discard(self)
        for timer in (self._tick_timer, self._timer):
            if timer is not None:
                timer.cancel()
        self._transport = None
        self.links.close()

    def pause_writing(self) -> None:
        """Stop answering and reading a client that does not read: what it sends would only add to the answers."""
        self.writable = False
        if self._transport is not None:
            self._transport.pause_reading()

    def _read_again(self) -> None:
        stalled = self._held is not None and not self._held.mute
        if self._transport is not None and self.writable and not stalled:
            self._transport.resume_reading()

    def resume_writing(self) -> None:
        self.writable = True
        self._read_again()
        self.links.pump()
        self.flush()

    # The engine

    def _handle_events(self) -> None:
        # A handler may cut the connection: the events after that are of no interest.
        while self._transport is not None and (event := self._engine.peek_event()) is not None:
            if event.type == Event.CONNECTION_REMOTE_OPEN:
                self._engine.open()
                # The idle timeout that the client announced is known only now.
                asyncio.get_running_loop().call_soon(self._restart_tick)
            elif event.type == Event.CONNECTION_REMOTE_CLOSE:
                self._engine.close()
            elif event.type == Event.TRANSPORT_ERROR:
                # A client that ends a session then detaches its links: the engine takes that for an error.
                LOG.debug("transport error: %s", self._engine.error)
            else:
                self.links.handle(event.type, event.subject)
            self._engine.pop_event()

    def _tick(self) -> None:
        deadline = self._engine.tick(time.monotonic())
        self.flush()
        if deadline and self._transport:
            self._tick_timer = asyncio.get_running_loop().call_later(
                max(0.0, deadline - time.monotonic()), self._tick
            )

    def _restart_tick(self) -> None:
        if self._tick_timer:
            self._tick_timer.cancel()
        self._tick()

    # To the socket

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
        if self.is_silent:
            return
        self._handle_events()
        if self._cut is not None:
            self._flush_until_cut(*self._cut)
            return
        while self._transport is not None and (data := self._engine.take_output()):
            self._transport.write(data)
            self._handle_events()
        if self._transport is not None and self._engine.is_finished and not self._transport.is_closing():
            self._transport.close()

    def _flush_until_cut(self, performative: int, reset: bool) -> None:
        """Write out everything up to the middle of the last frame of this kind, then cut the connection."""
        transport = self._transport
        if transport is None:
            return
        output = bytearray()
        while data := self._engine.take_output():
            output += data
            self._handle_events()
        at = middle_of_last(bytes(output), performative)
        transport.write(bytes(output[:at]))
        if at is not None:
            if reset:
                _reset_on_close(transport)
            self._leave()
            transport.close()

    # The end

    @property
    def is_open(self) -> bool:
        """True while the client can still be reached."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_silent(self) -> bool:
        """True while a fault keeps the connection from being answered."""
        return self._held is not None and self._held.mute

    def close(self, error: ServiceBusError | None) -> None:
        """Close the connection in an orderly way, with a reason or without one."""
        self._engine.close(None if error is None else condition_of(error))
        self.flush()
        if self._transport:
            self._transport.close()

    def abort(self, *, reset: bool = False) -> None:
        """Cut the connection at once, even during a transfer; with `reset` by a TCP reset."""
        transport = self._transport
        if transport is not None:
            if reset:
                _reset_on_close(transport)
            self._leave()
            transport.abort()

    def end(self, link: Link, plan: FaultPlan) -> None:
        """End a link, its session, or the connection, as a fault says."""

        def error(condition: str) -> ServiceBusError | None:
            if not plan.how.endswith("-with-error"):
                return None
            return Refused(plan.condition or condition, _ENDED, described_info=plan.described_info)

        match plan.how:
            case Ending.RESET:
                self.abort(reset=True)
            case Ending.CONNECTION | Ending.CONNECTION_WITH_ERROR:
                self.close(error(ConnectionForced.condition))
            case Ending.SESSION | Ending.SESSION_WITH_ERROR:
                self.links.end_session(link.session, error(INTERNAL_ERROR))
            case Ending.LINK | Ending.LINK_WITH_ERROR:
                self.links.detach(link, error(DetachForced.condition))

    def begin_session(self) -> None:
        """Begin a session on this side."""
        self._engine.begin_session()
        self.flush()

    def settle_without_state(self, delivery: Delivery) -> None:
        """Settle a delivery whose outcome was sent before. The engine would repeat the outcome."""
        self.flush()
        delivery.settle()
        if self._transport is not None and not self.is_cutting:
            self._transport.write(without_states(self._engine.take_output()))

    @property
    def is_cutting(self) -> bool:
        """True when the connection is about to be cut in the middle of a frame: nothing more is to be sent."""
        return self._cut is not None

    def cut_mid_frame(self, performative: int, *, reset: bool) -> None:
        """Cut the connection in the middle of the last frame of this kind that is to be sent."""
        self._cut = (performative, reset)
        self.schedule_flush()


def _reset_on_close(transport: asyncio.Transport) -> None:
    connected: socket.socket = transport.get_extra_info("socket")
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_0)
