"""The sending side and the receiving side of entities."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter

from outbox_relay.emulators.recording import Recording
from outbox_relay.emulators.servicebus.edges import Edges
from outbox_relay.emulators.servicebus.entity_types import ManagementSettings, Receiving, Sending, Status
from outbox_relay.emulators.servicebus.entry import DEAD_LETTER_SUFFIX, TRANSFER_SUFFIX
from outbox_relay.emulators.servicebus.errors import EntityDisabled, NotAllowed, NotFound, Refused
from outbox_relay.emulators.servicebus.forwarding import Forward
from outbox_relay.emulators.servicebus.message import Message, Property, plain_text
from outbox_relay.emulators.servicebus.queue import MessageQueue, QueueSettings
from outbox_relay.emulators.servicebus.ready_queue import dead_letter_queue_factory, ready_queue_factory
from outbox_relay.emulators.servicebus.session_queue import SessionQueue
from outbox_relay.emulators.servicebus.timers import Clock, TimerQueue


class DuplicateHistory:
    """Keeps keys for `window_ms` milliseconds from when each was first accepted.

    The window may be changed; a key keeps the window under which it was accepted.
    """

    def __init__(self, window_ms: int, clock: Clock) -> None:
        self.window_ms = window_ms
        self._clock = clock
        self._seen: set[Hashable] = set()
        self._by_age: deque[tuple[int, Hashable]] = deque()

    def __len__(self) -> int:
        self._expire(self._clock())
        return len(self._seen)

    def __contains__(self, key: Hashable) -> bool:
        """Return whether `key` was accepted within the window."""
        self._expire(self._clock())
        return key in self._seen

    def is_new(self, key: Hashable) -> bool:
        """Return whether `key` is new within the window; from now on it is not."""
        now = self._clock()
        self._expire(now)
        if key in self._seen:
            return False
        self._seen.add(key)
        until = now + self.window_ms
        if self._by_age and until < self._by_age[-1][0]:
            # Only after the window was made shorter: otherwise what is accepted later expires later.
            insort(self._by_age, (until, key), key=itemgetter(0))
        else:
            self._by_age.append((until, key))
        return True

    def clear(self) -> None:
        """Drop all keys."""
        self._seen.clear()
        self._by_age.clear()

    def _expire(self, now: int) -> None:
        while self._by_age and self._by_age[0][0] <= now:
            self._seen.discard(self._by_age.popleft()[1])


@dataclass(frozen=True, slots=True)
class Refusal:
    """Sends that hold this message id are refused with this error condition."""

    message_id: str
    condition: str


@dataclass(slots=True)
class SendCounts:
    """The transfers to an entity since the broker started.

    Messages accepted, those of them that were dropped as duplicates, and transfers (a message or a batch) refused.
    """

    accepted: int = 0
    duplicates: int = 0
    refused: int = 0


@dataclass(slots=True)
class Inlet:
    """The sending side of a queue or topic."""

    name: str
    settings: Sending
    timers: TimerQueue
    status: Status = Status.ACTIVE
    counts: SendCounts = field(default_factory=SendCounts)
    refusals: list[Refusal] = field(default_factory=list)
    history: DuplicateHistory | None = None
    recording: Recording | None = None
    deleted: bool = False
    accessed_ms: int | None = None

    def __post_init__(self) -> None:
        if self.settings.duplicates:
            self.history = DuplicateHistory(self.settings.duplicates.window_ms, self.timers.now)

    def update(self, settings: Sending) -> None:
        """Apply other settings. A new window holds for messages that are accepted from now on."""
        self.settings = settings
        if self.history is not None and settings.duplicates is not None:
            self.history.window_ms = settings.duplicates.window_ms

    def check(self, messages: Sequence[Message]) -> None:
        """Raise a ServiceBusError if these messages must not be accepted together."""
        if self.deleted:
            raise NotFound(f"The messaging entity '{self.name}' could not be found.")
        if not self.status.sends:
            raise EntityDisabled(f"Messaging entity '{self.name}' is currently disabled.")
        if self.refusals:
            self._check_refusals(messages)
        if self.settings.partitioned and len({message.routing_key for message in messages}) > 1:
            raise NotAllowed(
                "Batching brokered messages with distinct SessionId or PartitionKey is not supported for an "
                "entity with partitioning enabled."
            )

    def _check_refusals(self, messages: Sequence[Message]) -> None:
        ids = {message.message_id for message in messages}
        for refusal in self.refusals:
            if refusal.message_id in ids:
                raise Refused(
                    refusal.condition,
                    f"The message '{refusal.message_id}' is refused by request.",
                )

    def admit(self, message: Message) -> bool:
        """Count a message as accepted; return False when it is a duplicate, to be dropped."""
        self.counts.accepted += 1
        if self.history is None or message.message_id is None:
            return True
        if self.history.is_new(self._identity(message)):
            return True
        self.counts.duplicates += 1
        return False

    def record(self, message: Message, sequence_number: int) -> None:
        """Record that a message was accepted, or dropped as a duplicate: then it has no sequence number."""
        if self.recording is not None:
            self.recording.add(
                entity=self.name,
                outcome="accepted" if sequence_number else "duplicate",
                sequence_number=sequence_number,
                message_id=message.message_id,
                session_id=message.session_id,
                subject=plain_text(message.field(Property.SUBJECT)),
                properties=dict(message.application_properties),
                body=message.body.decode(errors="backslashreplace"),
            )

    def is_repeat(self, message: Message) -> bool:
        """Return whether a message would be dropped as a duplicate. It is not counted."""
        if self.history is None or message.message_id is None:
            return False
        return self._identity(message) in self.history

    def _identity(self, message: Message) -> Hashable:
        if self.settings.partitioned:
            return message.routing_key, message.message_id
        return message.message_id

    def clear(self) -> None:
        """Clear the duplicate detection history; the counts stay."""
        if self.history is not None:
            self.history.clear()


@dataclass(slots=True)
class Outlet:
    """The receiving side of a queue or subscription.

    It has messages, dead letters, and dead letters that could not be forwarded ("transfer").
    """

    path: str
    messages: MessageQueue
    dead_letters: MessageQueue
    transfer_dead_letters: MessageQueue
    status: Status = Status.ACTIVE
    deleted: bool = False
    accessed_ms: int | None = None

    def update(self, receiving: Receiving, default_ttl_ms: int | None) -> None:
        """Apply other settings; they hold for messages and locks from now on."""
        partitioned = self.messages.settings.partitioned
        self.messages.settings, self.dead_letters.settings, self.transfer_dead_letters.settings = _settings(
            self.path, receiving, default_ttl_ms, partitioned=partitioned
        )
        self.messages.forward_waiting()
        self.dead_letters.forward_waiting()

    @property
    def size_bytes(self) -> int:
        """The size of all messages, dead letters included."""
        return sum(queue.size_bytes for queue in self._queues)

    def clear(self) -> None:
        """Delete every message, and the sessions."""
        for queue in self._queues:
            queue.clear()

    @property
    def _queues(self) -> tuple[MessageQueue, ...]:
        return self.messages, self.dead_letters, self.transfer_dead_letters


def _settings(
    path: str, receiving: Receiving, default_ttl_ms: int | None, *, partitioned: bool
) -> tuple[QueueSettings, QueueSettings, QueueSettings]:
    """Return the settings of a queue, of its dead-letter queue, and of the queue of what it could not forward."""
    known = [ttl for ttl in (receiving.default_ttl_ms, default_ttl_ms) if ttl is not None]
    live = QueueSettings(
        path,
        lock_ms=receiving.lock_ms,
        max_delivery_count=receiving.max_delivery_count,
        default_ttl_ms=min(known) if known else None,
        dead_letter_on_expiry=receiving.dead_letter_on_expiry,
        requires_session=receiving.requires_session,
        partitioned=partitioned,
        forward_to=receiving.forward_to,
    )
    dead = QueueSettings(
        path + DEAD_LETTER_SUFFIX,
        lock_ms=receiving.lock_ms,
        max_delivery_count=None,
        default_ttl_ms=None,
        dead_letter_on_expiry=False,
        counts_deliveries=False,
        partitioned=partitioned,
        forward_to=receiving.forward_dead_letters_to,
        dead_letters_of=path,
    )
    return live, dead, replace(dead, path=path + TRANSFER_SUFFIX, forward_to=None, dead_letters_of=None)


def make_outlet(
    path: str,
    receiving: Receiving,
    default_ttl_ms: int | None,
    timers: TimerQueue,
    edges: Edges | None,
    forward: Forward | None,
    *,
    partitioned: bool,
) -> Outlet:
    """Make the receiving side of a queue or subscription; the shorter of two times to live applies."""
    live, dead, transfer = _settings(path, receiving, default_ttl_ms, partitioned=partitioned)
    refused = MessageQueue(transfer, timers)
    dead_letters = MessageQueue(
        dead,
        timers,
        transfer_dead_letters=refused,
        forward=forward,
        ready_queue=dead_letter_queue_factory(edges),
    )
    if receiving.requires_session:
        return Outlet(path, SessionQueue(live, timers, dead_letters), dead_letters, refused)
    messages = MessageQueue(
        live,
        timers,
        dead_letters,
        transfer_dead_letters=refused,
        forward=forward,
        ready_queue=ready_queue_factory(edges, partitioned=partitioned),
    )
    return Outlet(path, messages, dead_letters, refused)


@dataclass(slots=True)
class Times:
    """When an entity was created and last changed, in milliseconds since the epoch."""

    created_ms: int
    updated_ms: int


class Entity:
    """The common properties of queues, topics and subscriptions."""

    def __init__(
        self, path: str, management: ManagementSettings, timers: TimerQueue, *ends: Inlet | Outlet
    ) -> None:
        self.path = path
        self.management = management
        self.times = Times(timers.now(), timers.now())
        self._ends = ends

    @property
    def is_deleted(self) -> bool:
        return any(end.deleted for end in self._ends)

    @property
    def accessed_ms(self) -> int | None:
        """When it was last sent to or received from, in milliseconds since the epoch; None is never."""
        return max((end.accessed_ms for end in self._ends if end.accessed_ms is not None), default=None)

    def delete(self) -> None:
        """Mark the entity as deleted for links that still use it."""
        for end in self._ends:
            end.deleted = True

    def clear(self) -> None:
        """Delete every message, and the duplicate detection history."""
        for end in self._ends:
            end.clear()
