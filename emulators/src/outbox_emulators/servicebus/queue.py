"""A queue, subscription or dead-letter queue: its messages, their locks, and what happens to them in time."""

from __future__ import annotations

import heapq
from bisect import insort
from collections import deque
from collections.abc import Iterable, Mapping
from operator import itemgetter
from uuid import UUID

from outbox_emulators.servicebus import codec
from outbox_emulators.servicebus.counts import Counts
from outbox_emulators.servicebus.entry import Entry, Lock, State
from outbox_emulators.servicebus.errors import MessageLockLost, MessageNotFound, NotAllowed, ServiceBusError
from outbox_emulators.servicebus.message import Message
from outbox_emulators.servicebus.queue_settings import Consumer, QueueSettings
from outbox_emulators.servicebus.ready_queue import ReadyQueue, ReadyQueueFactory
from outbox_emulators.servicebus.timers import TimerQueue

DEAD_LETTER_REASON = "DeadLetterReason"
DEAD_LETTER_DESCRIPTION = "DeadLetterErrorDescription"


class MessageQueue:
    """Messages received by competing consumers, without sessions.

    SessionQueue changes where messages wait and what a lock belongs to; all else is here.
    """

    def __init__(
        self,
        settings: QueueSettings,
        timers: TimerQueue,
        dead_letters: MessageQueue | None = None,
        *,
        ready_queue: ReadyQueueFactory = ReadyQueue,
    ) -> None:
        self.settings = settings
        self.dead_letters = dead_letters
        self._timers = timers
        self._entries: dict[int, Entry] = {}
        self._locked: dict[UUID, Entry] = {}
        self._last_sequence_number = 0
        self._new_ready_queue = ready_queue
        self._ready = ready_queue()
        self._waiting: dict[Consumer, None] = {}
        self._lock_expiries: deque[tuple[int, UUID]] = deque()
        self._expiries: list[tuple[int, int]] = []
        self._schedule: list[tuple[int, int]] = []
        self._deferred: set[int] = set()
        self._scheduled: set[int] = set()
        self._armed: int | None = None
        self.size_bytes = 0

    # What comes in

    def next_sequence_number(self) -> int:
        self._last_sequence_number += 1
        return self._last_sequence_number

    def enqueue(self, message: Message, enqueued_sequence_number: int | None = None) -> Entry:
        """Accept a message, now or, if it says so, at its scheduled time. Returns its entry."""
        now = self._timers.now()
        number = self.next_sequence_number()
        entry = Entry(message, number, enqueued_sequence_number or number, now)
        self._admit(entry)
        if message.scheduled_ms is not None and message.scheduled_ms > now:
            entry.state = State.SCHEDULED
            self._scheduled.add(number)
            heapq.heappush(self._schedule, (message.scheduled_ms, number))
            self._arm(message.scheduled_ms)
        else:
            self._activate(entry, now)
        return entry

    def _admit(self, entry: Entry) -> None:
        self._entries[entry.sequence_number] = entry
        entry.size = entry.message.size
        self.size_bytes += entry.size

    def _activate(self, entry: Entry, now: int) -> None:
        entry.ttl_ms = self._ttl(entry.message)
        if entry.ttl_ms is not None:
            entry.expires_ms = now + entry.ttl_ms
            self._note_expiry(entry.expires_ms, entry.sequence_number)
        self._make_ready(entry)

    def _note_expiry(self, when: int, number: int) -> None:
        if len(self._expiries) > 2 * len(self._entries) + 1000:
            # Most of these messages are long settled; without this they would be remembered until they expire.
            self._expiries = [each for each in self._expiries if each[1] in self._entries]
            heapq.heapify(self._expiries)
        heapq.heappush(self._expiries, (when, number))
        self._arm(when)

    def _ttl(self, message: Message) -> int | None:
        known = [ttl for ttl in (message.ttl_ms, self.settings.default_ttl_ms) if ttl is not None]
        return min(known) if known else None

    def cancel_scheduled(self, sequence_numbers: Iterable[int]) -> None:
        """Drop scheduled messages. Raises MessageNotFound, dropping none, if one is not scheduled here."""
        entries = [self._entries.get(number) for number in sequence_numbers]
        if any(entry is None or entry.state is not State.SCHEDULED for entry in entries):
            raise MessageNotFound("The scheduled message was not found: it was enqueued or cancelled already.")
        for entry in entries:
            if entry is not None:
                self._drop(entry)

    # What goes out

    def take(self, consumer: Consumer, *, delete: bool = False) -> tuple[Entry, Lock | None] | None:
        """Hand the next message to a consumer, locked, or (with `delete`) removed at once.

        When there is none the consumer is remembered, and woken when one comes.
        """
        entry = self._next_live(self._ready)
        if entry is None:
            self._waiting[consumer] = None
            return None
        if delete:
            self._drop(entry)
            return entry, None
        return entry, self._lock(entry)

    def leave(self, consumer: Consumer) -> None:
        """Forget a consumer; what it holds stays locked until the lock expires, as the service does."""
        self._waiting.pop(consumer, None)
        self.wake_waiting()

    def wake_waiting(self) -> None:
        """Wake one consumer if there is something to take."""
        if self._waiting and len(self._ready):
            consumer = next(iter(self._waiting))
            del self._waiting[consumer]
            consumer.wake()

    def _next_live(self, ready: ReadyQueue) -> Entry | None:
        now = self._timers.now()
        while (entry := ready.take()) is not None:
            if entry.expires_ms is None or entry.expires_ms > now:
                return entry
            self._expire(entry)
        return None

    def _make_ready(self, entry: Entry) -> None:
        self._ready.append(entry)
        self.wake_waiting()

    def _requeue(self, entry: Entry) -> None:
        self._ready.requeue(entry)
        self.wake_waiting()

    def _lock(self, entry: Entry) -> Lock:
        until = self._timers.now() + self.settings.lock_ms
        entry.lock = lock = Lock.new(until)
        self._locked[lock.token] = entry
        self._note_lock(until, lock.token)
        return lock

    def _note_lock(self, until: int, token: UUID) -> None:
        expiries = self._lock_expiries
        if expiries and until < expiries[-1][0]:
            # Only after the lock duration was made shorter: otherwise what is locked later ends later.
            insort(expiries, (until, token), key=itemgetter(0))
        else:
            expiries.append((until, token))
        self._arm(until)

    # Settlement

    def locked_entry(self, token: UUID) -> Entry:
        """Return the entry a lock token stands for. Raises MessageLockLost."""
        entry = self._locked.get(token)
        if entry is None:
            raise self.lock_lost()
        return entry

    def lock_lost(self) -> ServiceBusError:
        """The error for a lock that is over."""
        return MessageLockLost(
            "The lock supplied is invalid. Either the lock expired, or the message has already been removed from "
            "the queue."
        )

    def complete(self, token: UUID) -> None:
        """Remove a locked message for good."""
        self._drop(self.locked_entry(token))

    def release(self, token: UUID) -> None:
        """Give a locked message back as if it had not been delivered."""
        self._unlock(self.locked_entry(token))

    def abandon(self, token: UUID, changes: Mapping[str, codec.Value] | None = None) -> None:
        """Give a locked message back; the delivery counts."""
        entry = self.locked_entry(token)
        entry.message = entry.message.with_application_properties(changes or {})
        self._fail_delivery(entry)

    def defer(self, token: UUID, changes: Mapping[str, codec.Value] | None = None) -> None:
        """Set a locked message aside, to be received by its sequence number only; the delivery counts."""
        entry = self.locked_entry(token)
        self._count_delivery(entry)
        entry.message = entry.message.with_application_properties(changes or {})
        entry.state = State.DEFERRED
        self._deferred.add(entry.sequence_number)
        self._unlock(entry)

    def dead_letter(
        self,
        token: UUID,
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

    def has_slow_lock(self, token: UUID, slow_ms: int) -> bool:
        """Tell whether a lock was taken so many milliseconds ago, and may end without making a dead letter."""
        entry = self._locked.get(token)
        if entry is None or entry.lock is None or not self.settings.counts_deliveries:
            return False
        return self._is_slow(entry.lock.until_ms, slow_ms) and self._may_fail(entry)

    def _is_slow(self, until_ms: int, slow_ms: int) -> bool:
        return self._timers.now() - (until_ms - self.settings.lock_ms) >= slow_ms

    def _may_fail(self, entry: Entry) -> bool:
        limit = self.settings.max_delivery_count
        return limit is None or entry.delivery_count + 2 <= limit

    def expire_lock(self, token: UUID) -> None:
        """Have a lock end now, as if its time were over. Raises MessageLockLost."""
        self._fail_delivery(self.locked_entry(token))

    def renew_lock(self, token: UUID) -> int:
        """Extend the lock on a message; return when it now ends."""
        entry = self.locked_entry(token)
        until = self._timers.now() + self.settings.lock_ms
        entry.lock = Lock(token, until)
        self._note_lock(until, token)
        return until

    def receive_deferred(
        self, sequence_numbers: Iterable[int], *, delete: bool = False
    ) -> list[tuple[Entry, Lock | None]]:
        """Take deferred messages by number, all or none. Raises MessageNotFound."""
        entries = []
        for number in sequence_numbers:
            entry = self._entries.get(number)
            if entry is None or entry.state is not State.DEFERRED or entry.lock is not None:
                raise MessageNotFound(
                    f"Failed to lock one or more specified messages. The message {number} does not exist."
                )
            entries.append(entry)
        if delete:
            for entry in entries:
                self._drop(entry)
            return [(entry, None) for entry in entries]
        return [(entry, self._lock(entry)) for entry in entries]

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

    def _unlock(self, entry: Entry) -> None:
        self._forget_lock(entry)
        if entry.expires_ms is not None and entry.expires_ms <= self._timers.now():
            self._expire(entry)
        elif entry.state is State.ACTIVE:
            self._requeue(entry)

    def _forget_lock(self, entry: Entry) -> None:
        if entry.lock is not None:
            del self._locked[entry.lock.token]
            entry.lock = None

    def _drop(self, entry: Entry) -> None:
        self._forget_lock(entry)
        del self._entries[entry.sequence_number]
        self.size_bytes -= entry.size
        self._deferred.discard(entry.sequence_number)
        self._scheduled.discard(entry.sequence_number)

    def _move_to_dead_letters(self, entry: Entry, reason: str | None, description: str | None) -> None:
        if self.dead_letters is None:
            self._unlock(entry)
            return
        self._drop(entry)
        self.dead_letters.add_dead_letter(entry, reason, description, self.settings.path)

    def dead_letter_new(self, message: Message, reason: str, description: str) -> None:
        """Dead-letter a message that this queue cannot take."""
        entry = Entry(message, number := self.next_sequence_number(), number, self._timers.now())
        if self.dead_letters is not None:
            self.dead_letters.add_dead_letter(entry, reason, description, self.settings.path)

    def add_dead_letter(self, dead: Entry, reason: str | None, description: str | None, source: str) -> None:
        """Take over a message from the queue it died in; it keeps its sequence number and its age."""
        changes = {DEAD_LETTER_REASON: reason, DEAD_LETTER_DESCRIPTION: description}
        entry = Entry(
            dead.message.with_application_properties({k: v for k, v in changes.items() if v is not None}),
            dead.sequence_number,
            dead.enqueued_sequence_number,
            dead.enqueued_ms,
            ttl_ms=dead.ttl_ms,
            delivery_count=dead.delivery_count,
            dead_letter_source=source,
        )
        self._admit(entry)
        self._requeue(entry)

    def expire_all_locks(self) -> int:
        """Have every lock end now, as if its time were over; returns how many."""
        entries = list(self._locked.values())
        for entry in entries:
            self._fail_delivery(entry)
        return len(entries)

    def clear(self) -> None:
        """Forget every message; no consumer may hold one. Sequence numbers go on where they were."""
        self._entries.clear()
        self.size_bytes = 0
        self._locked.clear()
        self._ready = self._new_ready_queue()
        self._lock_expiries.clear()
        self._expiries.clear()
        self._schedule.clear()
        self._deferred.clear()
        self._scheduled.clear()

    # What can be looked at

    @property
    def has_next(self) -> bool:
        """Whether a message waits to be received."""
        return len(self._ready) > 0

    def peek(self, from_sequence_number: int, limit: int, session_id: str | None = None) -> list[Entry]:
        """Return messages in any state, from a sequence number on, without touching them."""
        now = self._timers.now()
        found: list[Entry] = []
        for number in sorted(number for number in self._entries if number >= from_sequence_number):
            entry = self._entries[number]
            if session_id is not None and entry.message.session_id != session_id:
                continue
            if entry.expires_ms is None or entry.expires_ms > now or entry.lock is not None:
                found.append(entry)
            if len(found) >= limit:
                break
        return found

    def counts(self) -> Counts:
        deferred = sum(self._entries[number].lock is None for number in self._deferred)
        counts = Counts(locked=len(self._locked), deferred=deferred, scheduled=len(self._scheduled))
        counts.active = len(self._entries) - counts.locked - counts.deferred - counts.scheduled
        return counts

    # What happens in time

    def _arm(self, when: int) -> None:
        if self._armed is None or when < self._armed:
            self._armed = when
            self._timers.call_at(when, self._run_due)

    def _run_due(self) -> None:
        now = self._timers.now()
        self._armed = None
        self._expire_locks(now)
        self._enqueue_scheduled(now)
        self._expire_messages(now)
        due = self._next_due()
        if due is not None:
            self._arm(due)

    def _next_due(self) -> int | None:
        heads = [times[0][0] for times in (self._lock_expiries, self._expiries, self._schedule) if times]
        return min(heads) if heads else None

    def _expire_locks(self, now: int) -> None:
        while self._lock_expiries and self._lock_expiries[0][0] <= now:
            until, token = self._lock_expiries.popleft()
            entry = self._locked.get(token)
            if entry is not None and entry.lock is not None and entry.lock.until_ms <= until:
                self._fail_delivery(entry)

    def _enqueue_scheduled(self, now: int) -> None:
        while self._schedule and self._schedule[0][0] <= now:
            number = heapq.heappop(self._schedule)[1]
            entry = self._entries.pop(number, None)
            if entry is None:
                continue
            self._scheduled.discard(number)
            # It joins the end of the queue under a new number ("Message sequencing and timestamps").
            entry.sequence_number = self.next_sequence_number()
            entry.state = State.ACTIVE
            entry.enqueued_ms = now
            self._entries[entry.sequence_number] = entry
            self._activate(entry, now)

    def _expire_messages(self, now: int) -> None:
        while self._expiries and self._expiries[0][0] <= now:
            entry = self._entries.get(heapq.heappop(self._expiries)[1])
            # A locked message lives on until it is settled or its lock ends.
            if entry is not None and entry.lock is None and entry.state is not State.SCHEDULED:
                self._remove_ready(entry)
                self._expire(entry)

    def _remove_ready(self, entry: Entry) -> None:
        self._ready.remove(entry)

    def _expire(self, entry: Entry) -> None:
        if self.settings.dead_letter_on_expiry and self.dead_letters is not None:
            self._move_to_dead_letters(entry, "TTLExpiredException", "The message expired and was dead lettered.")
        else:
            self._drop(entry)
