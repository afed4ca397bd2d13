"""The order of events: their place in the commit, and their number among those of their entity."""

from __future__ import annotations

import pytest

from outbox import EntityState, EventRepository, InvalidDocument, NotFound, Repository
from outbox.context import ContainerContext
from tests.support.orders import Order, OrderViewed
from tests.unit.outbox.commits import batch, documents, read_order


def test_entities_are_followed_by_all_events_in_the_order_they_happened(context: ContainerContext) -> None:
    first, second = (Order("tea", id=name, partition_key="p") for name in ("o1", "o2"))
    # What counts is when something happened, not when it was made known to the unit of work.
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


def test_an_event_that_replaces_an_earlier_one_happened_when_that_did(context: ContainerContext) -> None:
    order = read_order(context)
    order.take_note("cold")
    EventRepository(context).create(OrderViewed(), order)
    order.take_note("hot")

    _, *events = documents(context)

    assert [event["data"]["action"] for event in events] == ["OrderNoted", "OrderViewed"]
    assert events[0]["data"]["note"] == "hot"


def test_numbers_go_on_where_the_stored_entity_left_off(context: ContainerContext) -> None:
    order = read_order(context, sequence=7)
    order.resize(2)
    order.pay("1.00")

    entity, *events = documents(context)

    assert entity["sequence"] == 9
    assert [(event["sequence"], event["order"]) for event in events] == [(8, 0), (9, 1)]


def test_an_entity_that_was_stored_before_events_were_numbered_begins_with_one(context: ContainerContext) -> None:
    read_order(context).pay("1.00")

    assert [document["sequence"] for document in documents(context)] == [1, 1]


def test_a_change_without_an_event_keeps_the_number_of_the_last(context: ContainerContext) -> None:
    Repository(context, Order).update(read_order(context, sequence=7))

    assert [document["sequence"] for document in documents(context)] == [7]


def test_an_event_besides_an_entitys_own_is_counted_by_the_entity(context: ContainerContext) -> None:
    EventRepository(context).create(OrderViewed(), read_order(context, sequence=7))

    entity, event = context.data_objects

    assert (entity.state, entity.etag, entity.sequence) == (EntityState.UPDATED, '"1"', 8)
    assert (event.sequence, event.order) == (8, 0)


def test_an_event_about_an_entity_that_is_not_stored_is_refused(context: ContainerContext) -> None:
    EventRepository(context).create(OrderViewed(), Order("tea", id="o1"))

    with pytest.raises(InvalidDocument, match=r"order 'o1' is new, and an event is about it: create\(\) it"):
        batch(context)


def test_nothing_happens_to_a_deleted_entity_any_more(context: ContainerContext) -> None:
    order = read_order(context)
    order.delete()

    with pytest.raises(NotFound, match="order 'o1' is deleted: OrderViewed cannot happen"):
        EventRepository(context).create(OrderViewed(), order)


def test_a_batch_that_is_made_again_gives_the_same_numbers(context: ContainerContext) -> None:
    order = read_order(context, sequence=7)
    order.resize(2)
    EventRepository(context).create(OrderViewed(), order)

    assert batch(context) == batch(context)
