"""A subscription with sessions, as the broker keeps it: messages, locks, deliveries, dead letters.

The emulator's (`outbox_relay.emulators.servicebus`) speaks AMQP and has the sources of each behaviour. This is the
smallest model that gives a receiver the same.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from relay.servicebus.messages import Message
from verification.simulation.world import World

_RESOLUTION_S = 1e-6


class LockLostError(Exception):
    """The session is not locked by this link, or the message was settled."""


class Link(Protocol):
    """A link at the broker, of a receiver that waits for a session or has one."""

    credit: int

    def granted(self, session: Session) -> None:
        """Note that a session is locked for the link now."""

    def deliver(self, stored: Stored) -> None:
        """Send it a message."""

    def timed_out(self) -> None:
        """Note that no session had messages in time."""

    def lost(self) -> None:
        """End the link, because the lock on its session has expired."""


@dataclass(slots=True)
class Stored:
    """A message in the subscription; `failed` is the number of deliveries that have failed."""

    number: int
    message: Message
    enqueued_at: float
    failed: int = 0


@dataclass(slots=True, eq=False)
class Session:
    """A session: what waits in it, in order, and what was given to the link that holds it."""

    key: str
    waiting: list[Stored] = field(default_factory=list)
    given: dict[int, Stored] = field(default_factory=dict)
    holder: Link | None = None
    until: float = 0.0


class Subscription:
    """The subscription.

    Attributes:
        lock_s: How long a lock on a session lasts, in seconds.
        max_deliveries: Failed deliveries after which a message is dead-lettered.
        dead: Dead letters with their reasons, in the order in which they became ones.
        expired: Called with a session and its holder when a lock expires.
    """

    def __init__(self, world: World, name: str, *, lock_s: float, max_deliveries: int) -> None:
        self.world = world
        self.name = name
        self.lock_s = lock_s
        self.max_deliveries = max_deliveries
        self.dead: list[tuple[Stored, str]] = []
        self.expired: Callable[[Session, Link], None] = lambda session, link: None
        self._sessions: dict[str, Session] = {}
        self._links: list[Link] = []

    @property
    def is_empty(self) -> bool:
        """True if every message was settled."""
        return not any(each.waiting or each.given for each in self._sessions.values())

    def put(self, number: int, message: Message) -> None:
        """Add a message that the topic has accepted."""
        session = self._sessions.setdefault(message.partition_key, Session(message.partition_key))
        session.waiting.append(Stored(number, message, self.world.now))
        if session.holder is None:
            self._offer(session)
        else:
            self.fill(session, session.holder)

    def holder_of(self, key: str) -> Link | None:
        """Return the link that has the lock on a session."""
        session = self._sessions.get(key)
        return None if session is None else session.holder

    # Sessions.

    def accept_next(self, link: Link, timeout_s: float) -> None:
        """Lock any free session with messages for a link, or let it wait for one."""
        free = [each for each in self._sessions.values() if each.holder is None and each.waiting]
        if free:
            self._lock(self.world.entropy.choice(free), link)
        else:
            self._links.append(link)
            self.world.outside.after(timeout_s, self._give_up, link)

    def _give_up(self, link: Link) -> None:
        if link in self._links:
            self._links.remove(link)
            link.timed_out()

    def leave(self, link: Link) -> None:
        """Release a link that has ended.

        Its session is free, and what was given to it waits again, not counted as failed.
        """
        if link in self._links:
            self._links.remove(link)
        for session in self._sessions.values():
            if session.holder is link:
                self._release(session)

    def renew(self, session: Session, link: Link) -> float:
        """Extend a lock; returns until when. Raises LockLostError."""
        if session.holder is not link:
            raise LockLostError
        self._extend(session, link)
        return session.until

    def _lock(self, session: Session, link: Link) -> None:
        session.holder = link
        self._extend(session, link)
        link.granted(session)
        self.fill(session, link)

    def _extend(self, session: Session, link: Link) -> None:
        session.until = self.world.now + self.lock_s
        self.world.outside.at(session.until, self._expire, session, link)

    def end_locks(self) -> None:
        """Let the lock on every session expire now."""
        for session in list(self._sessions.values()):
            if session.holder is not None:
                self._end(session, session.holder)

    def _expire(self, session: Session, link: Link) -> None:
        # A loop wakes for a timer when it is due to within its clock's resolution, so a little early.
        if session.holder is link and session.until <= self.world.now + _RESOLUTION_S:
            self._end(session, link)

    def _end(self, session: Session, link: Link) -> None:
        # Message sessions, learn.microsoft.com: only a session lock that expires counts as a delivery.
        for stored in list(session.given.values()):
            self._fail(session, stored, "MaxDeliveryCountExceeded")
        self.expired(session, link)
        self._release(session)
        link.lost()

    def _release(self, session: Session) -> None:
        for stored in session.given.values():
            insort(session.waiting, stored, key=_number)
        session.given.clear()
        session.holder = None
        self._offer(session)

    def _offer(self, session: Session) -> None:
        if self._links and session.waiting:
            self._lock(session, self._links.pop(0))

    # Messages.

    def fill(self, session: Session, link: Link) -> None:
        """Send the holder of a session as many messages as it has room for."""
        while session.waiting and len(session.given) < link.credit and session.holder is link:
            stored = session.waiting.pop(0)
            session.given[stored.number] = stored
            link.deliver(stored)

    def complete(self, session: Session, link: Link, *numbers: int) -> None:
        """Remove messages. Raises LockLostError, with those before it removed."""
        for number in numbers:
            self._take(session, link, number)
        self.fill(session, link)

    def abandon(self, session: Session, link: Link, number: int) -> None:
        """Let a message wait again, its delivery failed. Raises LockLostError."""
        stored = self._take(session, link, number)
        session.given[number] = stored
        self._fail(session, stored, "MaxDeliveryCountExceeded")
        self.fill(session, link)

    def dead_letter(self, session: Session, link: Link, number: int, reason: str) -> None:
        """Put a message into the dead-letter queue. Raises LockLostError."""
        self.dead.append((self._take(session, link, number), reason))
        self.fill(session, link)

    def _take(self, session: Session, link: Link, number: int) -> Stored:
        if session.holder is not link or number not in session.given:
            raise LockLostError
        return session.given.pop(number)

    def _fail(self, session: Session, stored: Stored, reason: str) -> None:
        del session.given[stored.number]
        stored.failed += 1
        if stored.failed >= self.max_deliveries:
            self.dead.append((stored, reason))
        else:
            insort(session.waiting, stored, key=_number)


def _number(stored: Stored) -> int:
    return stored.number
