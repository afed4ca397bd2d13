"""Outbox documents as the trigger delivers them."""

from __future__ import annotations

import time
from typing import Any

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


def events(partition_key: str, count: int, **data: Any) -> list[dict[str, Any]]:
    """`count` events of one partition key, numbered in order."""
    return [event(f"{partition_key}-{number}", partition_key, n=number, **data) for number in range(count)]
