"""Stored documents stay byte for byte: what the classes below were stored as is in recorded_documents.jsonl.

Services have such documents in their containers. Never record them again to make this test pass.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any, Literal, NamedTuple, NewType, Self, TypedDict

import pytest

from outbox_relay.outbox import DomainEntity, DomainEvent, EntityState
from outbox_relay.outbox.batch import Operation, encode
from outbox_relay.outbox.data_object import DataObject, Position, entity_object, event_object
from outbox_relay.outbox.versions import restore
from samples.contacts.domain import Company, Contact
from samples.contacts.domain import Name as ContactName
from tests.support.orders import Customer, CustomerRenamed, Name, Order, OrderNoted

RECORDED = Path(__file__).with_name("recorded_documents.jsonl")

Sku = NewType("Sku", str)


class Colour(StrEnum):
    RED = "red"


class Rank(IntEnum):
    FIRST = 1


class Size(TypedDict):
    width: int


class Point(NamedTuple):
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Product:
    sku: Sku
    size: Size | None = None
    colour: Colour = Colour.RED


@dataclass
class Line:
    product: Product
    unit_price: str
    tags: tuple[str, ...] = ()
    parts: list[Line] = field(default_factory=list)
    _checked_by: str | None = None
    checked: bool = field(default=False, init=False)


@dataclass(frozen=True)
class Total:
    amount: str
    digits: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digits", len(self.amount))


@dataclass
class Basket(DomainEntity):
    ttl = 3600

    lines: list[Line]
    position: tuple[int, Line | None]
    gift: Line | str | None = None
    by_room: Mapping[str, Sequence[Product]] = field(default_factory=dict)
    history: tuple[tuple[Line, ...], ...] = ()
    total: Total | None = None
    rank: Literal["high", "low"] = "low"
    _rate: float = 1.0
    line_2: Any = None

    def created_event(self) -> DomainEvent:
        return BasketFilled(self.lines, self.position, {"a": (1, Product(Sku("x")))})


@dataclass(frozen=True)
class BasketFilled(DomainEvent):
    all_lines: list[Line]
    position: tuple[int, Line | None]
    anything: Any


@dataclass
class Invoice(DomainEntity):
    """Dates and decimals are strings, by the class's own hand."""

    due_on: date
    amount: Decimal
    sent_at: datetime | None = None

    def created_event(self) -> DomainEvent:
        return DomainEvent()

    def to_data(self) -> dict[str, Any]:
        sent_at = None if self.sent_at is None else self.sent_at.isoformat()
        return {"dueOn": self.due_on.isoformat(), "amount": str(self.amount), "sentAt": sent_at}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        sent_at = None if data["sentAt"] is None else datetime.fromisoformat(data["sentAt"])
        return cls(date.fromisoformat(data["dueOn"]), Decimal(data["amount"]), sent_at)


def a_line(**changes: Any) -> Line:
    inner = Line(Product(Sku("b"), {"width": 3}), "0.10", ("süß", "\U0001f600"), [], "me")
    line = Line(Product(Sku("a")), "12.50", (), [inner])
    line.checked = True
    return replace(line, **changes) if changes else line


NUMBERS = [0, -1, 2**53 - 1, 1.0, -0.0, 1e22, 5e-324, 0.1, True, None]
ENTITIES: dict[str, DomainEntity] = {
    "order": Order("tea", 2, "1.00", {"deep": [1, {"": "\u2028</script>"}], "tuple": (1, Point(1, 2))}, id="o1"),
    "order with defaults": Order("", id="o2", partition_key="p 2"),
    "order with numbers": Order("tea", note=NUMBERS, id="o3"),
    "order with members of enums": Order("tea", note=[Colour.RED, Rank.FIRST, {Colour.RED: 1}], id="o4"),
    "customer": Customer(Name("Ada", "Lovelace"), id="c1"),
    "basket": Basket(
        [a_line()], (3, a_line()), a_line(), {"hall": [Product(Sku("h"))]}, ((a_line(),), ()), Total("10"), id="b1"
    ),
    "basket without lines": Basket([], (0, None), "a card", {"hall": []}, line_2={"x": 1}, id="b2"),
    "invoice": Invoice(date(2026, 3, 1), Decimal("12.50"), datetime(2026, 3, 1, 12, 30, tzinfo=UTC), id="i1"),
    "contact": Contact(ContactName("John", "Doe"), "j@contoso.com", Company("Contoso"), id="k1"),
}
CREATED_AT = "2026-02-09T11:37:37.302290+00:00"
EVENTS: dict[str, DomainEvent] = {
    "noted": OrderNoted(
        {"line": a_line(), "points": [Point(1, 2), Name("a", "b")]}, id="e1", created_at=CREATED_AT
    ),
    "renamed": CustomerRenamed(Name("Ada", "Byron"), id="e2", created_at=CREATED_AT),
    "filled": BasketFilled([a_line()], (1, a_line()), Colour.RED, id="e3", created_at=CREATED_AT),
    "viewed": DomainEvent(id="e4", created_at=CREATED_AT),
}


def decorated(data: Any) -> Any:
    """`data` with members that no class has in each object but a mapping, one first and one last."""
    if isinstance(data, dict):
        inner = {name: decorated(value) for name, value in data.items()}
        return inner if "hall" in data else {"addedFirst": 1, **inner, "addedLater": [{"by": "another"}]}
    return [decorated(each) for each in data] if isinstance(data, list) else data


def sent(source: DataObject[Any]) -> str:
    return encode(Operation.of(source).as_sent())


def stored(entity: DomainEntity) -> str:
    if isinstance(entity, Contact):
        entity._created_at = CREATED_AT
    return sent(entity_object(entity, EntityState.CREATED, None, 1))


def stored_again(entity: DomainEntity) -> str:
    """The document stored for an entity that was read with members of another writer."""
    document = json.loads(stored(entity))["resourceBody"]
    read = restore(type(entity), {**document, "data": decorated(document["data"]), "beside": {}, "_etag": '"1"'})
    return sent(entity_object(read, EntityState.UPDATED, '"1"', 2))


def published(event: DomainEvent) -> str:
    about = ENTITIES["order"]
    position = Position(1, 0)
    return sent(event_object(event, about, position, document_type="domainEvent", ttl=60, traceparent=None))


def documents() -> Iterator[tuple[str, str]]:
    for name, entity in ENTITIES.items():
        yield name, stored(entity)
        yield f"{name}, read and stored again", stored_again(entity)
    for name, event in EVENTS.items():
        yield f"event: {name}", published(event)


def recorded() -> dict[str, str]:
    return dict(json.loads(line) for line in RECORDED.read_text(encoding="ascii").splitlines())


@pytest.mark.parametrize(("name", "text"), list(documents()))
def test_a_document_is_stored_as_it_was_recorded(name: str, text: str) -> None:
    assert text == recorded()[name]


def test_every_recorded_document_is_compared() -> None:
    assert recorded().keys() == dict(documents()).keys()


@pytest.mark.parametrize("name", ENTITIES)
def test_a_recorded_document_is_read_as_the_entity_that_was_stored(name: str) -> None:
    document = json.loads(recorded()[name])["resourceBody"]
    entity = ENTITIES[name]

    again = restore(type(entity), {**document, "_etag": '"1"'})

    assert again.id == entity.id
    assert stored(again) == recorded()[name]
    if isinstance(entity, Basket):
        assert isinstance(again, Basket)
        assert (again.lines, again.position, again.gift) == (entity.lines, entity.position, entity.gift)
        assert (again.by_room, again.history, again.total) == (entity.by_room, entity.history, entity.total)
    if isinstance(entity, Invoice):
        assert isinstance(again, Invoice)
        assert (again.due_on, again.amount, again.sent_at) == (entity.due_on, entity.amount, entity.sent_at)
