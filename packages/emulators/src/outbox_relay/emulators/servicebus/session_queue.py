"""A queue or subscription that requires sessions: each session has one receiver at a time."""

from __future__ import annotations

from collections.abc import Iterable

from outbox_relay.emulators.servicebus.entry import Entry, Lock
from outbox_relay.emulators.servicebus.errors import MessageNotFound, ServiceBusError, SessionLockLost
from outbox_relay.emulators.servicebus.message_store import Counts
from outbox_relay.emulators.servicebus.queue import MessageQueue, QueueSettings
from outbox_relay.emulators.servicebus.sessions import Session, SessionHolder, SessionTable
from outbox_relay.emulators.servicebus.timers import TimerQueue


class SessionQueue(MessageQueue):
    """A queue or subscription with RequiresSession."""

    def __init__(
        self, settings: QueueSettings, timers: TimerQueue, dead_letters: MessageQueue | None = None
    ) -> None:
        super().__init__(settings, timers, dead_letters)
        self._sessions = SessionTable(timers, self._alarm, lambda: self.settings.lock_ms)

    # Sessions

    def accept(self, session_id: str, holder: SessionHolder) -> Session:
        """Lock a session by its id, whether or not it has messages. Raises SessionCannotBeLocked."""
        return self._sessions.accept(session_id, holder)

    def accept_next(self, holder: SessionHolder) -> Session | None:
        """Lock the session that has waited longest. When there is none, the holder is granted the next one."""
        return self._sessions.accept_next(holder)

    def stop_waiting(self, holder: SessionHolder) -> None:
        self._sessions.stop_waiting(holder)

    def close_session(self, session: Session, holder: SessionHolder) -> None:
        """Unlock a session its receiver leaves; what was not settled is released and its delivery does not count.

        (Message sessions, learn.microsoft.com: only a session lock that expires counts as a delivery.)
        """
        if session.holder is not holder:
            return
        # It keeps its holder until all is released, so that no receiver is granted half a session.
        for token in list(session.locks):
            self.release(token)
        self._sessions.release(session)

    def renew_session_lock(self, session_id: str, holders: Iterable[SessionHolder]) -> int:
        """Extend the lock on a session; return when it now ends. Raises SessionLockLost."""
        session = self._sessions.held(session_id, holders)
        self._sessions.renew(session)
        return session.locked_until_ms

    def check_held(self, session_id: str, holders: Iterable[SessionHolder]) -> None:
        """Raise SessionLockLost unless one of these consumers holds the session."""
        self._sessions.held(session_id, holders)

    def get_state(self, session_id: str, holders: Iterable[SessionHolder]) -> bytes | None:
        return self._sessions.held(session_id, holders).state

    def set_state(self, session_id: str, holders: Iterable[SessionHolder], state: bytes | None) -> None:
        session = self._sessions.held(session_id, holders)
        session.state = state
        session.state_set_ms = self._timers.now()

    def session_ids(self, state_set_after_ms: int | None = None) -> list[str]:
        """Return the sessions with active messages or a state.

        With a time, returns those whose state was set after it.
        """
        if state_set_after_ms is None:
            found = [s.id for s in self._sessions if s.state is not None or len(s.ready) or s.locks]
        else:
            found = [s.id for s in self._sessions if s.state is not None and s.state_set_ms > state_set_after_ms]
        return sorted(found)

    def session_counts(self) -> dict[str, tuple[Counts, bool]]:
        """Return by session its counts, and True if it is locked."""
        found = {session.id: (Counts(), session.holder is not None) for session in self._sessions}
        for entry in self._messages:
            found[entry.message.session_id or ""][0].add(entry)
        return found

    # Receive

    def take_from(
        self, session: Session, holder: SessionHolder, *, delete: bool = False
    ) -> tuple[Entry, Lock | None] | None:
        """Return the session's next message for its holder. The holder is woken when another comes."""
        now = self._timers.now()
        if session.holder is not holder or session.locked_until_ms <= now:
            return None
        entry = self._next_live(session.ready, now)
        if entry is None:
            return None
        if delete:
            self._consume(entry)
            return entry, None
        return entry, self._lock(entry)

    def receive_deferred(
        self, sequence_numbers: Iterable[int], *, delete: bool = False, session_id: str | None = None
    ) -> list[tuple[Entry, Lock | None]]:
        numbers = list(sequence_numbers)
        for number in numbers:
            entry = self._messages.get(number)
            if entry is not None and entry.message.session_id != session_id:
                raise MessageNotFound(f"The message {number} does not exist in the session '{session_id}'.")
        return super().receive_deferred(numbers, delete=delete)

    # Messages wait in their session

    def _session_of(self, entry: Entry) -> Session:
        return self._sessions.get(entry.message.session_id or "")

    def _add(self, entry: Entry) -> None:
        super()._add(entry)
        self._session_of(entry).entries += 1

    def _drop(self, entry: Entry) -> None:
        super()._drop(entry)
        session = self._session_of(entry)
        session.entries -= 1
        if session.holder is None:
            self._sessions.offer(session)

    def _make_ready(self, entry: Entry) -> None:
        session = self._session_of(entry)
        session.ready.append(entry)
        self._wake_holder(session)

    def _requeue(self, entry: Entry) -> None:
        session = self._session_of(entry)
        session.ready.requeue(entry)
        self._wake_holder(session)

    def _wake_holder(self, session: Session) -> None:
        if session.holder is not None:
            session.holder.wake()
        else:
            self._sessions.offer(session)

    def _remove_ready(self, entry: Entry) -> None:
        self._session_of(entry).ready.remove(entry)

    # The lock on a message lasts as long as that on its session

    def lock_lost(self) -> ServiceBusError:
        return SessionLockLost(
            "The session lock has expired on the session, or the message was settled already. "
            "Accept the session again to receive its messages."
        )

    def has_slow_lock(self, token: bytes, slow_ms: int) -> bool:
        entry = self._locks.get(token)
        return entry is not None and self._is_slow(self._session_of(entry).locked_until_ms, slow_ms)

    def may_expire(self, token: bytes) -> bool:
        """Return whether the session's lock may expire: takes as long as the session has locked messages."""
        session = self._session_of(self.locked_entry(token))
        return all(map(self._may_fail, session.locks.values()))

    def expire_lock(self, token: bytes) -> None:
        self._expire_session(self._session_of(self.locked_entry(token)))

    def expire_all_locks(self) -> int:
        """Let the lock on every session expire now, and return their number."""
        held = [session for session in self._sessions if session.holder is not None]
        for session in held:
            self._expire_session(session)
        return len(held)

    def _lock(self, entry: Entry) -> Lock:
        self.journal.delivered(entry)
        session = self._session_of(entry)
        lock = self._locks.acquire(entry, session.locked_until_ms)
        session.locks[lock.token] = entry
        return lock

    def _release_lock(self, entry: Entry) -> None:
        if entry.lock is not None:
            self._session_of(entry).locks.pop(entry.lock.token, None)
        super()._release_lock(entry)

    def _expire_locks(self, now: int) -> None:
        for session in self._sessions.expired(now):
            self._expire_session(session)

    def _expire_session(self, session: Session) -> None:
        for entry in list(session.locks.values()):
            self._fail_delivery(entry)
        holder, session.holder = session.holder, None
        if holder is not None:
            holder.session_lost()
        self._sessions.offer(session)

    def _next_due(self) -> int | None:
        moments = (super()._next_due(), self._sessions.next_expiry)
        return min((moment for moment in moments if moment is not None), default=None)

    def clear(self) -> None:
        super().clear()
        self._sessions.clear()
