"""Parsing an encoded message, and refusing one whose content the service refuses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from outbox_relay.emulators.servicebus import codec
from outbox_relay.emulators.servicebus.errors import ArgumentInvalid, DecodeFailed, NotAllowed, PropertiesTooLarge
from outbox_relay.emulators.servicebus.message import (
    MAX_PROPERTY_BYTES,
    UNLIMITED_TTL_MS,
    Message,
    Property,
    plain_text,
)
from outbox_relay.emulators.servicebus.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    sections,
)

MAX_ID_LENGTH = 128
"""UTF-16 units that a message id, session id or partition key may have ("Service Bus quotas")."""
MAX_PROPERTIES_BYTES = 64 * 1024
"""All that goes before the body of a message ("Service Bus quotas", learn.microsoft.com)."""

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


def parse(data: bytes) -> Message:
    """Read an encoded message.

    Raises DecodeFailed, or ArgumentInvalid, NotAllowed and PropertiesTooLarge for its content.
    """
    durable, priority, ttl_ms = False, None, None
    properties: tuple[codec.Value, ...] = ()
    annotations = _NO_ANNOTATIONS
    bare_start = body_start = -1
    try:
        for code, start, value, end in sections(data):
            if code < DATA and end - start > MAX_PROPERTIES_BYTES:
                raise PropertiesTooLarge
            if code == HEADER:
                durable, priority, ttl_ms = _parse_header(codec.decode(data, value)[0])
            elif code == MESSAGE_ANNOTATIONS:
                section = data[value:end]
                parsed = _known_annotations if len(section) <= _SHORT_BYTES else _parse_annotations
                annotations = parsed(section)
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


def _parse_annotations(section: bytes) -> _Annotations:
    encoded = list(codec.items(section, 0)) if section != codec.NULL else []
    kept: list[bytes] = []
    partition_key, scheduled_ms = None, None
    for key, value in zip(encoded[::2], encoded[1::2], strict=True):
        name = _annotation_name(key)
        if name in _BROKER_ANNOTATIONS:
            continue
        if name == PARTITION_KEY:
            partition_key = plain_text(codec.decode(value)[0])
            value = codec.NULL if partition_key is None else codec.encode_string(partition_key)
        elif name == SCHEDULED_ENQUEUE_TIME:
            scheduled_ms = codec.decode(value)[0]
        kept += (key, value)
    return _Annotations(b"".join(kept), len(kept) // 2, partition_key, scheduled_ms)


# A sender's messages of one partition key have the same ones.
_SHORT_BYTES = 512
_known_annotations = lru_cache(maxsize=4096)(_parse_annotations)


@lru_cache(maxsize=256)
def _annotation_name(encoded: bytes) -> codec.Value:
    return codec.decode(encoded)[0]


def _parse_header(fields: list[codec.Value]) -> tuple[bool, int | None, int | None]:
    durable, priority, ttl = (*fields[:3], None, None, None)[:3]
    return bool(durable), priority, ttl


def _effective_ttl(ttl_ms: int | None, properties: tuple[codec.Value, ...]) -> int | None:
    """Return the time to live: the header's field holds 49 days at most, two properties hold longer ones."""
    if len(properties) > Property.CREATION_TIME and ttl_ms == UNLIMITED_TTL_MS:
        expiry, creation = properties[Property.ABSOLUTE_EXPIRY_TIME], properties[Property.CREATION_TIME]
        if expiry is not None and creation is not None:
            return int(expiry) - int(creation)
    return ttl_ms


def _check_ids(message: Message) -> None:
    session_id, partition_key = message.session_id, message.partition_key
    for name, value in (
        ("MessageId", message.message_id),
        ("SessionId", session_id),
        ("PartitionKey", partition_key),
    ):
        # A character is two units at most.
        if value is None or len(value) <= MAX_ID_LENGTH // 2:
            continue
        if (units := _utf16_units(value)) > MAX_ID_LENGTH:
            raise ArgumentInvalid(f"The {name} has {units} characters; the limit is {MAX_ID_LENGTH}.")
    if session_id is not None and partition_key not in (None, session_id):
        raise NotAllowed(
            f"The PartitionKey '{partition_key}' and the SessionId '{session_id}' of a message "
            "cannot have different values."
        )


def _refuse_large_property(data: bytes, at: int) -> None:
    if any(len(each) > MAX_PROPERTY_BYTES for each in codec.items(data, at)):
        raise PropertiesTooLarge


def _utf16_units(text: str) -> int:
    """Return the length of a text as .NET counts it, which the service is written in."""
    return len(text.encode("utf-16-le", errors="surrogatepass")) // 2
