"""A queue, subscription or dead-letter queue: messages are enqueued, received under a lock, and settled."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from outbox_relay.emulators.servicebus import codec
from outbox_relay.emulators.servicebus.entry import Entry, Lock, State, dead_letter
from outbox_relay.emulators.servicebus.errors import MessageLockLost, MessageNotFound, NotAllowed, ServiceBusError
from outbox_relay.emulators.servicebus.forwarding import Forward, on_its_way
from outbox_relay.emulators.servicebus.journal import Fate, Journal, Story
from outbox_relay.emulators.servicebus.locks import Deadlines, LockTable
from outbox_relay.emulators.servicebus.message import Message
from outbox_relay.emulators.servicebus.message_store import Counts, MessageStore
from outbox_relay.emulators.servicebus.partitions import SequenceNumbers
from outbox_relay.emulators.servicebus.ready_queue import ReadyQueue, ReadyQueueFactory
from outbox_relay.emulators.servicebus.timers import Alarm, TimerQueue


class Consumer(Protocol):
    """A receiver of a queue. It takes what it has credit for when it is woken."""

    def wake(self) -> None:
        """Take a message that may be ready."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The settings of a queue or subscription. Durations are milliseconds; None is without a limit.

    `counts_deliveries` is false for dead-letter queues, whose queue `dead_letters_of` names.
    """

    path: str
    lock_ms: int
    max_delivery_count: int | None
    default_ttl_ms: int | None
    dead_letter_on_expiry: bool
    requires_session: bool = False
    counts_deliveries: bool = True
    partitioned: bool = False
    forward_to: str | None = None
    dead_letters_of: str | None = None


class MessageQueue:
    """Messages received by competing consumers, without sessions.

    SessionQueue overrides where messages wait and what a lock belongs to.
    """

    def __init__(
        self,
        settings: QueueSettings,
        timers: TimerQueue,
        dead_letters: MessageQueue | None = None,
        *,
        transfer_dead_letters: MessageQueue | None = None,
        forward: Forward | None = None,
        ready_queue: ReadyQueueFactory = ReadyQueue,
    ) -> None:
        """`forward` sends on what the settings say is to be forwarded; `transfer_dead_letters` takes the rest."""
        self.settings = settings
        self.dead_letters = dead_letters
        self._transfer_dead_letters = transfer_dead_letters
        self._forward = forward
        self.journal = Journal()
        self._timers = timers
        self._messages = MessageStore()
        self._numbers = SequenceNumbers(partitioned=settings.partitioned)
        self._orders = itertools.count(1)
        self._new_ready_queue = ready_queue
        self._ready = ready_queue()
        self._waiting: dict[Consumer, None] = {}
        self._locks = LockTable()
        self._expiries = Deadlines()
        self._schedule = Deadlines()
        self._alarm = Alarm(timers, self._run_due)

    # Enqueue

    def begin_transfer(self) -> None:
        """Note that what is enqueued from now on came in another transfer."""
        self._numbers.begin_transfer()

    def enqueue(self, message: Message, enqueued_sequence_number: int | None = None) -> Entry:
        """Accept a message, now or, if it says so, at its scheduled time. Returns its entry."""
        now = self._timers.now()
        entry = self._new_entry(message, now, enqueued_sequence_number)
        self._limit(entry)
        if message.scheduled_ms is not None and message.scheduled_ms > now:
            entry.state = State.SCHEDULED
            self._add(entry)
            self._schedule.add(message.scheduled_ms, entry.sequence_number)
            self._alarm.set(message.scheduled_ms)
        else:
            self._add(entry)
            self._activate(entry, now)
        return entry

    def _new_entry(self, message: Message, now: int, enqueued_sequence_number: int | None = None) -> Entry:
        number = self._numbers.next(message.routing_key, enqueued_sequence_number)
        trail = message.trail
        return Entry(
            message,
            number,
            trail.enqueued_sequence_number if trail else enqueued_sequence_number or number,
            now,
            dead_letter_source=trail.dead_letter_source if trail else None,
            order=next(self._orders),
        )

    def cancel_scheduled(self, sequence_numbers: Iterable[int]) -> None:
        """Drop scheduled messages. Raises MessageNotFound, dropping none, if one is not scheduled here."""
        entries = [self._messages.get(number) for number in sequence_numbers]
        if any(entry is None or entry.state is not State.SCHEDULED for entry in entries):
            raise MessageNotFound("The scheduled message was not found: it was enqueued or cancelled already.")
        for entry in entries:
            if entry is not None:
                self._drop(entry)

    def delete_messages(self, limit: int, before_ms: int, session_id: str | None = None) -> int:
        """Delete the oldest messages that wait to be received, up to `limit`; returns how many.

        Those that were enqueued before a moment, and of one session if it is given. Locked ones stay; so do
        deferred and scheduled ones, of which the documentation says nothing.
        """
        found = [
            entry
            for entry in sorted(self._messages, key=lambda entry: entry.enqueued_ms)
            if entry.waiting
            and entry.enqueued_ms < before_ms
            and (session_id is None or entry.message.session_id == session_id)
        ][:limit]
        for entry in found:
            self._remove_ready(entry)
            self._end(entry, Fate.DELETED)
        return len(found)

    def dead_letter_new(self, message: Message, reason: str, description: str) -> None:
        """Dead-letter a message that never was in this queue."""
        entry = self._new_entry(message, self._timers.now())
        if self.dead_letters is not None:
            self.dead_letters.add_dead_letter(dead_letter(entry, reason, description))

    def add_dead_letter(self, entry: Entry) -> None:
        """Add a message from the queue whose dead-letter queue this is."""
        self._add(entry)
        self._requeue(entry)

    def _add(self, entry: Entry) -> None:
        self._messages.add(entry)

    def _activate(self, entry: Entry, now: int) -> None:
        self.journal.accepted(entry, now)
        self._limit(entry)
        if entry.ttl_ms is not None:
            entry.expires_ms = now + entry.ttl_ms
            self._expiries.prune(self._messages, len(self._messages))
            self._expiries.add(entry.expires_ms, entry.sequence_number)
            self._alarm.set(entry.expires_ms)
        self._make_ready(entry)

    def _limit(self, entry: Entry) -> None:
        """Give a message its own time to live, or the entity's if that is shorter."""
        entry.ttl_ms = self._ttl(entry.message)
        if entry.ttl_ms is not None:
            entry.message = entry.message.cut_to(entry.ttl_ms)

    def _ttl(self, message: Message) -> int | None:
        known = [ttl for ttl in (message.ttl_ms, self.settings.default_ttl_ms) if ttl is not None]
        return min(known) if known else None

    def _make_ready(self, entry: Entry) -> None:
        if not self._is_forwarded(entry):
            self._ready.append(entry)
            self.wake_waiting()

    def _requeue(self, entry: Entry) -> None:
        if not self._is_forwarded(entry):
            self._ready.requeue(entry)
            self.wake_waiting()

    # Forward

    def forward_waiting(self) -> None:
        """Forward the messages that wait, after the settings were changed."""
        if self.settings.forward_to is not None and not self.settings.requires_session:
            for entry in sorted((each for each in self._messages if each.waiting), key=lambda each: each.order):
                self._remove_ready(entry)
                self._is_forwarded(entry)

    def _is_forwarded(self, entry: Entry) -> bool:
        """Send a message on to where this queue forwards; return False if it does not forward.

        An entity that requires sessions can only name itself, and forwards nothing ("Autoforwarding isn't
        supported for session-enabled queues or subscriptions", learn.microsoft.com).
        """
        destination, forward = self.settings.forward_to, self._forward
        if destination is None or forward is None or self.settings.requires_session:
            return False
        try:
            forward(destination, on_its_way(entry, self.settings.dead_letters_of))
        except ServiceBusError as error:
            self._end(entry, Fate.DEAD_LETTERED, error.condition)
            if self._transfer_dead_letters is not None:
                refused = dead_letter(entry, error.condition, error.description)
                self._transfer_dead_letters.add_dead_letter(refused)
        else:
            self._end(entry, Fate.FORWARDED)
        return True

    # Receive

    @property
    def has_next(self) -> bool:
        """True if a message waits to be received."""
        return len(self._ready) > 0

    def take(self, consumer: Consumer, *, delete: bool = False) -> tuple[Entry, Lock | None] | None:
        """Return the next message for a consumer, locked, or (with `delete`) removed at once.

        When there is none, the consumer is woken when one comes.
        """
        entry = self._next_live(self._ready, self._timers.now())
        if entry is None:
            self._waiting[consumer] = None
            return None
        if delete:
            self._consume(entry)
            return entry, None
        return entry, self._lock(entry)

    def leave(self, consumer: Consumer) -> None:
        """Wake a consumer no more; what it holds stays locked until the lock expires, as in the service."""
        self._waiting.pop(consumer, None)
        self.wake_waiting()

    def wake_waiting(self) -> None:
        """Wake one consumer if there is something to take."""
        if self._waiting and len(self._ready):
            consumer = next(iter(self._waiting))
            del self._waiting[consumer]
            consumer.wake()

    def receive_deferred(
        self, sequence_numbers: Iterable[int], *, delete: bool = False
    ) -> list[tuple[Entry, Lock | None]]:
        """Take deferred messages by number, all or none. Raises MessageNotFound."""
        entries = []
        for number in sequence_numbers:
            entry = self._messages.get(number)
            if entry is None or entry.state is not State.DEFERRED or entry.lock is not None:
                raise MessageNotFound(
                    f"Failed to lock one or more specified messages. The message {number} does not exist."
                )
            entries.append(entry)
        if delete:
            for entry in entries:
                self._consume(entry)
            return [(entry, None) for entry in entries]
        return [(entry, self._lock(entry)) for entry in entries]

    def _next_live(self, ready: ReadyQueue, now: int) -> Entry | None:
        while (entry := ready.take()) is not None:
            if entry.expires_ms is None or entry.expires_ms > now:
                return entry
            self._expire(entry)
        return None

    # Settle

    def locked_entry(self, token: bytes) -> Entry:
        """Return the entry of a lock token. Raises MessageLockLost."""
        entry = self._locks.get(token)
        if entry is None:
            raise self.lock_lost()
        return entry

    def lock_lost(self) -> ServiceBusError:
        """Return the error for a lock that is over."""
        return MessageLockLost(
            "The lock supplied is invalid. Either the lock expired, or the message has already been removed from "
            "the queue."
        )

    def complete(self, token: bytes) -> None:
        """Remove a locked message for good."""
        self._consume(self.locked_entry(token))

    def release(self, token: bytes) -> None:
        """Unlock a message as if it had not been delivered."""
        self._unlock(self.locked_entry(token))

    def abandon(self, token: bytes, changes: Mapping[str, codec.Value] | None = None) -> None:
        """Unlock a message; the delivery counts."""
        entry = self.locked_entry(token)
        entry.message = entry.message.with_application_properties(changes or {})
        self._fail_delivery(entry)

    def defer(self, token: bytes, changes: Mapping[str, codec.Value] | None = None) -> None:
        """Defer a locked message: it is received by its sequence number only; the delivery counts."""
        entry = self.locked_entry(token)
        self._count_delivery(entry)
        entry.message = entry.message.with_application_properties(changes or {})
        self._messages.defer(entry)
        self._unlock(entry)

    def dead_letter(
        self,
        token: bytes,
        reason: str | None = None,
        description: str | None = None,
        changes: Mapping[str, codec.Value] | None = None,
    ) -> None:
        """Move a locked message to the dead-letter queue. Raises NotAllowed for one that is there already."""
        entry = self.locked_entry(token)
        if self.dead_letters is None:
            raise NotAllowed("A message of a dead-letter queue cannot be moved to a dead-letter queue.")
        entry.message = entry.message.with_application_properties(changes or {})
        self._move_to_dead_letters(entry, reason, description)

    def _fail_delivery(self, entry: Entry) -> None:
        self._count_delivery(entry)
        limit = self.settings.max_delivery_count
        if limit is not None and entry.delivery_count >= limit:
            self._move_to_dead_letters(
                entry,
                "MaxDeliveryCountExceeded",
                f"Message could not be consumed after {limit} delivery attempts.",
            )
        else:
            self._unlock(entry)

    def _count_delivery(self, entry: Entry) -> None:
        # Microsoft's live tests (azure-sdk-for-js, deferredMessage.spec.ts and the dead-letter queue's): deferring
        # counts, abandoning a dead letter does not.
        if self.settings.counts_deliveries:
            entry.delivery_count += 1

    def _move_to_dead_letters(self, entry: Entry, reason: str | None, description: str | None) -> None:
        if self.dead_letters is None:
            self._unlock(entry)
            return
        self._end(entry, Fate.DEAD_LETTERED, reason)
        self.dead_letters.add_dead_letter(dead_letter(entry, reason, description))

    def _consume(self, entry: Entry) -> None:
        if entry.lock is None:  # received and deleted
            self.journal.delivered(entry)
        self._end(entry, Fate.COMPLETED)

    def _end(self, entry: Entry, fate: Fate, reason: str | None = None) -> None:
        self.journal.ended(entry, fate, self._timers.now(), reason)
        self._drop(entry)

    def _drop(self, entry: Entry) -> None:
        self._release_lock(entry)
        self._messages.remove(entry)

    # Locks

    def renew_lock(self, token: bytes) -> int:
        """Extend the lock on a message; return when it now ends."""
        entry = self.locked_entry(token)
        until = self._timers.now() + self.settings.lock_ms
        entry.lock = Lock(token, until)
        self._expire_later(entry.lock)
        return until

    def has_slow_lock(self, token: bytes, slow_ms: int) -> bool:
        """Return whether a lock is `slow_ms` milliseconds old."""
        entry = self._locks.get(token)
        return entry is not None and entry.lock is not None and self._is_slow(entry.lock.until_ms, slow_ms)

    def may_expire(self, token: bytes) -> bool:
        """Return whether a lock may expire without dead-lettering a message."""
        return not self.settings.counts_deliveries or self._may_fail(self.locked_entry(token))

    def _is_slow(self, until_ms: int, slow_ms: int) -> bool:
        return self._timers.now() - (until_ms - self.settings.lock_ms) >= slow_ms

    def _may_fail(self, entry: Entry) -> bool:
        limit = self.settings.max_delivery_count
        return limit is None or entry.delivery_count + 2 <= limit

    def expire_lock(self, token: bytes) -> None:
        """Let a lock expire now. Raises MessageLockLost."""
        self._fail_delivery(self.locked_entry(token))

    def expire_all_locks(self) -> int:
        """Let every lock expire now, and return their number."""
        entries = self._locks.entries()
        for entry in entries:
            self._fail_delivery(entry)
        return len(entries)

    def _lock(self, entry: Entry) -> Lock:
        self.journal.delivered(entry)
        lock = self._locks.acquire(entry, self._timers.now() + self.settings.lock_ms)
        self._expire_later(lock)
        return lock

    def _expire_later(self, lock: Lock) -> None:
        self._locks.expire_later(lock)
        self._alarm.set(lock.until_ms)

    def _unlock(self, entry: Entry) -> None:
        self._release_lock(entry)
        if entry.expires_ms is not None and entry.expires_ms <= self._timers.now():
            self._expire(entry)
        elif entry.state is State.ACTIVE:
            self._requeue(entry)

    def _release_lock(self, entry: Entry) -> None:
        self._locks.release(entry)

    # Run timers

    def _run_due(self) -> None:
        now = self._timers.now()
        self._expire_locks(now)
        self._enqueue_scheduled(now)
        self._expire_messages(now)
        due = self._next_due()
        if due is not None:
            self._alarm.set(due)

    def _next_due(self) -> int | None:
        moments = (self._locks.next_expiry, self._expiries.next_due, self._schedule.next_due)
        return min((moment for moment in moments if moment is not None), default=None)

    def _expire_locks(self, now: int) -> None:
        for entry in self._locks.expired(now):
            self._fail_delivery(entry)

    def _enqueue_scheduled(self, now: int) -> None:
        for number in self._schedule.due(now):
            entry = self._messages.get(number)
            if entry is not None:
                # It joins the end of the queue under a new number ("Message sequencing and timestamps").
                number = self._numbers.next(entry.message.routing_key)
                self._messages.activate(entry, number, next(self._orders))
                entry.enqueued_ms = now
                self._activate(entry, now)

    def _expire_messages(self, now: int) -> None:
        for number in self._expiries.due(now):
            entry = self._messages.get(number)
            # A locked message expires only when its lock ends without its being settled.
            if entry is not None and entry.lock is None and entry.state is not State.SCHEDULED:
                self._remove_ready(entry)
                self._expire(entry)

    def _remove_ready(self, entry: Entry) -> None:
        self._ready.remove(entry)

    def _expire(self, entry: Entry) -> None:
        if self.settings.dead_letter_on_expiry and self.dead_letters is not None:
            self._move_to_dead_letters(entry, "TTLExpiredException", "The message expired and was dead lettered.")
        else:
            self._end(entry, Fate.EXPIRED)

    # Inspect

    def peek(self, from_sequence_number: int, limit: int, session_id: str | None = None) -> list[Entry]:
        """Return messages in any state, from a sequence number on, without touching them."""
        return self._messages.peek(from_sequence_number, limit, self._timers.now(), session_id)

    def waiting(self, limit: int) -> list[tuple[Story, Entry]]:
        """Return the messages that have waited longest, without touching them."""
        found = ((story, self._messages.get(number)) for number, story in self.journal.waiting(limit))
        return [(story, entry) for story, entry in found if entry is not None]

    def counts(self) -> Counts:
        return self._messages.counts(len(self._locks))

    @property
    def size_bytes(self) -> int:
        """The size of all messages."""
        return self._messages.size_bytes

    def clear(self) -> None:
        """Delete every message; no consumer may hold one. Sequence numbers continue."""
        self._messages.clear()
        self._locks.clear()
        self._ready = self._new_ready_queue()
        self._expiries.clear()
        self._schedule.clear()
