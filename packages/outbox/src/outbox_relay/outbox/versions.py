"""Takes over an entity's fields and version from its stored document, when it is read and after a commit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from outbox_relay.outbox.entities import DomainEntity, name_of
from outbox_relay.outbox.errors import NotFound

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
    entity._outbox.raised.clear()
    entity._outbox.is_new = False
    entity._outbox.etag = document["_etag"]
    entity._outbox.sequence = _stored_sequence(document)
    entity._outbox.deleted = data.get("deleted") is True
    # A deleted document keeps its own time to live, if it has one.
    entity._outbox.ttl_when_deleted = document.get("ttl") if entity._outbox.deleted else None
    others = document.keys() - _OWN_MEMBERS - _SYSTEM_MEMBERS
    entity._outbox.beside_data = {name: document[name] for name in document if name in others}
    return entity


def adopt_version(entity: DomainEntity, document: Mapping[str, Any]) -> bool:
    """Take the ETag and sequence of the stored version, so that a commit replaces it.

    Return True if the ETag changed.

    Raises:
        NotFound: The stored version is deleted.
    """
    if document["data"].get("deleted") is True:
        raise NotFound(f"{name_of(entity)} is deleted.")
    changed = bool(entity._outbox.etag != document["_etag"])
    entity._outbox.etag = document["_etag"]
    entity._outbox.sequence = _stored_sequence(document)
    return changed


def mark_saved(entity: DomainEntity, etag: str, event_ids: Collection[str], sequence: int) -> None:
    """Record a commit: the entity's new ETag, the ids of the stored events, and the number of its last event."""
    entity._outbox.is_new = False
    entity._outbox.sequence = sequence
    # A deleted entity has no ETag to offer: a conditional read with it would return "not modified".
    entity._outbox.etag = None if entity._outbox.deleted else etag
    entity._outbox.raised = [raised for raised in entity._outbox.raised if raised.event.id not in event_ids]


def _stored_sequence(document: Mapping[str, Any]) -> int:
    # Documents written before events were numbered have none.
    stored = document.get("sequence")
    return stored if isinstance(stored, int) else 0
