"""Reads a message of the SDK: application properties come as bytes, the body in sections."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpMessageBodyType

from inbox.errors import DeadLetter
from inbox.messages import Message
from inbox.parked import ParkedMessage
from inbox.undecodable import is_undecodable


def read(received: ServiceBusReceivedMessage, topic: str, subscription: str = "") -> Message:
    """Return the message that the SDK has received from `topic`, a queue if there is no `subscription`.

    Raises:
        DeadLetter: A handler cannot read it: `unreadable`. Its body is an AMQP value or sequence, its id or key is
            not text, or it is not AMQP.
    """
    try:
        return _read(received, topic, subscription)
    except DeadLetter:
        raise
    except Exception as error:
        # The SDK (7.15.0) decodes lazily, and passes on any error of its decoder.
        raise DeadLetter("unreadable", f"The message cannot be decoded ({type(error).__name__}).") from error


def _read(received: ServiceBusReceivedMessage, topic: str, subscription: str) -> Message:
    if is_undecodable(received):
        raise DeadLetter("unreadable", "The message contains AMQP that cannot be decoded.")
    if received.body_type is not AmqpMessageBodyType.DATA:
        raise DeadLetter("unreadable", f"The body is an AMQP {received.body_type.value}, not data.")
    found: dict[Any, Any] = received.application_properties or {}
    properties = {_text(name, "name of a property"): _decoded(value) for name, value in found.items()}
    sequence = properties.get("sequence")
    return Message(
        id=_text(received.message_id, "message id"),
        key=_text(received.session_id, "session id"),
        body=b"".join(received.body),
        action=_text(received.subject, "subject"),
        sequence=sequence if type(sequence) is int else None,
        created_at=_string(properties.get("createdAt")),
        traceparent=_string(properties.get("traceparent")),
        properties=properties,
        delivery_count=received.delivery_count or 0,
        sequence_number=received.sequence_number or 0,
        enqueued_at=received.enqueued_time_utc,
        topic=topic,
        subscription=subscription,
    )


def place_of(received: ServiceBusReceivedMessage, topic: str, subscription: str = "") -> ParkedMessage | None:
    """Return the place of a message that `read` refuses, or None if it has no key that is text."""
    key, identifier = _decoded(received.session_id), _decoded(received.message_id)
    if not isinstance(key, str):
        return None
    known = str(identifier) if isinstance(identifier, str | UUID) else ""
    return ParkedMessage(
        topic,
        key,
        known,
        received.sequence_number or 0,
        None,
        subscription=subscription,
        enqueued_at=received.enqueued_time_utc,
    )


def _text(value: Any, what: str) -> str:
    """Return text; "" for None. AMQP allows a UUID as a message id; it has one notation."""
    value = _decoded(value)
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, UUID):
        return str(value)
    raise DeadLetter("unreadable", f"The {what} is not text.")


def _decoded(value: Any) -> Any:
    """Decode a value that may be bytes: the SDK does not decode strings, nor distinguish them from bytes."""
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return value


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None
