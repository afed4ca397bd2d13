"""The resources that paths of the management API name, and what can be done with each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from outbox_relay.emulators.servicebus.administration.atom import Entry
from outbox_relay.emulators.servicebus.administration.catalog import Catalog
from outbox_relay.emulators.servicebus.administration.errors import BadRequest, MethodNotAllowed
from outbox_relay.emulators.servicebus.administration.resources import Resources
from outbox_relay.emulators.servicebus.namespace import Namespace

_BELOW_TOPIC = re.compile(
    r"(?P<topic>.+)/subscriptions(?:/(?P<subscription>[^/]+)(?P<rules>/rules(?:/(?P<rule>[^/]+))?)?)?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Context:
    """The context of every target: the entities, how they are shown, and the client's API version."""

    namespace: Namespace
    catalog: Catalog
    resources: Resources
    version: str


@dataclass(frozen=True, slots=True)
class Target:
    """A resource that can do nothing. Each kind allows some of these, and raises what `Catalog` does."""

    context: Context

    def get(self) -> Entry | None:
        """Return the resource, None when it does not exist but could."""
        raise MethodNotAllowed("GET")

    def entries(self) -> list[Entry] | None:
        """Return the resources of a collection, None when the target is not one."""
        return None

    def put(self, description: Element, *, update: bool) -> Entry:
        """Create the resource, or update it."""
        raise MethodNotAllowed("PUT")

    def delete(self) -> None:
        """Delete the resource."""
        raise MethodNotAllowed("DELETE")


@dataclass(frozen=True, slots=True)
class NamespaceInfo(Target):
    def get(self) -> Entry:
        namespace = self.context.namespace
        return self.context.resources.namespace(namespace.name, namespace.created_ms)


@dataclass(frozen=True, slots=True)
class Queues(Target):
    def entries(self) -> list[Entry]:
        return [self.context.resources.queue(queue) for queue in self.context.catalog.queues()]


@dataclass(frozen=True, slots=True)
class Topics(Target):
    def entries(self) -> list[Entry]:
        return [self.context.resources.topic(topic) for topic in self.context.catalog.topics()]


@dataclass(frozen=True, slots=True)
class QueueOrTopic(Target):
    name: str

    def get(self) -> Entry | None:
        found = self.context.catalog.entity(self.name)
        return None if found is None else self.context.resources.entity(found)

    def put(self, description: Element, *, update: bool) -> Entry:
        context = self.context
        made = context.catalog.put_entity(self.name, description, update=update, version=context.version)
        return context.resources.entity(made)

    def delete(self) -> None:
        self.context.catalog.delete_entity(self.name)


@dataclass(frozen=True, slots=True)
class Subscriptions(Target):
    topic: str

    def entries(self) -> list[Entry]:
        context = self.context
        return [context.resources.subscription(each) for each in context.catalog.subscriptions(self.topic)]


@dataclass(frozen=True, slots=True)
class OneSubscription(Target):
    topic: str
    name: str

    def get(self) -> Entry | None:
        found = self.context.catalog.subscription(self.topic, self.name)
        return None if found is None else self.context.resources.subscription(found)

    def put(self, description: Element, *, update: bool) -> Entry:
        context = self.context
        made = context.catalog.put_subscription(
            self.topic, self.name, description, update=update, version=context.version
        )
        return context.resources.subscription(made)

    def delete(self) -> None:
        self.context.catalog.delete_subscription(self.topic, self.name)


@dataclass(frozen=True, slots=True)
class Rules(Target):
    topic: str
    subscription: str

    def entries(self) -> list[Entry]:
        context = self.context
        owner = context.catalog.known_subscription(self.topic, self.subscription)
        rules = context.catalog.rules(self.topic, self.subscription)
        return [context.resources.rule(owner, rule) for rule in rules]


@dataclass(frozen=True, slots=True)
class OneRule(Target):
    topic: str
    subscription: str
    name: str

    def get(self) -> Entry | None:
        catalog = self.context.catalog
        found = catalog.rule(self.topic, self.subscription, self.name)
        owner = catalog.known_subscription(self.topic, self.subscription)
        return None if found is None else self.context.resources.rule(owner, found)

    def put(self, description: Element, *, update: bool) -> Entry:
        catalog = self.context.catalog
        rule = catalog.put_rule(self.topic, self.subscription, self.name, description, update=update)
        owner = catalog.known_subscription(self.topic, self.subscription)
        return self.context.resources.rule(owner, rule)

    def delete(self) -> None:
        self.context.catalog.delete_rule(self.topic, self.subscription, self.name)


def target_of(path: str, context: Context) -> Target:
    """Return what a path names, without its first slash. Raises BadRequest when it can name nothing."""
    fixed = {"$namespaceinfo": NamespaceInfo, "$resources/queues": Queues, "$resources/topics": Topics}
    kind = fixed.get(path.lower())
    if kind is not None:
        return kind(context)
    if not path or path.startswith("$"):
        raise BadRequest(f"'{path}' names no resource.")
    found = _BELOW_TOPIC.fullmatch(path)
    if found is None:
        return QueueOrTopic(context, path)
    topic, subscription, rule = found["topic"], found["subscription"], found["rule"]
    if subscription is None:
        return Subscriptions(context, topic)
    if found["rules"] is None:
        return OneSubscription(context, topic, subscription)
    return Rules(context, topic, subscription) if rule is None else OneRule(context, topic, subscription, rule)
