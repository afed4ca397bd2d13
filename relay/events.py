"""The domain event: a document of the outbox that has all a message needs, or the reason why it has not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

# MessageId, SessionId and PartitionKey hold 128 characters at most.
# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas
MAX_KEY_LENGTH = 128

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
    """

    id: str
    partition_key: str
    action: str
    data: Mapping[str, Any]
    document: Document

    @classmethod
    def from_document(cls, document: Document) -> DomainEvent:
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
        return cls(identifier, partition_key, action, data, document)


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
    if len(value) > MAX_KEY_LENGTH:
        raise InvalidEvent(
            too_long, f"{name} has {len(value)} characters; Service Bus takes {MAX_KEY_LENGTH} at most"
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
