"""Parked keys and orders to set an event aside, as they stand in the quarantine.

Both are items with the partition key of the event:

- `{"id": "parked", "type": "parkedKey", "since": …, "because": <record id>, "place": …}`: the key is parked. While
  this marker exists, every further event of the key is stored behind the one that parked it, instead of being
  published. What lies before that one's `place` in the feed is not affected: it was published.
- `{"id": "set-aside:<digest>", "type": "setAsideOrder", "eventId": …, "orderedAt": …}`: an operator wants this
  event quarantined at its next attempt. An id may hold `/`, `?` and `#`, with which no item can be addressed by
  name, so the order's id is a digest of it.
- The same with `"carriedOut": true` and the event's `place`: it is in quarantine, or was until an operator
  released or discarded it. The relay writes this with the record of whatever it quarantines, so that the event is
  neither published nor quarantined again by a later attempt. It is removed once the checkpoint has passed the
  event.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from relay.events import EventName, Rejected
from relay.holds import Holds, Order
from relay.place import Place

PARKED_TYPE = "parkedKey"
PARKED_ID = "parked"
ORDER_TYPE = "setAsideOrder"
ORDER_PREFIX = "set-aside:"


def order_id(event_id: str) -> str:
    """The id of the order to set an event aside."""
    return ORDER_PREFIX + hashlib.sha256(event_id.encode(errors="surrogatepass")).hexdigest()


def marker(partition_key: str, because: str, place: Place | None = None) -> dict[str, Any]:
    """What makes a key parked; `because` is the id of the record that parked it, `place` that of its event."""
    known = {} if place is None else {"place": place.item()}
    return {
        **known,
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


def carried_out(item: Rejected) -> dict[str, Any] | None:
    """What keeps a quarantined document from being published or quarantined again; None where it has no key."""
    if item.partition_key is None:
        return None
    place = Place.of(item.document).item()
    return {**order(item.partition_key, item.id), "place": place, "carriedOut": True}


def is_pending(item: Mapping[str, Any]) -> bool:
    """Whether an order has not been carried out."""
    return not item.get("carriedOut")


def read(items: Iterable[Mapping[str, Any]]) -> Holds:
    """What parked keys and orders mean; items of other types are ignored.

    An order needs `partitionKey`, `eventId`, `carriedOut` and `place`; a marker the first and the last.
    """
    parked: dict[str, Place | None] = {}
    orders: dict[EventName, list[Order]] = {}
    for item in items:
        place = Place.from_item(item.get("place"))
        if item["type"] == PARKED_TYPE:
            parked[item["partitionKey"]] = place
        elif item["type"] == ORDER_TYPE:
            name = (item["partitionKey"], item["eventId"])
            orders.setdefault(name, []).append(Order(not is_pending(item), place))
    return Holds(parked, {name: tuple(each) for name, each in orders.items()})


def _now() -> str:
    return datetime.now(UTC).isoformat()
