"""Proton's protocol engine for one connection. It does no I/O: frames go in, events and bytes to send come out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from cproton import (
    isnull,
    pn_collector_peek,
    pn_event_delivery,
    pn_event_link,
    pn_event_session,
    pn_event_type,
)
from proton import Collector, Condition, Connection, Event, EventType, Link, Session, Transport

CONTAINER = "local-servicebus"
MAX_FRAME_BYTES = 65536
IDLE_TIMEOUT_S = 480.0
"""The engine announces half of it, four minutes, as the service does."""


class Happening(NamedTuple):
    """An event of the engine: its type, and the session, link or delivery (a C object) that it is about."""

    type: EventType
    subject: Any


def _session(event: Any) -> Any:
    return Session.wrap(pn_event_session(event))  # type: ignore[no-untyped-call]


def _link(event: Any) -> Any:
    return Link.wrap(pn_event_link(event))  # type: ignore[no-untyped-call]


def _nothing(event: Any) -> Any:
    return None


_SUBJECTS: dict[EventType, Callable[[Any], Any]] = {
    Event.CONNECTION_REMOTE_OPEN: _nothing,
    Event.CONNECTION_REMOTE_CLOSE: _nothing,
    Event.TRANSPORT_ERROR: _nothing,
    Event.SESSION_REMOTE_OPEN: _session,
    Event.SESSION_REMOTE_CLOSE: _session,
    Event.LINK_REMOTE_OPEN: _link,
    Event.LINK_REMOTE_CLOSE: _link,
    Event.LINK_REMOTE_DETACH: _link,
    Event.LINK_FLOW: _link,
    Event.DELIVERY: pn_event_delivery,
}
_OF_INTEREST = {kind.number: (kind, subject) for kind, subject in _SUBJECTS.items()}


class Engine:
    """The server's end of an AMQP connection, its sessions, links and deliveries."""

    def __init__(self) -> None:
        self._transport = Transport(Transport.SERVER)
        self._transport.max_frame_size = MAX_FRAME_BYTES
        self._transport.idle_timeout = IDLE_TIMEOUT_S
        self._connection = Connection()
        self._connection.container = CONTAINER
        self._collector = Collector()
        self._connection.collect(self._collector)
        self._transport.bind(self._connection)

    def push(self, frame: bytes) -> None:
        """Take a frame from the client. Raises proton.TransportException on a protocol error."""
        at = 0
        while at < len(frame) and (capacity := self._transport.capacity()) > 0:
            self._transport.push(frame[at : at + capacity])
            at += capacity

    def peek_event(self) -> Happening | None:
        """Return the next event of interest; it stays the next one until `pop_event`."""
        # Collector.peek makes Python objects of everything around an event, which takes longer than to handle it.
        while not isnull(event := pn_collector_peek(self._collector._impl)):
            if known := _OF_INTEREST.get(pn_event_type(event)):
                kind, subject = known
                return Happening(kind, subject(event))
            self._collector.pop()
        return None

    def pop_event(self) -> None:
        self._collector.pop()

    def take_output(self) -> bytes:
        """Return and remove bytes to send; none when there is nothing to send."""
        pending = self._transport.pending()
        data = bytes(self._transport.peek(pending) or b"") if pending > 0 else b""
        if data:
            self._transport.pop(len(data))
        return data

    @property
    def is_finished(self) -> bool:
        """True if there will never be anything to send again."""
        return self._transport.pending() < 0

    def tick(self, now_s: float) -> float:
        """Check the idle timeouts; return when to call this again, 0 for never. The clock is monotonic."""
        return self._transport.tick(now_s)

    def open(self) -> None:
        self._connection.open()

    def begin_session(self) -> None:
        """Begin a session, as either side may (AMQP 1.0, part 2, section 2.5.1)."""
        self._connection.session().open()

    def close(self, condition: Condition | None = None) -> None:
        """Close the connection, with an error or without one."""
        if condition is not None:
            self._connection.condition = condition
        self._connection.close()

    @property
    def error(self) -> Condition | None:
        """The protocol error that ended the connection."""
        return self._transport.condition
