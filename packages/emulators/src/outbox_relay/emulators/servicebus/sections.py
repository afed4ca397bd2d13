"""The sections of an encoded message (OASIS AMQP 1.0, part 3, section 3.2), and the messages of a batch."""

from __future__ import annotations

from typing import NamedTuple

from outbox_relay.emulators.servicebus import codec
from outbox_relay.emulators.servicebus.errors import DecodeFailed

HEADER = 0x70
DELIVERY_ANNOTATIONS = 0x71
MESSAGE_ANNOTATIONS = 0x72
PROPERTIES = 0x73
APPLICATION_PROPERTIES = 0x74
DATA = 0x75
FOOTER = 0x78

BATCH_FORMAT = 0x80013700
"""The message-format of a transfer whose data sections are messages (Service Bus AMQP protocol guide)."""


class Section(NamedTuple):
    """A section of an encoded message: its descriptor, where it starts, where its value is, where it ends."""

    code: int
    start: int
    value: int
    end: int


def sections(data: bytes) -> list[Section]:
    """Find the sections of an encoded message. Raises DecodeFailed when it is not one."""
    found = []
    at = 0
    length = len(data)
    try:
        while at < length:
            if data[at] != codec.DESCRIBED:
                raise DecodeFailed(f"A section was expected at byte {at} of the message.")
            if data[at + 1] == 0x53:
                code, value = data[at + 2], at + 3
            else:
                code, value = codec.decode(data, at + 1)
            end = codec.skip(data, value)
            found.append(Section(code, at, value, end))
            at = end
    except codec.DECODE_ERRORS as error:
        raise DecodeFailed(f"The message could not be decoded: {error}") from error
    return found


def split_batch(data: bytes) -> list[bytes]:
    """Return the encoded messages a batch transfer holds. Raises DecodeFailed when it is no batch."""
    messages = [codec.decode(data, section.value)[0] for section in sections(data) if section.code == DATA]
    if not messages:
        raise DecodeFailed("The batch holds no messages.")
    return messages


def encode_section(code: int, value: bytes) -> bytes:
    """Encode a section whose value is encoded already."""
    return bytes((codec.DESCRIBED, 0x53, code)) + value
