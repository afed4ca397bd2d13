"""A message as it was sent: what the broker reads of it, and the bytes it delivers untouched.

Only the header and the annotations are the broker's to rewrite on delivery (OASIS AMQP 1.0, part 3,
section 3.2). The rest, from the properties on, is kept and delivered as the sender encoded it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from uuid import UUID, uuid4

from outbox_relay.emulators.servicebus import codec
from outbox_relay.emulators.servicebus.errors import ArgumentInvalid
from outbox_relay.emulators.servicebus.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    encode_section,
    sections,
)

MAX_PROPERTY_BYTES = 32 * 1024
"""One property of a message ("Service Bus quotas", learn.microsoft.com)."""
UNLIMITED_TTL_MS = 0xFFFFFFFF
"""The longest time to live that the header can say."""


class Property(IntEnum):
    """The position of a field in the properties section."""

    MESSAGE_ID = 0
    USER_ID = 1
    TO = 2
    SUBJECT = 3
    REPLY_TO = 4
    CORRELATION_ID = 5
    CONTENT_TYPE = 6
    CONTENT_ENCODING = 7
    ABSOLUTE_EXPIRY_TIME = 8
    CREATION_TIME = 9
    GROUP_ID = 10
    GROUP_SEQUENCE = 11
    REPLY_TO_GROUP_ID = 12


_SYMBOLS = (Property.CONTENT_TYPE, Property.CONTENT_ENCODING)


@dataclass(frozen=True, slots=True)
class Trail:
    """Where a forwarded message comes from.

    Attributes:
        hops: Number of times it was forwarded.
        enqueued_sequence_number: Its number in the entity to which it was sent first.
        dead_letter_source: The queue or subscription that dead-lettered it, if it was forwarded since.
    """

    hops: int
    enqueued_sequence_number: int
    dead_letter_source: str | None


@dataclass(frozen=True)
class Message:
    """One message's content, shared by every subscription that holds it.

    Times are milliseconds: `ttl_ms` a duration, `scheduled_ms` a moment since the Unix epoch.
    """

    bare: bytes
    durable: bool
    priority: int | None
    ttl_ms: int | None
    properties: tuple[codec.Value, ...]
    annotations: bytes
    annotation_count: int
    partition_key: str | None
    scheduled_ms: int | None
    trail: Trail | None = None

    @property
    def message_id(self) -> str | None:
        return plain_text(self.field(Property.MESSAGE_ID))

    @property
    def session_id(self) -> str | None:
        return plain_text(self.field(Property.GROUP_ID))

    @property
    def routing_key(self) -> str | None:
        """The key that decides on the partition: the session id or, without one, the partition key."""
        session_id = self.session_id
        return self.partition_key if session_id is None else session_id

    def field(self, name: Property) -> codec.Value:
        """Return a field of the properties section, None when it was not sent."""
        return self.properties[name] if name < len(self.properties) else None

    @property
    def size(self) -> int:
        """The size of what was sent, in bytes, less the header and annotations."""
        return len(self.bare)

    @cached_property
    def application_properties(self) -> Mapping[str, codec.Value]:
        for section in sections(self.bare):
            if section.code == APPLICATION_PROPERTIES:
                return codec.decode(self.bare, section.value)[0] or {}
        return {}

    def encoded_property(self, name: str) -> codec.Encoded | None:
        """Return an application property as it was sent, None when the message does not have it."""
        found = None
        for section in sections(self.bare):
            if section.code == APPLICATION_PROPERTIES:
                pairs = list(codec.items(self.bare, section.value))
                for key, value in zip(pairs[::2], pairs[1::2], strict=True):
                    found = codec.Encoded(value) if codec.decode(key)[0] == name else found
        return found

    @property
    def body(self) -> bytes:
        """The data sections, joined; empty if the body is a value or a sequence."""
        found = (section.value for section in sections(self.bare) if section.code == DATA)
        return b"".join(codec.decode(self.bare, value)[0] for value in found)

    @property
    def decoded_annotations(self) -> dict[str, codec.Value]:
        """The message annotations the sender set."""
        annotations: dict[str, codec.Value] = codec.decode(
            codec.encode_map(self.annotation_count, self.annotations)
        )[0]
        return annotations

    def with_application_properties(self, changes: Mapping[str, codec.Value]) -> Message:
        """Return the message with application properties set (or, where the value is None, removed)."""
        if not changes:
            return self
        found = {section.code: section for section in sections(self.bare)}
        current = found.get(APPLICATION_PROPERTIES)
        pairs: dict[bytes, bytes] = {}
        if current:
            encoded = list(codec.items(self.bare, current.value))
            pairs = dict(zip(encoded[::2], encoded[1::2], strict=True))
            start, end = current.start, current.end
        else:
            start = end = found[PROPERTIES].end if PROPERTIES in found else 0
        for name, value in changes.items():
            pairs = {key: old for key, old in pairs.items() if codec.decode(key)[0] != name}
            if value is not None:
                pairs[codec.encode_string(name)] = _encode_property(name, value)
        body = b"".join(key + value for key, value in pairs.items())
        section = encode_section(APPLICATION_PROPERTIES, codec.encode_map(len(pairs), body))
        return replace(self, bare=self.bare[:start] + section + self.bare[end:])

    def identified(self) -> Message:
        """Return the message with an id, as the service has every message.

        One without an id gets one (azure-service-bus-java issue 69). A uuid and a number come back as they were
        sent: the service knows every type of the protocol (azure-sdk-for-java pull request 17464, and
        test_queue_message_duplicate_detection of azure-servicebus). Bytes become text, which they were before
        azure-servicebus received them.
        """
        if isinstance(self.field(Property.MESSAGE_ID), str | UUID | int):
            return self
        return self.with_property(Property.MESSAGE_ID, self.message_id or uuid4().hex)

    def with_property(self, field: Property, value: codec.Value) -> Message:
        """Return the message with one field of its properties section set, with the type that AMQP has for it.

        A value that is no text becomes one (OASIS AMQP 1.0, part 3, section 3.2.4).
        """
        if value is not None and not isinstance(value, codec.Timestamp):
            value = codec.Symbol(value) if field in _SYMBOLS else str(value)
        found = {section.code: section for section in sections(self.bare)}
        current = found.get(PROPERTIES)
        encoded = list(codec.items(self.bare, current.value)) if current else []
        encoded += [codec.NULL] * (field + 1 - len(encoded))
        encoded[field] = codec.encode_value(value)
        values = list(self.properties) + [None] * (field + 1 - len(self.properties))
        values[field] = value
        section = encode_section(PROPERTIES, codec.encode_list(encoded))
        bare = section + (self.bare[current.end :] if current else self.bare)
        return replace(self, bare=bare, properties=tuple(values))

    def cut_to(self, ttl_ms: int) -> Message:
        """Return the message with its two properties cut to a time to live, if they say a longer one.

        Clients set and read both ("Message expiration", learn.microsoft.com: a longer one than the entity's is
        silently adjusted).
        """
        created, expires = self.field(Property.CREATION_TIME), self.field(Property.ABSOLUTE_EXPIRY_TIME)
        if created is None or expires is None or expires - created <= ttl_ms:
            return self
        return self.with_property(Property.ABSOLUTE_EXPIRY_TIME, codec.Timestamp(created + ttl_ms))

    def sent_on(self, trail: Trail) -> Message:
        """Return the message as it is forwarded."""
        return replace(self, trail=trail)

    def without_body(self) -> Message:
        """Return the message with nothing after its properties."""
        body = (section.start for section in sections(self.bare) if section.code >= DATA)
        return replace(self, bare=self.bare[: next(body, len(self.bare))])

    def with_body_of(self, most: int) -> Message:
        """Return the message with the beginning of its body, of no more bytes than this.

        A character of UTF-8 is not divided. A longer body that is a value or a sequence is left out.
        """
        without = self.without_body()
        if self.size - without.size <= most:
            return self
        body = self.body
        # A character ends where no continuation follows, of which it has three at most.
        ends = (at for at in range(most, most - 4, -1) if not b"\x80" <= body[at : at + 1] < b"\xc0")
        end = next(ends, most)
        return replace(without, bare=without.bare + encode_section(DATA, codec.encode_binary(body[:end])))

    def encode(
        self,
        delivery_count: int,
        ttl_ms: int | None,
        annotations: Sequence[bytes],
        delivery_annotations: bytes = b"",
    ) -> bytes:
        """Encode the message for delivery.

        `annotations` are the broker's, one encoded pair each; they are joined to the sender's.
        `delivery_annotations` are an encoded section, or nothing.
        """
        pairs = self.annotation_count + len(annotations)
        merged = codec.encode_map(pairs, self.annotations + b"".join(annotations))
        header = self._header(delivery_count, ttl_ms) + delivery_annotations
        return header + encode_section(MESSAGE_ANNOTATIONS, merged) + self.bare

    def _header(self, delivery_count: int, ttl_ms: int | None) -> bytes:
        priority = codec.NULL if self.priority is None else bytes((0x50, self.priority))
        ttl = codec.NULL if ttl_ms is None else codec.encode_uint(min(ttl_ms, UNLIMITED_TTL_MS))
        durable = b"\x41" if self.durable else b"\x42"
        body = durable + priority + ttl + b"\x42" + codec.encode_uint(delivery_count)
        return bytes((0x00, 0x53, HEADER, 0xC0, len(body) + 1, 5)) + body


def _encode_property(name: str, value: codec.Value) -> bytes:
    try:
        return codec.encode_value(value)
    except codec.CodecError as error:
        raise ArgumentInvalid(f"The property '{name}' cannot be set: {error}") from error


def plain_text(value: codec.Value) -> str | None:
    """Return an id or a key as text, regardless of the type it was sent as."""
    if value is None or type(value) is str:
        return value
    if isinstance(value, bytes):
        # azure-servicebus gives what it received as bytes, and sends it so when the message is sent again.
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.hex()
    return str(value)
