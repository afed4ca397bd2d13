"""What the quarantine holds back: parked partition keys, and orders to set an event aside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from relay.events import Event, EventName, Reason, Rejected
from relay.place import Place


@dataclass(frozen=True, slots=True)
class Order:
    """An order to set an event aside: an operator's, or the relay's own for what it has quarantined.

    It holds until the checkpoint has passed the event, also in other processes and after a restart. Once it is
    carried out, the event is neither published nor quarantined again, whatever an operator makes of its record.

    Attributes:
        carried_out: Whether the event is in quarantine, or was.
        place: The event's place in its feed; None for an operator's order that has not been carried out.
        reason: The reason under which a sound event is set aside.
        detail: What is said of that reason.
    """

    carried_out: bool = False
    place: Place | None = None
    reason: Reason = Reason.SET_ASIDE
    detail: str = "set aside by an operator"

    @classmethod
    def to_store(cls, item: Rejected, *, carried_out: bool) -> Order:
        """The relay's own order for what it stores: not carried out until it is known to be stored."""
        return cls(carried_out, Place.of(item.document), item.reason, item.detail)

    def covers(self, document: Event | Rejected) -> bool:
        """Whether it is about this document: another version of it, at another place, is another event."""
        anywhere = self.place is None and not self.carried_out
        return anywhere or self.place == Place.of(document.document)


@dataclass(frozen=True, slots=True)
class Holds:
    """What must not be published now.

    Attributes:
        parked: By parked partition key, the place of the event that parked it; None where that is not known.
        orders: The orders to set an event aside, by its name.
    """

    parked: Mapping[str, Place | None] = field(default_factory=dict)
    orders: Mapping[EventName, Sequence[Order]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.parked or self.orders)

    def about(self, documents: Iterable[Event | Rejected]) -> Holds:
        """These holds if they concern one of the documents, else none."""
        if not self:
            return self
        found = any(each.name in self.orders or each.partition_key in self.parked for each in documents)
        return self if found else Holds()

    def order_for(self, document: Event | Rejected) -> Order | None:
        """The order that covers a document, if there is one; of several, one that is carried out."""
        name = document.name
        orders = () if name is None else self.orders.get(name, ())
        covering = [order for order in orders if order.covers(document)]
        return next((order for order in covering if order.carried_out), covering[0] if covering else None)

    def parks(self, document: Event | Rejected) -> bool:
        """Whether a document belongs to a parked key, and is not before the event that parked it."""
        key = document.partition_key
        if key is None or key not in self.parked:
            return False
        poison, place = self.parked[key], Place.of(document.document)
        return poison is None or not place.is_before(poison)
