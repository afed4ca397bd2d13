"""Parked keys and orders to set an event aside, as they stand in the quarantine container.

Both are documents with the partition key of the event:

- `{"id": "parked", "type": "parkedKey", "since": …, "because": <record id>}`: the key is parked. While this marker
  exists, every further event of the key is stored behind the one that parked it, instead of being published.
- `{"id": "set-aside:<digest>", "type": "setAsideOrder", "eventId": …, "orderedAt": …}`: an operator wants this
  event quarantined at its next attempt. An id may hold `/`, `?` and `#`, with which no item can be addressed by
  name, so the order's id is a digest of it.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from relay.holds import Holds

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy

PARKED_TYPE = "parkedKey"
PARKED_ID = "parked"
ORDER_TYPE = "setAsideOrder"
ORDER_PREFIX = "set-aside:"


def order_id(event_id: str) -> str:
    """The id of the order to set an event aside."""
    return ORDER_PREFIX + hashlib.sha256(event_id.encode(errors="surrogatepass")).hexdigest()


def marker(partition_key: str, because: str) -> dict[str, Any]:
    """What makes a key parked; `because` is the id of the record that parked it."""
    return {
        "id": PARKED_ID,
        "partitionKey": partition_key,
        "type": PARKED_TYPE,
        "since": _now(),
        "because": because,
    }


def order(partition_key: str, event_id: str) -> dict[str, Any]:
    """What asks for an event to be set aside."""
    return {
        "id": order_id(event_id),
        "partitionKey": partition_key,
        "type": ORDER_TYPE,
        "eventId": event_id,
        "orderedAt": _now(),
    }


def touch() -> tuple[str, tuple[str, list[dict[str, str]]]]:
    """The batch operation that changes a marker's ETag, and fails with 404 where the key is parked no more."""
    return "patch", (PARKED_ID, [{"op": "set", "path": "/touchedAt", "value": _now()}])


async def read_holds(container: ContainerProxy) -> Holds:
    """All holds, by one query. It may be answered by a replica that has not seen the latest ones.

    Raises:
        azure.core.exceptions.AzureError: The quarantine container cannot be read.
    """
    rows = container.query_items(
        "SELECT c.type, c.partitionKey, c.eventId FROM c WHERE c.type IN (@parked, @order)",
        parameters=[{"name": "@parked", "value": PARKED_TYPE}, {"name": "@order", "value": ORDER_TYPE}],
    )
    parked, set_aside = set(), set()
    async for row in rows:
        if row["type"] == PARKED_TYPE:
            parked.add(row["partitionKey"])
        else:
            set_aside.add((row["partitionKey"], row["eventId"]))
    return Holds(frozenset(parked), frozenset(set_aside))


def _now() -> str:
    return datetime.now(UTC).isoformat()
