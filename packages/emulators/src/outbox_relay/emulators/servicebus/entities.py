"""The entities of a namespace, read from a file in the format of the official Service Bus emulator.

The format is its `Config.json` (github.com/Azure/azure-service-bus-emulator-installer, its JSON schema). This
broker adds properties that the format lacks, named as in ARM templates: `EnablePartitioning`,
`AuthorizationRules`, `DeadLetteringOnFilterEvaluationExceptions` (true by default, as in the SDKs) and, on a
Premium namespace, `MaxMessageSizeInKilobytes`. The emulator's schema does not forbid further properties, but the
emulator has no partitioned entities: a file meant for both leaves them out. A property that is left out has the
schema's default. The emulator's limits on durations are not enforced, only the service's, as tests need short
locks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from outbox_relay.emulators.jsonc import JsonError, read
from outbox_relay.emulators.properties import Problems, Reader
from outbox_relay.emulators.servicebus.authorization import MOST_RULES, AuthorizationRule, Right
from outbox_relay.emulators.servicebus.entity_types import (
    DAY_MS,
    DEFAULT_RULE,
    MINUTE_MS,
    DuplicateDetection,
    ManagementSettings,
    QueueEntity,
    Receiving,
    Sending,
    SubscriptionEntity,
    TopicEntity,
)
from outbox_relay.emulators.servicebus.filters import (
    CORRELATION_PROPERTIES,
    CorrelationFilter,
    Filter,
    Rule,
    TrueFilter,
)
from outbox_relay.emulators.servicebus.forwarding import NO_FORWARDING_OF_SESSIONS
from outbox_relay.emulators.servicebus.sql import SqlAction, SqlError, SqlExpression, parse_action, parse_filter

NAME = "AuthorizationRules"

_NAME = re.compile(r"[A-Za-z0-9]|[A-Za-z0-9][\w\-./]*[A-Za-z0-9]")


def read_rules(reader: Reader) -> tuple[AuthorizationRule, ...]:
    """Read the rules of the namespace or of an entity's properties."""
    rules = tuple(_read(each) for each in reader.children(NAME))
    names = {rule.name.lower() for rule in rules}
    if len(names) < len(rules) or len(rules) > MOST_RULES:
        reader.wrong(NAME, f"must have different names, and there may be {MOST_RULES} of them")
    return rules


def _read(rule: Reader) -> AuthorizationRule:
    name = rule.string("KeyName", required=True)
    primary = rule.string("PrimaryKey", required=True)
    rights = Right.ANY
    try:
        rights = Right.parse(rule.strings("Rights"))
    except ValueError as error:
        rule.wrong("Rights", f"is wrong: {error}")
    secondary = rule.string("SecondaryKey") or primary
    rule.done()
    return AuthorizationRule(name, rights, primary, secondary)


_DEFAULT_TTL_MS = 60 * MINUTE_MS
_DEFAULT_WINDOW_MS = 20_000
_DEFAULT_MAX_DELIVERY_COUNT = 3


class EntitiesError(ValueError):
    """The entities file is not valid; the message names each property that is wrong, and so does `problems`."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("The entities file is not valid:\n" + "\n".join(f"  {p}" for p in problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Entities:
    """The entities of a namespace.

    Attributes:
        queues, topics: The queues, and the topics with their subscriptions.
        namespace: The name of the namespace.
        authorization: The namespace's keys, in addition to the one with every right.
    """

    queues: tuple[QueueEntity, ...] = ()
    topics: tuple[TopicEntity, ...] = ()
    namespace: str = "sbemulatorns"
    authorization: tuple[AuthorizationRule, ...] = ()

    @classmethod
    def from_file(cls, path: Path | str) -> Entities:
        """Read a file. Raises EntitiesError naming each wrong property, OSError when it cannot be read."""
        try:
            document = read(Path(path))
        except JsonError as error:
            raise EntitiesError([str(error)]) from error
        return cls.from_document(document)

    @classmethod
    def from_document(cls, document: Any) -> Entities:
        """Read the JSON document of such a file. Raises EntitiesError naming each wrong property."""
        problems: Problems = []
        entities = _read_document(Reader(document, "", problems))
        if problems:
            raise EntitiesError(problems)
        return entities

    @property
    def names(self) -> list[str]:
        """The names of all queues and topics."""
        return [queue.name for queue in self.queues] + [topic.name for topic in self.topics]

    def with_partitioning(self, name: str) -> Entities:
        """Return the same entities with one topic or queue partitioned. Raises EntitiesError if there is none."""
        if name not in self.names:
            raise EntitiesError([f"there is no queue or topic '{name}' to be partitioned"])
        return replace(
            self,
            queues=tuple(_partitioned(queue) if queue.name == name else queue for queue in self.queues),
            topics=tuple(_partitioned(topic) if topic.name == name else topic for topic in self.topics),
        )

    def with_duplicate_window(self, window_ms: int) -> Entities:
        """Return the same entities, each that detects duplicates with this window, in milliseconds."""
        return replace(
            self,
            queues=tuple(_with_window(queue, window_ms) for queue in self.queues),
            topics=tuple(_with_window(topic, window_ms) for topic in self.topics),
        )


E = TypeVar("E", QueueEntity, TopicEntity)


def _partitioned(entity: E) -> E:
    return replace(entity, sending=replace(entity.sending, partitioned=True))


def _with_window(entity: E, window_ms: int) -> E:
    if entity.sending.duplicates is None:
        return entity
    return replace(entity, sending=replace(entity.sending, duplicates=DuplicateDetection(window_ms)))


def _read_document(document: Reader) -> Entities:
    user = document.child("UserConfig", required=True)
    namespaces = user.children("Namespaces", required=True)
    user.child("Logging").allow("Type")
    user.done()
    if len(namespaces) != 1:
        user.wrong("Namespaces", "must hold exactly one namespace")
        return Entities()
    namespace = namespaces[0]
    name = namespace.string("Name", required=True)
    queues = tuple(_read_queue(queue) for queue in namespace.children("Queues"))
    topics = tuple(_read_topic(topic) for topic in namespace.children("Topics"))
    authorization = read_rules(namespace)
    namespace.done()
    document.done()
    entities = Entities(queues, topics, name, authorization)
    _check_names(namespace, "Queues and Topics", entities.names)
    _check_forwarding(namespace, entities)
    return entities


def _check_forwarding(reader: Reader, entities: Entities) -> None:
    known = {name.lower() for name in entities.names}
    receiving = [(queue.name, queue.receiving) for queue in entities.queues]
    receiving += [(each.name, each.receiving) for topic in entities.topics for each in topic.subscriptions]
    for name, each in receiving:
        if each.requires_session and each.forward_to is not None:
            reader.wrong("", f"has '{name}' forward and require sessions: {NO_FORWARDING_OF_SESSIONS}")
        for destination in (each.forward_to, each.forward_dead_letters_to):
            if destination is not None and destination.lower() not in known:
                reader.wrong("", f"has '{name}' forward to '{destination}', which is no queue or topic of it")


def _check_names(reader: Reader, what: str, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            reader.wrong(what, f"has '{name}' more than once")
        seen.add(name.lower())


def _read_queue(queue: Reader) -> QueueEntity:
    name = read_name(queue)
    properties = queue.child("Properties")
    entity = QueueEntity(name, _read_sending(properties), _read_receiving(properties), _read_upkeep(properties))
    properties.done()
    queue.done()
    return entity


def _read_topic(topic: Reader) -> TopicEntity:
    name = read_name(topic)
    properties = topic.child("Properties")
    sending = _read_sending(properties)
    default_ttl = _read_ttl(properties)
    upkeep = _read_upkeep(properties)
    subscriptions = tuple(_read_subscription(each) for each in topic.children("Subscriptions"))
    properties.done()
    topic.done()
    _check_names(topic, "Subscriptions", [subscription.name for subscription in subscriptions])
    return TopicEntity(name, sending, default_ttl, subscriptions, upkeep)


def _read_upkeep(properties: Reader) -> ManagementSettings:
    return ManagementSettings(authorization=read_rules(properties))


def _read_subscription(subscription: Reader) -> SubscriptionEntity:
    name = read_name(subscription)
    properties = subscription.child("Properties")
    receiving = _read_receiving(properties)
    rules = tuple(read_rule(rule) for rule in subscription.children("Rules"))
    on_errors = properties.boolean("DeadLetteringOnFilterEvaluationExceptions", default=True)
    properties.done()
    subscription.done()
    _check_names(subscription, "Rules", [rule.name for rule in rules])
    upkeep = ManagementSettings(dead_letter_on_filter_errors=on_errors)
    return SubscriptionEntity(name, receiving, rules or (DEFAULT_RULE,), upkeep)


def _read_ttl(properties: Reader) -> int | None:
    milliseconds = properties.duration("DefaultMessageTimeToLive", 1, None)
    return _DEFAULT_TTL_MS if milliseconds is None else milliseconds


def _read_receiving(properties: Reader) -> Receiving:
    requires_session = properties.boolean("RequiresSession")
    lock_ms = properties.duration("LockDuration", 1, 5 * MINUTE_MS)
    return Receiving(
        requires_session=requires_session,
        lock_ms=MINUTE_MS if lock_ms is None else lock_ms,
        max_delivery_count=properties.integer("MaxDeliveryCount", _DEFAULT_MAX_DELIVERY_COUNT, 1, 2000),
        default_ttl_ms=_read_ttl(properties),
        dead_letter_on_expiry=properties.boolean("DeadLetteringOnMessageExpiration"),
        forward_to=properties.string("ForwardTo") or None,
        forward_dead_letters_to=properties.string("ForwardDeadLetteredMessagesTo") or None,
    )


def _read_sending(properties: Reader) -> Sending:
    window_ms = properties.duration("DuplicateDetectionHistoryTimeWindow", 1, 7 * DAY_MS)
    detects = properties.boolean("RequiresDuplicateDetection")
    kilobytes = properties.integer("MaxMessageSizeInKilobytes", 0, 1024, 100 * 1024)
    return Sending(
        duplicates=DuplicateDetection(window_ms or _DEFAULT_WINDOW_MS) if detects else None,
        partitioned=properties.boolean("EnablePartitioning"),
        max_message_bytes=kilobytes * 1024 or None,
    )


def read_rule(rule: Reader) -> Rule:
    """Read one rule, and note what is wrong with it."""
    name = read_name(rule)
    properties = rule.child("Properties", required=True)
    kind = properties.string("FilterType", required=True)
    correlation, sql = properties.child("CorrelationFilter"), properties.child("SqlFilter")
    chosen: Filter | SqlExpression = TrueFilter()
    if kind.lower() == "correlation":
        chosen = _read_correlation(correlation)
    elif kind.lower() == "sql":
        chosen = _read_sql_filter(sql)
    elif kind:
        properties.wrong("FilterType", f"is '{kind}'; it must be 'Correlation' or 'Sql'")
    action = _read_action(properties.child("Action"))
    properties.done()
    rule.done()
    return Rule(name, chosen, action)


def _read_correlation(reader: Reader) -> CorrelationFilter:
    system = {
        property_: value for name, property_ in CORRELATION_PROPERTIES.items() if (value := reader.string(name))
    }
    user: Mapping[str, Any] = reader.mapping("Properties")
    if not system and not user:
        reader.wrong("", "must have at least one property to compare")
    reader.done()
    return CorrelationFilter(system, user)


def _read_sql_filter(reader: Reader) -> Filter | SqlExpression:
    text = reader.string("SqlExpression", required=True)
    reader.done()
    try:
        return parse_filter(text) if text else TrueFilter()
    except SqlError as error:
        reader.wrong("SqlExpression", f"is not a valid filter: {error}")
        return TrueFilter()


def _read_action(reader: Reader) -> SqlAction | None:
    text = reader.string("SqlExpression")
    reader.done()
    try:
        return parse_action(text) if text else None
    except SqlError as error:
        reader.wrong("SqlExpression", f"is not a valid action: {error}")
        return None


def read_name(reader: Reader) -> str:
    """Read the name of a rule or an entity, and note what is wrong with it."""
    name = reader.string("Name", required=True)
    if name and not _NAME.fullmatch(name) and name != DEFAULT_RULE.name:
        reader.wrong("Name", f"'{name}' may hold letters, digits and -_./ between letters or digits")
    return name
