"""What can be sent to: queues, and topics that hand a copy to each subscription that wants one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from .agenda import Agenda
from .duplicates import DuplicateHistory
from .entities import QueueEntity, Receiving, Sending, SubscriptionEntity, TopicEntity
from .entry import Entry, State
from .errors import EntityDisabled, MessageNotFound, NotAllowed, Refused
from .filters import copies
from .message import Message
from .queue import MessageQueue, QueueSettings
from .sessions import SessionQueue

DEAD_LETTER_SUFFIX = "/$DeadLetterQueue"


class Status(Enum):
    """Whether an entity takes and gives messages (EntityStatus in the management API)."""

    ACTIVE = "Active"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"
    DISABLED = "Disabled"

    @property
    def sends(self) -> bool:
        return self in (Status.ACTIVE, Status.RECEIVE_DISABLED)

    @property
    def receives(self) -> bool:
        return self in (Status.ACTIVE, Status.SEND_DISABLED)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A test wants sends refused that hold this message id, with this error condition."""

    message_id: str
    condition: str


@dataclass(slots=True)
class SendCounts:
    """What an entity was sent since it started.

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
    agenda: Agenda
    status: Status = Status.ACTIVE
    counts: SendCounts = field(default_factory=SendCounts)
    refusals: list[Refusal] = field(default_factory=list)
    history: DuplicateHistory | None = None

    def __post_init__(self) -> None:
        if self.settings.duplicates:
            self.history = DuplicateHistory(self.settings.duplicates.window_ms, self.agenda.now)

    def check(self, messages: Sequence[Message]) -> None:
        """Raise what speaks against taking all of these messages together."""
        if not self.status.sends:
            raise EntityDisabled(f"Messaging entity '{self.name}' is currently disabled.")
        if self.refusals:
            self._check_refusals(messages)
        if self.settings.partitioned and len({_partition_key(message) for message in messages}) > 1:
            raise NotAllowed(
                "Batching brokered messages with distinct SessionId or PartitionKey is not supported for an "
                "entity with partitioning enabled."
            )

    def _check_refusals(self, messages: Sequence[Message]) -> None:
        ids = {message.message_id for message in messages}
        for refusal in self.refusals:
            if refusal.message_id in ids:
                raise Refused(refusal.condition, f"The message '{refusal.message_id}' is refused by a test.")

    def admit(self, message: Message) -> bool:
        """Count a message as accepted; return False when it is a duplicate, to be dropped."""
        self.counts.accepted += 1
        if self.history is None or message.message_id is None:
            return True
        if self.settings.partitioned:
            key: object = (_partition_key(message), message.message_id)
        else:
            key = message.message_id
        if self.history.is_new(key):
            return True
        self.counts.duplicates += 1
        return False


def _partition_key(message: Message) -> str | None:
    return message.session_id if message.session_id is not None else message.partition_key


class Destination(Protocol):
    """An entity that can be sent to."""

    inlet: Inlet

    def publish(self, messages: Sequence[Message]) -> list[int]:
        """Take all of the messages or none; return the sequence number of each, 0 for a dropped duplicate."""

    def cancel_scheduled(self, sequence_numbers: Sequence[int]) -> None:
        """Drop messages that are scheduled. Raises MessageNotFound."""


@dataclass(slots=True)
class Outlet:
    """The receiving side of a queue or subscription: its messages and its dead letters."""

    path: str
    messages: MessageQueue
    dead_letters: MessageQueue
    status: Status = Status.ACTIVE


def _outlet(path: str, receiving: Receiving, default_ttl_ms: int | None, agenda: Agenda) -> Outlet:
    dead = QueueSettings(
        path + DEAD_LETTER_SUFFIX,
        lock_ms=receiving.lock_ms,
        max_delivery_count=None,
        default_ttl_ms=None,
        dead_letter_on_expiry=False,
    )
    known = [ttl for ttl in (receiving.default_ttl_ms, default_ttl_ms) if ttl is not None]
    settings = QueueSettings(
        path,
        lock_ms=receiving.lock_ms,
        max_delivery_count=receiving.max_delivery_count,
        default_ttl_ms=min(known) if known else None,
        dead_letter_on_expiry=receiving.dead_letter_on_expiry,
        requires_session=receiving.requires_session,
    )
    dead_letters = MessageQueue(dead, agenda)
    kind = SessionQueue if receiving.requires_session else MessageQueue
    return Outlet(path, kind(settings, agenda, dead_letters), dead_letters)


class Queue:
    """A queue: what is sent to it is received from it."""

    def __init__(self, entity: QueueEntity, agenda: Agenda) -> None:
        self.inlet = Inlet(entity.name, entity.sending, agenda)
        self.outlet = _outlet(entity.name, entity.receiving, None, agenda)
        self._requires_session = entity.receiving.requires_session

    def publish(self, messages: Sequence[Message]) -> list[int]:
        self.inlet.check(messages)
        if self._requires_session and any(message.session_id is None for message in messages):
            raise NotAllowed(
                "The SessionId was not set on a message, and it cannot be sent to the entity. Entities that have "
                "session support enabled can only receive messages that have the SessionId set to a valid value."
            )
        return [
            self.outlet.messages.enqueue(message).sequence_number if self.inlet.admit(message) else 0
            for message in messages
        ]

    def cancel_scheduled(self, sequence_numbers: Sequence[int]) -> None:
        self.outlet.messages.cancel_scheduled(sequence_numbers)


class Subscription:
    """One subscription of a topic."""

    def __init__(self, topic: TopicEntity, entity: SubscriptionEntity, agenda: Agenda) -> None:
        self.name = entity.name
        self.rules = entity.rules
        path = f"{topic.name}/Subscriptions/{entity.name}"
        self.outlet = _outlet(path, entity.receiving, topic.default_ttl_ms, agenda)
        self._requires_session = entity.receiving.requires_session

    def offer(self, message: Message, sequence_number: int) -> None:
        """Take a copy of what was sent to the topic, if the rules say so."""
        for copy in copies(self.rules, message):
            if self._requires_session and copy.session_id is None:
                self.outlet.messages.bury_new(
                    copy,
                    "Session ID is null",
                    "Session enabled entity doesn't allow a message whose session identifier is null.",
                )
            else:
                self.outlet.messages.enqueue(copy, sequence_number)


class Topic:
    """A topic. Scheduled messages wait in it; when they come due they go to the subscriptions."""

    def __init__(self, entity: TopicEntity, agenda: Agenda) -> None:
        self.inlet = Inlet(entity.name, entity.sending, agenda)
        self.subscriptions = [Subscription(entity, each, agenda) for each in entity.subscriptions]
        self._agenda = agenda
        self._last_sequence_number = 0
        self._scheduled: dict[int, Message] = {}

    def publish(self, messages: Sequence[Message]) -> list[int]:
        self.inlet.check(messages)
        return [self._accept(message) if self.inlet.admit(message) else 0 for message in messages]

    def _accept(self, message: Message) -> int:
        self._last_sequence_number += 1
        number = self._last_sequence_number
        due = message.scheduled_ms
        if due is not None and due > self._agenda.now():
            self._scheduled[number] = message
            self._agenda.at(due, lambda: self._enqueue_scheduled(number))
        else:
            self._fan_out(message, number)
        return number

    def _enqueue_scheduled(self, number: int) -> None:
        message = self._scheduled.pop(number, None)
        if message is not None:
            self._last_sequence_number += 1
            self._fan_out(message, self._last_sequence_number)

    def _fan_out(self, message: Message, number: int) -> None:
        for subscription in self.subscriptions:
            subscription.offer(message, number)

    def cancel_scheduled(self, sequence_numbers: Sequence[int]) -> None:
        if any(number not in self._scheduled for number in sequence_numbers):
            raise MessageNotFound("The scheduled message was not found: it was enqueued or cancelled already.")
        for number in sequence_numbers:
            del self._scheduled[number]

    @property
    def scheduled(self) -> int:
        """How many messages wait for their time."""
        return len(self._scheduled)

    def peek(self, from_sequence_number: int, limit: int) -> list[Entry]:
        """Return scheduled messages, the only ones a topic itself holds."""
        now = self._agenda.now()
        numbers = sorted(number for number in self._scheduled if number >= from_sequence_number)[:limit]
        return [Entry(self._scheduled[n], n, n, now, state=State.SCHEDULED) for n in numbers]
