"""The domain event: a document of the outbox that has all a message needs, or the reason why it has not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

# MessageId, SessionId and PartitionKey hold 128 characters at most. The service is written in .NET, where a
# character is a UTF-16 unit: an emoji counts as two.
# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas
MAX_KEY_LENGTH = 128

# A property holds 32 KB at most, all properties together 64 KB (the same page), and a message beyond that is
# answered with an internal error that asks to try again (Azure/azure-sdk-for-net issue 15325). What an event
# brings is bounded so that both hold however the service counts, CloudEvents included, which repeats each of
# these.
MAX_PROPERTIES_BYTES = 15_000

Document = Mapping[str, Any]


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
    PROPERTIES_TOO_LARGE = "properties-too-large"
    MESSAGE_TOO_LARGE = "message-too-large"
    MESSAGE_REFUSED = "message-refused"
    KEY_PARKED = "key-parked"
    SET_ASIDE = "set-aside"


class InvalidEvent(Exception):
    """A document of the relayed type that can never become a message.

    Attributes:
        reason: The code under which it is quarantined.
        detail: What was found, in words, without the payload.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class DomainEvent:
    """One domainEvent document, checked.

    Attributes:
        id: The document's id, 1 to 128 characters: the message id.
        partition_key: The document's partition key, 1 to 128 characters: session id and partition key.
        action: What happened (`data.action`): the message's subject.
        data: The payload, as stored.
        document: The whole document as the trigger gave it.
        position: The document's place among those it came with, from 0.
    """

    id: str
    partition_key: str
    action: str
    data: Mapping[str, Any]
    document: Document
    position: int = 0

    @classmethod
    def from_document(cls, document: Document, position: int = 0) -> DomainEvent:
        """Check `document` and take from it what a message needs.

        Raises:
            InvalidEvent: With the first reason found, in the order of `Reason`.
        """
        identifier = _checked_key(document, "id", _ID_REASONS)
        partition_key = _checked_key(document, "partitionKey", _PARTITION_KEY_REASONS)
        data = document.get("data")
        if not isinstance(data, Mapping):
            raise InvalidEvent(Reason.DATA_NOT_OBJECT, f"data is {_json_kind(document, 'data')}, not an object")
        action = data.get("action")
        if not isinstance(action, str):
            found = _json_kind(data, "action")
            raise InvalidEvent(Reason.ACTION_NOT_STRING, f"data.action is {found}, not a string")
        _check_properties(document, data, action)
        return cls(identifier, partition_key, action, data, document, position)


def usable_key(document: Document) -> str | None:
    """The partition key that an event would have been published under; None where it has none to be ordered by."""
    key = document.get("partitionKey")
    return key if isinstance(key, str) and 0 < _utf16_units(key) <= MAX_KEY_LENGTH else None


def _check_properties(document: Document, data: Mapping[str, Any], action: str) -> None:
    texts = {"data.action": action}
    texts |= {
        name: value
        for name, value in (
            ("data.createdAt", data.get("createdAt")),
            ("traceparent", document.get("traceparent")),
        )
        if isinstance(value, str)
    }
    if sum(map(len, texts.values())) <= MAX_PROPERTIES_BYTES // 4:
        return
    sizes = {name: len(text.encode(errors="surrogatepass")) for name, text in texts.items()}
    if sum(sizes.values()) > MAX_PROPERTIES_BYTES:
        found = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise InvalidEvent(
            Reason.PROPERTIES_TOO_LARGE,
            f"what becomes properties of the message has {sum(sizes.values())} bytes ({found}); "
            f"{MAX_PROPERTIES_BYTES} at most can be sent",
        )


def _utf16_units(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", errors="surrogatepass")) // 2


_KeyReasons = tuple[Reason, Reason, Reason, Reason]

_ID_REASONS: _KeyReasons = (Reason.ID_MISSING, Reason.ID_NOT_STRING, Reason.ID_EMPTY, Reason.ID_TOO_LONG)
_PARTITION_KEY_REASONS: _KeyReasons = (
    Reason.PARTITION_KEY_MISSING,
    Reason.PARTITION_KEY_NOT_STRING,
    Reason.PARTITION_KEY_EMPTY,
    Reason.PARTITION_KEY_TOO_LONG,
)


def _checked_key(document: Document, name: str, reasons: _KeyReasons) -> str:
    missing, not_string, empty, too_long = reasons
    if name not in document:
        raise InvalidEvent(missing, f"the document has no {name}")
    value = document[name]
    if not isinstance(value, str):
        raise InvalidEvent(not_string, f"{name} is {_json_kind(document, name)}, not a string")
    if not value:
        raise InvalidEvent(empty, f"{name} is the empty string")
    if (units := _utf16_units(value)) > MAX_KEY_LENGTH:
        raise InvalidEvent(
            too_long, f"{name} has {units} characters (UTF-16); Service Bus takes {MAX_KEY_LENGTH} at most"
        )
    return value


def _json_kind(holder: Mapping[str, Any], name: str) -> str:
    if name not in holder:
        return "missing"
    value = holder[name]
    if value is None:
        return "null"
    kinds = ((bool, "a boolean"), (str, "a string"), (int | float, "a number"), (list, "an array"))
    return next((words for kind, words in kinds if isinstance(value, kind)), "an object")
