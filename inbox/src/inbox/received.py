"""Reads a message of the SDK: application properties come as bytes, the body in sections."""

from __future__ import annotations

from typing import Any

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpMessageBodyType

from inbox.errors import DeadLetter
from inbox.messages import Message


def read(received: ServiceBusReceivedMessage) -> Message:
    """Return the message that the SDK has received.

    Raises:
        DeadLetter: The body is not bytes but an AMQP value or sequence: `unreadable`.
    """
    if received.body_type is not AmqpMessageBodyType.DATA:
        raise DeadLetter("unreadable", f"The body is an AMQP {received.body_type.value}, not data.")
    properties = {_text(name): _text(value) for name, value in (received.application_properties or {}).items()}
    sequence = properties.get("sequence")
    return Message(
        id=received.message_id or "",
        key=received.session_id or "",
        body=b"".join(received.body),
        action=received.subject or "",
        sequence=sequence if isinstance(sequence, int) else None,
        created_at=_string(properties.get("createdAt")),
        traceparent=_string(properties.get("traceparent")),
        properties=properties,
        delivery_count=received.delivery_count or 0,
        sequence_number=received.sequence_number or 0,
        enqueued_at=received.enqueued_time_utc,
    )


def _text(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None
