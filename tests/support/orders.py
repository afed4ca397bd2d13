"""A small domain for the outbox tests: orders as a dataclass, customers as a plain class with a value object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from outbox_relay.outbox import DomainEntity, DomainEvent


@dataclass(frozen=True)
class OrderPlaced(DomainEvent):
    item_name: str
    quantity: int


@dataclass(frozen=True)
class OrderResized(DomainEvent):
    quantity: int


@dataclass(frozen=True)
class OrderLineAdded(DomainEvent):
    item_name: str


@dataclass(frozen=True)
class OrderNoted(DomainEvent):
    replaces_earlier = True

    note: Any


@dataclass(frozen=True)
class OrderPaid(DomainEvent):
    amount: str


class OrderWithdrawn(DomainEvent):
    pass


class OrderViewed(DomainEvent):
    pass


@dataclass
class Order(DomainEntity):
    item_name: str
    quantity: int = 1
    paid: str | None = None
    note: Any = None

    def created_event(self) -> OrderPlaced:
        return OrderPlaced(self.item_name, self.quantity)

    def deleted_event(self) -> OrderWithdrawn:
        return OrderWithdrawn()

    def resize(self, quantity: int) -> None:
        self.quantity = quantity
        self.add_event(OrderResized(quantity))

    def add_line(self, item_name: str) -> None:
        self.add_event(OrderLineAdded(item_name))

    def take_note(self, note: Any) -> None:
        self.note = note
        self.add_event(OrderNoted(note))

    def pay(self, amount: str) -> None:
        self.paid = amount
        self.add_event(OrderPaid(amount))


@dataclass(frozen=True, slots=True)
class Name:
    first_name: str
    last_name: str


@dataclass(frozen=True)
class CustomerRegistered(DomainEvent):
    name: Name


@dataclass(frozen=True)
class CustomerRenamed(DomainEvent):
    action = "CustomerNameUpdated"
    name: Name


class Customer(DomainEntity):
    document_type = "client"
    ttl = 3600

    def __init__(self, name: Name, **identity: str) -> None:
        super().__init__(**identity)
        self._name = name

    @property
    def name(self) -> Name:
        return self._name

    def rename(self, name: Name) -> None:
        self._name = name
        self.add_event(CustomerRenamed(name))

    def created_event(self) -> CustomerRegistered:
        return CustomerRegistered(self._name)

    def to_data(self) -> dict[str, Any]:
        return {"first": self._name.first_name, "last": self._name.last_name}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        return cls(Name(data["first"], data["last"]))
