"""A message as it was sent: what the broker reads of it, and the bytes it hands on untouched.

Only the header and the message annotations are the broker's to rewrite on delivery (OASIS AMQP 1.0, part 3,
section 3.2). The rest, from the properties on, is kept and delivered as the sender encoded it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple
from uuid import uuid4

from outbox_emulators.servicebus import codec
from outbox_emulators.servicebus.errors import ArgumentInvalid, DecodeFailed, NotAllowed, PropertiesTooLarge

HEADER = 0x70
DELIVERY_ANNOTATIONS = 0x71
MESSAGE_ANNOTATIONS = 0x72
PROPERTIES = 0x73
APPLICATION_PROPERTIES = 0x74
DATA = 0x75
FOOTER = 0x78

BATCH_FORMAT = 0x80013700
"""The message-format of a transfer whose data sections are messages (Service Bus AMQP protocol guide)."""

MAX_ID_LENGTH = 128
"""UTF-16 units that a message id, session id or partition key may have ("Service Bus quotas")."""
MAX_PROPERTIES_BYTES = 64 * 1024
MAX_PROPERTY_BYTES = 32 * 1024
"""One property of a message, and all that goes before its body ("Service Bus quotas", learn.microsoft.com)."""

_UNLIMITED_TTL_MS = 0xFFFFFFFF

PARTITION_KEY = "x-opt-partition-key"
SCHEDULED_ENQUEUE_TIME = "x-opt-scheduled-enqueue-time"

# The broker writes these itself; a message that was received and is sent again still carries the old ones.
_BROKER_ANNOTATIONS = frozenset(
    {
        "x-opt-sequence-number",
        "x-opt-enqueued-time",
        "x-opt-enqueue-sequence-number",
        "x-opt-locked-until",
        "x-opt-lock-token",
        "x-opt-message-state",
        "x-opt-deadletter-source",
        "x-opt-partition-id",
    }
)


class Property(IntEnum):
    """Where a field stands in the properties section."""

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

    @property
    def message_id(self) -> str | None:
        return _text(self.field(Property.MESSAGE_ID))

    @property
    def session_id(self) -> str | None:
        return _text(self.field(Property.GROUP_ID))

    @property
    def routing_key(self) -> str | None:
        """What decides on the partition: the session id or, without one, the partition key."""
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
        section = _section(APPLICATION_PROPERTIES, codec.encode_map(len(pairs), body))
        return replace(self, bare=self.bare[:start] + section + self.bare[end:])

    def identified(self) -> Message:
        """Return the message with a text for its id, as the service has every message.

        One without an id gets one (azure-service-bus-java issue 69); an id of another type is told as text.
        """
        if type(self.field(Property.MESSAGE_ID)) is str:
            return self
        return self.with_property(Property.MESSAGE_ID, self.message_id or uuid4().hex)

    def with_property(self, field: Property, value: codec.Value) -> Message:
        """Return the message with one field of its properties section set."""
        found = {section.code: section for section in sections(self.bare)}
        current = found.get(PROPERTIES)
        encoded = list(codec.items(self.bare, current.value)) if current else []
        encoded += [codec.NULL] * (field + 1 - len(encoded))
        encoded[field] = codec.encode_value(value)
        values = list(self.properties) + [None] * (field + 1 - len(self.properties))
        values[field] = value
        section = _section(PROPERTIES, codec.encode_list(encoded))
        bare = section + (self.bare[current.end :] if current else self.bare)
        return replace(self, bare=bare, properties=tuple(values))

    def encode(self, delivery_count: int, ttl_ms: int | None, annotations: Sequence[bytes]) -> bytes:
        """Encode the message for delivery.

        `annotations` are the broker's, one encoded pair each; they are joined to the sender's.
        """
        pairs = self.annotation_count + len(annotations)
        merged = codec.encode_map(pairs, self.annotations + b"".join(annotations))
        return self._header(delivery_count, ttl_ms) + _section(MESSAGE_ANNOTATIONS, merged) + self.bare

    def _header(self, delivery_count: int, ttl_ms: int | None) -> bytes:
        priority = codec.NULL if self.priority is None else bytes((0x50, self.priority))
        ttl = codec.NULL if ttl_ms is None else codec.encode_uint(min(ttl_ms, _UNLIMITED_TTL_MS))
        durable = b"\x41" if self.durable else b"\x42"
        body = durable + priority + ttl + b"\x42" + codec.encode_uint(delivery_count)
        return bytes((0x00, 0x53, HEADER, 0xC0, len(body) + 1, 5)) + body


def parse(data: bytes) -> Message:
    """Read an encoded message.

    Raises DecodeFailed, or ArgumentInvalid, NotAllowed and PropertiesTooLarge for what it says.
    """
    durable, priority, ttl_ms = False, None, None
    properties: tuple[codec.Value, ...] = ()
    annotations = _NO_ANNOTATIONS
    bare_start = body_start = -1
    try:
        for code, start, value, end in sections(data):
            if code == HEADER:
                durable, priority, ttl_ms = _parse_header(codec.decode(data, value)[0])
            elif code == MESSAGE_ANNOTATIONS:
                annotations = _parse_annotations(data, value)
            elif code == PROPERTIES:
                bare_start = start
                properties = tuple(codec.decode(data, value)[0])
                if end - value > MAX_PROPERTY_BYTES:
                    _refuse_large_property(data, value)
            elif code == APPLICATION_PROPERTIES:
                bare_start = start if bare_start < 0 else bare_start
                if end - value > MAX_PROPERTY_BYTES:
                    _refuse_large_property(data, value)
            elif code >= DATA and body_start < 0:
                body_start = start
    except codec.DECODE_ERRORS as error:
        raise DecodeFailed(f"The message could not be decoded: {error}") from error
    if body_start < 0:
        body_start = len(data)
    if body_start > MAX_PROPERTIES_BYTES:
        raise PropertiesTooLarge
    message = Message(
        bare=data[bare_start if bare_start >= 0 else body_start :],
        durable=durable,
        priority=priority,
        ttl_ms=_effective_ttl(ttl_ms, properties),
        properties=properties,
        annotations=annotations.encoded,
        annotation_count=annotations.count,
        partition_key=annotations.partition_key,
        scheduled_ms=annotations.scheduled_ms,
    )
    _check_ids(message)
    return message


@dataclass(frozen=True, slots=True)
class _Annotations:
    encoded: bytes = b""
    count: int = 0
    partition_key: str | None = None
    scheduled_ms: int | None = None


_NO_ANNOTATIONS = _Annotations()


def _parse_annotations(data: bytes, at: int) -> _Annotations:
    encoded = list(codec.items(data, at)) if data[at] != codec.NULL[0] else []
    kept: list[bytes] = []
    partition_key, scheduled_ms = None, None
    for key, value in zip(encoded[::2], encoded[1::2], strict=True):
        name = codec.decode(key)[0]
        if name in _BROKER_ANNOTATIONS:
            continue
        if name == PARTITION_KEY:
            partition_key = _text(codec.decode(value)[0])
            value = codec.NULL if partition_key is None else codec.encode_string(partition_key)
        elif name == SCHEDULED_ENQUEUE_TIME:
            scheduled_ms = codec.decode(value)[0]
        kept += (key, value)
    return _Annotations(b"".join(kept), len(kept) // 2, partition_key, scheduled_ms)


def _parse_header(fields: list[codec.Value]) -> tuple[bool, int | None, int | None]:
    durable, priority, ttl = (*fields[:3], None, None, None)[:3]
    return bool(durable), priority, ttl


def _effective_ttl(ttl_ms: int | None, properties: tuple[codec.Value, ...]) -> int | None:
    """The time to live: the header's field holds 49 days at most, longer ones are told by two properties."""
    if len(properties) > Property.CREATION_TIME and ttl_ms == _UNLIMITED_TTL_MS:
        expiry, creation = properties[Property.ABSOLUTE_EXPIRY_TIME], properties[Property.CREATION_TIME]
        if expiry is not None and creation is not None:
            return int(expiry) - int(creation)
    return ttl_ms


def _check_ids(message: Message) -> None:
    for name, value in (
        ("MessageId", message.message_id),
        ("SessionId", message.session_id),
        ("PartitionKey", message.partition_key),
    ):
        if value is not None and (units := _utf16_units(value)) > MAX_ID_LENGTH:
            raise ArgumentInvalid(f"The {name} has {units} characters; the limit is {MAX_ID_LENGTH}.")
    if message.session_id is not None and message.partition_key not in (None, message.session_id):
        raise NotAllowed(
            f"The PartitionKey '{message.partition_key}' and the SessionId '{message.session_id}' of a message "
            "cannot have different values."
        )


def _refuse_large_property(data: bytes, at: int) -> None:
    if any(len(each) > MAX_PROPERTY_BYTES for each in codec.items(data, at)):
        raise PropertiesTooLarge


def _encode_property(name: str, value: codec.Value) -> bytes:
    try:
        return codec.encode_value(value)
    except codec.CodecError as error:
        raise ArgumentInvalid(f"The property '{name}' cannot be set: {error}") from error


def _section(code: int, value: bytes) -> bytes:
    return bytes((codec.DESCRIBED, 0x53, code)) + value


def _text(value: codec.Value) -> str | None:
    if value is None or type(value) is str:
        return value
    if isinstance(value, bytes):
        # azure-servicebus gives what it received as bytes, and sends it so when the message is sent again.
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.hex()
    return str(value)


def _utf16_units(text: str) -> int:
    """The length of a text as .NET counts it, which the service is written in."""
    return len(text.encode("utf-16-le", errors="surrogatepass")) // 2
