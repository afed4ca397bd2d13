"""Dataclasses, attrs classes and Pydantic models work as entities, as events, and within one another."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import attrs
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outbox_relay.outbox.attrs as outbox_attrs
import outbox_relay.outbox.pydantic as outbox_pydantic
from outbox_relay.outbox import DomainEntity, DomainEvent, EntityState, Repository
from outbox_relay.outbox.context import ContainerContext
from outbox_relay.outbox.versions import restore
from tests.support.watchdog import WATCHDOG_S
from tests.unit.outbox.commits import batch, documents


@dataclass(frozen=True)
class Price:
    amount_due: str
    currency: str = "EUR"


@attrs.frozen
class Weight:
    in_grams: int


class Size(pydantic.BaseModel):
    width_cm: int
    on: date | None = None


@dataclass
class DataclassLine:
    price: Price
    weight: Weight | None = None
    sizes: tuple[Size, ...] = ()
    _note: str = ""


@attrs.define
class AttrsLine:
    price: Price
    weight: Weight | None = None
    sizes: tuple[Size, ...] = ()
    _note: str = ""
    count: int = attrs.field(default=0, init=False)


class ModelLine(pydantic.BaseModel):
    price: Price
    sizes: tuple[Size, ...] = ()
    note: str = pydantic.Field("", serialization_alias="theNote", validation_alias="theNote")


@dataclass(frozen=True)
class DataclassPlaced(DomainEvent):
    replaces_earlier = True
    all_lines: list[DataclassLine]


@attrs.frozen
class AttrsPlaced(outbox_attrs.DomainEvent):
    replaces_earlier = True
    all_lines: list[AttrsLine]


class ModelPlaced(outbox_pydantic.DomainEvent, frozen=True):
    replaces_earlier = True
    all_lines: list[ModelLine]


@dataclass
class DataclassOrder(DomainEntity):
    ttl = 60
    all_lines: list[DataclassLine]
    by_room: Mapping[str, DataclassLine]
    title: str = ""

    def created_event(self) -> DataclassPlaced:
        return DataclassPlaced(self.all_lines)

    def deleted_event(self) -> DomainEvent:
        return DomainEvent()


@attrs.define
class AttrsOrder(outbox_attrs.DomainEntity):
    ttl = 60
    all_lines: list[AttrsLine]
    by_room: Mapping[str, AttrsLine]
    title: str = ""

    def created_event(self) -> AttrsPlaced:
        return AttrsPlaced(self.all_lines)

    def deleted_event(self) -> DomainEvent:
        return DomainEvent()


class ModelOrder(outbox_pydantic.DomainEntity):
    ttl = 60
    all_lines: list[ModelLine]
    by_room: dict[str, ModelLine]
    title: str = ""

    def created_event(self) -> ModelPlaced:
        return ModelPlaced(all_lines=self.all_lines)

    def deleted_event(self) -> DomainEvent:
        return DomainEvent()


PRICE = Price("1.50")
SIZES = (Size(width_cm=3, on=date(2026, 3, 1)), Size(width_cm=4))


def dataclass_order(**identity: Any) -> DataclassOrder:
    line = DataclassLine(PRICE, Weight(5), SIZES, "fragile")
    return DataclassOrder([line], {"hall": replace(line)}, "tea", **identity)


def attrs_order(**identity: Any) -> AttrsOrder:
    line = AttrsLine(PRICE, Weight(5), SIZES, "fragile")
    line.count = 2
    return AttrsOrder([line], {"hall": AttrsLine(PRICE)}, "tea", **identity)


def model_order(**identity: Any) -> ModelOrder:
    line = ModelLine.model_validate({"price": PRICE, "sizes": SIZES, "theNote": "fragile"})
    return ModelOrder(
        all_lines=[line], by_room={"hall": ModelLine.model_validate({"price": PRICE})}, title="tea", **identity
    )


EVERY_KIND = pytest.mark.parametrize("new", [dataclass_order, attrs_order, model_order])
New = Callable[..., Any]


def read(order: DomainEntity, **changes: Any) -> Any:
    """The order as it is read after a commit."""
    data = {**json.loads(json.dumps(order.to_data())), **changes}
    return restore(type(order), {"id": order.id, "partitionKey": order.id, "data": data, "_etag": '"1"'})


@EVERY_KIND
def test_an_entity_is_read_back_as_it_was_stored(new: New) -> None:
    order = new(id="o1", partition_key="o1")

    again = read(order)

    assert again == order
    assert again.to_data() == order.to_data()
    assert (again.id, again.etag, again.is_new, again.domain_events) == ("o1", '"1"', False, ())
    assert again.ttl == 60


@EVERY_KIND
def test_an_entity_and_its_event_are_stored_under_names_in_camel_case(context: ContainerContext, new: New) -> None:
    order = new(id="o1")
    Repository(context, type(order)).create(order)

    entity, event = documents(context)

    line = entity["data"]["allLines"][0]
    assert entity["type"] in ("dataclassOrder", "attrsOrder", "modelOrder")
    assert list(entity["data"]) == ["allLines", "byRoom", "title", "id", "deleted"]
    assert line["sizes"] == [{"width_cm": 3, "on": "2026-03-01"}, {"width_cm": 4, "on": None}]
    assert event["data"]["allLines"] == [line]
    assert event["data"]["action"] == type(order.domain_events[0]).__name__
    assert event["data"].keys() == {"allLines", f"{entity['type']}Id", "action", "id", "createdAt"}
    assert batch(context).operations[1].document == event


@EVERY_KIND
def test_an_entity_collects_events_as_any_other(new: New) -> None:
    order = new()
    before = order.domain_events[0]
    order.add_event(DomainEvent())
    after = order.domain_events[0]

    assert (before.id, before.created_at) == (after.id, after.created_at)
    assert len(order.domain_events) == 2
    assert new().id != order.id

    stored = read(order)
    for lines in (1, 2):
        stored.add_event(type(before)(all_lines=stored.all_lines * lines))
    stored.delete()
    replacing, deleted = stored.domain_events
    assert (len(replacing.all_lines), deleted.action, stored.deleted) == (2, "DomainEvent", True)


@EVERY_KIND
def test_members_that_no_class_has_are_stored_again_at_every_level(context: ContainerContext, new: New) -> None:
    def decorated(data: Any) -> Any:
        if isinstance(data, dict):
            inner = {name: decorated(value) for name, value in data.items()}
            return inner if "hall" in data else {**inner, "addedLater": [1]}
        return [decorated(each) for each in data] if isinstance(data, list) else data

    data = decorated(new(id="o1").to_data())
    order = restore(type(new()), {"id": "o1", "partitionKey": "o1", "data": data, "_etag": '"1"', "beside": 1})
    order.title = "coffee"
    context.add(order, EntityState.UPDATED)

    (operation,) = batch(context).operations

    assert operation.document["data"] == {**data, "title": "coffee"}
    assert operation.document["beside"] == 1


@EVERY_KIND
def test_a_member_that_is_missing_is_named(new: New) -> None:
    order = new()
    lines = [{"price": {"amount_due": "1", "amountDue": "1"}}, {"sizes": []}]

    with pytest.raises(TypeError, match=rf"^{type(order).__name__}\.(all_lines|allLines)\[1\]\.price "):
        read(order, allLines=lines)


@EVERY_KIND
def test_internal_state_is_in_neither_the_repr_nor_the_comparison(new: New) -> None:
    one, other = new(id="o1"), new(id="o1")
    other.add_event(DomainEvent())

    assert one == other
    assert one != new(id="o2")
    assert "_outbox" not in repr(one)


@attrs.frozen
class AttrsNoted(outbox_attrs.DomainEvent):
    text: str


class ModelNoted(outbox_pydantic.DomainEvent, frozen=True):
    text: str


@pytest.mark.parametrize("event", [AttrsNoted, ModelNoted])
def test_an_event_is_immutable_and_none_replaces_another_by_default(event: Any) -> None:
    order = read(dataclass_order())
    order.add_event(event(text="a"))
    order.add_event(event(text="b"))

    one, other = order.domain_events
    assert (one.text, other.text, one.action) == ("a", "b", event.__name__)
    for name in ("id", "text"):
        with pytest.raises((attrs.exceptions.FrozenInstanceError, pydantic.ValidationError)):
            setattr(one, name, "changed")


@EVERY_KIND
def test_the_constructor_takes_the_fields_and_the_identity_alone(new: New) -> None:
    assert set(inspect.signature(type(new())).parameters) - {"partitionKey", "allLines", "byRoom"} <= {
        *("id", "partition_key", "all_lines", "by_room", "title")
    }


def test_an_attrs_class_of_the_other_base_class_is_told_its_own() -> None:
    @attrs.define
    class Wrong(DomainEntity):
        def created_event(self) -> DomainEvent:
            return DomainEvent()

    with pytest.raises(
        TypeError, match=r"Wrong is an attrs class: derive it from .+\.outbox\.attrs\.DomainEntity"
    ):
        Wrong()


def test_an_entity_may_require_an_id() -> None:
    @dataclass
    class Numbered(DomainEntity):
        id: str
        title: str = ""

        def created_event(self) -> DomainEvent:
            return DomainEvent()

    class NumberedModel(outbox_pydantic.DomainEntity):
        id: str
        title: str = ""

        def created_event(self) -> DomainEvent:
            return DomainEvent()

    for order in (Numbered(id="o1", title="a"), NumberedModel(id="o1", title="a")):
        assert (read(order).id, read(order).title) == ("o1", "a")


def test_an_attrs_field_without_an_annotation_is_stored_as_it_is() -> None:
    namespace = {"created_event": lambda self: DomainEvent()}
    plain: Any = attrs.make_class("Plain", ["note"], bases=(outbox_attrs.DomainEntity,), class_body=namespace)

    assert read(plain(note={"a": [1]})).note == {"a": [1]}


class Colour(Enum):
    RED = "red"


class Exact(outbox_pydantic.DomainEntity):
    """Values that dataclasses cannot store without their own methods."""

    on: date
    at: datetime
    amount: Decimal
    colour: Colour
    tags: frozenset[str]
    number: UUID
    lasts: timedelta
    by_day: dict[int, str]

    def created_event(self) -> DomainEvent:
        return ExactHappened(on=self.on, amount=self.amount, the_colour=self.colour)


class ExactHappened(outbox_pydantic.DomainEvent, frozen=True):
    on: date
    amount: Decimal
    the_colour: Colour


@settings(max_examples=40)
@given(
    st.builds(
        Exact,
        on=st.dates(),
        at=st.datetimes(timezones=st.just(UTC) | st.none()),
        amount=st.decimals(allow_nan=False, allow_infinity=False),
        colour=st.just(Colour.RED),
        tags=st.frozensets(st.text("ab")),
        number=st.uuids(),
        lasts=st.timedeltas(timedelta(0), timedelta(days=99)),
        by_day=st.dictionaries(st.integers(0, 9), st.text("ab")),
    )
)
def test_what_pydantic_stores_is_read_back_equal(entity: Exact) -> None:
    again = read(entity)

    assert again.model_copy(update={"partition_key": None}) == entity


def test_dates_and_decimals_of_a_model_are_strings_in_the_event() -> None:
    event = ExactHappened(on=date(2026, 3, 1), amount=Decimal("1.50"), the_colour=Colour.RED)

    assert event.to_data() == {"on": "2026-03-01", "amount": "1.50", "theColour": "red"}


class Loose(outbox_pydantic.DomainEntity, extra="allow"):
    note: Any = None
    rounded: Decimal = Decimal(0)
    size: Size | None = None

    @pydantic.field_serializer("rounded")
    def _round(self, value: Decimal) -> str:
        return str(round(value))

    def created_event(self) -> DomainEvent:
        return DomainEvent()


class Special(Size):
    more: int = 1


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"note": date(2026, 3, 1)}, "note holds a date that would be read again as a str"),
        ({"rounded": Decimal("1.5")}, "rounded holds a Decimal that would be read again as another one"),
        ({"size": Special(width_cm=1)}, "size holds a Special that would be read again as a Size"),
        ({"unknown": date(2026, 3, 1)}, "holds a date that would be read again as a str"),
        ({"note": object()}, "Loose cannot be stored"),
    ],
)
def test_a_value_that_pydantic_would_not_read_back_is_reported_by_its_field(
    context: ContainerContext, values: dict[str, Any], complaint: str
) -> None:
    loose = Loose(**values)
    Repository(context, Loose).create(loose)

    with pytest.raises(TypeError, match=complaint):
        batch(context)


class LoggedIn(outbox_pydantic.DomainEvent, frozen=True):
    note: Any = None
    token: pydantic.SecretStr = pydantic.SecretStr("")
    keys: list[dict[str, pydantic.SecretBytes]] = pydantic.Field(default_factory=list)
    shown: pydantic.SecretStr = pydantic.SecretStr("")

    @pydantic.field_serializer("shown", when_used="json")
    def _shown(self, value: pydantic.SecretStr) -> str:
        return value.get_secret_value()


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"token": "hunter2"}, "LoggedIn cannot be stored: token is a SecretStr, of which only a mask would be"),
        (
            {"keys": [{"a": b"x"}]},
            r"LoggedIn cannot be stored: keys\[0\].a is a SecretBytes, of which only a mask",
        ),
        ({"note": {1: "a", "1": "b"}}, "LoggedIn cannot be stored: note has keys that would become one"),
        ({"note": [{"a": {None: 1, "None": 2}}]}, r"LoggedIn cannot be stored: note\[0\].a has keys that would"),
    ],
)
def test_an_event_of_which_pydantic_would_store_less_is_refused(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint) as refused:
        LoggedIn(**values).to_data()

    assert "hunter2" not in str(refused.value)


def test_an_event_may_have_a_secret_that_it_shows() -> None:
    event = LoggedIn(shown=pydantic.SecretStr("visible"), note={1: "a", 2: (1, {"b"}, date(2026, 3, 1))})

    data = event.to_data()
    assert data["shown"] == "visible"
    assert data["note"] == {"1": "a", "2": [1, ["b"], "2026-03-01"]}


class Packed(outbox_pydantic.DomainEntity):
    """Stored in other shapes than it has in Python."""

    by_name: dict[str, Size] = pydantic.Field(default_factory=dict)
    tags: list[str] = pydantic.Field(default_factory=list)
    unique: list[Size] = pydantic.Field(default_factory=list)
    ratio: Decimal = Decimal(0)

    @pydantic.field_serializer("by_name")
    def _as_pairs(self, value: dict[str, Size]) -> list[Any]:
        return [[name, size.width_cm] for name, size in value.items()]

    @pydantic.field_serializer("tags")
    def _joined(self, value: list[str]) -> str:
        return ",".join(value)

    @pydantic.field_serializer("ratio")
    def _fraction(self, value: Decimal) -> list[int]:
        return list(value.as_integer_ratio())

    @pydantic.field_validator("by_name", "tags", "unique", "ratio", mode="before")
    @classmethod
    def _unpacked(cls, value: Any, info: pydantic.ValidationInfo) -> Any:
        if info.field_name == "by_name":
            return {name: Size(width_cm=width) for name, width in value} if isinstance(value, list) else value
        if info.field_name == "ratio":
            return Decimal(value[0]) / value[1] if isinstance(value, list) else value
        if info.field_name == "tags":
            return [tag for tag in value.split(",") if tag] if isinstance(value, str) else value
        return [each for index, each in enumerate(value) if each not in value[:index]]

    def created_event(self) -> DomainEvent:
        return DomainEvent()


def test_a_model_may_be_stored_in_another_shape_than_it_has() -> None:
    sizes = {"a": Size(width_cm=1)}
    packed = Packed(id="o1", partition_key="o1", by_name=sizes, tags=["b", "c"], ratio=Decimal("0.5"))

    stored = packed.to_data()

    assert (stored["byName"], stored["tags"], stored["ratio"]) == ([["a", 1]], "b,c", [1, 2])
    assert read(packed) == packed


def test_data_that_a_model_reads_as_fewer_elements_is_stored_as_these() -> None:
    one, other = {"width_cm": 1, "on": None}, {"width_cm": 2, "on": None}

    assert read(Packed(), unique=[one, one, other]).to_data()["unique"] == [one, other]


def test_data_that_a_model_rejects_is_named_without_its_value() -> None:
    with pytest.raises(TypeError, match=r"^Exact\.on is not valid: ") as raised:
        Exact.from_data({"on": "the secret"})
    assert "secret" not in str(raised.value)


def test_the_library_does_not_import_pydantic() -> None:
    program = "import sys; sys.modules['pydantic'] = None; from outbox_relay.outbox import attrs"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=WATCHDOG_S)
