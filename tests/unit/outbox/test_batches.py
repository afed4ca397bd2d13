"""The documents of a commit, without a database: envelopes, limits, and the order of events."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from azure.cosmos._base import _format_batch_operations
from opentelemetry import trace

from outbox_relay.outbox import (
    BatchTooLarge,
    DomainEvent,
    EntityState,
    EventRepository,
    InvalidDocument,
    MixedPartitions,
    NotFound,
    Repository,
    errors,
    traceparent,
)
from outbox_relay.outbox.context import ContainerContext
from tests.support.orders import Customer, Name, Order, OrderResized, OrderViewed
from tests.unit.outbox.commits import batch, documents, read_order

SPAN = trace.NonRecordingSpan(
    trace.SpanContext(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, False, trace.TraceFlags(1))
)


def test_the_envelope_of_an_entity_and_of_its_event(context: ContainerContext) -> None:
    order = Order("tea", id="o1", partition_key="p1")
    Repository(context, Order).create(order)

    entity, event = documents(context)

    assert entity == {
        "id": "o1",
        "partitionKey": "p1",
        "type": "order",
        "data": {"itemName": "tea", "quantity": 1, "paid": None, "note": None, "id": "o1", "deleted": False},
        "ttl": -1,
        "sequence": 1,
    }
    raised = order.domain_events[0]
    assert event == {
        "id": raised.id,
        "partitionKey": "p1",
        "type": "domainEvent",
        "data": {
            "itemName": "tea",
            "quantity": 1,
            "orderId": "o1",
            "action": "OrderPlaced",
            "id": raised.id,
            "createdAt": raised.created_at,
        },
        "ttl": 864_000,
        "sequence": 1,
        "order": 0,
    }


def test_a_class_has_its_own_type_and_time_to_live(context: ContainerContext) -> None:
    Repository(context, Customer).create(Customer(Name("Ada", "Lovelace"), id="c1"))

    entity, event = documents(context)

    assert (entity["type"], entity["ttl"], event["data"]["clientId"]) == ("client", 3600, "c1")
    assert event["data"]["name"] == {"firstName": "Ada", "lastName": "Lovelace"}


def test_a_batch_is_unaffected_by_later_changes_of_the_entity(context: ContainerContext) -> None:
    order = Order("tea", note={"list": [1]})
    Repository(context, Order).create(order)
    before = batch(context)

    order.note["list"].append(2)

    assert before.operations[0].document["data"]["note"] == {"list": [1]}


def test_values_are_written_unchanged(context: ContainerContext) -> None:
    note = {
        "big": 9007199254740991,
        "huge": 1.7976931348623157e308,
        "small": 1e-7,
        "text": "ü\u2028鍵",
        "when": "2021-09-22T11:07:37.3022907+02:00",
    }
    Repository(context, Order).create(Order("tea", note=note))

    assert batch(context).operations[0].document["data"]["note"] == note


def test_more_than_a_hundred_operations_are_rejected_with_their_counts(context: ContainerContext) -> None:
    orders = Repository(context, Order)
    for number in range(50):
        orders.create(Order("tea", id=f"o{number}", partition_key="p"))
    assert len(batch(context).operations) == 100
    orders.create(Order("tea", id="one more", partition_key="p"))

    with pytest.raises(BatchTooLarge, match=r"102 operations \(51 on entities, 51 on events\)") as raised:
        batch(context)

    assert raised.value.operations == 102


def test_the_limit_of_two_megabytes_is_exact(context: ContainerContext) -> None:
    order = Order("tea", note="")
    Repository(context, Order).create(order)
    room = errors.MAX_BATCH_BYTES - batch(context).size

    order.note = "x" * room
    assert batch(context).size == errors.MAX_BATCH_BYTES

    order.note = "x" * (room + 1)
    with pytest.raises(BatchTooLarge, match="2097153 bytes; a transactional batch holds") as raised:
        batch(context)
    assert raised.value.size == errors.MAX_BATCH_BYTES + 1


def test_the_size_is_that_of_the_request_body(context: ContainerContext) -> None:
    Repository(context, Order).create(Order("tea", id="o2", partition_key="o1"))
    read_order(context).pay("1.00")

    made = batch(context)

    body = _format_batch_operations([operation.as_sdk() for operation in made.operations])
    assert made.size == len(json.dumps(body, separators=(",", ":")))
    assert [(operation["operationType"], operation.get("ifMatch")) for operation in body] == [
        ("Create", None),
        ("Replace", '"1"'),
        ("Create", None),
        ("Create", None),
    ]


def test_text_counts_as_escaped_in_the_request(context: ContainerContext) -> None:
    Repository(context, Order).create(Order("tea", note="鍵" * 400_000))

    with pytest.raises(BatchTooLarge):
        batch(context)


def test_more_than_one_partition_key_is_rejected_and_all_are_named(context: ContainerContext) -> None:
    for key in ("p1", "p2"):
        Repository(context, Order).create(Order("tea", partition_key=key))

    with pytest.raises(MixedPartitions, match=r"spans 2 partition keys \('p1', 'p2'\)") as raised:
        batch(context)

    assert raised.value.partition_keys == ("p1", "p2")


@pytest.mark.parametrize(
    ("count", "named"), [(5, r"\('p0', 'p1', 'p2', 'p3', 'p4'\)"), (6, r"\('p0', .*'p4' and more\)")]
)
def test_at_most_five_partition_keys_are_named(context: ContainerContext, count: int, named: str) -> None:
    for number in range(count):
        Repository(context, Order).create(Order("tea", partition_key=f"p{number}"))

    with pytest.raises(MixedPartitions, match=f"spans {count} partition keys {named}"):
        batch(context)


def test_a_commit_is_named_after_its_first_object_and_how_many_follow(context: ContainerContext) -> None:
    order = read_order(context)
    Repository(context, Order).update(order)
    assert batch(context).name == "the commit of order 'o1'"

    order.pay("1.00")
    order.resize(2)
    assert batch(context).name == "the commit of order 'o1' and 2 more"


def test_two_objects_with_the_same_id_are_rejected(context: ContainerContext) -> None:
    for _ in range(2):
        Repository(context, Order).create(Order("tea", id="o1"))

    with pytest.raises(InvalidDocument, match="two objects with the id of order 'o1'"):
        batch(context)


def test_an_event_with_another_entitys_id_is_rejected(context: ContainerContext) -> None:
    class WithAnotherId(OrderResized):
        def to_data(self) -> dict[str, Any]:
            return {"orderId": "another"}

    EventRepository(context).create(WithAnotherId(1), read_order(context))

    with pytest.raises(InvalidDocument, match="has its own 'orderId'"):
        batch(context)


def test_an_event_may_set_its_entitys_id_itself(context: ContainerContext) -> None:
    class WithItsOwnId(OrderResized):
        def to_data(self) -> dict[str, Any]:
            return {"orderId": "o1"}

    EventRepository(context).create(WithItsOwnId(1), read_order(context))

    assert documents(context)[1]["data"]["orderId"] == "o1"


@pytest.fixture
def _in_a_span() -> Iterator[None]:
    with trace.use_span(SPAN):
        yield


@pytest.mark.usefixtures("_in_a_span")
def test_events_carry_the_current_trace_and_entities_do_not(context: ContainerContext) -> None:
    Repository(context, Order).create(Order("tea"))

    entity, event = documents(context)

    assert event["traceparent"] == "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert "traceparent" not in entity


def test_an_event_keeps_its_first_trace(context: ContainerContext) -> None:
    Repository(context, Order).create(Order("tea"))
    with trace.use_span(SPAN):
        first = batch(context)

    assert batch(context) == first


def test_a_reset_discards_the_trace_of_an_event(context: ContainerContext) -> None:
    order = Order("tea")
    Repository(context, Order).create(order)
    EventRepository(context).create(OrderViewed(), order)
    with trace.use_span(SPAN):
        assert "traceparent" in documents(context)[1]

    context.reset()
    assert context.data_objects == []

    Repository(context, Order).create(order)
    assert [document.get("traceparent") for document in documents(context)] == [None, None]


def test_without_a_valid_span_there_is_no_traceparent(context: ContainerContext) -> None:
    Repository(context, Order).create(Order("tea"))

    assert all("traceparent" not in document for document in documents(context))


def test_without_opentelemetry_there_is_no_traceparent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)

    with trace.use_span(SPAN):
        assert runpy.run_path(traceparent.__file__)["current"]() is None


def test_forgetting_an_entity_discards_its_events(context: ContainerContext) -> None:
    kept, dropped = Order("tea"), Order("coffee")
    for order in (kept, dropped):
        Repository(context, Order).create(order)
        EventRepository(context).create(OrderViewed(), order)

    context.forget(dropped)

    assert {source.partition_key for source in context.data_objects} == {kept.id}
    assert len(context.data_objects) == 3


def test_creating_a_stored_entity_and_updating_a_new_one_are_rejected(context: ContainerContext) -> None:
    orders = Repository(context, Order)
    saved = Order("tea")
    saved._outbox.is_new = False

    with pytest.raises(ValueError, match=r"is already stored: call update\(\)"):
        orders.create(saved)
    with pytest.raises(ValueError, match=r"is new: call create\(\)"):
        orders.update(Order("tea"))


def test_a_new_entity_changed_before_the_commit_is_still_created(context: ContainerContext) -> None:
    order = Order("tea")
    Repository(context, Order).create(order)
    order.resize(9)

    assert [source.state for source in context.data_objects] == [EntityState.CREATED] * 3
    assert [source.data["quantity"] for source in context.data_objects] == [9] * 3


def test_the_library_imports_neither_the_relay_nor_the_local_stack() -> None:
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "outbox"]

    for module in modules:
        origins = {getattr(value, "__module__", None) for value in vars(module).values()}
        assert not {str(origin).partition(".")[0] for origin in origins} & {"relay", "local", "samples"}


def test_an_event_class_without_fields_needs_no_decorator() -> None:
    assert isinstance(OrderViewed(), DomainEvent)
    assert OrderViewed().to_data() == {}


# The order of events: their position in the commit and their number within the entity


def test_entities_are_followed_by_all_events_in_the_order_raised(context: ContainerContext) -> None:
    first, second = (Order("tea", id=name, partition_key="p") for name in ("o1", "o2"))
    # The order is that in which events were raised, not that in which entities were added to the unit of work.
    for order in (second, first):
        Repository(context, Order).create(order)
    second.add_line("milk")
    EventRepository(context).create(OrderViewed(), first)
    first.add_line("sugar")
    second.add_line("lemon")

    entities, events = documents(context)[:2], documents(context)[2:]

    assert [(entity["id"], entity["sequence"]) for entity in entities] == [("o2", 3), ("o1", 3)]
    assert [(event["data"]["orderId"], event["data"]["action"], event["sequence"]) for event in events] == [
        ("o1", "OrderPlaced", 1),
        ("o2", "OrderPlaced", 1),
        ("o2", "OrderLineAdded", 2),
        ("o1", "OrderViewed", 2),
        ("o1", "OrderLineAdded", 3),
        ("o2", "OrderLineAdded", 3),
    ]
    assert [event["order"] for event in events] == [0, 1, 2, 3, 4, 5]


def test_a_replacing_event_keeps_the_order_of_the_earlier_one(context: ContainerContext) -> None:
    order = read_order(context)
    order.take_note("cold")
    EventRepository(context).create(OrderViewed(), order)
    order.take_note("hot")

    _, *events = documents(context)

    assert [event["data"]["action"] for event in events] == ["OrderNoted", "OrderViewed"]
    assert events[0]["data"]["note"] == "hot"


def test_sequences_continue_from_the_stored_entity(context: ContainerContext) -> None:
    order = read_order(context, sequence=7)
    order.resize(2)
    order.pay("1.00")

    entity, *events = documents(context)

    assert entity["sequence"] == 9
    assert [(event["sequence"], event["order"]) for event in events] == [(8, 0), (9, 1)]


def test_an_entity_stored_without_a_sequence_starts_at_one(context: ContainerContext) -> None:
    read_order(context).pay("1.00")

    assert [document["sequence"] for document in documents(context)] == [1, 1]


def test_a_change_without_an_event_keeps_the_sequence(context: ContainerContext) -> None:
    Repository(context, Order).update(read_order(context, sequence=7))

    assert [document["sequence"] for document in documents(context)] == [7]


def test_an_event_from_the_event_repository_advances_the_entitys_sequence(context: ContainerContext) -> None:
    EventRepository(context).create(OrderViewed(), read_order(context, sequence=7))

    entity, event = context.data_objects

    assert (entity.state, entity.etag, entity.sequence) == (EntityState.UPDATED, '"1"', 8)
    assert (event.sequence, event.order) == (8, 0)


def test_an_event_about_an_entity_that_is_not_created_is_rejected(context: ContainerContext) -> None:
    EventRepository(context).create(OrderViewed(), Order("tea", id="o1"))

    with pytest.raises(InvalidDocument, match=r"about order 'o1', which is new: create\(\) the entity"):
        batch(context)


def test_a_deleted_entity_takes_no_more_events(context: ContainerContext) -> None:
    order = read_order(context)
    order.delete()

    with pytest.raises(NotFound, match="order 'o1' is deleted and cannot have the event OrderViewed"):
        EventRepository(context).create(OrderViewed(), order)


def test_rebuilding_a_batch_gives_the_same_numbers(context: ContainerContext) -> None:
    order = read_order(context, sequence=7)
    order.resize(2)
    EventRepository(context).create(OrderViewed(), order)

    assert batch(context) == batch(context)
