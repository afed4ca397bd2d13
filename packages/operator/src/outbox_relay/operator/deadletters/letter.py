"""A dead letter: what is known of it, and the copy of it that is published again."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from outbox_relay.operator.deadletters import sections as amqp

NO_REASON = "(no reason)"
"""The reason of dead letters that have none, as it is shown and asked for."""

_REASON = "DeadLetterReason"
_DESCRIPTION = "DeadLetterErrorDescription"

# Everything else under this prefix is the broker's.
# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-protocol-guide#message-annotations
_BROKERS = "x-opt-"
_PARTITION_KEY = "x-opt-partition-key"

# The positions of fields in the sections that are lists.
_DELIVERY_COUNT = 4
_PROPERTIES = {
    "messageId": 0,
    "userId": 1,
    "to": 2,
    "subject": 3,
    "replyTo": 4,
    "correlationId": 5,
    "contentType": 6,
    "contentEncoding": 7,
    "absoluteExpiryTime": 8,
    "creationTime": 9,
    "sessionId": 10,
    "groupSequence": 11,
    "replyToSessionId": 12,
}


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message in the dead-letter queue of a subscription, without its body.

    Attributes:
        sequence_number: The broker's number in the subscription, which it keeps as a dead letter.
        order: Its number in the topic: the events of a partition key have rising ones, in every subscription.
        id: The message id, which is the event's id. Service Bus gives a message one that has none.
        partition_key: The session id; without one, the partition key.
        enqueued_at: When the topic accepted it. Nothing says when it was dead-lettered.
        bytes: Size of the message.
    """

    subscription: str
    sequence_number: int
    order: int
    id: str | None
    partition_key: str | None
    session_id: str | None
    reason: str | None
    description: str | None
    subject: str | None
    enqueued_at: datetime
    delivery_count: int
    bytes: int

    @property
    def name(self) -> str:
        """The name by which commands take it: subscription and sequence number."""
        return f"{self.subscription}/{self.sequence_number}"

    def data(self) -> dict[str, Any]:
        """Return the dead letter in the form that `--json` shows."""
        return {
            "name": self.name,
            "subscription": self.subscription,
            "sequenceNumber": self.sequence_number,
            "id": self.id,
            "partitionKey": self.partition_key,
            "reason": self.reason,
            "description": self.description,
            "subject": self.subject,
            "enqueuedAt": iso(self.enqueued_at),
            "deliveryCount": self.delivery_count,
            "bytes": self.bytes,
        }


def iso(moment: datetime) -> str:
    """Format a time in ISO 8601 in UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read(subscription: str, encoded: bytes) -> DeadLetter:
    """Read the dead letter that was received or peeked in this encoding.

    Raises:
        ValueError: It is no message of a broker.
    """
    found = {section.code: section for section in amqp.sections(encoded)}
    annotations = _map(encoded, found.get(amqp.ANNOTATIONS))
    stated = _map(encoded, found.get(amqp.APPLICATION_PROPERTIES))
    fields = _fields(encoded, found.get(amqp.PROPERTIES))
    header = _list(encoded, found.get(amqp.HEADER))
    number, enqueued_at = annotations.get("x-opt-sequence-number"), annotations.get("x-opt-enqueued-time")
    if not isinstance(number, int) or not isinstance(enqueued_at, datetime):
        raise ValueError("a message without sequence number and time")  # noqa: TRY004 - the text is wrong
    order, session = annotations.get("x-opt-enqueue-sequence-number"), amqp.as_text(fields.get("sessionId"))
    count = amqp.scalar(header[_DELIVERY_COUNT], 0) if len(header) > _DELIVERY_COUNT else 0
    return DeadLetter(
        subscription,
        number,
        order if isinstance(order, int) else number,
        amqp.as_text(fields.get("messageId")),
        amqp.as_text(annotations.get(_PARTITION_KEY)) if session is None else session,
        session,
        amqp.as_text(stated.get(_REASON)),
        amqp.as_text(stated.get(_DESCRIPTION)),
        amqp.as_text(fields.get("subject")),
        enqueued_at,
        count if isinstance(count, int) else 0,
        len(encoded),
    )


def copy_of(encoded: bytes) -> bytes:
    """Return the message that was dead-lettered, to be sent again: its properties and its body byte for byte.

    Left out are the header, whose time to live and delivery count are those of this delivery, the time at which
    the message expires, which may have passed, what the broker has annotated, and the reason and description that
    it has added to the application properties.
    """
    kept = []
    for section in amqp.sections(encoded):
        if section.code in (amqp.HEADER, amqp.DELIVERY_ANNOTATIONS):
            continue
        part = encoded[section.start : section.end]
        if section.code == amqp.ANNOTATIONS:
            part = _without(encoded, section, _is_the_brokers)
        elif section.code == amqp.PROPERTIES:
            part = _without_expiry(encoded, section)
        elif section.code == amqp.APPLICATION_PROPERTIES:
            part = _without(encoded, section, (_REASON, _DESCRIPTION).__contains__)
        kept.append(part)
    return b"".join(kept)


def described(encoded: bytes) -> dict[str, Any]:
    """Return the properties of a message in JSON's types."""
    found = {section.code: section for section in amqp.sections(encoded)}
    fields = _fields(encoded, found.get(amqp.PROPERTIES))
    stated = _map(encoded, found.get(amqp.APPLICATION_PROPERTIES))
    return {
        "properties": {name: _shown(value) for name, value in fields.items() if value is not None},
        "applicationProperties": {
            name: _shown(value) for name, value in stated.items() if name not in (_REASON, _DESCRIPTION)
        },
    }


def body(encoded: bytes) -> str:
    """Return the body as text, if it is data in UTF-8; otherwise in Base64.

    A body that is no data is shown encoded.
    """
    parts = [section for section in amqp.sections(encoded) if section.code >= amqp.DATA]
    if all(part.code == amqp.DATA for part in parts):
        whole = b"".join(_bytes(amqp.scalar(encoded, part.value)) for part in parts)
    else:
        whole = b"".join(encoded[part.start : part.end] for part in parts)
    try:
        return whole.decode()
    except UnicodeDecodeError:
        return _base64(whole)


def lock_of(encoded: bytes) -> bytes:
    """Return a message with the annotations of a delivery alone and an empty body.

    The SDK's decoder knows these annotations.
    """
    found = {section.code: section for section in amqp.sections(encoded)}
    annotations = amqp.pairs(encoded, found[amqp.ANNOTATIONS].value) if amqp.ANNOTATIONS in found else []
    known = ("x-opt-sequence-number", "x-opt-locked-until")
    kept = [(name, value) for name, value in annotations if amqp.text(name) in known]
    return amqp.map_section(amqp.ANNOTATIONS, kept) + bytes((0x00, 0x53, amqp.DATA, 0xA0, 0))


def _is_the_brokers(name: str) -> bool:
    return name.startswith(_BROKERS) and name != _PARTITION_KEY


def _without(encoded: bytes, section: amqp.Section, left_out: Any) -> bytes:
    """Return a section that is a map, without the names that are left out; nothing if no name is left."""
    content = amqp.pairs(encoded, section.value)
    kept = [(name, value) for name, value in content if not left_out(amqp.text(name) or "")]
    if len(kept) == len(content):
        return encoded[section.start : section.end]
    return amqp.map_section(section.code, kept) if kept else b""


def _without_expiry(encoded: bytes, section: amqp.Section) -> bytes:
    fields, expiry = amqp.elements(encoded, section.value), _PROPERTIES["absoluteExpiryTime"]
    if len(fields) <= expiry or fields[expiry] == amqp.NULL:
        return encoded[section.start : section.end]
    return amqp.list_section(section.code, [*fields[:expiry], amqp.NULL, *fields[expiry + 1 :]])


def _list(encoded: bytes, section: amqp.Section | None) -> list[bytes]:
    return [] if section is None else amqp.elements(encoded, section.value)


def _map(encoded: bytes, section: amqp.Section | None) -> dict[str, amqp.Scalar]:
    if section is None or encoded[section.value] == 0x40:
        return {}
    return {amqp.text(name) or "": amqp.scalar(value, 0) for name, value in amqp.pairs(encoded, section.value)}


def _fields(encoded: bytes, section: amqp.Section | None) -> dict[str, amqp.Scalar]:
    values = _list(encoded, section)
    return {name: amqp.scalar(values[at], 0) for name, at in _PROPERTIES.items() if at < len(values)}


def _bytes(value: amqp.Scalar) -> bytes:
    return value if isinstance(value, bytes) else b""


def _shown(value: amqp.Scalar) -> Any:
    if isinstance(value, bytes):
        return _base64(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _base64(value: bytes) -> str:
    return f"base64:{b64encode(value).decode()}"
