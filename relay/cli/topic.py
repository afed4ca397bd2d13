"""Reads what `check` needs to know of Service Bus, with the rights that the caller has, and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
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
from azure.servicebus.management import SubscriptionProperties, TopicProperties

from relay.cli.topic_facts import ServiceBusFacts, SubscriptionFacts, TopicFacts
from relay.clients import (
    Connection,
    administration_connection,
    servicebus_administration_client,
    servicebus_client,
)
from relay.errors import first_line
from relay.findings import Gap, Why
from relay.servicebus.refusals import classify
from relay.settings import Settings
from relay.times import parse_duration

T = TypeVar("T")

# One request to one service, including the SDK's retries.
_TIMEOUT_S = 20.0

# What a request can fail with: errors of the service, of the network, and responses of another kind.
_FAILURES = (AzureError, ServiceBusError, OSError, ParseError, ValueError)


async def read_servicebus(settings: Settings, administration: str | None) -> ServiceBusFacts:
    """The topic and its subscriptions as the management endpoint describes them, and whether a link opens.

    Args:
        settings: The app's settings.
        administration: The address of the management endpoint, a URL or a connection string; None where
            `SERVICEBUS` has it.

    Raises:
        UsageError: `administration` is neither.
    """
    connection = administration_connection(settings.servicebus, administration)
    sending = await _request(lambda: _open_link(settings), _link_gap)
    topic = await _request(lambda: _read_topic(connection, settings.servicebus_topic), _administration_gap)
    if isinstance(topic, Gap):
        return ServiceBusFacts(topic, topic, sending)
    subscriptions = await _request(
        lambda: _read_subscriptions(connection, settings.servicebus_topic), _administration_gap
    )
    return ServiceBusFacts(topic, subscriptions, sending)


async def _read_topic(connection: Connection, name: str) -> TopicFacts:
    async with servicebus_administration_client(connection) as client:
        return topic_facts(await client.get_topic(name))


async def _read_subscriptions(connection: Connection, topic: str) -> list[SubscriptionFacts]:
    async with servicebus_administration_client(connection) as client:
        return [subscription_facts(properties) async for properties in client.list_subscriptions(topic)]


def topic_facts(properties: TopicProperties) -> TopicFacts:
    """The properties of a topic that `check` looks at."""
    return TopicFacts(
        status=_text(properties.status),
        duplicate_detection=properties.requires_duplicate_detection,
        window=_duration(properties.duplicate_detection_history_time_window),
        partitioned=properties.enable_partitioning,
        ttl=_duration(properties.default_message_time_to_live),
    )


def subscription_facts(properties: SubscriptionProperties) -> SubscriptionFacts:
    """The properties of a subscription that `check` looks at."""
    return SubscriptionFacts(
        name=properties.name,
        status=_text(properties.status),
        requires_session=properties.requires_session,
        dead_letters_expired=properties.dead_lettering_on_message_expiration,
        ttl=_duration(properties.default_message_time_to_live),
    )


def _text(value: Any) -> str | None:
    return None if value is None else str(getattr(value, "value", value))


def _duration(value: timedelta | str | None) -> timedelta | None:
    return parse_duration(value) if isinstance(value, str) else value


async def _open_link(settings: Settings) -> int:
    """Open a link to the topic, which requires the right to send, and send nothing."""
    async with (
        servicebus_client(settings.servicebus) as client,
        client.get_topic_sender(settings.servicebus_topic) as sender,
    ):
        return (await sender.create_message_batch()).max_size_in_bytes


async def _request(request: Callable[[], Awaitable[T]], gap_of: Callable[[Exception], Gap]) -> T | Gap:
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            return await request()
    except _FAILURES as error:
        return gap_of(error)


def _administration_gap(error: Exception) -> Gap:
    """A key without the Manage right gets 401 too, so 401 does not mean that the credentials are wrong."""
    if isinstance(error, ResourceNotFoundError):
        return Gap(Why.MISSING, first_line(error))
    status = error.status_code if isinstance(error, HttpResponseError) else None
    if status in (401, 403) or isinstance(error, ClientAuthenticationError):
        return Gap(Why.FORBIDDEN, first_line(error))
    return Gap(Why.UNREACHABLE, first_line(error))


def names_missing_entity(error: Exception) -> bool:
    """Whether Service Bus reports that the entity does not exist.

    It answers the client's put-token request with 404, which azure-servicebus (7.15.0) raises as an authentication
    error; the inner error has the status (azure-sdk-for-python issues 304 and 451).
    """
    inner = error.inner_exception if isinstance(error, ServiceBusError) else None
    return isinstance(error, MessagingEntityNotFoundError) or getattr(inner, "status_code", None) == 404


def _link_gap(error: Exception) -> Gap:
    said = str(classify(error))
    if names_missing_entity(error) or isinstance(error, MessagingEntityDisabledError):
        return Gap(Why.MISSING, said)
    if isinstance(error, ServiceBusAuthenticationError | ServiceBusAuthorizationError | ClientAuthenticationError):
        return Gap(Why.REFUSED, said)
    return Gap(Why.UNREACHABLE, said)
