"""The rows that one commit writes for one contact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from outbox_relay.outbox import EntityState, traceparent
from outbox_relay.outbox.batch import Operation
from outbox_relay.outbox.data_object import Position, entity_object, event_object
from outbox_relay.outbox.entities import raised_by, sequence_of
from samples.contacts.domain import Contact

_EVENT_TYPE = "domainEvent"
# Of a document in Cosmos DB; rows do not expire.
_NO_TTL = -1


@dataclass(frozen=True, slots=True)
class Change:
    """A snapshot, so that a repeated commit writes the same.

    Attributes:
        contact: The contact.
        replaces: The version that has to be stored; None for a new contact.
        version: The version that is written.
        sequence: The number of the last event that is written.
        row: The contact's row.
        events: The events' rows, in order; at least one.
    """

    contact: Contact
    replaces: int | None
    version: int
    sequence: int
    row: dict[str, Any]
    events: list[dict[str, Any]]

    @property
    def event_ids(self) -> list[str]:
        """The ids of the events, in order."""
        return [event["id"] for event in self.events]

    @classmethod
    def of(cls, contact: Contact) -> Self:
        """Return the rows to write. Raises InvalidDocument: an event could not be relayed unchanged."""
        number = sequence_of(contact)
        events: list[dict[str, Any]] = []
        for order, raised in enumerate(raised_by(contact)):
            number += 1
            source = event_object(
                raised.event,
                contact,
                Position(number, order),
                document_type=_EVENT_TYPE,
                ttl=_NO_TTL,
                traceparent=traceparent.current(),
            )
            events.append(_event_row(Operation.of(source).document))
        stored = entity_object(contact, EntityState.UPDATED, contact.etag, number)
        row = {
            "id": contact.id,
            "version": contact.version,
            "sequence": number,
            "deleted": contact.deleted,
            "data": Operation.of(stored).document["data"],
        }
        replaces = None if contact.etag is None else version_of(contact.etag)
        return cls(contact, replaces, contact.version, number, row, events)


def etag_of(version: int) -> str:
    """Return the ETag of a version, in quotes."""
    return f'"{version}"'


def version_of(etag: str) -> int:
    """Return the version that has this ETag."""
    return int(etag.strip('"'))


def _event_row(document: dict[str, Any]) -> dict[str, Any]:
    data = document["data"]
    return {
        "id": document["id"],
        "partition_key": document["partitionKey"],
        "action": data["action"],
        "data": data,
        "created_at": data["createdAt"],
        "traceparent": document.get("traceparent"),
        "sequence": document["sequence"],
        "type": document["type"],
    }
