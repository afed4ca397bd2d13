"""Creating, changing and deleting entities while the broker runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary
from xml.etree.ElementTree import Element

from outbox_relay.emulators.servicebus.administration import atom, authorization, fields
from outbox_relay.emulators.servicebus.administration.descriptions import (
    FORWARDS,
    QUEUE,
    SUBSCRIPTION,
    TOPIC,
    check_size,
    queue_entity,
    queue_values,
    subscription_entity,
    subscription_values,
    topic_entity,
    topic_values,
)
from outbox_relay.emulators.servicebus.administration.errors import (
    BadRequest,
    Conflict,
    EntityNotFound,
    NoDestination,
)
from outbox_relay.emulators.servicebus.administration.rules import read_rule
from outbox_relay.emulators.servicebus.broker import Broker
from outbox_relay.emulators.servicebus.ends import Entity
from outbox_relay.emulators.servicebus.entity_types import DEFAULT_RULE
from outbox_relay.emulators.servicebus.errors import NotFound
from outbox_relay.emulators.servicebus.filters import Rule
from outbox_relay.emulators.servicebus.forwarding import NO_FORWARDING_OF_SESSIONS
from outbox_relay.emulators.servicebus.timers import TimerQueue
from outbox_relay.emulators.servicebus.topic import Queue, Subscription, Topic


class IdleWatch:
    """Deletes entities that had no link, no use and no change for their AutoDeleteOnIdle."""

    def __init__(
        self, timers: TimerQueue, is_attached: Callable[[str], bool], delete: Callable[[Entity], None]
    ) -> None:
        self._timers = timers
        self._is_attached = is_attached
        self._delete = delete
        self._watches: WeakKeyDictionary[Entity, object] = WeakKeyDictionary()

    def watch(self, entity: Entity) -> None:
        """Watch an entity, with its settings as they are now."""
        watch = self._watches[entity] = object()
        self._schedule_look(entity, watch, self._last_used(entity))

    def _schedule_look(self, entity: Entity, watch: object, used_ms: int) -> None:
        limit = entity.management.auto_delete_on_idle_ms
        if limit is not None:
            self._timers.call_at(used_ms + limit, lambda: self._look(entity, watch))

    def _look(self, entity: Entity, watch: object) -> None:
        limit = entity.management.auto_delete_on_idle_ms
        if self._watches.get(entity) is not watch or entity.is_deleted or limit is None:
            return
        now = self._timers.now()
        used = now if self._is_attached(entity.path) else self._last_used(entity)
        if used + limit <= now:
            self._delete(entity)
        else:
            self._schedule_look(entity, watch, used)

    @staticmethod
    def _last_used(entity: Entity) -> int:
        return max(entity.times.updated_ms, entity.accessed_ms or 0)


_ENTITY_NAME = re.compile(r"[A-Za-z0-9]|[A-Za-z0-9][\w\-./~]*[A-Za-z0-9]")
_PART_NAME = re.compile(r"\$Default|[A-Za-z0-9]|[A-Za-z0-9][\w\-.]*[A-Za-z0-9]")
_ENTITY_NAME_LENGTH = 260
_PART_NAME_LENGTH = 50

N = TypeVar("N", Queue, Topic, Subscription, Rule)


class Catalog:
    """The entities of a broker, as the management API sees and changes them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._namespace = broker.namespace
        self._idle = IdleWatch(broker.namespace.timers, broker.connections.have_link_to, broker.delete)

    @property
    def premium(self) -> bool:
        return self._broker.tier == "premium"

    # Finding

    def queues(self) -> list[Queue]:
        return _sorted(self._namespace.queues.values(), lambda queue: queue.inlet.name)

    def topics(self) -> list[Topic]:
        return _sorted(self._namespace.topics.values(), lambda topic: topic.inlet.name)

    def entity(self, name: str) -> Queue | Topic | None:
        """Return a queue or topic; they share their names."""
        return self._namespace.queues.get(name.lower()) or self._namespace.topics.get(name.lower())

    def topic(self, name: str) -> Topic:
        """Return a topic. Raises EntityNotFound."""
        topic = self._namespace.topics.get(name.lower())
        if topic is None:
            raise EntityNotFound(f"The topic '{name}' does not exist.")
        return topic

    def subscriptions(self, topic: str) -> list[Subscription]:
        return _sorted(self.topic(topic).subscriptions, lambda subscription: subscription.name)

    def subscription(self, topic: str, name: str) -> Subscription | None:
        """Return a subscription. Raises EntityNotFound when there is not even the topic."""
        self.topic(topic)
        try:
            return self._namespace.subscription(f"{topic}/Subscriptions/{name}")
        except NotFound:
            return None

    def known_subscription(self, topic: str, name: str) -> Subscription:
        """Return a subscription. Raises EntityNotFound."""
        found = self.subscription(topic, name)
        if found is None:
            raise EntityNotFound(f"The subscription '{name}' of the topic '{topic}' does not exist.")
        return found

    def rules(self, topic: str, subscription: str) -> list[Rule]:
        return _sorted(self.known_subscription(topic, subscription).rules, lambda rule: rule.name)

    def rule(self, topic: str, subscription: str, name: str) -> Rule | None:
        return self.known_subscription(topic, subscription).rule(name)

    # Creating and changing

    def put_entity(self, name: str, description: Element, *, update: bool, version: str) -> Queue | Topic:
        """Create or update a queue or topic. Raises BadRequest, Conflict or EntityNotFound."""
        _check_name(name, _ENTITY_NAME, _ENTITY_NAME_LENGTH)
        current = self.entity(name)
        _check_existence(f"the entity '{name}'", exists=current is not None, update=update)
        kind = atom.local_name(description)
        if kind == "QueueDescription" and not isinstance(current, Topic):
            return self._put_queue(name, description, current, version)
        if kind == "TopicDescription" and not isinstance(current, Queue):
            return self._put_topic(name, description, current, version)
        raise BadRequest(f"A {kind} does not describe '{name}': a queue or topic is expected, of its own kind.")

    def _put_queue(self, name: str, description: Element, queue: Queue | None, version: str) -> Queue:
        current = None if queue is None else queue_values(queue, premium=self.premium)
        values = self._read(description, QUEUE, current, version)
        check_size(values, current, premium=self.premium)
        self._check_forwarding(name, values)
        entity = queue_entity(name if queue is None else queue.inlet.name, values)
        if queue is None:
            queue = self._namespace.add_queue(entity)
        else:
            queue.update(entity)
        self._finish(queue, values)
        return queue

    def _put_topic(self, name: str, description: Element, topic: Topic | None, version: str) -> Topic:
        current = None if topic is None else topic_values(topic, premium=self.premium)
        values = self._read(description, TOPIC, current, version)
        check_size(values, current, premium=self.premium)
        entity = topic_entity(name if topic is None else topic.inlet.name, values)
        if topic is None:
            topic = self._namespace.add_topic(entity)
        else:
            topic.update(entity)
        self._finish(topic, values)
        return topic

    def put_subscription(
        self, topic_name: str, name: str, description: Element, *, update: bool, version: str
    ) -> Subscription:
        """Create or update a subscription. Raises BadRequest, Conflict or EntityNotFound."""
        _check_name(name, _PART_NAME, _PART_NAME_LENGTH)
        topic = self.topic(topic_name)
        found = self.subscription(topic_name, name)
        _check_existence(f"the subscription '{name}'", exists=found is not None, update=update)
        _check_kind(description, "SubscriptionDescription")
        values = self._read(
            description, SUBSCRIPTION, None if found is None else subscription_values(found), version
        )
        self._check_forwarding(f"{topic_name}/Subscriptions/{name}", values)
        if found is None:
            found = topic.subscribe(subscription_entity(name, values, (self._first_rule(description),)))
        else:
            found.update(topic.entity, subscription_entity(found.name, values, found.rules))
        self._finish(found, values)
        return found

    def _first_rule(self, description: Element) -> Rule:
        found = description.find(atom.name("DefaultRuleDescription"))
        if found is None:
            return DEFAULT_RULE
        return read_rule(found, atom.text_of(found, "Name") or DEFAULT_RULE.name, self._now())

    def put_rule(self, topic: str, subscription: str, name: str, description: Element, *, update: bool) -> Rule:
        """Create or update a rule; it holds for what is sent from now on. Raises as the others do."""
        _check_name(name, _PART_NAME, _PART_NAME_LENGTH)
        owner = self.known_subscription(topic, subscription)
        found = self.rule(topic, subscription, name)
        _check_existence(f"the rule '{name}'", exists=found is not None, update=update)
        _check_kind(description, "RuleDescription")
        if found is None:
            rule = read_rule(description, name, self._now())
            owner.add_rule(rule)
        else:
            created = owner.times.created_ms if found.created_ms is None else found.created_ms
            rule = read_rule(description, found.name, created)
            owner.replace_rule(found, rule)
        return rule

    # Deleting

    def delete_entity(self, name: str) -> None:
        """Delete a queue, or a topic with its subscriptions, and end their links. Raises EntityNotFound."""
        entity = self.entity(name)
        if entity is None:
            raise EntityNotFound(f"The entity '{name}' does not exist.")
        self._broker.delete(entity)

    def delete_subscription(self, topic: str, name: str) -> None:
        """Delete a subscription and end its links. Raises EntityNotFound."""
        self._broker.delete(self.known_subscription(topic, name))

    def delete_rule(self, topic: str, subscription: str, name: str) -> None:
        """Delete a rule. Raises EntityNotFound."""
        try:
            self.known_subscription(topic, subscription).remove_rule(name)
        except NotFound as error:
            raise EntityNotFound(f"The rule '{name}' of '{topic}/{subscription}' does not exist.") from error

    # What they have in common

    def _read(
        self, description: Element, known: Iterable[fields.Field], current: fields.Values | None, version: str
    ) -> dict[str, Any]:
        values = fields.read(description, known, current, version=version, premium=self.premium)
        before = () if current is None else current.get(authorization.NAME, ())
        values[authorization.NAME] = authorization.read_rules(description, before, self._now())
        if known is SUBSCRIPTION and values[authorization.NAME]:
            raise BadRequest(f"A subscription has no {authorization.NAME}: those of its topic apply.")
        return values

    def _check_forwarding(self, path: str, values: fields.Values) -> None:
        """Raise NoDestination or BadRequest.

        An entity that requires sessions cannot forward (azure-service-bus issues 317 and 660: SubCode=40000). One
        that names itself is taken (test_mgmt_queues.py of azure-servicebus, recorded with the service).
        """
        destination = values["ForwardTo"]
        if values["RequiresSession"] and destination is not None and destination.lower() != path.lower():
            raise BadRequest(f"SubCode=40000. Bad Request. {NO_FORWARDING_OF_SESSIONS}")
        for destination in (values[name] for name in FORWARDS if values[name] is not None):
            if self.entity(destination) is None:
                raise NoDestination(destination)

    def _finish(self, entity: Entity, values: fields.Values) -> None:
        entity.times.updated_ms = self._now()
        self._broker.set_status(entity.path, values["Status"])
        self._idle.watch(entity)

    def _now(self) -> int:
        return self._namespace.timers.now()


def _sorted(found: Iterable[N], name: Any) -> list[N]:
    return sorted(found, key=lambda each: str(name(each)).lower())


def _check_name(name: str, pattern: re.Pattern[str], longest: int) -> None:
    if len(name) > longest or not pattern.fullmatch(name):
        raise BadRequest(
            f"'{name}' is no valid name: it must have from 1 to {longest} characters, begin and end with a letter "
            "or digit, and hold letters, digits and -_. only (a queue or topic also / and ~)."
        )


def _check_existence(what: str, *, exists: bool, update: bool) -> None:
    if update and not exists:
        raise EntityNotFound(f"It does not exist and cannot be updated: {what}.")
    if exists and not update:
        raise Conflict(f"{what} exists already.")


def _check_kind(description: Element, expected: str) -> None:
    kind = atom.local_name(description)
    if kind != expected:
        raise BadRequest(f"A {expected} was expected, not a {kind}.")
