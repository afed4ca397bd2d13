"""What an entity takes over from its stored version when it is read, and after a commit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from outbox.entities import DomainEntity, name_of
from outbox.errors import NotFound

E = TypeVar("E", bound=DomainEntity)

_OWN_MEMBERS = frozenset({"id", "partitionKey", "type", "data", "ttl", "sequence"})
_SYSTEM_MEMBERS = frozenset({"_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"})


def restore(kind: type[E], document: Mapping[str, Any]) -> E:
    """Return the entity stored as `document`."""
    data = document["data"]
    try:
        entity = kind.from_data(data)
    except TypeError as error:
        error.add_note(f"The document is {kind.document_type} '{document['id']}'.")
        raise
    entity.id = document["id"]
    entity.partition_key = document["partitionKey"]
    entity._raised.clear()
    entity._is_new = False
    entity._etag = document["_etag"]
    entity._sequence = _stored_sequence(document)
    entity._deleted = data.get("deleted") is True
    # A deleted document keeps its own time to live, if it has one.
    entity._ttl_when_deleted = document.get("ttl") if entity._deleted else None
    others = document.keys() - _OWN_MEMBERS - _SYSTEM_MEMBERS
    entity._beside_data = {name: document[name] for name in document if name in others}
    return entity


def adopt_version(entity: DomainEntity, document: Mapping[str, Any]) -> bool:
    """Take the ETag and sequence of the stored version, so that a commit replaces it. Return whether the ETag
    changed.

    Raises:
        NotFound: The stored version is deleted.
    """
    if document["data"].get("deleted") is True:
        raise NotFound(f"{name_of(entity)} is deleted.")
    changed = bool(entity._etag != document["_etag"])
    entity._etag = document["_etag"]
    entity._sequence = _stored_sequence(document)
    return changed


def mark_saved(entity: DomainEntity, etag: str, event_ids: Collection[str], sequence: int) -> None:
    """Record a commit: the entity's new ETag, the ids of the stored events, and the number of its last event."""
    entity._is_new = False
    entity._sequence = sequence
    # A deleted entity has no ETag to offer: a conditional read with it would return "not modified".
    entity._etag = None if entity._deleted else etag
    entity._raised = [raised for raised in entity._raised if raised.event.id not in event_ids]


def _stored_sequence(document: Mapping[str, Any]) -> int:
    # Documents written before events were numbered have none.
    stored = document.get("sequence")
    return stored if isinstance(stored, int) else 0
