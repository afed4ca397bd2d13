"""Resources as the management API shows them: how entities are set up, what they hold, when they were used."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from outbox_relay.emulators.servicebus.administration import atom, fields, xml
from outbox_relay.emulators.servicebus.administration.authorization import write_rules
from outbox_relay.emulators.servicebus.administration.descriptions import (
    FORWARDS,
    QUEUE,
    SUBSCRIPTION,
    TOPIC,
    queue_values,
    subscription_values,
    topic_values,
)
from outbox_relay.emulators.servicebus.administration.rules import write_rule
from outbox_relay.emulators.servicebus.ends import Entity, Outlet
from outbox_relay.emulators.servicebus.filters import CorrelationFilter, Rule
from outbox_relay.emulators.servicebus.topic import Queue, Subscription, Topic

_FILTER_COUNTS_SINCE = "2024-05"

_Children = list[Element | tuple[str, str]]


class Resources:
    """Makes entries for one request: `base` is the address of the namespace as the client reached it."""

    def __init__(self, base: str, version: str, *, premium: bool) -> None:
        self._base = base
        self._version = version
        self._premium = premium

    def entity(self, entity: Queue | Topic) -> atom.Entry:
        return self.queue(entity) if isinstance(entity, Queue) else self.topic(entity)

    def queue(self, queue: Queue) -> atom.Entry:
        values = queue_values(queue, premium=self._premium)
        counts = _counts(queue.outlet)
        children: _Children = [
            *self._properties(values, QUEUE),
            write_rules(queue.management.authorization),
            ("SizeInBytes", str(queue.outlet.size_bytes)),
            ("MessageCount", str(sum(counts))),
            *_common(queue, *counts),
        ]
        return self._entry(queue.path, queue, atom.element("QueueDescription", children))

    def topic(self, topic: Topic) -> atom.Entry:
        values = topic_values(topic, premium=self._premium)
        children: _Children = [
            *self._properties(values, TOPIC),
            write_rules(topic.management.authorization),
            ("SizeInBytes", str(topic.size_bytes)),
            *_common(topic, 0, 0, topic.scheduled),
            ("SubscriptionCount", str(len(topic.subscriptions))),
        ]
        if self._version >= _FILTER_COUNTS_SINCE:
            rules = [rule for subscription in topic.subscriptions for rule in subscription.rules]
            correlation = sum(isinstance(rule.filter, CorrelationFilter) for rule in rules)
            # The true and the false filter are SQL filters too: 1=1 and 1=0.
            children.append(("SqlFilterCount", str(len(rules) - correlation)))
            children.append(("CorrelationFilterCount", str(correlation)))
        return self._entry(topic.path, topic, atom.element("TopicDescription", children))

    def subscription(self, subscription: Subscription) -> atom.Entry:
        counts = _counts(subscription.outlet)
        children: _Children = [
            *self._properties(subscription_values(subscription), SUBSCRIPTION),
            ("MessageCount", str(sum(counts))),
            *_common(subscription, *counts),
        ]
        return self._entry(subscription.name, subscription, atom.element("SubscriptionDescription", children))

    def rule(self, subscription: Subscription, rule: Rule) -> atom.Entry:
        created = subscription.times.created_ms if rule.created_ms is None else rule.created_ms
        address = f"{self._base}/{subscription.path}/Rules/{rule.name}"
        return atom.Entry(rule.name, address, created, created, write_rule(rule, created))

    def namespace(self, name: str, created_ms: int) -> atom.Entry:
        sku: _Children = [("MessagingSKU", "Premium" if self._premium else "Standard")]
        if self._premium:
            sku.append(("MessagingUnits", "1"))
        children: _Children = [
            ("CreatedTime", atom.moment(created_ms)),
            *sku,
            ("ModifiedTime", atom.moment(created_ms)),
            ("Name", name),
            ("NamespaceType", "Messaging"),
        ]
        described = atom.element("NamespaceInfo", children)
        return atom.Entry(name, f"{self._base}/$namespaceinfo", created_ms, created_ms, described)

    def _properties(self, values: fields.Values, known: tuple[fields.Field, ...]) -> list[Element]:
        host = self._base.partition("://")[2]
        found = {name: f"sb://{host}/{values[name]}" for name in FORWARDS if values.get(name) is not None}
        return fields.write({**values, **found}, known, version=self._version)

    def _entry(self, title: str, entity: Entity, description: Element) -> atom.Entry:
        times = entity.times
        return atom.Entry(title, f"{self._base}/{entity.path}", times.created_ms, times.updated_ms, description)


def _counts(outlet: Outlet) -> tuple[int, int, int, int]:
    """Return how many messages are active, dead-lettered, scheduled, and could not be forwarded.

    Locked and deferred ones are included.
    """
    live = outlet.messages.counts()
    dead, transfer = (
        counts.active + counts.locked + counts.deferred
        for counts in (outlet.dead_letters.counts(), outlet.transfer_dead_letters.counts())
    )
    return live.active + live.locked + live.deferred, dead, live.scheduled, transfer


def _common(entity: Entity, active: int, dead: int, scheduled: int, transfer: int = 0) -> _Children:
    counts = [
        ("ActiveMessageCount", str(active)),
        ("DeadLetterMessageCount", str(dead)),
        ("ScheduledMessageCount", str(scheduled)),
        ("TransferDeadLetterMessageCount", str(transfer)),
        ("TransferMessageCount", "0"),
    ]
    details = atom.element("CountDetails")
    details.extend(atom.element("x", counts, xml.COUNTS))
    return [
        ("CreatedAt", atom.moment(entity.times.created_ms)),
        ("UpdatedAt", atom.moment(entity.times.updated_ms)),
        ("AccessedAt", atom.moment(entity.accessed_ms)),
        details,
        ("EntityAvailabilityStatus", "Available"),
    ]
