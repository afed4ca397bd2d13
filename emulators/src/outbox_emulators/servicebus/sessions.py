"""Queues that require sessions: one line of messages a session, and one receiver at a time for each."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Protocol
from uuid import UUID

from outbox_emulators.servicebus.counts import Counts
from outbox_emulators.servicebus.entry import Entry, Lock
from outbox_emulators.servicebus.errors import (
    MessageNotFound,
    ServiceBusError,
    SessionCannotBeLocked,
    SessionLockLost,
)
from outbox_emulators.servicebus.queue import MessageQueue
from outbox_emulators.servicebus.queue_settings import Consumer, QueueSettings
from outbox_emulators.servicebus.ready_queue import ReadyQueue
from outbox_emulators.servicebus.timers import TimerQueue

_GRACE_MS = 1_000


class SessionHolder(Consumer, Protocol):
    """A consumer of one session, or one that waits for any to come free."""

    def session_granted(self, session: Session) -> None:
        """The session waited for is locked for this consumer now."""

    def session_lost(self) -> None:
        """The lock on the session has expired: the receiver's link must end."""


@dataclass(slots=True, eq=False)
class Session:
    """One session. `locked_until_ms` means something only while there is a holder."""

    id: str
    ready: ReadyQueue = field(default_factory=ReadyQueue)
    state: bytes | None = None
    state_set_ms: int = 0
    holder: SessionHolder | None = None
    locked_until_ms: int = 0
    locks: dict[UUID, Entry] = field(default_factory=dict)
    entries: int = 0


class SessionQueue(MessageQueue):
    """A queue or subscription with RequiresSession."""

    def __init__(
        self, settings: QueueSettings, timers: TimerQueue, dead_letters: MessageQueue | None = None
    ) -> None:
        super().__init__(settings, timers, dead_letters)
        self._sessions: dict[str, Session] = {}
        self._available: dict[str, Session] = {}
        self._waiters: dict[SessionHolder, None] = {}
        self._session_expiries: deque[tuple[int, Session, SessionHolder]] = deque()

    # Accepting and leaving sessions

    def accept(self, session_id: str, holder: SessionHolder) -> Session:
        """Lock a session by its id, whether or not it has messages. Raises SessionCannotBeLocked."""
        session = self._session(session_id)
        if session.holder is not None:
            raise SessionCannotBeLocked(
                f"The requested session '{session_id}' cannot be accepted. It may be locked by another receiver."
            )
        self._hold(session, holder)
        return session

    def accept_next(self, waiter: SessionHolder) -> Session | None:
        """Lock the session that has waited longest; when there is none, remember the waiter for the next."""
        if self._available:
            session = next(iter(self._available.values()))
            self._hold(session, waiter)
            return session
        self._waiters[waiter] = None
        return None

    def stop_waiting(self, waiter: SessionHolder) -> None:
        self._waiters.pop(waiter, None)

    def close_session(self, session: Session, holder: SessionHolder) -> None:
        """Unlock a session its receiver leaves; what was not settled goes back and its delivery does not count.

        (Message sessions, learn.microsoft.com: only a session lock that expires counts as a delivery.)
        """
        if session.holder is not holder:
            return
        # It keeps its holder until all is back, so that nobody is given a session half returned.
        for token in list(session.locks):
            self.release(token)
        session.holder = None
        self._settle_down(session)

    def renew_session_lock(self, session_id: str, owned: Iterable[SessionHolder]) -> int:
        """Extend the lock on a session; return when it now ends. Raises SessionLockLost."""
        session = self._held(session_id, owned)
        self._extend(session)
        return session.locked_until_ms

    def get_state(self, session_id: str, owned: Iterable[SessionHolder]) -> bytes | None:
        return self._held(session_id, owned).state

    def set_state(self, session_id: str, owned: Iterable[SessionHolder], state: bytes | None) -> None:
        session = self._held(session_id, owned)
        session.state = state
        session.state_set_ms = self._timers.now()

    def session_ids(self, state_set_after_ms: int | None = None) -> list[str]:
        """The sessions with active messages or a state or, with a time, those whose state was set after it."""
        if state_set_after_ms is None:
            found = [s.id for s in self._sessions.values() if s.state is not None or len(s.ready) or s.locks]
        else:
            found = [
                s.id
                for s in self._sessions.values()
                if s.state is not None and s.state_set_ms > state_set_after_ms
            ]
        return sorted(found)

    def session_counts(self) -> dict[str, tuple[Counts, bool]]:
        """By session: its counts, and whether it is locked."""
        found = {session.id: (Counts(), session.holder is not None) for session in self._sessions.values()}
        for entry in self._entries.values():
            found[entry.message.session_id or ""][0].add(entry)
        return found

    # Receiving

    def take_from(
        self, session: Session, holder: SessionHolder, *, delete: bool = False
    ) -> tuple[Entry, Lock | None] | None:
        """Hand the session's next message to its holder. The holder is woken when another comes."""
        if session.holder is not holder or session.locked_until_ms <= self._timers.now():
            return None
        entry = self._next_live(session.ready)
        if entry is None:
            return None
        if delete:
            self._drop(entry)
            return entry, None
        return entry, self._lock(entry)

    def has_slow_lock(self, token: UUID, slow_ms: int) -> bool:
        entry = self._locked.get(token)
        if entry is None:
            return False
        session = self._session_of(entry)
        return self._is_slow(session.locked_until_ms, slow_ms) and all(map(self._may_fail, session.locks.values()))

    def expire_lock(self, token: UUID) -> None:
        self._expire_session(self._session_of(self.locked_entry(token)))

    def expire_all_locks(self) -> int:
        """Have every lock on a session end now, as if its time were over; returns how many."""
        held = [session for session in self._sessions.values() if session.holder is not None]
        for session in held:
            self._expire_session(session)
        return len(held)

    def clear(self) -> None:
        super().clear()
        self._sessions.clear()
        self._available.clear()
        self._session_expiries.clear()

    def lock_lost(self) -> ServiceBusError:
        return SessionLockLost(
            "The session lock has expired on the session, or the message was settled already. "
            "Accept the session again to receive its messages."
        )

    def receive_deferred(
        self, sequence_numbers: Iterable[int], *, delete: bool = False, session_id: str | None = None
    ) -> list[tuple[Entry, Lock | None]]:
        numbers = list(sequence_numbers)
        for number in numbers:
            entry = self._entries.get(number)
            if entry is not None and entry.message.session_id != session_id:
                raise MessageNotFound(f"The message {number} does not exist in the session '{session_id}'.")
        return super().receive_deferred(numbers, delete=delete)

    def check_held(self, session_id: str, owned: Iterable[SessionHolder]) -> None:
        """Raise SessionLockLost unless one of these consumers holds the session."""
        self._held(session_id, owned)

    # Where messages wait, and what their locks belong to

    def _session(self, session_id: str) -> Session:
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = Session(session_id)
        return session

    def _session_of(self, entry: Entry) -> Session:
        return self._session(entry.message.session_id or "")

    def _make_ready(self, entry: Entry) -> None:
        session = self._session_of(entry)
        session.ready.append(entry)
        self._announce(session)

    def _requeue(self, entry: Entry) -> None:
        session = self._session_of(entry)
        session.ready.requeue(entry)
        self._announce(session)

    def _remove_ready(self, entry: Entry) -> None:
        self._session_of(entry).ready.remove(entry)

    def _lock(self, entry: Entry) -> Lock:
        session = self._session_of(entry)
        entry.lock = lock = Lock.new(session.locked_until_ms)
        self._locked[lock.token] = entry
        session.locks[lock.token] = entry
        return lock

    def _forget_lock(self, entry: Entry) -> None:
        if entry.lock is not None:
            self._session_of(entry).locks.pop(entry.lock.token, None)
        super()._forget_lock(entry)

    def _admit(self, entry: Entry) -> None:
        super()._admit(entry)
        self._session_of(entry).entries += 1

    def _drop(self, entry: Entry) -> None:
        super()._drop(entry)
        session = self._session_of(entry)
        session.entries -= 1
        if session.holder is None:
            self._settle_down(session)

    def _announce(self, session: Session) -> None:
        """Something waits in a session: tell its holder, or whoever waits for a session."""
        if session.holder is not None:
            session.holder.wake()
        else:
            self._settle_down(session)

    def _settle_down(self, session: Session) -> None:
        """Put a session that nobody holds where it belongs."""
        if not len(session.ready):
            self._available.pop(session.id, None)
            if session.state is None and not session.entries:
                self._sessions.pop(session.id, None)
        elif self._waiters:
            waiter = next(iter(self._waiters))
            self._hold(session, waiter)
            waiter.session_granted(session)
        else:
            self._available.setdefault(session.id, session)

    # The lock on a session

    def _hold(self, session: Session, holder: SessionHolder) -> None:
        self._available.pop(session.id, None)
        self._waiters.pop(holder, None)
        session.holder = holder
        self._extend(session)

    def _extend(self, session: Session) -> None:
        assert session.holder is not None
        session.locked_until_ms = self._timers.now() + self.settings.lock_ms
        self._note_expiry_of(session, session.locked_until_ms)

    def _note_expiry_of(self, session: Session, until_ms: int) -> None:
        assert session.holder is not None
        expiry = (until_ms, session, session.holder)
        if self._session_expiries and expiry[0] < self._session_expiries[-1][0]:
            # After the lock duration was made shorter, or a lock was given its grace.
            insort(self._session_expiries, expiry, key=itemgetter(0))
        else:
            self._session_expiries.append(expiry)
        self._arm(until_ms)

    def _held(self, session_id: str, owned: Iterable[SessionHolder]) -> Session:
        session = self._sessions.get(session_id)
        if session is None or session.holder is None or session.holder not in owned:
            raise SessionLockLost(f"The lock on the session '{session_id}' has expired or is held by another.")
        return session

    def _expire_locks(self, now: int) -> None:
        while self._session_expiries and self._session_expiries[0][0] <= now:
            _, session, holder = self._session_expiries.popleft()
            if session.holder is not holder or session.locked_until_ms > now:
                continue
            until = session.locked_until_ms + self._grace_ms(session)
            if until > now:
                self._note_expiry_of(session, until)
            else:
                self._expire_session(session)

    def _grace_ms(self, session: Session) -> int:
        """How long a lock outlasts what was told of it.

        A receiver that waits for a message exactly as long as the lock lasts, as clients do, began to wait later
        than the broker began to count: it must see that there is none, not that its lock is lost.
        """
        return 0 if session.locks else min(_GRACE_MS, self.settings.lock_ms // 4)

    def _expire_session(self, session: Session) -> None:
        for entry in list(session.locks.values()):
            self._fail_delivery(entry)
        holder, session.holder = session.holder, None
        if holder is not None:
            holder.session_lost()
        self._settle_down(session)

    def _next_due(self) -> int | None:
        due = super()._next_due()
        if self._session_expiries:
            first = self._session_expiries[0][0]
            return first if due is None else min(first, due)
        return due
