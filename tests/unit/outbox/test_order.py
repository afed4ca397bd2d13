"""The order of events: their position in the commit and their number within the entity."""

from __future__ import annotations

import pytest

from outbox import EntityState, EventRepository, InvalidDocument, NotFound, Repository
from outbox.context import ContainerContext
from tests.support.orders import Order, OrderViewed
from tests.unit.outbox.commits import batch, documents, read_order


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
