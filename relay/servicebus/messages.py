"""The message contract: what of a domain event goes where in a Service Bus message.

| Service Bus property   | value                                                             |
|------------------------|-------------------------------------------------------------------|
| body                   | `data` as compact UTF-8 JSON                                      |
| message_id             | the document's id                                                 |
| session_id             | the document's partitionKey (in AMQP, the group-id)               |
| partition_key          | the document's partitionKey (must equal the session id; in AMQP,  |
|                        | the annotation x-opt-partition-key)                               |
| subject                | `data.action`                                                     |
| content_type           | `application/json`                                                |
| application_properties | `type`, `cosmosTimestamp` (`_ts`, whole seconds), `createdAt` and |
|                        | `traceparent` where the document has them as strings, `sequence`  |
|                        | if it has one as an integer of 64 bits. Integers are AMQP longs   |

With the format `cloudevents` the attributes of CloudEvents 1.0 are added to these, in AMQP binary mode. What
relay.toml takes from other fields of an event (relay/routes/mapping.py) comes in addition, or instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from relay.core import jsontext
from relay.core.events import Event
from relay.core.times import parse_rfc3339
from relay.routes.mapping import PLAIN, Fields, Long, Value

CONTENT_TYPE = "application/json"


class Further(NamedTuple):
    """The members of a message beside the contract.

    Attributes:
        correlation_id, reply_to: None for none.
        time_to_live_ms: None for that of the topic.
        scheduled_ms: When it becomes available, in milliseconds since 1970; None for at once.
    """

    correlation_id: str | None = None
    reply_to: str | None = None
    time_to_live_ms: int | None = None
    scheduled_ms: int | None = None


class Message(NamedTuple):
    """A Service Bus message by the contract above."""

    id: str
    partition_key: str
    subject: str
    body: bytes
    application_properties: dict[str, Value]
    further: Further | None = None


Contract = Callable[[Event], Message]


def plain(event: Event) -> Message:
    """Return the message of `event` by the contract above."""
    return _message(event, _properties(event))


def cloudevents(source: str) -> Contract:
    """Return a contract that adds the CloudEvents 1.0 attributes to the one above.

    Args:
        source: The `source` attribute: a URI-reference that names the outbox, the same for all its events.

    The attribute names are prefixed `cloudEvents:` as the AMQP binding has it
    (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/amqp-protocol-binding.md, 3.1.3.1).
    `time` is left out if `createdAt` is no RFC 3339 timestamp, as the specification requires.
    """

    def message(event: Event) -> Message:
        properties = _properties(event)
        properties["cloudEvents:specversion"] = "1.0"
        properties["cloudEvents:id"] = event.id
        properties["cloudEvents:source"] = source
        properties["cloudEvents:type"] = event.action
        properties["cloudEvents:partitionkey"] = event.partition_key
        created_at = properties.get("createdAt")
        if isinstance(created_at, str) and _is_rfc3339(created_at):
            properties["cloudEvents:time"] = created_at
        if "traceparent" in properties:
            properties["cloudEvents:traceparent"] = properties["traceparent"]
        return _message(event, properties)

    return message


def contract(cloudevents_source: str | None, fields: Fields = PLAIN, *, any_fields: bool = False) -> Contract:
    """The contract for the settings: CloudEvents if a source is given, else the plain one.

    `fields` are those of the outbox, whose documents may be mapped ones. With `any_fields`, earlier rules may map
    some of them.
    """
    message_of = plain if cloudevents_source is None else cloudevents(cloudevents_source)
    return _with_mapped(message_of) if fields.is_mapped or any_fields else message_of


def _with_mapped(message_of: Contract) -> Contract:
    """Return a contract for events with properties and the like beside their data."""

    def message(event: Event) -> Message:
        made, mapped = message_of(event), event.document.mapped
        if mapped is None:
            return made
        named = mapped.message
        names = ("correlation_id", "reply_to", "time_to_live", "scheduled_enqueue_time")
        further = Further(*(named.get(name) for name in names))
        return made._replace(
            subject=named.get("subject", made.subject),
            application_properties={**made.application_properties, **mapped.properties},
            further=None if further == Further() else further,
        )

    return message


def with_original_id(message_of: Contract) -> Contract:
    """Return a contract for events sent under a new id.

    The application property `originalId` is the document's.
    """

    def message(event: Event) -> Message:
        made = message_of(event)
        return made._replace(
            application_properties={**made.application_properties, "originalId": event.document.fields["id"]}
        )

    return message


def _message(event: Event, properties: dict[str, Value]) -> Message:
    # The lengths are not checked here: Event has.
    body = jsontext.encode(event.data) if event.body is None else event.body
    return Message(event.id, event.partition_key, event.action, body, properties)


def _properties(event: Event) -> dict[str, Value]:
    properties: dict[str, Value] = {"type": event.type}
    document = event.document
    # Only Cosmos DB gives a document its own time.
    if document.placed is None and event.committed_at is not None and "_ts" in document.stored:
        _put_integer(event.committed_at, "cosmosTimestamp", properties)
    mapped = document.mapped
    created_at = event.data.get("createdAt") if mapped is None else mapped.created_at
    if isinstance(created_at, str):
        properties["createdAt"] = created_at
    if event.traceparent is not None:
        properties["traceparent"] = event.traceparent
    if event.sequence is not None:
        _put_integer(event.sequence, "sequence", properties)
    return properties


def _put_integer(value: int, name: str, properties: dict[str, Value]) -> None:
    """Put `value` as a long, unless it has more than 64 bits: AMQP has no type for it then."""
    if -(2**63) <= value < 2**63:
        properties[name] = Long(value)


def _is_rfc3339(text: str) -> bool:
    try:
        parse_rfc3339(text)
    except (ValueError, OverflowError):
        return False
    return True
