"""Entities with dataclasses in lists, tuples, objects and unions: stored, read, changed, stored again."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from enum import Enum, IntEnum, IntFlag, StrEnum
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NewType, Protocol, TypedDict, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import TypeAliasType

from outbox_relay.outbox import DomainEntity, DomainEvent, InvalidDocument, Repository
from outbox_relay.outbox.context import ContainerContext
from outbox_relay.outbox.versions import restore
from tests.unit.outbox.commits import batch

Sku = NewType("Sku", str)


class Size(TypedDict):
    width: int


@dataclass(frozen=True, slots=True)
class Product:
    sku: Sku
    size: Size | None = None


@dataclass
class Line:
    product: Product
    unit_price: str
    tags: tuple[str, ...] = ()
    parts: list[Line] = field(default_factory=list)
    checked: bool = field(default=False, init=False)


@dataclass
class Basket(DomainEntity):
    lines: list[Line]
    position: tuple[int, Line | None]
    gift: Line | str | None = None
    by_room: Mapping[str, Sequence[Product]] = field(default_factory=dict)
    history: tuple[tuple[Line, ...], ...] = ()
    note: Any = None

    def created_event(self) -> DomainEvent:
        return DomainEvent()


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
PRODUCTS = st.builds(Product, TEXT, st.none() | st.fixed_dictionaries({"width": st.integers(0, 9)}))


@st.composite
def lines(draw: st.DrawFn, parts: int = 2) -> Line:
    inner = draw(st.lists(lines(parts - 1), max_size=2)) if parts else []
    line = Line(draw(PRODUCTS), draw(TEXT), tuple(draw(st.lists(TEXT, max_size=2))), inner)
    line.checked = draw(st.booleans())
    return line


BASKETS = st.builds(
    Basket,
    st.lists(lines(), max_size=3),
    st.tuples(st.integers(-9, 9), st.none() | lines()),
    st.none() | TEXT | lines(),
    st.dictionaries(TEXT, st.lists(PRODUCTS, max_size=2), max_size=2),
    st.lists(st.lists(lines(), max_size=2).map(tuple), max_size=2).map(tuple),
    st.none() | st.recursive(TEXT | st.booleans(), lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner)),
)


def document(data: dict[str, Any], **members: Any) -> dict[str, Any]:
    """The stored document, as it is read."""
    whole = {"id": data["id"], "partitionKey": data["id"], "data": data, "_etag": '"1"', **members}
    return dict(json.loads(json.dumps(whole)))


def decorated(data: Any) -> Any:
    """`data` with a member in each object that no class has."""
    if isinstance(data, dict):
        return {**{name: decorated(value) for name, value in data.items()}, "addedLater": [{"by": "another"}]}
    return [decorated(each) for each in data] if isinstance(data, list) else data


@settings(max_examples=40)
@given(BASKETS)
def test_what_is_read_equals_what_was_stored(basket: Basket) -> None:
    data = basket.to_data()

    again = restore(Basket, document(data))

    assert replace(again, partition_key=None) == basket
    assert again.to_data() == json.loads(json.dumps(data)) == data
    assert Basket.from_data(data) == basket


@settings(max_examples=40)
@given(BASKETS)
def test_members_that_no_class_has_are_stored_again_at_every_level(basket: Basket) -> None:
    rooms = {name: decorated(products) for name, products in basket.to_data()["byRoom"].items()}
    data = decorated(basket.to_data()) | {"byRoom": rooms}

    again = restore(Basket, document(data))

    assert again.to_data() == data


def test_an_object_that_replaces_another_has_none_of_its_unknown_members() -> None:
    line = Line(Product(Sku("a")), "1.00")
    data = decorated(Basket([line, line], (0, None)).to_data()) | {"byRoom": {}}
    basket = restore(Basket, document(data))

    basket.lines[0].unit_price = "2.00"
    basket.lines[1] = replace(basket.lines[1], unit_price="3.00")

    first, second = basket.to_data()["lines"]
    assert (first["unitPrice"], first["addedLater"]) == ("2.00", [{"by": "another"}])
    assert (second["unitPrice"], "addedLater" in second) == ("3.00", False)


def test_members_beside_the_data_are_stored_again(context: ContainerContext) -> None:
    data = Basket([], (0, None), id="b1").to_data()
    known = {"type": "basket", "ttl": 5, "sequence": 3}
    system = dict.fromkeys(["_ts", "_lsn", "_rid", "_self", "_attachments"], "set by the service")
    basket = restore(Basket, document(data, schema={"version": 7}, **known, **system))
    Repository(context, Basket).update(basket)

    written = batch(context).operations[0].document

    assert written == {
        **known,
        "ttl": -1,
        "id": "b1",
        "partitionKey": "b1",
        "data": data,
        "schema": {"version": 7},
    }


class Status(StrEnum):
    NEW = "new"
    OLD = "old"

    @classmethod
    def _missing_(cls, value: object) -> Status | None:
        return cls.NEW if value == "NEW" else None


class Colour(str, Enum):  # noqa: UP042 - as many classes are written
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Right(IntFlag):
    READ = 1
    WRITE = 2


class Rate(float, Enum):
    HALF = 0.5


class Bare(Enum):
    ONE = 1


class Email(str):
    __slots__ = ()


class Metres(float):
    __slots__ = ()


class Stack(list[int]):
    pass


def entity(annotation: Any) -> type[DomainEntity]:
    """An entity class with one field, `item`."""
    namespace = {"__annotations__": {"item": annotation}, "created_event": lambda self: DomainEvent()}
    return dataclass(type("Order", (DomainEntity,), {"__module__": __name__, **namespace}))


@pytest.mark.parametrize(
    ("annotation", "complaint"),
    [
        (date, "item is annotated as date, which is not JSON"),
        (list[date | None], "item is annotated as date, which is not JSON"),
        (set[Line], r"item is annotated as set\[.*Line\], which is not JSON"),
        (dict[int, Line], "item has int as keys, which would be read as strings"),
        (Line | Product, "item is annotated as .*, and a stored object does not say which it was"),
        (list[Line] | tuple[str, ...], "item is annotated as .*, and a stored array does not say which it was"),
        (Line | dict[str, str], "a stored object does not say which it was"),
        ("tuple[int, Dated]", "item.on is annotated as date"),
        (tuple[int, bytes], "item is annotated as bytes, which is not JSON"),
        (dict[str, list[Path]], "item is annotated as Path, which is not JSON"),
        (Email, "item is annotated as Email, which would be read as a plain str"),
        (list[Email | None], "item is annotated as Email, which would be read as a plain str"),
        (Metres, "item is annotated as Metres, which would be read as a plain float"),
        (Counter[str], "item is annotated as .*Counter.*, which would be read as a plain dict"),
        (defaultdict[str, int], "item is annotated as .*defaultdict.*, which would be read as a plain dict"),
        (OrderedDict[str, int], "item is annotated as .*OrderedDict.*, which would be read as a plain dict"),
        (Stack, "item is annotated as Stack, which would be read as a plain list"),
        (Bare, "item is annotated as Bare, which is not JSON"),
        (dict[Email, int], "item has Email as keys, which would be read as strings"),
        (dict[Status, int], "item has Status as keys, which would be read as strings"),
        (Status | str, "item is annotated as .*, and a stored string does not say which it was"),
        (Status | Colour, "item is annotated as .*, and a stored string does not say which it was"),
        (Status | Literal["a"], "item is annotated as .*, and a stored string does not say which it was"),
        (Level | int, "item is annotated as .*, and a stored integer does not say which it was"),
    ],
)
def test_a_class_whose_fields_could_not_be_read_again_is_reported_before_anything_is_stored(
    context: ContainerContext, annotation: Any, complaint: str
) -> None:
    for kind in (entity(annotation), entity(annotation)):
        with pytest.raises(TypeError, match=rf"Order must define to_data\(\) and from_data\(\): .*{complaint}"):
            Repository(context, kind)


class Named(Protocol):
    name: str


@dataclass
class Point:
    x: int


Points = TypeAliasType("Points", Annotated[list[Point], "in order"])


@pytest.mark.parametrize(
    ("annotation", "data", "value"),
    [
        (Literal["a"], "a", "a"),
        (Literal["a"] | Point, {"x": 1}, Point(1)),
        (Annotated[list[Annotated[Point, 1]], 2], [{"x": 1}], [Point(1)]),
        (NewType("Corner", Point), {"x": 1}, Point(1)),
        (Points, [{"x": 1}], [Point(1)]),
        (TypeVar("T"), {"x": 1}, {"x": 1}),
        (Named, {"x": 1}, {"x": 1}),
        (dict[Sku, Point], {"a": {"x": 1}}, {"a": Point(1)}),
        (dict[Any, list[Point]], {"a": [{"x": 1}]}, {"a": [Point(1)]}),
        (tuple, [1], (1,)),
        (tuple[Point], [{"x": 1}], (Point(1),)),
        (tuple[Point, ...] | Point | None, [{"x": 1}], (Point(1),)),
        (list[str] | dict[str, str], ["a"], ["a"]),
        (int, "2", "2"),
        (tuple[int, ...], ["2"], ("2",)),
        (Status, "new", Status.NEW),
        (Status | None, "old", Status.OLD),
        (Status | None, None, None),
        (Status, "unknown", "unknown"),
        (Status, "NEW", "NEW"),
        (Status, 1, 1),
        (Colour, "red", Colour.RED),
        (Level, 1, Level.LOW),
        (Level, True, True),
        (Level, 1.0, 1.0),
        (Level | bool, True, True),
        (Level | Status | Point, 1, Level.LOW),
        (Level | Status | Point, "new", Status.NEW),
        (Level | Status | Point, {"x": 1}, Point(1)),
        (Right, 3, Right.READ | Right.WRITE),
        (Rate, 0.5, Rate.HALF),
        (list[Status], ["new", "x", "old"], [Status.NEW, "x", Status.OLD]),
        (tuple[Status, ...], ["new"], (Status.NEW,)),
        (tuple[Status, Level], ["new", 1], (Status.NEW, Level.LOW)),
        (dict[str, Status], {"a": "new"}, {"a": Status.NEW}),
        (dict[str, list[Level | None]], {"a": [1, None]}, {"a": [Level.LOW, None]}),
    ],
)
def test_an_annotation_says_what_data_is_read_as(annotation: Any, data: Any, value: Any) -> None:
    kind: Any = entity(annotation)

    read = kind.from_data({"item": data})
    assert read.item == value
    assert type(read.item) is type(value)
    assert read.to_data()["item"] == data


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Status, Status.NEW),
        (Colour, Colour.RED),
        (Level, Level.LOW),
        (Right, Right.READ | Right.WRITE),
        (Rate, Rate.HALF),
        (list[Status | None], [Status.NEW, None]),
        (dict[str, Colour], {"a": Colour.RED}),
        (Status, "new"),
        (Any, [Status.NEW, {Colour.RED: Level.LOW}, Email("a@b"), Metres(1.5)]),
    ],
)
def test_members_of_enumerations_are_stored_as_their_values(
    context: ContainerContext, annotation: Any, value: Any
) -> None:
    kind: Any = entity(annotation)
    Repository(context, kind).create(kind(value))

    stored = batch(context).operations[0].document["data"]["item"]
    text = json.dumps(stored)
    again = kind.from_data({"item": json.loads(text)}).item
    assert again == value
    assert (type(again) is type(value)) or annotation is Status
    assert [type(each) for each in leaves(stored) if type(each) not in (str, int, float, NoneType)] == []


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value
    if isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from leaves(each)
    else:
        yield value


@dataclass
class Clash:
    name: str
    name_: str


@dataclass
class Rounded:
    """Not what its constructor was given."""

    amount: float

    def __post_init__(self) -> None:
        self.amount += 1


@dataclass
class Shortened:
    """Has fewer elements than its constructor was given."""

    tags: list[str]

    def __post_init__(self) -> None:
        self.tags = self.tags[1:]


@dataclass
class Dated:
    on: date


@dataclass
class SpecialLine(Line):
    pass


@pytest.mark.parametrize(
    ("annotation", "value", "complaint"),
    [
        (Any, [{"a": Product(Sku("a"))}], r"item\[0\]\[…\] holds a Product .* read again as a dict, as its annot"),
        (list, (Product(Sku("a")),), r"item\[0\] holds a Product"),
        (
            list[Line],
            [SpecialLine(Product(Sku("a")), "1")],
            r"item\[0\] holds a SpecialLine that would be read again as a Line",
        ),
        (list[Line], [{"product": {"sku": "a"}, "unitPrice": "1"}], r"item\[0\] holds a dict .* as a Line"),
        (Rounded, Rounded(1.25), "item.amount holds a float that would be read again as another one"),
        (Shortened, Shortened(["a", "b"]), "item.tags holds a list that would be read again as another one"),
        ("json.NotThere | None", Product(Sku("a")), "item holds a Product"),
        ("NotThere | None", Product(Sku("a")), "item holds a Product"),
    ],
)
def test_a_dataclass_that_the_annotation_does_not_declare_is_reported_by_its_field(
    context: ContainerContext, annotation: Any, value: Any, complaint: str
) -> None:
    kind: Any = entity(annotation)
    Repository(context, kind).create(kind(value))

    with pytest.raises(TypeError, match=rf"Order must define to_data\(\) and from_data\(\): {complaint}"):
        batch(context)


def test_a_state_that_the_constructor_rejects_is_not_stored(context: ContainerContext) -> None:
    @dataclass
    class Titled(DomainEntity):
        title: str

        def __post_init__(self) -> None:
            if not self.title:
                raise ValueError("the title is blank")

        def created_event(self) -> DomainEvent:
            return DomainEvent()

    titled = Titled("tea")
    Repository(context, Titled).create(titled)
    titled.title = ""

    with pytest.raises(ValueError, match="the title is blank") as raised:
        batch(context)
    assert raised.value.__notes__ == ["Nothing was written, because what Titled stores could not be read again."]


def test_two_fields_that_are_stored_under_one_name_are_reported_by_their_class(context: ContainerContext) -> None:
    with pytest.raises(TypeError, match=r"Clash\.name_ and Clash\.name are both stored as 'name': rename one"):
        Repository(context, entity("list[Clash]"))


def test_a_field_stored_under_a_name_of_the_library_is_reported() -> None:
    @dataclass
    class Numbered(DomainEntity):
        id_: str = ""

        def created_event(self) -> DomainEvent:
            return DomainEvent()

    with pytest.raises(TypeError, match="id_ would be stored as 'id', which the library sets"):
        Numbered().to_data()


def test_a_member_that_is_missing_is_named_with_its_document() -> None:
    data = {"lines": [{"product": {}, "unitPrice": "1.00"}], "position": [0, None], "id": "b1"}

    with pytest.raises(TypeError, match=r"Basket\.lines\[0\]\.product\.sku is not in the stored") as raised:
        restore(Basket, document(data))
    assert raised.value.__notes__ == ["The document is basket 'b1'."]


def test_data_of_another_type_than_the_annotation_says_is_read_and_stored_as_it_is() -> None:
    data = {"lines": {"product": 1}, "position": [1], "gift": [1], "byRoom": [], "history": "none", "note": 1}
    stored = {**data, "id": "b1", "deleted": False}

    assert restore(Basket, document(stored)).to_data() == stored


def test_a_line_that_contains_itself_is_refused_as_too_deep(context: ContainerContext) -> None:
    line = Line(Product(Sku("a")), "1.00")
    line.parts.append(line)
    Repository(context, Basket).create(Basket([line], (0, None)))

    with pytest.raises(InvalidDocument, match=r"data\.lines of basket .* is nested too deeply"):
        batch(context)


@dataclass
class Node:
    next: Node | None = None


def test_an_object_that_contains_itself_without_a_list_is_refused_as_too_deep(context: ContainerContext) -> None:
    node = Node()
    node.next = node
    kind: Any = entity(Node)
    Repository(context, kind).create(kind(node))

    with pytest.raises(InvalidDocument, match=r"data\.item of order .* is nested too deeply"):
        batch(context)
