"""Links that carry the messages of one session out, and which kind of link a receiver asks for."""

from __future__ import annotations

from typing import Any

from proton import Data, Described, Link, Sender, symbol

from outbox_relay.emulators.servicebus import codec
from outbox_relay.emulators.servicebus.connection import AmqpConnection
from outbox_relay.emulators.servicebus.consuming import ConsumeEndpoint
from outbox_relay.emulators.servicebus.entry import Entry, Lock
from outbox_relay.emulators.servicebus.errors import ArgumentInvalid, NotAllowed, SessionLockLost, TimedOut
from outbox_relay.emulators.servicebus.namespace import Source
from outbox_relay.emulators.servicebus.session_queue import SessionQueue
from outbox_relay.emulators.servicebus.sessions import Session

SESSION_FILTER = "com.microsoft:session-filter"
_NON_EXCLUSIVE_FILTER = "com.microsoft:non-exclusive-session-filter"
SESSION_LOCKED_UNTIL = "com.microsoft:locked-until-utc"
ACCEPT_TIMEOUT = "com.microsoft:timeout"
DEFAULT_ACCEPT_TIMEOUT_MS = 60_000


class SessionEndpoint(ConsumeEndpoint):
    """Delivers the messages of one session to the receiver that holds it.

    The attach is answered only when a session was locked, or when the time to wait for one is over.
    """

    queue: SessionQueue

    def __init__(self, connection: AmqpConnection, link: Sender, source: Source, session_id: str | None) -> None:
        super().__init__(connection, link, source)
        self._wanted = session_id
        self._waits = False
        self.session: Session | None = None

    def open(self) -> None:
        self.check()
        if self._wanted is not None:
            self.session_granted(self.queue.accept(self._wanted, self))
            return
        session = self.queue.accept_next(self)
        if session is not None:
            self.session_granted(session)
            return
        self._waits = True
        timers = self.connection.broker.namespace.timers
        timers.call_at(timers.now() + self._accept_timeout_ms(), self._give_up)

    @property
    def is_busy(self) -> bool:
        return self._waits or super().is_busy

    def _accept_timeout_ms(self) -> int:
        properties = self.link.remote_properties or {}
        return int(properties.get(symbol(ACCEPT_TIMEOUT), DEFAULT_ACCEPT_TIMEOUT_MS))

    def session_granted(self, session: Session) -> None:
        self._waits = False
        self._is_open = True
        self.session = session
        link = self.link
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        link.snd_settle_mode = link.remote_snd_settle_mode
        link.rcv_settle_mode = link.remote_rcv_settle_mode
        wanted = _filters(link).get(symbol(SESSION_FILTER))
        # The client for Go describes its filters, and reads no answer with one that is not described.
        value = Described(wanted.descriptor, session.id) if isinstance(wanted, Described) else session.id
        chosen = link.source.filter
        chosen.clear()
        chosen.put_dict({symbol(SESSION_FILTER): value})
        ticks = session.locked_until_ms * codec.TICKS_PER_MS + codec.UNIX_EPOCH_TICKS
        link.properties = {symbol(SESSION_LOCKED_UNTIL): ticks}
        link.open()
        self.connection.schedule_flush()

    def session_lost(self) -> None:
        self.connection.links.detach(
            self.link,
            SessionLockLost("The session lock was lost. Request a new session receiver."),
        )

    def _give_up(self) -> None:
        if self._waits:
            self._waits = False
            self.queue.stop_waiting(self)
            self.connection.links.refuse(
                self.link,
                TimedOut("The operation did not complete within the allotted timeout. No session was available."),
            )

    def _take(self) -> tuple[Entry, Lock | None] | None:
        if self.session is None:
            return None
        return self.queue.take_from(self.session, self, delete=self._deletes)

    def _has_next(self) -> bool:
        return self.session is not None and len(self.session.ready) > 0

    def _pass_on(self) -> None:
        pass

    def closed(self) -> None:
        self._is_open = False
        self._unsettled.clear()
        self._delayed.cancel()
        self._waits = False
        self.queue.stop_waiting(self)
        if self.session is not None:
            self.queue.close_session(self.session, self)


def consume_endpoint(connection: AmqpConnection, link: Sender, source: Source) -> ConsumeEndpoint:
    """Make the endpoint a receiver asks for.

    Raises NotAllowed when sessions and the entity do not match, ArgumentInvalid for an id that is no string.
    """
    asks, session_id = _session_filter(link)
    if isinstance(source.queue, SessionQueue):
        if not asks:
            raise NotAllowed(
                "It is not possible for an entity that requires sessions to create a non-sessionful message "
                "receiver."
            )
        return SessionEndpoint(connection, link, source, session_id)
    if asks:
        raise NotAllowed(
            "A sessionful message receiver cannot be created on an entity that does not require sessions. Ensure "
            "RequiresSession is set to true when creating a Queue or Subscription to enable sessionful behavior."
        )
    return ConsumeEndpoint(connection, link, source)


def _filters(link: Link) -> dict[Any, Any]:
    """Return the filters that a receiver asks for."""
    wanted: Data = link.remote_source.filter
    wanted.rewind()
    filters = wanted.get_object() if wanted.next() else None
    return filters or {}


def _session_filter(link: Sender) -> tuple[bool, str | None]:
    """Return whether a receiver asks for a session, and for which; None is any that is free.

    Raises ArgumentInvalid, or NotAllowed for a session that several receivers share.
    """
    for name, value in _filters(link).items():
        if str(name).startswith(_NON_EXCLUSIVE_FILTER):
            # Azure.Messaging.ServiceBus 7.21 knows by these words that a namespace has no such
            # sessions, and raises NotSupportedException.
            raise NotAllowed(f"The source has an invalid filter type: '{name}'.")
        if str(name) == SESSION_FILTER:
            plain = getattr(value, "value", value)
            if plain is not None and not isinstance(plain, str):
                raise ArgumentInvalid(
                    f"The session id of a receiver is a {type(plain).__name__}; it has to be a string, or null "
                    "for any free session."
                )
            return True, plain
    return False, None
