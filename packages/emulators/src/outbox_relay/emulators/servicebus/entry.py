"""A message in a queue or subscription, with its state there, and its dead letter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from random import Random
from uuid import UUID

from outbox_relay.emulators.servicebus import codec
from outbox_relay.emulators.servicebus.message import Message
from outbox_relay.emulators.servicebus.sections import DELIVERY_ANNOTATIONS, encode_section

_TOKENS = Random()

DEAD_LETTER_SUFFIX = "/$DeadLetterQueue"
TRANSFER_SUFFIX = "/$Transfer" + DEAD_LETTER_SUFFIX
REASON = "DeadLetterReason"
DESCRIPTION = "DeadLetterErrorDescription"


class State(IntEnum):
    """The annotation x-opt-message-state (azure-servicebus, ServiceBusMessageState)."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


@dataclass(slots=True, eq=False)
class Lock:
    """A peek-lock on one message, until a moment in milliseconds since the epoch.

    The token is a .NET GUID as the 16 bytes of the delivery tag ("AMQP 1.0 protocol guide", learn.microsoft.com).
    """

    token: bytes
    until_ms: int

    @classmethod
    def new(cls, until_ms: int) -> Lock:
        return cls(_TOKENS.randbytes(16), until_ms)


@dataclass(slots=True, eq=False)
class Entry:
    """A message in one queue. Times are milliseconds since the Unix epoch, durations milliseconds.

    `order` is its place in the queue, regardless of its partition.
    """

    message: Message
    sequence_number: int
    enqueued_sequence_number: int
    enqueued_ms: int
    ttl_ms: int | None = None
    expires_ms: int | None = None
    state: State = State.ACTIVE
    delivery_count: int = 0
    lock: Lock | None = None
    dead_letter_source: str | None = None
    waiting: bool = False
    size: int = 0
    order: int = 0

    def delivered(self, lock: Lock) -> bytes:
        """Encode the message for delivery under a lock.

        The token is among the delivery annotations, too (azure-servicebus, message.py and its live test
        test_queue_by_queue_client_conn_str_receive_handler_peeklock).
        """
        return self.encode(lock.until_ms, delivery_annotations=_LOCK_TOKEN + _as_uuid(lock.token))

    def beginning(self, most: int) -> bytes:
        """Encode the message for delivery, with no more than this many bytes of its body."""
        return replace(self, message=self.message.with_body_of(most)).encode()

    def encode(
        self, locked_until_ms: int | None = None, *, omit_body: bool = False, delivery_annotations: bytes = b""
    ) -> bytes:
        """Encode the message for delivery, with the broker's annotations."""
        message = self.message.without_body() if omit_body else self.message
        annotations = [
            _SEQUENCE_NUMBER + codec.encode_long(self.sequence_number),
            _ENQUEUED_SEQUENCE_NUMBER + codec.encode_long(self.enqueued_sequence_number),
            _ENQUEUED_TIME + codec.encode_timestamp(self.enqueued_ms),
            _MESSAGE_STATE + codec.encode_int(self.state),
        ]
        if locked_until_ms is not None:
            annotations.append(_LOCKED_UNTIL + codec.encode_timestamp(locked_until_ms))
        if self.dead_letter_source is not None:
            annotations.append(_DEAD_LETTER_SOURCE + codec.encode_string(self.dead_letter_source))
        return message.encode(self.delivery_count, self.ttl_ms, annotations, delivery_annotations)


def _as_uuid(token: bytes) -> bytes:
    """Return the bytes of a GUID in the order of AMQP, which has those of its first three fields reversed."""
    return token[3::-1] + token[5:3:-1] + token[7:5:-1] + token[8:]


def _up_to_the_token() -> bytes:
    """Return everything of the delivery annotations but the 16 bytes of the token at their end."""
    pair = codec.encode_symbol("x-opt-lock-token") + codec.encode_value(UUID(int=0))
    return encode_section(DELIVERY_ANNOTATIONS, codec.encode_map(1, pair))[:-16]


_LOCK_TOKEN = _up_to_the_token()
_SEQUENCE_NUMBER = codec.encode_symbol("x-opt-sequence-number")
_ENQUEUED_SEQUENCE_NUMBER = codec.encode_symbol("x-opt-enqueue-sequence-number")
_ENQUEUED_TIME = codec.encode_symbol("x-opt-enqueued-time")
_LOCKED_UNTIL = codec.encode_symbol("x-opt-locked-until")
_MESSAGE_STATE = codec.encode_symbol("x-opt-message-state")
_DEAD_LETTER_SOURCE = codec.encode_symbol("x-opt-deadletter-source")


def dead_letter(entry: Entry, reason: str | None, description: str | None) -> Entry:
    """Return the dead letter of a message; it keeps its sequence number and its age."""
    changes = {REASON: reason, DESCRIPTION: description}
    return Entry(
        entry.message.with_application_properties({k: v for k, v in changes.items() if v is not None}),
        entry.sequence_number,
        entry.enqueued_sequence_number,
        entry.enqueued_ms,
        order=entry.order,
        ttl_ms=entry.ttl_ms,
        delivery_count=entry.delivery_count,
        dead_letter_source=entry.dead_letter_source,
    )
