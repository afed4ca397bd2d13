"""Reads messages of the SDK, those that it cannot decode included: properties, bodies, places in a queue."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any, NamedTuple
from uuid import UUID

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus._common import mgmt_handlers
from azure.servicebus._common.constants import (
    MGMT_REQUEST_FROM_SEQUENCE_NUMBER,
    MGMT_REQUEST_MAX_MESSAGE_COUNT,
    REQUEST_RESPONSE_PEEK_OPERATION,
)
from azure.servicebus._pyamqp._decode import decode_payload
from azure.servicebus.aio import ServiceBusReceiver
from azure.servicebus.amqp import AmqpMessageBodyType

from outbox_relay.inbox.errors import DeadLetter
from outbox_relay.inbox.messages import Message
from outbox_relay.inbox.parking import ParkedMessage

_MARK = b"inbox:undecodable"
# A section `amqp-value` that holds a string.
_REPLACEMENT = b"\x00\x53\x77\xa1" + bytes((len(_MARK),)) + _MARK
# Positions in the list of a transfer frame.
_MORE, _PAYLOAD = 5, 11

# The sections of a message before its application properties, and the sizes of a section's length.
# http://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-messaging-v1.0-os.html, part 3.2
_HEAD = (0x70, 0x71, 0x72, 0x73)
_SIZES = {0xC0: 1, 0xC1: 1, 0xD0: 4, 0xD1: 4}
_EMPTY_LIST = 0x45

_log = logging.getLogger(__name__)


def is_undecodable(received: ServiceBusReceivedMessage) -> bool:
    """Return True if this is the replacement for a message that could not be decoded."""
    return received.body_type is AmqpMessageBodyType.VALUE and received.body in (_MARK, _MARK.decode())


def head(encoded: bytes) -> bytes:
    """Return the header, annotations and properties of an encoded message, as far as the SDK can decode them."""
    kept, at = b"", 0
    while len(encoded) - at > 4 and encoded[at : at + 2] == b"\x00\x53" and encoded[at + 2] in _HEAD:
        size = _SIZES.get(encoded[at + 3])
        if size is None and encoded[at + 3] != _EMPTY_LIST:
            break
        end = at + 4
        if size is not None:
            end += size + int.from_bytes(encoded[end : end + size], "big")
        section, at = encoded[at:end], end
        try:
            decode_payload(memoryview(section))
        except Exception:  # noqa: BLE001 - the SDK passes on any error of its decoder
            continue
        kept += section
    return kept


def replace_undecodable(receiver: ServiceBusReceiver) -> None:
    """Make a receiver, which must not be open yet, replace messages that it cannot decode.

    The SDK has no hook for this, so private methods of this receiver are wrapped. If a version of the SDK moves
    them, a message that cannot be decoded ends its session again.
    """
    inner: Any = receiver
    create = inner._create_handler

    def create_handler(auth: Any) -> None:
        create(auth)
        client = inner._handler
        ready = client._client_ready_async

        async def client_ready() -> bool:
            # The first call creates the link and sends its attach; nothing is read before the second.
            is_ready: bool = await ready()
            if client._link is not None and not hasattr(client._link, "_decodes"):
                client._link._decodes = client._link._incoming_transfer
                client._link._incoming_transfer = _Transfers(client._link).take
            return is_ready

        client._client_ready_async = client_ready

    inner._create_handler = create_handler


class _Transfers:
    """The transfer frames of a link of the SDK."""

    def __init__(self, link: Any) -> None:
        self._link = link

    async def take(self, frame: list[Any]) -> None:
        link = self._link
        count, credit = link.delivery_count, link.current_link_credit
        try:
            await link._decodes(frame)
        except Exception as error:
            if frame[_MORE]:
                raise
            _log.info("A message could not be decoded: %s", type(error).__name__)
            link.delivery_count, link.current_link_credit = count, credit
            # Of several frames, the SDK has joined the payloads.
            encoded = bytes(link._received_payload or frame[_PAYLOAD])
            link._received_payload = bytearray()
            await link._decodes([*frame[:_PAYLOAD], memoryview(head(encoded) + _REPLACEMENT)])


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


_PAGE = 100
_SEQUENCE_NUMBER = b"x-opt-sequence-number"


class Place(NamedTuple):
    """A message in a queue: its number there, and its key."""

    sequence_number: int
    key: str


async def places(receiver: ServiceBusReceiver) -> AsyncIterator[Place]:
    """Yield the messages of a receiver's queue, including those that are locked.

    May raise any error of the SDK.
    """
    number = 1
    while page := await _page(receiver, number):
        for each in page:
            number = max(number, each.sequence_number + 1)
            yield each


async def _page(receiver: ServiceBusReceiver, number: int) -> list[Place]:
    # The public method decodes the messages.
    inner: Any = receiver
    request = {
        MGMT_REQUEST_FROM_SEQUENCE_NUMBER: inner._amqp_transport.AMQP_LONG_VALUE(number),
        MGMT_REQUEST_MAX_MESSAGE_COUNT: _PAGE,
    }
    check: Any = mgmt_handlers.default

    def read(status_code: int, message: Any, description: Any, amqp_transport: Any) -> list[Place]:
        if status_code in (202, 204):  # none left
            return []
        value = check(status_code, message, description, amqp_transport)
        found = [_place(bytes(each[b"message"])) for each in value[b"messages"]]
        return [place for place in found if place is not None]

    page: list[Place] = await inner._mgmt_request_response_with_retry(
        REQUEST_RESPONSE_PEEK_OPERATION, request, read
    )
    return page


def _place(encoded: bytes) -> Place | None:
    """Return the place of an encoded message, or None if not even its annotations can be decoded."""
    message = decode_payload(memoryview(head(encoded)))
    number = (message.message_annotations or {}).get(_SEQUENCE_NUMBER)
    group = message.properties.group_id if message.properties is not None else None
    key = group.decode(errors="replace") if isinstance(group, bytes) else str(group or "")
    return Place(number, key) if isinstance(number, int) else None
