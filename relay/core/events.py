"""The domain event: a document of the outbox that has all a message needs, or the reason why it has not.

A document (relay.core.documents) has the same fields in every kind of outbox. Facts that only a source knows,
such as the time of the commit, are passed next to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from relay.core.documents import Mapped, SourceDocument

# MessageId, SessionId and PartitionKey have at most 128 characters. The service is written in .NET, where a
# character is a UTF-16 unit: an emoji counts as two.
# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas
MAX_KEY_LENGTH = 128

# A property holds 32 KB at most, all properties together 64 KB (the same page), and a message beyond that is
# answered with an internal error that asks to try again (Azure/azure-sdk-for-net issue 15325). What an event
# brings is bounded so that both hold however the service counts, CloudEvents included, which repeats each of
# these.
MAX_PROPERTIES_BYTES = 15_000

EventName = tuple[str, str]
"""The partition key and the id of an event."""


class Reason(StrEnum):
    """Why a document is quarantined. The values are stored, queried and alerted on: they do not change."""

    ID_MISSING = "id-missing"
    ID_NOT_STRING = "id-not-string"
    ID_EMPTY = "id-empty"
    ID_TOO_LONG = "id-too-long"
    PARTITION_KEY_MISSING = "partition-key-missing"
    PARTITION_KEY_NOT_STRING = "partition-key-not-string"
    PARTITION_KEY_EMPTY = "partition-key-empty"
    PARTITION_KEY_TOO_LONG = "partition-key-too-long"
    DATA_NOT_OBJECT = "data-not-object"
    ACTION_NOT_STRING = "action-not-string"
    PROPERTY_NOT_UNICODE = "property-not-unicode"
    PROPERTIES_TOO_LARGE = "properties-too-large"
    MESSAGE_TOO_LARGE = "message-too-large"
    MESSAGE_REFUSED = "message-refused"
    KEY_PARKED = "key-parked"
    SET_ASIDE = "set-aside"
    NOT_MAPPED = "not-mapped"
    NO_ROUTE = "no-route"


class Event(NamedTuple):
    """One domain event, checked. A tuple, as a frozen dataclass takes several times as long to construct.

    Attributes:
        id: The document's id, 1 to 128 characters: the message id.
        partition_key: The document's partition key, 1 to 128 characters: session id and partition key.
        action: What happened (`data.action`): the message's subject.
        document: The document, with all that the relay knows of it.
        position: The document's place among those it came with, from 0.
        committed_at: When it was committed, in whole seconds since 1970; None if its source does not say.
        expires_at: When its source deletes it, in seconds since 1970; None if never.
        sequence: The number its writer gave it within its entity; None without one.
        traceparent: The W3C trace context of the request behind it; None without one.
        body: `data` as JSON text, exactly as it was committed, if its source keeps text; else None.
    """

    id: str
    partition_key: str
    type: str
    action: str
    data: Mapping[str, Any]
    document: SourceDocument
    position: int = 0
    committed_at: int | None = None
    expires_at: int | None = None
    sequence: int | None = None
    traceparent: str | None = None
    body: bytes | None = None

    @property
    def name(self) -> EventName:
        """The identity of this event."""
        return self.partition_key, self.id


@dataclass(frozen=True, slots=True)
class Rejected:
    """A document that is not published, and why: it goes to quarantine.

    Attributes:
        document: The document, with all that the relay knows of it.
        reason: The code under which it is quarantined.
        detail: The finding, without the payload.
        position: The document's place among those it came with, from 0.
        partition_key: The key it would have been published under; None if it has none to be ordered by.
        condition: The AMQP condition with which Service Bus refused it; None if it was refused elsewhere.
        expires_at: When its source deletes it, in seconds since 1970; None if never.
    """

    document: SourceDocument
    reason: Reason
    detail: str
    position: int = 0
    partition_key: str | None = None
    condition: str | None = None
    expires_at: int | None = None

    @classmethod
    def of(cls, event: Event, reason: Reason, detail: str, condition: str | None = None) -> Rejected:
        """Return the rejection of a sound event."""
        return cls(
            event.document, reason, detail, event.position, event.partition_key, condition, event.expires_at
        )

    @property
    def id(self) -> str:
        """The document's id, if it has one; half of a surrogate pair as `\\ud800`, which can be typed."""
        identifier = str(self.document.fields.get("id"))
        return identifier.encode(errors="backslashreplace").decode()

    @property
    def name(self) -> EventName | None:
        """Its identity among the events of its partition key; None if it has no key."""
        return None if self.partition_key is None else (self.partition_key, self.id)

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


def always_owned() -> bool:
    """Return True.

    It is the default for sources that cannot tell, such as Cosmos DB, where the trigger owns the leases.
    """
    return True


@dataclass(slots=True)
class Received:
    """The input of one attempt.

    Attributes:
        events: Events to publish, in commit order.
        rejected: Documents of the relayed type that can never become a message.
        ignored: Number of documents of other types.
        owned: Whether this process still owns them: asked before each send.
        may_be_tried: Whether another process may have attempted them although they seem to be new.
    """

    events: list[Event] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    ignored: int = 0
    owned: Callable[[], bool] = always_owned
    may_be_tried: bool = False

    @property
    def documents(self) -> int:
        """Number of documents received, of any type."""
        return len(self.events) + len(self.rejected) + self.ignored


def read_event(
    document: SourceDocument,
    position: int = 0,
    *,
    committed_at: int | None = None,
    expires_at: int | None = None,
) -> Event | Rejected:
    """Check a document of the relayed type, and take from it what a message needs.

    Args:
        document: The document; one that relay.toml does not fit is rejected for that before all else.
        position: Its place among those it came with.
        committed_at: When it was committed, in seconds since 1970, if its source says so.
        expires_at: When its source deletes it, in seconds since 1970, if ever.

    Returns:
        The event, or its rejection with the first reason found, in the order of `Reason`.
    """
    fields, mapped = document.fields, document.mapped
    try:
        if document.problem is not None:
            raise _Invalid(Reason.NOT_MAPPED, document.problem)
        identifier = _checked_key(fields, "id", _ID_REASONS)
        partition_key = _checked_key(fields, "partitionKey", _PARTITION_KEY_REASONS)
        data = fields.get("data")
        # It nearly always is a dict, and to look for a Mapping takes several times as long.
        if type(data) is not dict and not isinstance(data, Mapping):
            raise _Invalid(Reason.DATA_NOT_OBJECT, f"data is {_json_kind(fields, 'data')}, not an object")
        traceparent = fields.get("traceparent")
        if mapped is None:
            action, created_at = data.get("action"), data.get("createdAt")
            if not isinstance(action, str):
                said = f"data.action is {_json_kind(data, 'action')}, not a string"
                raise _Invalid(Reason.ACTION_NOT_STRING, said)
            # Nearly always all of them are short and ASCII, and one look at them together takes a tenth of the
            # checks.
            together = f"{identifier}{partition_key}{action}{created_at}{traceparent}"
            if not together.isascii() or len(together) > MAX_PROPERTIES_BYTES:
                texts = {"data.action": action, "data.createdAt": created_at, "traceparent": traceparent}
                _check_unicode({"id": identifier, "partitionKey": partition_key, **texts})
                _check_properties(texts)
        else:
            action = mapped.action
            _check_unicode({"id": identifier, "partitionKey": partition_key})
            _check_mapped(fields, mapped)
    except _Invalid as invalid:
        return Rejected(
            document, invalid.reason, invalid.detail, position, _usable_key(fields), expires_at=expires_at
        )
    sequence, body = fields.get("sequence"), document.body
    return Event(
        identifier,
        partition_key,
        fields["type"],
        action,
        data,
        document,
        position,
        committed_at,
        expires_at,
        sequence if type(sequence) is int else None,
        traceparent if isinstance(traceparent, str) else None,
        None if body is None else body.encode(),
    )


def by_partition_key(events: Iterable[Event]) -> dict[str, list[Event]]:
    """Return events by partition key, each list in the order given."""
    grouped: dict[str, list[Event]] = {}
    for event in events:
        grouped.setdefault(event.partition_key, []).append(event)
    return grouped


class _Invalid(Exception):
    def __init__(self, reason: Reason, detail: str) -> None:
        self.reason = reason
        self.detail = detail


_KeyReasons = tuple[Reason, Reason, Reason, Reason]

_ID_REASONS: _KeyReasons = (Reason.ID_MISSING, Reason.ID_NOT_STRING, Reason.ID_EMPTY, Reason.ID_TOO_LONG)
_PARTITION_KEY_REASONS: _KeyReasons = (
    Reason.PARTITION_KEY_MISSING,
    Reason.PARTITION_KEY_NOT_STRING,
    Reason.PARTITION_KEY_EMPTY,
    Reason.PARTITION_KEY_TOO_LONG,
)


def _checked_key(fields: Mapping[str, Any], name: str, reasons: _KeyReasons) -> str:
    value = fields.get(name)
    # A character is two units at most.
    if isinstance(value, str) and 0 < len(value) <= MAX_KEY_LENGTH // 2:
        return value
    missing, not_string, empty, too_long = reasons
    if name not in fields:
        raise _Invalid(missing, f"the document has no {name}")
    if not isinstance(value, str):
        raise _Invalid(not_string, f"{name} is {_json_kind(fields, name)}, not a string")
    if not value:
        raise _Invalid(empty, f"{name} is the empty string")
    if (units := utf16_units(value)) > MAX_KEY_LENGTH:
        raise _Invalid(
            too_long, f"{name} has {units} characters (UTF-16); Service Bus accepts {MAX_KEY_LENGTH} at most"
        )
    return value


def _check_unicode(names: Mapping[str, object]) -> None:
    """Refuse a lone surrogate, which JSON can escape and a property, which is UTF-8, cannot hold."""
    for name, text in names.items():
        if isinstance(text, str) and not _is_unicode(text):
            raise _Invalid(
                Reason.PROPERTY_NOT_UNICODE,
                f"{name} has half of a surrogate pair, which is no character: no property can hold it",
            )


def _check_properties(names: Mapping[str, object]) -> None:
    sizes = {
        name: len(text.encode(errors="surrogatepass")) for name, text in names.items() if isinstance(text, str)
    }
    if sum(sizes.values()) > MAX_PROPERTIES_BYTES:
        found = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise _Invalid(
            Reason.PROPERTIES_TOO_LARGE,
            f"what becomes properties of the message has {sum(sizes.values())} bytes ({found}); "
            f"{MAX_PROPERTIES_BYTES} at most can be sent",
        )


def _check_mapped(fields: Mapping[str, Any], mapped: Mapped) -> None:
    """Check all that relay.toml makes properties of."""
    texts = {"type": fields["type"], "action": mapped.action, "time": mapped.created_at}
    # Names of properties count towards the size as well, and each number counts as eight bytes.
    texts |= {
        f"properties.{name}": name + (value if isinstance(value, str) else " " * 8)
        for name, value in mapped.properties.items()
    }
    texts |= {f"message.{name}": value for name, value in mapped.message.items()}
    texts["traceparent"] = fields.get("traceparent")
    _check_unicode(texts)
    _check_properties(texts)


def _usable_key(fields: Mapping[str, Any]) -> str | None:
    try:
        key = _checked_key(fields, "partitionKey", _PARTITION_KEY_REASONS)
    except _Invalid:
        return None
    return key if _is_unicode(key) else None


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def utf16_units(text: str) -> int:
    """Return the length of a text as Service Bus counts it."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", errors="surrogatepass")) // 2


def _json_kind(holder: Mapping[str, Any], name: str) -> str:
    if name not in holder:
        return "missing"
    value = holder[name]
    if value is None:
        return "null"
    kinds = ((bool, "a boolean"), (str, "a string"), (int | float, "a number"), (list, "an array"))
    return next((words for kind, words in kinds if isinstance(value, kind)), "an object")
