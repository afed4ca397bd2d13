"""Entities and their events, without a database."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

import pytest

from outbox_relay.outbox import DomainEntity, DomainEvent, NotFound
from outbox_relay.outbox.entities import partition_key_of, sequence_of, ttl_of
from outbox_relay.outbox.fields import camel_case, lower_first
from outbox_relay.outbox.versions import adopt_version, mark_saved, restore
from tests.support.orders import (
    Customer,
    CustomerRegistered,
    CustomerRenamed,
    Name,
    Order,
    OrderPaid,
    OrderPlaced,
    OrderResized,
    OrderWithdrawn,
)


def stored(**changes: Any) -> Order:
    document = {
        "id": "o1",
        "partitionKey": "p1",
        "type": "order",
        "data": {"itemName": "tea", "quantity": 2, "id": "o1", "deleted": False},
        "ttl": -1,
        "_etag": '"1"',
    }
    return restore(Order, {**document, **changes})


def actions(entity: DomainEntity) -> list[str]:
    return [event.action for event in entity.domain_events]


def test_a_new_entity_raises_its_created_event_first_and_keeps_later_ones() -> None:
    order = Order("tea")
    order.add_line("milk")
    order.resize(7)
    order.add_line("sugar")

    created, *_ = order.domain_events

    assert isinstance(created, OrderPlaced)
    assert (created.item_name, created.quantity) == ("tea", 7)
    assert actions(order) == ["OrderPlaced", "OrderLineAdded", "OrderResized", "OrderLineAdded"]
    mark_saved(order, '"1"', {event.id for event in order.domain_events}, 4)
    assert order.domain_events == ()


def test_a_new_entity_omits_replaceable_events() -> None:
    order = Order("tea")
    order.take_note("cold")

    assert actions(order) == ["OrderPlaced"]


def test_the_created_event_keeps_its_id_and_time() -> None:
    order = Order("tea")
    before = order.domain_events[0]
    order.resize(7)
    after = order.domain_events[0]

    assert (before.id, before.created_at) == (after.id, after.created_at)
    assert after.to_data() == {"itemName": "tea", "quantity": 7}


def test_every_event_is_kept_in_the_order_raised() -> None:
    order = stored()

    order.add_line("milk")
    order.pay("1.00")
    order.add_line("sugar")

    assert [event.to_data() for event in order.domain_events] == [
        {"itemName": "milk"},
        {"amount": "1.00"},
        {"itemName": "sugar"},
    ]


def test_a_replacing_event_takes_the_position_of_the_earlier_one() -> None:
    order = stored()

    order.take_note("cold")
    order.pay("1.00")
    order.take_note("hot")

    assert order.domain_events[0].to_data() == {"note": "hot"}
    assert actions(order) == ["OrderNoted", "OrderPaid"]


def test_the_list_of_events_is_private() -> None:
    order = stored()
    order.resize(3)

    assert isinstance(order.domain_events, tuple)
    with pytest.raises(AttributeError):
        order.domain_events = ()  # type: ignore[misc]


def test_a_restored_entity_has_its_etag_and_no_events() -> None:
    order = stored()

    assert (order.id, order.partition_key, order.etag) == ("o1", "p1", '"1"')
    assert (order.item_name, order.quantity, order.paid) == ("tea", 2, None)
    assert (order.is_new, order.deleted, order.domain_events) == (False, False, ())


def test_a_commit_removes_its_own_events_and_keeps_later_ones() -> None:
    order = stored()
    order.resize(3)
    committed = {event.id for event in order.domain_events}
    order.pay("1.00")

    mark_saved(order, '"2"', committed, 2)

    assert order.etag == '"2"'
    assert actions(order) == ["OrderPaid"]


def test_an_entity_is_deleted_once_and_takes_no_events_after_that() -> None:
    order = stored()
    order.resize(3)

    order.delete(ttl=60)
    order.delete(ttl=70)

    assert order.deleted
    assert actions(order) == ["OrderResized", "OrderWithdrawn"]
    assert isinstance(order.domain_events[-1], OrderWithdrawn)
    assert ttl_of(order) == 60
    with pytest.raises(NotFound, match="order 'o1' is deleted and cannot have the event OrderPaid"):
        order.pay("1.00")


def test_a_deleted_entity_has_no_etag() -> None:
    order = stored()
    order.delete()

    mark_saved(order, '"2"', {event.id for event in order.domain_events}, 2)

    assert order.etag is None


def test_a_deleted_document_keeps_its_time_to_live() -> None:
    order = stored(data={"itemName": "tea", "id": "o1", "deleted": True}, ttl=60)

    assert order.deleted
    assert ttl_of(order) == 60


@pytest.mark.parametrize("ttl", [-1, 1, 2**31 - 1])
def test_a_deletion_accepts_every_valid_time_to_live(ttl: int) -> None:
    order = stored()
    order.delete(ttl=ttl)

    assert ttl_of(order) == ttl


@pytest.mark.parametrize("ttl", [0, -2, 2**31])
def test_an_invalid_time_to_live_is_rejected(ttl: int) -> None:
    with pytest.raises(ValueError, match="time to live"):
        stored().delete(ttl=ttl)


def test_a_new_entity_cannot_be_deleted() -> None:
    with pytest.raises(ValueError, match="is new and cannot be deleted"):
        Order("tea").delete()


def test_an_entity_without_a_deleted_event_cannot_be_deleted() -> None:
    customer = Customer(Name("Ada", "Lovelace"))
    mark_saved(customer, '"1"', (), 1)

    with pytest.raises(TypeError, match=r"Customer cannot be deleted: it defines no deleted_event\(\)"):
        customer.delete()
    assert not customer.deleted


def test_the_id_defaults_to_a_uuid_and_the_partition_key_to_the_id() -> None:
    one, two = Order("tea"), Order("tea")

    assert one.id != two.id
    assert partition_key_of(one) == one.id
    assert partition_key_of(Order("tea", id="o1", partition_key="p1")) == "p1"
    assert partition_key_of(Customer(Name("A", "B"), id="c1")) == "c1"


def test_types_and_actions_default_to_the_class_names() -> None:
    assert (Order.document_type, Customer.document_type) == ("order", "client")
    assert (OrderPaid.action, CustomerRenamed.action) == ("OrderPaid", "CustomerNameUpdated")


def test_a_plain_class_defines_what_is_stored() -> None:
    customer = Customer(Name("Ada", "Lovelace"), id="c1")

    document = {"id": "c1", "partitionKey": "c1", "data": customer.to_data(), "_etag": '"1"'}

    assert restore(Customer, document).name == Name("Ada", "Lovelace")
    assert isinstance(customer.domain_events[0], CustomerRegistered)


def test_event_data_is_in_camel_case_value_objects_included() -> None:
    event = CustomerRenamed(Name("Ada", "Lovelace"))

    assert event.to_data() == {"name": {"firstName": "Ada", "lastName": "Lovelace"}}


def test_events_have_unique_ids_and_a_time_with_an_offset() -> None:
    one, two = OrderResized(1), OrderResized(1)

    assert one.id != two.id
    assert datetime.fromisoformat(one.created_at).utcoffset() is not None


def test_a_dataclass_survives_the_round_trip_through_json() -> None:
    order = Order("tea", quantity=3, note={"deep": [1, 2.5, None, "ü"]})

    data = order.to_data()

    note = {"deep": [1, 2.5, None, "ü"]}
    assert data == {
        "itemName": "tea",
        "quantity": 3,
        "paid": None,
        "note": note,
        "id": order.id,
        "deleted": False,
    }
    assert Order.from_data(data).to_data() == data


def test_a_field_missing_in_the_document_takes_its_default() -> None:
    assert Order.from_data({"itemName": "tea"}).quantity == 1


def test_a_field_that_is_not_an_init_argument_is_stored_too() -> None:
    @dataclass
    class Tally(DomainEntity):
        _total: int = 0
        count: int = field(default=0, init=False)

        def created_event(self) -> DomainEvent:
            return DomainEvent()

    tally = Tally.from_data({"total": 5, "count": 2})
    assert (tally._total, tally.count) == (5, 2)
    assert tally.to_data() == {"total": 5, "count": 2, "id": tally.id, "deleted": False}


def test_a_class_that_could_not_be_restored_is_rejected_when_written() -> None:
    class Bare(DomainEntity):
        def created_event(self) -> DomainEvent:
            return DomainEvent()

    order = Order("tea", note=Name("Ada", "Lovelace"))

    with pytest.raises(TypeError, match=r"Bare must define to_data\(\) and from_data\(\): it is not a dataclass"):
        Bare().to_data()
    with pytest.raises(TypeError, match=r"Bare must define to_data\(\) and from_data\(\): it is not a dataclass"):
        Bare.from_data({})
    with pytest.raises(
        TypeError, match=r"Order must define to_data\(\) .*: note holds a Name that would be read again as a dict"
    ):
        order.to_data()


def test_a_class_that_overrides_a_reserved_name_is_rejected() -> None:
    with pytest.raises(TypeError, match=r"Wrong\.deleted overrides DomainEntity\.deleted: rename it"):

        @dataclass
        class Wrong(DomainEntity):
            deleted: bool = False

            def created_event(self) -> DomainEvent:
                return DomainEvent()


def test_a_class_without_a_created_event_is_abstract() -> None:
    class Silent(DomainEntity):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Silent()  # type: ignore[abstract]


def test_other_base_classes_may_define_init_subclass_too() -> None:
    known: list[str] = []

    class Known:
        def __init_subclass__(cls, topic: str) -> None:
            known.append(topic)

    class Parcel(DomainEntity, Known, topic="parcels"):
        pass

    class ParcelSent(DomainEvent, Known, topic="sendings"):
        pass

    assert known == ["parcels", "sendings"]
    assert (Parcel.document_type, ParcelSent.action) == ("parcel", "ParcelSent")


def test_internal_state_is_not_in_the_signature_the_repr_or_the_comparison() -> None:
    order = stored(sequence=7)
    order.resize(2)
    order.delete(ttl=60)
    order.partition_key = None

    same = Order("tea", id="o1", quantity=2)

    assert order == same
    assert repr(order) == "Order(id='o1', partition_key=None, item_name='tea', quantity=2, paid=None, note=None)"
    arguments = {"item_name", "quantity", "paid", "note", "id", "partition_key"}
    assert set(inspect.signature(Order).parameters) == arguments


def test_entities_of_a_plain_class_are_compared_by_identity() -> None:
    one, two = (Customer(Name("Ada", "Lovelace"), id="c1") for _ in range(2))

    assert one != two
    assert len({one, two}) == 2


def test_events_raised_while_an_entity_is_restored_are_discarded() -> None:
    class Careful(Customer):
        @classmethod
        def from_data(cls, data: Mapping[str, Any]) -> Self:
            careful = super().from_data(data)
            careful.rename(Name("Ada", "Byron"))
            return careful

    data = {"first": "Ada", "last": "Lovelace"}
    careful = restore(Careful, {"id": "c1", "partitionKey": "c1", "data": data, "_etag": '"1"'})

    assert careful.domain_events == ()


def test_adopting_a_stored_version_takes_its_etag_and_sequence() -> None:
    order = stored(sequence=1)
    data = {"itemName": "tea", "id": "o1", "deleted": False}

    assert not adopt_version(order, {"data": data, "_etag": '"1"', "sequence": 1})
    assert adopt_version(order, {"data": data, "_etag": '"2"', "sequence": 5})
    assert (order.etag, sequence_of(order)) == ('"2"', 5)
    with pytest.raises(NotFound, match="order 'o1' is deleted"):
        adopt_version(order, {"data": {**data, "deleted": True}, "_etag": '"3"', "sequence": 6})


@pytest.mark.parametrize(
    ("name", "expected"), [("item", "item"), ("item_name", "itemName"), ("_a_b_c", "aBC"), ("line_2", "line2")]
)
def test_names_in_camel_case(name: str, expected: str) -> None:
    assert camel_case(name) == expected
    assert lower_first("OrderLine") == "orderLine"
