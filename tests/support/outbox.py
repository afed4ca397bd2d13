"""Outbox documents as the trigger delivers them."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from relay.backends.cosmos.source import event_of
from relay.core.documents import SourceDocument
from relay.core.events import Event, Reason, Rejected

# Recent enough that no test needs the leases.
NOW = int(time.time())


def event(identifier: str, partition_key: str, **data: Any) -> dict[str, Any]:
    """A valid domainEvent document with the system properties of Cosmos DB."""
    return {
        "id": identifier,
        "partitionKey": partition_key,
        "type": "domainEvent",
        "data": {"action": "ContactNameUpdatedEvent", "createdAt": "2026-02-09T11:37:37.3022907+02:00", **data},
        "ttl": 864000,
        "_ts": NOW,
        "_etag": f'"{identifier}"',
    }


def just_committed(document: dict[str, Any]) -> dict[str, Any]:
    """The document as committed now: no other process can have attempted it."""
    return document | {"_ts": int(time.time())}


def events(partition_key: str, count: int, **data: Any) -> list[dict[str, Any]]:
    """`count` events of one partition key, numbered in order."""
    return [event(f"{partition_key}-{number}", partition_key, n=number, **data) for number in range(count)]


def plain(document: dict[str, Any]) -> SourceDocument:
    """A document whose fields have their own names, as its source reads it."""
    return SourceDocument.plain(document)


def sound(document: dict[str, Any], position: int = 0) -> Event:
    """The event of a document that is one."""
    made = event_of(SourceDocument.plain(document), position)
    assert isinstance(made, Event), made
    return made


def rejected(reason: Reason, *documents: dict[str, Any], first: int = 0) -> list[Rejected]:
    """The rejections of documents, whether they are sound or not, in the order given."""
    made = []
    for position, document in enumerate(documents, first):
        event = event_of(SourceDocument.plain(document), position)
        rejection = Rejected.of(event, reason, "") if isinstance(event, Event) else event
        made.append(replace(rejection, reason=reason, detail="as the test says"))
    return made
