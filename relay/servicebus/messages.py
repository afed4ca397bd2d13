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
|                        | where it has one as an integer                                    |

With the format `cloudevents` the attributes of CloudEvents 1.0 stand beside these, in AMQP binary mode.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from azure.servicebus.amqp import AmqpAnnotatedMessage

from relay import jsontext
from relay.events import Event

Encoder = Callable[[Event], AmqpAnnotatedMessage]

CONTENT_TYPE = "application/json"

# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-protocol-guide#message-annotations
_PARTITION_KEY = "x-opt-partition-key"


def plain(event: Event) -> AmqpAnnotatedMessage:
    """The message of `event` by the contract above."""
    return _message(event, _properties(event))


def cloudevents(source: str) -> Encoder:
    """An encoder that adds the CloudEvents 1.0 attributes to the contract above.

    Args:
        source: The `source` attribute: a URI-reference that names the outbox, the same for all its events.

    The attribute names are prefixed `cloudEvents:` as the AMQP binding has it
    (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/amqp-protocol-binding.md, 3.1.3.1).
    `time` is left out where `createdAt` is no RFC 3339 timestamp, as the specification requires.
    """

    def encode(event: Event) -> AmqpAnnotatedMessage:
        properties = _properties(event)
        properties["cloudEvents:specversion"] = "1.0"
        properties["cloudEvents:id"] = event.id
        properties["cloudEvents:source"] = source
        properties["cloudEvents:type"] = event.action
        properties["cloudEvents:partitionkey"] = event.partition_key
        created_at = event.data.get("createdAt")
        if isinstance(created_at, str) and _is_rfc3339(created_at):
            properties["cloudEvents:time"] = created_at
        if "traceparent" in properties:
            properties["cloudEvents:traceparent"] = properties["traceparent"]
        return _message(event, properties)

    return encode


def encoder(cloudevents_source: str | None) -> Encoder:
    """The encoder for the settings: CloudEvents where a source is given, else the plain contract."""
    return plain if cloudevents_source is None else cloudevents(cloudevents_source)


def with_original_id(encode: Encoder) -> Encoder:
    """An encoder for events sent under a new id: the application property `originalId` is the document's."""

    def encode_with_original_id(event: Event) -> AmqpAnnotatedMessage:
        message = encode(event)
        properties = dict(message.application_properties or {})
        properties["originalId"] = event.document["id"]
        message.application_properties = properties
        return message

    return encode_with_original_id


def _message(event: Event, properties: dict[str, Any]) -> AmqpAnnotatedMessage:
    # A ServiceBusMessage is made of this, and its constructor takes a quarter of what a batched event costs
    # (docs/decisions/0004-messages-as-amqp.md). The SDK checks no lengths here: Event has.
    return AmqpAnnotatedMessage(
        data_body=jsontext.encode(event.data) if event.body is None else event.body,
        properties={
            "message_id": event.id,
            "group_id": event.partition_key,
            "subject": event.action,
            "content_type": CONTENT_TYPE,
        },
        annotations={_PARTITION_KEY: event.partition_key},
        application_properties=properties,
    )


def _properties(event: Event) -> dict[str, Any]:
    properties: dict[str, Any] = {"type": event.type}
    # Only Cosmos DB gives a document a time of its own.
    if event.committed_at is not None and "_ts" in event.document:
        _put_integer(event.committed_at, "cosmosTimestamp", properties)
    created_at = event.data.get("createdAt")
    if isinstance(created_at, str):
        properties["createdAt"] = created_at
    if event.traceparent is not None:
        properties["traceparent"] = event.traceparent
    if event.sequence is not None:
        _put_integer(event.sequence, "sequence", properties)
    return properties


def _put_integer(value: int, name: str, properties: dict[str, Any]) -> None:
    """One of 32 bits as the SDK encodes it, one of 64 bits as an AMQP long; a larger one is left out."""
    if -(2**31) <= value < 2**31:
        properties[name] = value
    elif -(2**63) <= value < 2**63:
        # Left to itself, the SDK (7.15.0) encodes every int in 32 bits and raises ValueError beyond: from
        # 19 January 2038 on, that would be every event. This mapping names the type for its encoder.
        properties[name] = {"TYPE": "LONG", "VALUE": value}


def _is_rfc3339(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None and text[10:11] in ("T", "t")
    except ValueError:
        return False
