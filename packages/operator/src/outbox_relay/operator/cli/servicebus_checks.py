"""A topic with its subscriptions, or a queue: what `check` reads of it, and its findings against the guarantees.

They are read with the rights that the caller has, and nothing is changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar
from xml.etree.ElementTree import ParseError

from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceNotFoundError,
)
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
)
from azure.servicebus.management import QueueProperties, SubscriptionProperties, TopicProperties

from outbox_relay.operator.deadletters.receiving_entity import ReceivingEntity
from outbox_relay.operator.entity_status import set_active, status_finding
from relay.backends.findings import Finding, Gap, Level, Why
from relay.config.clients import (
    ManagementAddress,
    administration_connection,
    servicebus_administration_client,
    servicebus_client,
)
from relay.config.settings import SERVICEBUS, TOPIC, Settings
from relay.core.errors import DestinationSettings, OperationError, ServiceError, UsageError, first_line
from relay.core.times import format_duration, parse_duration
from relay.servicebus.refusals import amqp_condition, classify

T = TypeVar("T")

# One request to one service, including the SDK's retries.
_TIMEOUT_S = 20.0

# Errors of a request: of the service, of the network, and for responses of another kind.
_FAILURES = (AzureError, ServiceBusError, OSError, ParseError, ValueError)

# A link to a Standard topic takes 256 KB, one to a Premium topic 1 MB and more.
# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas
STANDARD_BYTES = 262_144


@dataclass(frozen=True, slots=True)
class ServiceBusFacts:
    """The facts of the management endpoint, and the largest batch in bytes that a link to the topic takes.

    A property that the service does not report is None. A queue has no subscriptions.
    """

    topic: TopicProperties | QueueProperties | Gap
    subscriptions: list[SubscriptionProperties] | Gap
    sending: int | Gap

    @property
    def largest_message(self) -> int | None:
        """Maximum bytes of a message; None if unknown, as on Premium, where a message may exceed a batch."""
        if isinstance(self.sending, Gap) or self.sending > STANDARD_BYTES:
            return None
        return self.sending

    @property
    def longest_life(self) -> timedelta | None:
        """For how long a message waits for a consumer, at most, before it expires; None if unknown."""
        if isinstance(self.topic, Gap) or isinstance(self.subscriptions, Gap):
            return None
        whole = _duration(self.topic.default_message_time_to_live)
        each = [_duration(one.default_message_time_to_live) for one in self.subscriptions]
        lives = [life for life in each if life is not None]
        if whole is None or len(lives) < len(each):
            return None
        return min(whole, max(lives, default=whole))


@dataclass(frozen=True, slots=True)
class Requirements:
    """Requirements on the topic or the queue.

    Attributes:
        min_window: The shortest acceptable duplicate detection window.
        min_ttl: The time to live of messages below which there is a warning.
    """

    min_window: timedelta = timedelta(minutes=10)
    min_ttl: timedelta = timedelta(days=1)


async def read_servicebus(settings: Settings, administration: ManagementAddress | None) -> ServiceBusFacts:
    """Read the topic and its subscriptions, or the queue, and try to open a link.

    The properties come from the management endpoint; `administration` is its address.

    Raises:
        UsageError: `administration`, the address of that endpoint, is neither a URL nor a connection string.
    """
    connection = administration_connection(settings.servicebus.connection, administration)
    name = settings.servicebus.entity

    async def read_topic() -> TopicProperties | QueueProperties:
        async with servicebus_administration_client(connection) as client:
            try:
                return await (client.get_queue(name) if settings.servicebus.is_queue else client.get_topic(name))
            except AttributeError as error:
                # The service answers with what has that name, in which azure-servicebus (7.15.0) finds nothing.
                raise _OtherKindError from error

    async def read_subscriptions() -> list[SubscriptionProperties]:
        async with servicebus_administration_client(connection) as client:
            return [each async for each in client.list_subscriptions(name)]

    sending = await _request(lambda: _open_link(settings), lambda error: _link_gap(error, settings))
    try:
        topic = await _request(read_topic, _administration_gap)
    except _OtherKindError:
        topic = Gap(Why.OTHER_KIND, f"{name!r} is no {settings.servicebus.kind}")
    if isinstance(topic, Gap):
        return ServiceBusFacts(topic, topic, sending)
    if settings.servicebus.is_queue:
        return ServiceBusFacts(topic, [], sending)
    return ServiceBusFacts(topic, await _request(read_subscriptions, _administration_gap), sending)


async def read_namespace(
    settings: Settings, administration: ManagementAddress | None
) -> tuple[str, datetime] | None:
    """Return the name that a namespace gives itself, and its time of creation; None if the rights do not show it.

    Raises:
        UsageError: The address of the administration endpoint is wrong.
    """
    connection = administration_connection(settings.servicebus.connection, administration)

    async def read() -> tuple[str, datetime] | None:
        async with servicebus_administration_client(connection) as client:
            found = await client.get_namespace_properties()
        return None if found.name is None or found.created_at_utc is None else (found.name, found.created_at_utc)

    answer = await _request(read, _administration_gap)
    return None if isinstance(answer, Gap) else answer


class _OtherKindError(Exception):
    """The name is that of another kind of entity: a queue, a topic or a subscription."""


async def _request(request: Callable[[], Awaitable[T]], gap_of: Callable[[Exception], Gap]) -> T | Gap:
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            return await request()
    except _FAILURES as error:
        return gap_of(error)


async def _open_link(settings: Settings) -> int:
    """Open a link to the topic, which requires the right to send, and send nothing."""
    async with (
        servicebus_client(settings.servicebus.connection) as client,
        client.get_topic_sender(settings.servicebus.entity) as sender,
    ):
        return (await sender.create_message_batch()).max_size_in_bytes


def _administration_gap(error: Exception) -> Gap:
    """Return the gap for an error.

    A key without the Manage right gets 401 too, so 401 may not mean wrong credentials.
    """
    if isinstance(error, ResourceNotFoundError):
        return Gap(Why.MISSING, first_line(error))
    status = error.status_code if isinstance(error, HttpResponseError) else None
    if status in (401, 403) or isinstance(error, ClientAuthenticationError):
        return Gap(Why.FORBIDDEN, first_line(error))
    return Gap(Why.UNREACHABLE, first_line(error))


def names_missing_entity(error: Exception) -> bool:
    """Return True if Service Bus reports that the entity does not exist.

    It answers the client's put-token request with 404, which azure-servicebus (7.15.0) raises as an authentication
    error; the inner error has the status (azure-sdk-for-python issues 304 and 451).
    """
    inner = error.inner_exception if isinstance(error, ServiceBusError) else None
    return isinstance(error, MessagingEntityNotFoundError) or getattr(inner, "status_code", None) == 404


def cannot_list(settings: Settings, gap: Gap) -> OperationError:
    """Return the error of a command that is given no subscription, and cannot list those of the topic."""
    if gap.why is Why.OTHER_KIND:
        return UsageError(f"{gap.said}: {other_kind(settings.servicebus.named_by)}")
    if gap.why is Why.MISSING:
        correct = f"Create it, or correct {settings.servicebus.entity_setting}."
        return UsageError(f"{settings.servicebus.destination} does not exist. {correct}")
    said = f"give --subscription NAME: the subscriptions of '{settings.servicebus.entity}' cannot be listed"
    if gap.why is Why.UNREACHABLE:
        return ServiceError(f"{said} ({gap.said})")
    return UsageError(f"{said} with these rights ({gap.said})")


def receiving_refused(error: Exception, settings: Settings, name_of_entity: str) -> OperationError:
    """Return the error of a command that may not, or cannot, receive from a subscription or a queue."""
    outlet = ReceivingEntity.of(settings, name_of_entity)
    name = str(outlet)
    if names_missing_entity(error):
        remedy = "Create it" if outlet.subscription is None else "Give an existing one"
        return UsageError(f"{name} does not exist. {remedy}, or correct {outlet.named_by.entity}.")
    if isinstance(error, MessagingEntityDisabledError):
        return UsageError(f"{name} is disabled for receiving. ", set_active(settings, outlet.subscription))
    if amqp_condition(error) == "amqp:not-allowed":
        return UsageError(
            f"{name} does not require sessions, so it delivers messages out of order. Sessions cannot be turned "
            f"on later: create another {'queue' if outlet.subscription is None else 'subscription'} with "
            "requiresSession."
        )
    if isinstance(error, ServiceBusAuthorizationError):
        where = "queue" if outlet.subscription is None else "subscription"
        return ServiceError(
            f"{name} may not be received from. The app's identity can only send: log in with an identity that has "
            f"the role 'Azure Service Bus Data Receiver' on the {where}, or use a key with the Listen right."
        )
    if isinstance(error, ServiceBusAuthenticationError | ClientAuthenticationError):
        return ServiceError(f"{name}: {classify(error).naming(outlet.named_by)}")
    return ServiceError(f"{name} cannot be received from: {classify(error).naming(outlet.named_by)}")


def other_kind(named_by: DestinationSettings) -> str:
    """Return the remedy where a queue has the name that a topic should have, or the reverse."""
    if named_by.entity == TOPIC:
        return f"set {TOPIC} to the name of a topic; a queue is named in relay.toml, as `queue` of a destination"
    other = "topic" if named_by.kind == "queue" else "queue"
    return f"write `{other}` instead of `{named_by.kind}` in {named_by.entity}, or correct that name"


def _link_gap(error: Exception, settings: Settings) -> Gap:
    said = str(classify(error).naming(settings.servicebus.named_by))
    if names_missing_entity(error) or isinstance(error, MessagingEntityDisabledError):
        return Gap(Why.MISSING, said)
    if isinstance(error, ServiceBusAuthenticationError | ServiceBusAuthorizationError | ClientAuthenticationError):
        return Gap(Why.REFUSED, said)
    return Gap(Why.UNREACHABLE, said)


def check_servicebus(facts: ServiceBusFacts, settings: Settings, required: Requirements) -> Iterator[Finding]:
    """Yield the findings about the link to the topic or queue, its properties, and the topic's subscriptions."""
    subject = _subject(settings)
    yield _sending(subject, facts.sending, settings.servicebus.setting)
    if isinstance(facts.topic, Gap):
        yield _unread(subject, facts.topic, settings, sendable=not isinstance(facts.sending, Gap))
        return
    yield _status(subject, facts.topic.status, Level.ERROR, set_active(settings))
    yield _duplicate_detection(subject, facts.topic, settings, required.min_window)
    yield _partitioning(subject, facts.topic.enable_partitioning, facts.sending)
    yield from _ttl(subject, facts.topic.default_message_time_to_live, required)
    if isinstance(facts.topic, QueueProperties):
        yield from _receiving(subject, facts.topic)
        yield Finding(Level.OK, f"{subject} has no subscriptions, as no queue has: each event has one consumer")
        return
    if isinstance(facts.subscriptions, Gap):
        yield _unread(f"the subscriptions of {subject}", facts.subscriptions, settings, sendable=False)
        return
    if not facts.subscriptions:
        yield Finding(
            Level.WARNING,
            f"{subject} has no subscription: Service Bus discards what is published",
            "Create a subscription that requires sessions for each consumer.",
        )
    for subscription in facts.subscriptions:
        yield from _subscription(subscription, settings, required)


def _subject(settings: Settings) -> str:
    if settings.servicebus.is_queue:
        return f"the queue '{settings.servicebus.entity}'"
    is_named = settings.label is None and settings.servicebus.entity_setting == TOPIC
    return f"{TOPIC if is_named else 'the topic'} '{settings.servicebus.entity}'"


def _sending(subject: str, sending: int | Gap, setting: str) -> Finding:
    if not isinstance(sending, Gap):
        return Finding(Level.OK, f"{subject} can be sent to, in batches of at most {sending} bytes")
    unreachable = sending.why is Why.UNREACHABLE
    return Finding(
        Level.ERROR,
        f"{subject} cannot be sent to: {sending.said}",
        f"Check {setting}, and the network between here and there." if unreachable else None,
        unavailable=unreachable or sending.why is Why.REFUSED,
    )


def _unread(subject: str, gap: Gap, settings: Settings, *, sendable: bool) -> Finding:
    unread = f"the properties of {subject} cannot be read"
    kind = settings.servicebus.kind
    admin = f"{settings.servicebus.setting}_ADMIN"
    if gap.why is Why.OTHER_KIND:
        remedy = other_kind(settings.servicebus.named_by)
        return Finding.error(f"{subject} is no {kind}", f"{remedy[0].upper()}{remedy[1:]}.")
    if gap.why is Why.MISSING and sendable:
        return Finding(
            Level.UNKNOWN,
            f"{unread}: the {kind} can be sent to, but the management endpoint does not have it",
            f"Set {_option(settings)}{admin} to the management endpoint of this namespace.",
        )
    if gap.why is Why.MISSING:
        remedy = f"Create the {kind}, or correct {settings.servicebus.entity_setting}."
        return Finding(Level.ERROR, f"{subject} does not exist", remedy)
    if gap.why is Why.FORBIDDEN:
        return Finding(
            Level.UNKNOWN,
            f"{unread} with these rights: {gap.said}",
            "Run check with a connection string that has the Manage right, or with an identity that has the role "
            "'Azure Service Bus Data Owner'. The app itself needs neither.",
        )
    return Finding(
        Level.UNKNOWN,
        f"{unread}: no management endpoint answers: {gap.said}",
        f"Set {_option(settings)}{admin}, to the address of the management endpoint.",
    )


def _option(settings: Settings) -> str:
    """Return the option of `check` that goes before the variable which it overrides.

    The option is about one namespace.
    """
    return "--servicebus-admin, or " if settings.servicebus.setting == SERVICEBUS else ""


def _not_reported(subject: str, question: str) -> Finding:
    return Finding(
        Level.UNKNOWN,
        f"{subject}: the management endpoint does not report {question}",
        "Look it up in the Azure portal.",
    )


def _status(subject: str, status: Any, otherwise: Level, remedy: str) -> Finding:
    if status is None:
        return _not_reported(subject, "its status")
    return status_finding(subject, status, otherwise, remedy)


def _duration(value: timedelta | str | None) -> timedelta | None:
    if isinstance(value, str):
        with suppress(ValueError):
            return parse_duration(value)
        return None
    return value


def _duplicate_detection(
    subject: str, topic: TopicProperties | QueueProperties, settings: Settings, minimum: timedelta
) -> Finding:
    if topic.requires_duplicate_detection is None:
        return _not_reported(subject, "whether it detects duplicates")
    if not topic.requires_duplicate_detection:
        return Finding(
            Level.ERROR,
            f"{subject} does not detect duplicates: an event that is sent again is delivered again",
            f"Create another {settings.servicebus.kind} with duplicate detection. It cannot be turned on later.",
        )
    window = _duration(topic.duplicate_detection_history_time_window)
    if window is None:
        return _not_reported(subject, "its duplicate detection window")
    detects = f"{subject} detects duplicates within {format_duration(window)}"
    configured = timedelta(seconds=settings.servicebus.duplicate_window_s)
    if window < minimum:
        return Finding(
            Level.ERROR,
            f"{detects} only, not within {format_duration(minimum)}",
            f"Set its duplicate detection history time window to at least {format_duration(minimum)}: longer than "
            "any outage during which the app is restarted.",
        )
    if window < configured:
        own = " or, in relay.toml, duplicate_window_s of this destination" if settings.label is not None else ""
        return Finding(
            Level.ERROR,
            f"{detects}, but RELAY_DUPLICATE_WINDOW_S{own} is "
            f"{format_duration(configured)}: old events may be delivered twice",
            f"Set RELAY_DUPLICATE_WINDOW_S{own} to {window.total_seconds():g}.",
        )
    return Finding(Level.OK, detects)


def duplicate_window(facts: ServiceBusFacts, settings: Settings) -> timedelta | None:
    """Return the topic's duplicate detection window, or None without one.

    RELAY_DUPLICATE_WINDOW_S if it cannot be read.
    """
    if not isinstance(facts.topic, Gap):
        if facts.topic.requires_duplicate_detection is False:
            return None
        if (window := _duration(facts.topic.duplicate_detection_history_time_window)) is not None:
            return window
    return timedelta(seconds=settings.servicebus.duplicate_window_s)


def _partitioning(subject: str, partitioned: bool | None, largest_batch: int | Gap) -> Finding:
    """Return the finding about partitioning.

    The first copy of each event arrives in order either way; ids need more care without it.

    The first copy of each event arrives in order either way; ids need more care without it.

    A topic of the Premium tier is partitioned only where its namespace is, so there this is no warning.
    https://learn.microsoft.com/azure/service-bus-messaging/service-bus-partitioning
    """
    if partitioned is None:
        return _not_reported(subject, "whether it is partitioned")
    if partitioned:
        return Finding(Level.OK, f"{subject} is partitioned: ids must be unique only within a partition key")
    what = (
        f"{subject} is not partitioned, so duplicates are detected by message id alone: of two events with the "
        "same id under two partition keys, the second is dropped"
    )
    if not isinstance(largest_batch, Gap) and largest_batch > STANDARD_BYTES:
        return Finding(Level.OK, f"{what}; ids must be unique across partition keys, as UUIDs are")
    return Finding(
        Level.WARNING,
        what,
        "Make sure that ids are unique across partition keys (UUIDs are), or create a partitioned topic.",
    )


def _ttl(subject: str, reported: timedelta | str | None, required: Requirements) -> Iterator[Finding]:
    ttl = _duration(reported)
    if ttl is not None and ttl < required.min_ttl:
        yield Finding(
            Level.WARNING,
            f"{subject} keeps messages for {format_duration(ttl)}: a consumer that is down for longer misses them",
            f"Set its default message time to live to at least {format_duration(required.min_ttl)}.",
        )


def _subscription(
    subscription: SubscriptionProperties, settings: Settings, required: Requirements
) -> Iterator[Finding]:
    subject = f"subscription '{subscription.name}'"
    yield _status(subject, subscription.status, Level.WARNING, set_active(settings, subscription.name))
    yield from _receiving(subject, subscription)
    yield from _ttl(subject, subscription.default_message_time_to_live, required)


def _receiving(subject: str, entity: SubscriptionProperties | QueueProperties) -> Iterator[Finding]:
    """Yield the findings about the properties of a subscription or a queue on which consumers depend."""
    yield _switch(
        subject,
        entity.requires_session,
        "whether it requires sessions",
        "requires sessions",
        "does not require sessions: its consumers receive events out of order",
        "Delete it and create it again with sessions. They cannot be turned on later.",
    )
    yield _switch(
        subject,
        entity.dead_lettering_on_message_expiration,
        "whether it dead-letters expired messages",
        "dead-letters expired messages",
        "drops expired messages: events that a consumer is too late for are lost without a trace",
        "Turn on dead-lettering on message expiration.",
    )


def _switch(subject: str, state: bool | None, question: str, on: str, off: str, remedy: str) -> Finding:
    if state is None:
        return _not_reported(subject, question)
    return Finding(Level.OK, f"{subject} {on}") if state else Finding(Level.ERROR, f"{subject} {off}", remedy)
