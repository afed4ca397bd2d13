"""Entities: queues, and topics that deliver a copy to each subscription whose rules match."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from outbox_relay.emulators.recording import Recording
from outbox_relay.emulators.servicebus.edges import Edges
from outbox_relay.emulators.servicebus.ends import Entity, Inlet, make_outlet
from outbox_relay.emulators.servicebus.entity_types import QueueEntity, SubscriptionEntity, TopicEntity
from outbox_relay.emulators.servicebus.entry import Entry, State
from outbox_relay.emulators.servicebus.errors import AlreadyExists, MessageNotFound, NotAllowed, NotFound
from outbox_relay.emulators.servicebus.filters import Rule, copies
from outbox_relay.emulators.servicebus.forwarding import Forward
from outbox_relay.emulators.servicebus.message import Message
from outbox_relay.emulators.servicebus.partitions import SequenceNumbers
from outbox_relay.emulators.servicebus.timers import TimerQueue


class Destination(Protocol):
    """An entity that can be sent to."""

    inlet: Inlet

    def publish(self, messages: Sequence[Message]) -> list[int]:
        """Take all of the messages or none; return the sequence number of each, 0 for a dropped duplicate."""

    def cancel_scheduled(self, sequence_numbers: Sequence[int]) -> None:
        """Drop messages that are scheduled. Raises MessageNotFound."""


class Queue(Entity):
    """A queue."""

    def __init__(
        self,
        entity: QueueEntity,
        timers: TimerQueue,
        edges: Edges | None = None,
        forward: Forward | None = None,
        recording: Recording | None = None,
    ) -> None:
        self.entity = entity
        self.inlet = Inlet(entity.name, entity.sending, timers, recording=recording)
        self.outlet = make_outlet(
            entity.name, entity.receiving, None, timers, edges, forward, partitioned=entity.sending.partitioned
        )
        self._requires_session = entity.receiving.requires_session
        super().__init__(entity.name, entity.management, timers, self.inlet, self.outlet)

    def update(self, entity: QueueEntity) -> None:
        """Apply a new description; what can be set only on creation stays."""
        self.entity, self.management = entity, entity.management
        self.inlet.update(entity.sending)
        self.outlet.update(entity.receiving, None)

    def publish(self, messages: Sequence[Message]) -> list[int]:
        self.inlet.check(messages)
        if self._requires_session and any(message.session_id is None for message in messages):
            raise NotAllowed(
                "The SessionId was not set on a message, and it cannot be sent to the entity. Entities that have "
                "session support enabled can only receive messages that have the SessionId set to a valid value."
            )
        self.outlet.messages.begin_transfer()
        return [self._take(message) for message in messages]

    def _take(self, message: Message) -> int:
        number = self.outlet.messages.enqueue(message).sequence_number if self.inlet.admit(message) else 0
        self.inlet.record(message, number)
        return number

    def cancel_scheduled(self, sequence_numbers: Sequence[int]) -> None:
        self.outlet.messages.cancel_scheduled(sequence_numbers)


class Subscription(Entity):
    """One subscription of a topic."""

    def __init__(
        self,
        topic: TopicEntity,
        entity: SubscriptionEntity,
        timers: TimerQueue,
        edges: Edges | None = None,
        forward: Forward | None = None,
    ) -> None:
        self.entity = entity
        self.name = entity.name
        self.rules = entity.rules
        path = f"{topic.name}/Subscriptions/{entity.name}"
        self.outlet = make_outlet(
            path,
            entity.receiving,
            topic.default_ttl_ms,
            timers,
            edges,
            forward,
            partitioned=topic.sending.partitioned,
        )
        self._requires_session = entity.receiving.requires_session
        super().__init__(path, entity.management, timers, self.outlet)

    def update(self, topic: TopicEntity, entity: SubscriptionEntity) -> None:
        """Apply a new description; what can be set only on creation stays, and so do the rules."""
        self.entity, self.management = entity, entity.management
        self.outlet.update(entity.receiving, topic.default_ttl_ms)

    def rule(self, name: str) -> Rule | None:
        """Return the rule of a name, ignoring case."""
        return next((rule for rule in self.rules if rule.name.lower() == name.lower()), None)

    def add_rule(self, rule: Rule) -> None:
        """Add a rule; it holds for what is sent from now on. Raises AlreadyExists."""
        if self.rule(rule.name) is not None:
            raise AlreadyExists(f"The rule '{rule.name}' of the subscription '{self.path}' already exists.")
        self.rules = (*self.rules, rule)

    def replace_rule(self, old: Rule, new: Rule) -> None:
        """Put a rule in the place of another."""
        self.rules = tuple(new if rule is old else rule for rule in self.rules)

    def remove_rule(self, name: str) -> None:
        """Remove a rule. Raises NotFound."""
        found = self.rule(name)
        if found is None:
            raise NotFound.entity(f"{self.path}/Rules/{name}")
        self.rules = tuple(rule for rule in self.rules if rule is not found)

    def offer(self, message: Message, sequence_number: int) -> None:
        """Enqueue a copy of a message sent to the topic if a rule matches, and dead-letter it if one fails."""
        found, failure = copies(self.rules, message)
        if failure is not None and self.management.dead_letter_on_filter_errors:
            self.outlet.messages.dead_letter_new(message, failure.reason, failure.description)
        for copy in found:
            if self._requires_session and copy.session_id is None:
                self.outlet.messages.dead_letter_new(
                    copy,
                    "Session ID is null",
                    "Session enabled entity doesn't allow a message whose session identifier is null.",
                )
            else:
                self.outlet.messages.enqueue(copy, sequence_number)


class Topic(Entity):
    """A topic. Scheduled messages wait in it; when they come due they go to the subscriptions."""

    def __init__(
        self,
        entity: TopicEntity,
        timers: TimerQueue,
        edges: Edges | None = None,
        forward: Forward | None = None,
        recording: Recording | None = None,
    ) -> None:
        self.entity = entity
        self.inlet = Inlet(entity.name, entity.sending, timers, recording=recording)
        self.subscriptions = [Subscription(entity, each, timers, edges, forward) for each in entity.subscriptions]
        self._timers = timers
        self._edges = edges
        self._forward = forward
        self._numbers = SequenceNumbers(partitioned=entity.sending.partitioned)
        self._scheduled: dict[int, Message] = {}
        super().__init__(entity.name, entity.management, timers, self.inlet)

    def update(self, entity: TopicEntity) -> None:
        """Apply a new description; what can be set only on creation stays, and so do the subscriptions."""
        self.entity, self.management = entity, entity.management
        self.inlet.update(entity.sending)
        for subscription in self.subscriptions:
            subscription.update(entity, subscription.entity)

    def delete(self) -> None:
        """Mark the topic and its subscriptions as deleted for links that still use them."""
        super().delete()
        for subscription in self.subscriptions:
            subscription.delete()

    def subscribe(self, entity: SubscriptionEntity) -> Subscription:
        """Create a subscription; it gets messages that are sent from now on."""
        subscription = Subscription(self.entity, entity, self._timers, self._edges, self._forward)
        self.subscriptions.append(subscription)
        return subscription

    def publish(self, messages: Sequence[Message]) -> list[int]:
        self.inlet.check(messages)
        self._numbers.begin_transfer()
        return [self._take(message) for message in messages]

    def _take(self, message: Message) -> int:
        number = self._accept(message) if self.inlet.admit(message) else 0
        self.inlet.record(message, number)
        return number

    def _accept(self, message: Message) -> int:
        number = self._numbers.next(message.routing_key)
        due = message.scheduled_ms
        if due is not None and due > self._timers.now():
            self._scheduled[number] = message
            self._timers.call_at(due, lambda: self._enqueue_scheduled(number))
        else:
            self._fan_out(message, number)
        return number

    def _enqueue_scheduled(self, number: int) -> None:
        message = self._scheduled.pop(number, None)
        if message is not None:
            self._fan_out(message, self._numbers.next(message.routing_key, number))

    def _fan_out(self, message: Message, number: int) -> None:
        for subscription in self.subscriptions:
            subscription.offer(message, number)

    def cancel_scheduled(self, sequence_numbers: Sequence[int]) -> None:
        if any(number not in self._scheduled for number in sequence_numbers):
            raise MessageNotFound("The scheduled message was not found: it was enqueued or cancelled already.")
        for number in sequence_numbers:
            del self._scheduled[number]

    def clear(self) -> None:
        """Delete every message here and in the subscriptions, and the duplicate detection history."""
        super().clear()
        self._scheduled.clear()
        for subscription in self.subscriptions:
            subscription.clear()

    @property
    def size_bytes(self) -> int:
        """The size of all messages, in the topic and in its subscriptions."""
        waiting = sum(message.size for message in self._scheduled.values())
        return waiting + sum(subscription.outlet.size_bytes for subscription in self.subscriptions)

    @property
    def scheduled(self) -> int:
        """Number of scheduled messages."""
        return len(self._scheduled)

    def peek(self, from_sequence_number: int, limit: int) -> list[Entry]:
        """Return scheduled messages, the only ones a topic itself holds."""
        now = self._timers.now()
        numbers = sorted(number for number in self._scheduled if number >= from_sequence_number)[:limit]
        return [Entry(self._scheduled[n], n, n, now, state=State.SCHEDULED) for n in numbers]
