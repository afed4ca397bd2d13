"""Parked partition keys, and orders to set an event aside: what the quarantine holds back.

Both are items of the quarantine, with the partition key of the event:

- `{"id": "parked", "type": "parkedKey", "since": …, "because": <record id>, "place": …}`: the key is parked. While
  this marker exists, every further event of the key is stored behind the one that parked it, instead of being
  published. What lies before that one's `place` in the feed is not affected: it was published.
- `{"id": "set-aside:<digest>", "type": "setAsideOrder", "eventId": …, "orderedAt": …}`: an operator wants this
  event quarantined at its next attempt. An id may hold `/`, `?` and `#`, with which no item can be addressed by
  name, so the order's id is a digest of it.
- The same with `"carriedOut": true` and the event's `place`: it is in quarantine, or was until an operator
  released or discarded it. The relay writes this with each record in quarantine, so that the event is
  neither published nor quarantined again by a later attempt. `passedAt` is the time at which
  the relay has found that the checkpoint has passed the event; the order is removed `KEPT_S` after it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from relay.core.events import Event, EventName, Reason, Rejected
from relay.core.place import Place

PARKED_TYPE = "parkedKey"
PARKED_ID = "parked"
ORDER_TYPE = "setAsideOrder"
ORDER_PREFIX = "set-aside:"

# Seconds that an order remains once its event is known to be passed: an attempt elsewhere may still store what it
# compared with the checkpoint before, within a minute (`relay/core/fence.py`), and clocks differ.
KEPT_S = 300.0


@dataclass(frozen=True, slots=True)
class Order:
    """An order to set an event aside: an operator's, or the relay's own for what it has quarantined.

    It holds until the checkpoint has passed the event, and some minutes more, also in other processes and after a
    restart. Once it is carried out, the event is neither published nor quarantined again, whatever an operator
    does with its record.

    Attributes:
        carried_out: Whether the event is in quarantine, or was.
        place: The event's place in its feed; None for an operator's order that has not been carried out.
        reason: The reason under which a sound event is set aside; `detail` explains it.
        passed_at: Seconds since 1970 when it was noticed that the checkpoint has passed the event.
        etag: Its version in the store.
    """

    carried_out: bool = False
    place: Place | None = None
    reason: Reason = Reason.SET_ASIDE
    detail: str = "set aside by an operator"
    passed_at: float | None = None
    etag: str | None = field(default=None, compare=False)

    @classmethod
    def to_store(cls, item: Rejected, *, carried_out: bool) -> Order:
        """Return the relay's own order for what it stores: not carried out until it is known to be stored."""
        return cls(carried_out, item.document.place, item.reason, item.detail)

    def covers(self, document: Event | Rejected) -> bool:
        """Return True if the order is about this document.

        Another version of it, at another place, is another event.
        """
        anywhere = self.place is None and not self.carried_out
        return anywhere or self.place == document.document.place


@dataclass(frozen=True, slots=True)
class Holds:
    """Events that must not be published now.

    Attributes:
        parked: By parked partition key, the place of the event that parked it; None if that is unknown.
        orders: The orders to set an event aside, by its name.
    """

    parked: Mapping[str, Place | None] = field(default_factory=dict)
    orders: Mapping[EventName, Sequence[Order]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.parked or self.orders)

    def order_for(self, document: Event | Rejected) -> Order | None:
        """Return the order that covers a document, if there is one; of several, one that is carried out."""
        name = document.name
        orders = () if name is None else self.orders.get(name, ())
        covering = [order for order in orders if order.covers(document)]
        return next((order for order in covering if order.carried_out), covering[0] if covering else None)

    def parks(self, document: Event | Rejected) -> bool:
        """Return True if a document belongs to a parked key, and is not before the event that parked it."""
        key = document.partition_key
        if key is None or key not in self.parked:
            return False
        poison, place = self.parked[key], document.document.place
        return poison is None or not place.is_before(poison)


NOTHING = Holds()
"""Nothing is held back."""


def order_id(event_id: str) -> str:
    return ORDER_PREFIX + hashlib.sha256(event_id.encode(errors="surrogatepass")).hexdigest()


def parked_marker_item(partition_key: str, because: str, place: Place | None = None) -> dict[str, Any]:
    """Return the marker of a parked key.

    `because` is the id of the record that parked it, `place` that of its event.
    """
    known = {} if place is None else {"place": place.item()}
    return {
        **known,
        "id": PARKED_ID,
        "partitionKey": partition_key,
        "type": PARKED_TYPE,
        "since": _now(),
        "because": because,
    }


def order_item(partition_key: str, event_id: str) -> dict[str, Any]:
    """Return the item that orders an event to be set aside."""
    return {
        "id": order_id(event_id),
        "partitionKey": partition_key,
        "type": ORDER_TYPE,
        "eventId": event_id,
        "orderedAt": _now(),
    }


def fulfilled_order_item(
    partition_key: str, event_id: str, place: Place, passed_at: float | None = None
) -> dict[str, Any]:
    """Return the item that keeps a quarantined document from being published or quarantined again."""
    passed = {} if passed_at is None else {"passedAt": passed_at}
    return {**order_item(partition_key, event_id), "place": place.item(), "carriedOut": True, **passed}


def is_pending(item: Mapping[str, Any]) -> bool:
    return not item.get("carriedOut")


def holds_from_items(items: Iterable[Mapping[str, Any]]) -> Holds:
    """Read the parked keys and orders among items; items of other types are ignored.

    An order needs `partitionKey`, `eventId`, `carriedOut`, `place`, `passedAt` and `_etag`; a marker the first and
    `place`.
    """
    parked: dict[str, Place | None] = {}
    orders: dict[EventName, list[Order]] = {}
    for item in items:
        place = Place.from_item(item.get("place"))
        if item["type"] == PARKED_TYPE:
            parked[item["partitionKey"]] = place
        elif item["type"] == ORDER_TYPE:
            name = (item["partitionKey"], item["eventId"])
            order = Order(not is_pending(item), place, passed_at=item.get("passedAt"), etag=item.get("_etag"))
            orders.setdefault(name, []).append(order)
    return Holds(parked, {name: tuple(each) for name, each in orders.items()})


def _now() -> str:
    return datetime.now(UTC).isoformat()
