"""Parked keys and orders to set an event aside, as they stand in the quarantine.

Both are items with the partition key of the event:

- `{"id": "parked", "type": "parkedKey", "since": …, "because": <record id>}`: the key is parked. While this marker
  exists, every further event of the key is stored behind the one that parked it, instead of being published.
- `{"id": "set-aside:<digest>", "type": "setAsideOrder", "eventId": …, "orderedAt": …}`: an operator wants this
  event quarantined at its next attempt. An id may hold `/`, `?` and `#`, with which no item can be addressed by
  name, so the order's id is a digest of it.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

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


def _now() -> str:
    return datetime.now(UTC).isoformat()
