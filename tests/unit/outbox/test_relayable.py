"""Documents that cannot be stored or relayed unchanged are rejected before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from types import MappingProxyType
from typing import Any

import pytest

from outbox_relay.emulators.functions.documents import MAX_DEPTH, PageWithheld, written
from outbox_relay.outbox import DomainEvent, EventRepository, InvalidDocument, Repository, relayable
from outbox_relay.outbox.context import ContainerContext
from outbox_relay.outbox.data_object import Position, event_object
from relay.core import events
from relay.core.documents import SourceDocument
from relay.core.events import Rejected
from tests.support.orders import Order, OrderNoted, OrderViewed
from tests.unit.outbox.commits import batch, documents, read_order

UNREADABLE: list[Any] = [
    *(".", "..", "a ", " ", "a\u00a0", "a\u3000", "a\n", "a\rb", "a\tb", "\\", "?", "#"),
    *("%20", "a%2Fb", "%2e%2e", "100%25", "%ff", 5),
]
"""Ids that Cosmos DB stores from a batch and that no client can address, or not through every gateway."""
READABLE = ["...", ".a", " a", "a b", "a\u00a0b", "%", "100%", "%2", "%g0", "a%2 0", "50%:a+b=c&d", "é中😀"]


@pytest.mark.parametrize(
    "note", [date(2026, 1, 1), {1, 2}, b"x", {(1, 2): 3}, {1: "a", "1": "b"}, {None: 1}, object()]
)
def test_a_type_that_json_does_not_have_is_reported_to_the_programmer(
    context: ContainerContext, note: Any
) -> None:
    Repository(context, Order).create(Order("tea", id="o1", note=note))

    with pytest.raises(
        TypeError,
        match=r"The data of order 'o1' is not JSON: data\.note contains .* strings .*from its to_data\(\)",
    ):
        batch(context)


def test_any_mapping_is_stored_as_an_object(context: ContainerContext) -> None:
    order = Order("tea", id="o1", note=MappingProxyType({"a": 1}))
    order.take_note(order.note)
    Repository(context, Order).create(order)

    assert [operation.document["data"].get("note") for operation in batch(context).operations] == [{"a": 1}, None]


@pytest.mark.parametrize("note", [float("nan"), float("inf")])
def test_a_number_that_json_does_not_have_is_rejected(context: ContainerContext, note: Any) -> None:
    Repository(context, Order).create(Order("tea", id="o1", note=note))

    with pytest.raises(InvalidDocument, match=r"is not JSON: data\.note contains NaN or an infinity"):
        batch(context)


def test_a_lone_surrogate_is_rejected_and_a_pair_is_accepted(context: ContainerContext) -> None:
    order = Order("tea", id="o1", note="\ud83d\ude00")
    Repository(context, Order).create(order)
    batch(context)

    order.note = "caf\ud83d"

    with pytest.raises(InvalidDocument, match=r"order 'o1' contains a lone surrogate in data\.note"):
        batch(context)


@pytest.mark.parametrize(
    ("identity", "complaint"),
    [
        ({"id": ""}, "id of order ''"),
        ({"id": "a/b"}, r"must not contain / \\ \? or #.* Use a UUID"),
        *(({"id": each}, "(?s)The id of order '.*' must be") for each in UNREADABLE),
        ({"id": "x" * 1024, "partition_key": "p"}, "1 to 1023 bytes"),
        ({"id": "a", "partition_key": ""}, "partition key of order 'a' has 0 characters"),
        ({"id": "a", "partition_key": "x" * 129}, "has 129 characters"),
    ],
)
def test_keys_that_cannot_be_stored_or_relayed_are_rejected(
    context: ContainerContext, identity: dict[str, str], complaint: str
) -> None:
    Repository(context, Order).create(Order("tea", **identity))  # type: ignore[arg-type]

    with pytest.raises(InvalidDocument, match=complaint):
        batch(context)


@pytest.mark.parametrize(
    ("identifier", "complaint"),
    [
        ("", "1 to 1023 bytes"),
        ("a/b", r"must not contain / \\ \? or #"),
        *((each, "The id of OrderViewed of order 'o1' must be") for each in UNREADABLE),
        ("x" * 129, "The id of .* has 129 characters"),
    ],
)
def test_event_ids_that_cannot_be_stored_or_relayed_are_rejected(
    context: ContainerContext, identifier: str, complaint: str
) -> None:
    EventRepository(context).create(OrderViewed(id=identifier), read_order(context))

    with pytest.raises(InvalidDocument, match=complaint):
        batch(context)


@pytest.mark.parametrize("identifier", READABLE)
def test_an_id_with_other_odd_characters_is_accepted(context: ContainerContext, identifier: str) -> None:
    order = Order("tea", id=identifier)
    Repository(context, Order).create(order)
    EventRepository(context).create(OrderViewed(id=f"{identifier}."), order)

    assert {operation.document["id"] for operation in batch(context).operations} >= {identifier, f"{identifier}."}


def test_the_longest_id_of_an_entity_is_accepted(context: ContainerContext) -> None:
    Repository(context, Order).create(Order("tea", id="x" * 1023, partition_key="p"))

    assert batch(context).operations[0].document["id"] == "x" * 1023


def nested(levels: int, inner: Any = 0) -> Any:
    """A value with this many levels, lists and objects alternating."""
    for level in range(levels):
        inner = [inner] if level % 2 else {"in": inner}
    return inner


def parsed_by_the_host(document: dict[str, Any]) -> str:
    return written([document])


# The document's own object is the first level and `data` the second, so 61 are left for `data.note`.
def test_the_deepest_document_that_the_host_can_parse_is_accepted(context: ContainerContext) -> None:
    order = Order("tea", note=nested(61))
    order.take_note(nested(61))
    Repository(context, Order).create(order)

    for operation in batch(context).operations:
        assert parsed_by_the_host(operation.document)


@pytest.mark.parametrize("levels", [62, 63, 500, 100_000])
def test_an_entity_too_deep_for_the_host_is_rejected_and_named(context: ContainerContext, levels: int) -> None:
    Repository(context, Order).create(Order("tea", id="o1", note=nested(levels)))

    with pytest.raises(
        InvalidDocument, match=r"data\S* of order 'o1' is nested too deeply.* 63 levels.* string of JSON"
    ):
        batch(context)
    if levels == 62:
        with pytest.raises(PageWithheld):
            parsed_by_the_host(context.data_objects[0].to_document())


@pytest.mark.parametrize("levels", [62, 63, 500, 100_000])
def test_an_event_too_deep_for_the_host_is_rejected_and_named(context: ContainerContext, levels: int) -> None:
    EventRepository(context).create(OrderNoted(nested(levels)), read_order(context))

    with pytest.raises(InvalidDocument, match=r"data\S* of OrderNoted .*is nested too deeply"):
        batch(context)


@pytest.mark.parametrize("number", [2**53, -(2**53), 2**64, 10**400, 10**5000], ids=lambda number: hex(number)[:9])
@pytest.mark.parametrize("inside", [0, 1, 40])
def test_an_integer_that_cosmos_db_cannot_store_is_rejected_without_quoting_it(
    context: ContainerContext, number: int, inside: int
) -> None:
    Repository(context, Order).create(Order("tea", id="o1", note=nested(inside, number)))

    with pytest.raises(InvalidDocument, match=r"^(data\.note|The data) of order 'o1'") as raised:
        batch(context)
    assert "9007199254740992" not in str(raised.value)
    assert "string" in str(raised.value)


def test_the_largest_integers_that_cosmos_db_can_store_are_accepted(context: ContainerContext) -> None:
    Repository(context, Order).create(Order("tea", note=[2**53 - 1, -(2**53) + 1, True]))

    assert batch(context).operations[0].document["data"]["note"] == [2**53 - 1, -(2**53) + 1, True]


def with_action(text: Any) -> DomainEvent:
    class Named(DomainEvent):
        action = text

    return Named(id="e1", created_at="c" * 30)


def relayed(context: ContainerContext) -> list[Rejected | None]:
    """The relay's reading of each event."""
    read = map(events.read_event, map(SourceDocument.plain, documents(context)[1:]))
    return [each if isinstance(each, Rejected) else None for each in read]


@pytest.mark.parametrize("character", ["x", "ü", "鍵", "😀"])
def test_the_limit_of_properties_is_the_relays(context: ContainerContext, character: str) -> None:
    order, room = read_order(context), relayable.MAX_PROPERTIES_BYTES - 30
    fitting = room // len(character.encode())
    EventRepository(context).create(with_action(character * fitting), order)
    assert relayed(context) == [None]

    with pytest.raises(InvalidDocument, match=r"properties .* bytes \(action \d+, createdAt 30\)"):
        event_object(
            with_action(character * (fitting + 1)),
            order,
            Position(1, 0),
            document_type="domainEvent",
            ttl=60,
            traceparent=None,
        )


def test_the_limits_equal_those_of_the_relay_and_the_host() -> None:
    assert relayable.MAX_PROPERTIES_BYTES == events.MAX_PROPERTIES_BYTES
    assert relayable.MAX_KEY_LENGTH == events.MAX_KEY_LENGTH
    assert relayable.MAX_DEPTH == MAX_DEPTH - 1


@pytest.mark.parametrize("action", [None, 7])
def test_an_action_that_is_not_a_string_is_rejected(context: ContainerContext, action: Any) -> None:
    EventRepository(context).create(with_action(action), read_order(context))

    with pytest.raises(InvalidDocument, match=r"action of .* of order 'o1' is not a string"):
        batch(context)


@pytest.mark.parametrize(("key", "fits"), [("😀" * 64, True), ("😀" * 64 + "x", False), ("鍵" * 128, True)])
def test_keys_and_ids_are_counted_in_utf_16(context: ContainerContext, key: str, fits: bool) -> None:
    order = Order("tea", id="o1", partition_key=key)
    Repository(context, Order).create(order)
    EventRepository(context).create(OrderViewed(id=key[::-1]), order)

    if fits:
        batch(context)
        assert relayed(context) == [None, None]
    else:
        with pytest.raises(InvalidDocument, match="has 129 characters in UTF-16"):
            batch(context)


@pytest.mark.parametrize("key", ["\ud83d", "\ud83d\ude00"])
def test_a_key_with_a_surrogate_is_rejected(context: ContainerContext, key: str) -> None:
    Repository(context, Order).create(Order("tea", id="o1", note={key: 1, "\U0001f600": 2}))

    with pytest.raises(InvalidDocument, match=r"order 'o1' contains a surrogate in a key in data\.note"):
        batch(context)


@pytest.mark.parametrize("is_array", [True, False])
def test_a_value_that_contains_itself_is_rejected(context: ContainerContext, is_array: bool) -> None:
    array: list[Any] = []
    array.append(array)
    whole: dict[str, Any] = {}
    whole["in"] = whole
    note = array if is_array else whole
    Repository(context, Order).create(Order("tea", id="o1", note=note))

    with pytest.raises(InvalidDocument, match=r"data\.note of order 'o1' is nested too deeply"):
        batch(context)


@dataclass(frozen=True)
class Twice:
    first_name: str
    firstName: str


@dataclass(frozen=True)
class NamedTwice(DomainEvent):
    first_name: str
    firstName: str


@dataclass(frozen=True)
class CreatedTwice(DomainEvent):
    createdAt: str


@pytest.mark.parametrize(
    ("event", "complaint"),
    [
        (NamedTwice("a", "b"), "NamedTwice.firstName and NamedTwice.first_name are both stored as 'firstName'"),
        (OrderNoted([Twice("a", "b")]), "Twice.firstName and Twice.first_name are both stored as 'firstName'"),
        (CreatedTwice("a"), "CreatedTwice.createdAt and CreatedTwice.created_at are both stored as 'createdAt'"),
    ],
)
def test_two_fields_of_an_event_that_have_one_name_are_reported_to_the_programmer(
    context: ContainerContext, event: DomainEvent, complaint: str
) -> None:
    EventRepository(context).create(event, read_order(context))

    with pytest.raises(TypeError, match=complaint):
        batch(context)
