"""The stored envelope around an entity or an event.

{"id": …, "partitionKey": …, "type": "contact", "data": {…}, "ttl": seconds or -1, "sequence": of its last event}
{"id": …, "partitionKey": …, "type": "domainEvent", "data": {…}, "ttl": seconds, "sequence": …, "order": …}

All documents of a transactional batch have the same `_lsn`, and the change feed does not specify their order: it
sorts by modification (https://learn.microsoft.com/azure/cosmos-db/change-feed#sort-order-of-items-in-change-feed).
Event documents therefore carry their own position: `order` within the commit, from 0, and `sequence` within the
entity, from 1. The entity's document stores its last sequence, and a commit requires the version that was read, so
no number is used twice or skipped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeVar

from outbox_relay.outbox.entities import DomainEntity, name_of, partition_key_of, ttl_of
from outbox_relay.outbox.errors import InvalidDocument
from outbox_relay.outbox.events import DomainEvent
from outbox_relay.outbox.relayable import check_key, check_properties, too_deep

T_co = TypeVar("T_co", bound=DomainEntity | DomainEvent, covariant=True)

MAX_ID_BYTES = 1023  # https://learn.microsoft.com/azure/cosmos-db/concepts-limits#per-item-limits
_ILLEGAL_IN_ID = re.compile(r"[/\\?#\t\r\n]|%[0-9A-Fa-f]{2}|\s\Z")
"""Parts of an id with which no path, or not every path, leads to an item.

- The characters of https://learn.microsoft.com/dotnet/api/microsoft.azure.documents.resource.id, and tabs and line
  breaks: azure-cosmos (4.17.1) refuses them in operations other than a batch.
- `%` before two hexadecimal digits, and whitespace at the end: a gateway of the service decodes and trims the path
  once more than the client that signed it, and answers 401 (CosmosItemIdEncodingTestsBase.cs in
  azure-cosmos-dotnet-v3). Newer gateways accept them (https://github.com/Azure/azure-sdk-for-java/issues/36265).
"""
_PATH_SEGMENTS = (".", "..")
"""In a URL these are not names (RFC 3986, section 5.2.4)."""
ID_RULE = (
    f"must be a string of 1 to {MAX_ID_BYTES} bytes and must not contain / \\ ? or #, tabs or line breaks, nor % "
    "before two hexadecimal digits, nor end with whitespace, nor be . or .."
)
"""The rule of `can_be_id`, for an error message whose subject is the id."""


class EntityState(StrEnum):
    """The operation of a commit on an object. Not stored."""

    READ = "read"
    """Nothing, unless the entity has events."""
    CREATED = "created"
    UPDATED = "updated"


@dataclass(frozen=True, slots=True)
class DataObject(Generic[T_co]):
    """One document of a commit.

    Attributes:
        id, partition_key, type, ttl: As stored; `ttl` in seconds, -1 for never.
        sequence: An event's number within its entity; for an entity, the number of its last event.
        source: The entity or the event.
        data: The stored JSON object.
        state: CREATED or UPDATED.
        etag: The version to replace; None for a new document.
        order: An event's position in its commit, from 0; None for an entity.
        traceparent: The trace an event belongs to, if any.
        others: Members that an entity's document was read with and that the library does not have.
    """

    id: str
    partition_key: str
    type: str
    source: T_co
    data: dict[str, Any]
    ttl: int
    state: EntityState
    sequence: int
    etag: str | None = None
    order: int | None = None
    traceparent: str | None = None
    others: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name used in messages."""
        action = f"{self.source.action} " if isinstance(self.source, DomainEvent) else ""
        return f"{action}{self.type} '{self.id}'"

    def to_document(self) -> dict[str, Any]:
        """Return the document as it is stored."""
        document: dict[str, Any] = {
            **self.others,
            "id": self.id,
            "partitionKey": self.partition_key,
            "type": self.type,
            "data": self.data,
            "ttl": self.ttl,
            "sequence": self.sequence,
        }
        optional = {"order": self.order, "traceparent": self.traceparent}
        return document | {name: value for name, value in optional.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Position:
    """An event's number within its entity, from 1, and its position in its commit, from 0."""

    sequence: int
    order: int


def entity_object(
    entity: DomainEntity, state: EntityState, etag: str | None, sequence: int
) -> DataObject[DomainEntity]:
    """Return the document of an entity in its current state; `sequence` is the number of its last event.

    Raises:
        InvalidDocument: The id or partition key cannot be stored or relayed, or the data is nested too deeply.
        TypeError: The data is that of a class whose fields do not say how to store them.
    """
    data = {**_data_of(entity, name_of(entity)), "id": entity.id, "deleted": entity.deleted}
    _check_id(entity.id, name_of(entity))
    check_key(partition_key_of(entity), "partition key", name_of(entity))
    return DataObject(
        entity.id,
        partition_key_of(entity),
        entity.document_type,
        entity,
        data,
        ttl_of(entity),
        state,
        sequence,
        etag=etag,
        others=entity._outbox.beside_data,
    )


def event_object(
    event: DomainEvent,
    entity: DomainEntity,
    position: Position,
    *,
    document_type: str,
    ttl: int,
    traceparent: str | None,
) -> DataObject[DomainEvent]:
    """Return the document of an event about `entity`. The partition key is checked with the entity's document.

    Raises:
        InvalidDocument: The id or a message property cannot be relayed, or a field has a reserved name.
    """
    name = f"{event.action} of {name_of(entity)}"
    own = {
        f"{entity.document_type}Id": entity.id,
        "action": event.action,
        "id": event.id,
        "createdAt": event.created_at,
    }
    data = _data_of(event, name)
    for key, value in own.items():
        if data.get(key, value) != value:
            raise InvalidDocument(f"{name} has its own '{key}', which the library sets: rename the field.")
    _check_id(event.id, name)
    check_key(event.id, "id", name)
    traced = {} if traceparent is None else {"traceparent": traceparent}
    check_properties({"action": event.action, "createdAt": event.created_at, **traced}, name)
    return DataObject(
        event.id,
        partition_key_of(entity),
        document_type,
        event,
        {**data, **own},
        ttl,
        EntityState.CREATED,
        position.sequence,
        order=position.order,
        traceparent=traceparent,
    )


def can_be_id(value: str) -> bool:
    """Return True if a document can have this id and be addressed by it."""
    return (
        isinstance(value, str)
        and 0 < len(value.encode(errors="replace")) <= MAX_ID_BYTES
        and _ILLEGAL_IN_ID.search(value) is None
        and value not in _PATH_SEGMENTS
    )


def _check_id(value: str, name: str) -> None:
    if not can_be_id(value):
        raise InvalidDocument(
            f"The id of {name} {ID_RULE}: a document with it could not be read. Use a UUID, or letters, digits "
            "and hyphens."
        )


def _data_of(source: DomainEntity | DomainEvent, name: str) -> dict[str, Any]:
    try:
        return source.to_data()
    except RecursionError as error:
        raise too_deep(name) from error
