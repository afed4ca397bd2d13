"""The load of a soak: batches as the trigger delivers them, whose partition keys change over time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

BATCH = 1000

# Of each batch: documents of other types, and one malformed event that is quarantined.
_IGNORED = 49
_POISON = 1
EVENTS_IN_BATCH = BATCH - _IGNORED - _POISON

# A key occurs in this many consecutive batches and never again, so state kept per key would show as growth.
_BATCHES_PER_KEY = 10
_CONCURRENT_KEYS = 25


def batches(events: int) -> Iterator[list[dict[str, Any]]]:
    """Yield batches of `BATCH` documents, enough for at least `events` domain events."""
    for number in range(-(-events // EVENTS_IN_BATCH)):
        yield [_document(number, position) for position in range(BATCH)]


def _document(batch: int, position: int) -> dict[str, Any]:
    key = f"contact-{batch // _BATCHES_PER_KEY:06}-{position % _CONCURRENT_KEYS:02}-4735-9422-c39a7c4af5c2"
    document: dict[str, Any] = {
        "id": f"{batch:08}-{position:04}-4ac7-ae22-6f4025ba9ca0",
        "partitionKey": key,
        "type": "domainEvent" if position < EVENTS_IN_BATCH + _POISON else "contact",
        "data": {
            "action": "ContactAddressUpdatedEvent",
            "address": {"street": "Bahnhofstraße 12", "city": "Zürich", "postalCode": f"{position:05}"},
            "tags": ["soak", str(batch)],
            "contactId": key,
            "createdAt": "2026-02-09T11:37:37.3022907+02:00",
        },
        "ttl": 864000,
        "_ts": int(time.time()),
    }
    if position == EVENTS_IN_BATCH:
        document["data"] = None
    return document
