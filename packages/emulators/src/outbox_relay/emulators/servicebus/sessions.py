"""The sessions of a queue: which receiver holds the lock on which, for how long, and who waits for one."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Protocol

from outbox_relay.emulators.servicebus.entry import Entry
from outbox_relay.emulators.servicebus.errors import SessionCannotBeLocked, SessionLockLost
from outbox_relay.emulators.servicebus.queue import Consumer
from outbox_relay.emulators.servicebus.ready_queue import ReadyQueue
from outbox_relay.emulators.servicebus.timers import Alarm, TimerQueue

_GRACE_MS = 1_000


class SessionHolder(Consumer, Protocol):
    """A consumer of one session, or one that waits for any to come free."""

    def session_granted(self, session: Session) -> None:
        """Take the session waited for, which is locked for this consumer now."""

    def session_lost(self) -> None:
        """End the receiver's link: the lock on the session has expired."""


@dataclass(slots=True, eq=False)
class Session:
    """One session. `locked_until_ms` means something only while there is a holder."""

    id: str
    ready: ReadyQueue = field(default_factory=ReadyQueue)
    state: bytes | None = None
    state_set_ms: int = 0
    holder: SessionHolder | None = None
    locked_until_ms: int = 0
    locks: dict[bytes, Entry] = field(default_factory=dict)
    entries: int = 0


class SessionTable:
    """The sessions of one queue that have messages, a state or a holder."""

    def __init__(self, timers: TimerQueue, alarm: Alarm, lock_ms: Callable[[], int]) -> None:
        """`alarm` is set for when a lock may expire; `lock_ms` returns how long locks last."""
        self._timers = timers
        self._alarm = alarm
        self._lock_ms = lock_ms
        self._sessions: dict[str, Session] = {}
        self._available: dict[str, Session] = {}
        self._waiting: dict[SessionHolder, None] = {}
        self._expiries: deque[tuple[int, Session, SessionHolder]] = deque()

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    def get(self, session_id: str) -> Session:
        """Return a session, created if there is none with this id."""
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = Session(session_id)
        return session

    def held(self, session_id: str, holders: Iterable[SessionHolder]) -> Session:
        """Return a session that one of these consumers holds. Raises SessionLockLost."""
        session = self._sessions.get(session_id)
        if session is None or session.holder is None or session.holder not in holders:
            raise SessionLockLost(f"The lock on the session '{session_id}' has expired or is held by another.")
        return session

    # Locks

    def accept(self, session_id: str, holder: SessionHolder) -> Session:
        """Lock a session by its id, whether or not it has messages. Raises SessionCannotBeLocked."""
        session = self.get(session_id)
        if session.holder is not None:
            raise SessionCannotBeLocked(
                f"The requested session '{session_id}' cannot be accepted. It may be locked by another receiver."
            )
        self._lock(session, holder)
        return session

    def accept_next(self, holder: SessionHolder) -> Session | None:
        """Lock the session that has waited longest. When there is none, the holder is granted the next one."""
        if self._available:
            session = next(iter(self._available.values()))
            self._lock(session, holder)
            return session
        self._waiting[holder] = None
        return None

    def stop_waiting(self, holder: SessionHolder) -> None:
        self._waiting.pop(holder, None)

    def renew(self, session: Session) -> None:
        """Extend the lock on a session that is held."""
        session.locked_until_ms = self._timers.now() + self._lock_ms()
        self._expire(session, session.locked_until_ms)

    def release(self, session: Session) -> None:
        """Unlock a session."""
        session.holder = None
        self.offer(session)

    def offer(self, session: Session) -> None:
        """Grant a free session to a consumer that waits for one, or keep it for the next.

        One without messages is not granted; without a state it is dropped.
        """
        if not len(session.ready):
            self._available.pop(session.id, None)
            if session.state is None and not session.entries:
                self._sessions.pop(session.id, None)
        elif self._waiting:
            holder = next(iter(self._waiting))
            self._lock(session, holder)
            holder.session_granted(session)
        else:
            self._available.setdefault(session.id, session)

    def expired(self, now: int) -> Iterator[Session]:
        """Yield each session whose lock has expired; it is for the caller to release it."""
        while self._expiries and self._expiries[0][0] <= now:
            _, session, holder = self._expiries.popleft()
            if session.holder is not holder or session.locked_until_ms > now:
                continue
            until = session.locked_until_ms + self._grace_ms(session)
            if until > now:
                self._expire(session, until)
            else:
                yield session

    @property
    def next_expiry(self) -> int | None:
        return self._expiries[0][0] if self._expiries else None

    def clear(self) -> None:
        self._sessions.clear()
        self._available.clear()
        self._expiries.clear()

    def _lock(self, session: Session, holder: SessionHolder) -> None:
        self._available.pop(session.id, None)
        self._waiting.pop(holder, None)
        session.holder = holder
        self.renew(session)

    def _expire(self, session: Session, until_ms: int) -> None:
        assert session.holder is not None
        expiry = (until_ms, session, session.holder)
        if self._expiries and until_ms < self._expiries[-1][0]:
            # After the lock duration was made shorter, or a lock was given its grace.
            insort(self._expiries, expiry, key=itemgetter(0))
        else:
            self._expiries.append(expiry)
        self._alarm.set(until_ms)

    def _grace_ms(self, session: Session) -> int:
        """Return for how long a lock outlasts the time that was announced to its holder.

        A receiver that waits for a message exactly as long as the lock lasts, as clients do, began to wait later
        than the broker began to count: it must see that there is none, not that its lock is lost.
        """
        return 0 if session.locks else min(_GRACE_MS, self._lock_ms() // 4)
