"""Commits to the local Cosmos DB through the real SDK."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from azure.cosmos.aio import ContainerProxy, CosmosClient

from outbox_relay.outbox import (
    BatchTooLarge,
    Conflict,
    InvalidDocument,
    MixedPartitions,
    NotFound,
    PreconditionFailed,
    UnitOfWork,
)
from outbox_relay.outbox.batch import Batch
from outbox_relay.outbox.errors import MAX_BATCH_BYTES
from tests.support.order_container import actions, events_of, given, pay_elsewhere, paying, reading, stored
from tests.support.orders import Customer, Name, Order, OrderViewed
from tests.support.watchdog import WATCHDOG_S


async def test_an_entity_and_its_events_are_stored_in_one_commit(container: ContainerProxy) -> None:
    order = Order("tea", id="o1", note={"when": "2021-09-22T11:07:37.3022907+02:00", "big": 9007199254740991})
    await given(container, order)

    entity, event = await stored(container)

    assert (entity["sequence"], event["sequence"], event["order"]) == (1, 1, 0)
    assert (entity["id"], entity["partitionKey"], entity["type"], entity["ttl"]) == ("o1", "o1", "order", -1)
    assert entity["data"] == {**order.to_data(), "id": "o1", "deleted": False}
    assert (event["partitionKey"], event["type"], event["ttl"]) == ("o1", "domainEvent", 864_000)
    assert event["data"]["orderId"] == "o1"
    assert entity["_lsn"] == event["_lsn"]


async def test_nothing_is_written_without_a_commit(container: ContainerProxy) -> None:
    async with UnitOfWork(container) as work:
        work.repository(Order).create(Order("tea"))

    with pytest.raises(RuntimeError, match="outside of `async with`"):
        await work.commit()
    async with work:
        assert await work.commit() == []
    assert await stored(container) == []


async def test_a_unit_of_work_commits_only_in_its_block_and_requires_a_valid_time_to_live(
    container: ContainerProxy,
) -> None:
    work = UnitOfWork(container)
    work.repository(Order).create(Order("tea"))
    with pytest.raises(RuntimeError, match="outside of `async with`"):
        await work.commit()
    with pytest.raises(ValueError, match="time to live"):
        UnitOfWork(container, event_ttl=0)


async def test_an_error_in_the_block_discards_the_changes(container: ContainerProxy) -> None:
    async def go_wrong() -> None:
        async with UnitOfWork(container) as work:
            work.repository(Order).create(Order("tea"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await go_wrong()

    assert await stored(container) == []


async def test_a_commit_without_changes_sends_no_request(account: CosmosClient) -> None:
    nowhere = account.get_database_client("nowhere").get_container_client("nowhere")
    async with UnitOfWork(nowhere) as work:
        assert await work.commit() == []


async def test_an_entity_that_was_read_and_changed_is_saved_without_an_update(container: ContainerProxy) -> None:
    await given(container, Order("tea", id="o1"))

    async with reading(container) as (work, order):
        order.pay("12.50")
        written = await work.commit()

    assert written[0].name == "order 'o1'"
    assert await actions(container) == ["OrderPlaced", "OrderPaid"]
    assert (await container.read_item("o1", "o1"))["data"]["paid"] == "12.50"


async def test_two_lines_added_in_one_commit_are_two_events(container: ContainerProxy) -> None:
    new = Order("tea", id="o1")
    new.add_line("milk")
    await given(container, new)

    async with reading(container) as (work, order):
        order.add_line("sugar")
        order.add_line("lemon")
        await work.commit()

    events = [item["data"] for item in await events_of(container)]
    assert [data["itemName"] for data in events] == ["tea", "milk", "sugar", "lemon"]


async def test_a_change_without_an_event_is_saved_by_an_update(container: ContainerProxy) -> None:
    await given(container, Order("tea", id="o1"))

    async with reading(container) as (work, order):
        order.note = "silent"
        assert await work.commit() == []
        work.repository(Order).update(order)
        await work.commit()

    assert (await container.read_item("o1", "o1"))["data"]["note"] == "silent"
    assert await actions(container) == ["OrderPlaced"]


async def test_an_entity_can_be_committed_repeatedly(container: ContainerProxy) -> None:
    order = Order("tea", id="o1")
    async with UnitOfWork(container) as work:
        work.repository(Order).create(order)
        await work.commit()
        for quantity in (2, 3):
            order.resize(quantity)
            await work.commit()
            assert order.etag == (await container.read_item("o1", "o1"))["_etag"]

    events = await events_of(container)
    assert [(event["data"]["quantity"], event["sequence"]) for event in events] == [(1, 1), (2, 2), (3, 3)]


async def test_entities_with_one_partition_key_and_other_events_are_one_commit(
    container: ContainerProxy,
) -> None:
    async with UnitOfWork(container, event_ttl=60, event_type="orderEvent") as work:
        customer = Customer(Name("Ada", "Lovelace"), id="c1", partition_key="p")
        order = Order("tea", id="o1", partition_key="p")
        work.repository(Customer).create(customer)
        work.repository(Order).create(order)
        work.events.create(OrderViewed(), about=order)
        await work.commit()

    items = await stored(container)
    assert len({item["_lsn"] for item in items}) == 1
    assert sorted((item["type"], item["ttl"]) for item in items) == [
        ("client", 3600),
        ("order", -1),
        *[("orderEvent", 60)] * 3,
    ]
    events = sorted((item for item in items if item["type"] == "orderEvent"), key=lambda item: item["order"])
    assert [(item["data"]["action"], item["sequence"], item["order"]) for item in events] == [
        ("CustomerRegistered", 1, 0),
        ("OrderPlaced", 1, 1),
        ("OrderViewed", 2, 2),
    ]
    async with UnitOfWork(container) as work:
        read = await work.repository(Customer).read("c1", partition_key="p")
        assert read.name == Name("Ada", "Lovelace")


async def test_an_event_from_the_event_repository_is_stored_once(container: ContainerProxy) -> None:
    await given(container, Order("tea", id="o1"))
    async with reading(container) as (work, order):
        work.events.create(OrderViewed(), about=order)
        await work.commit()
        assert await work.commit() == []

    assert await actions(container) == ["OrderPlaced", "OrderViewed"]
    assert (await container.read_item("o1", "o1"))["sequence"] == 2


async def test_two_concurrent_events_do_not_get_the_same_number(container: ContainerProxy) -> None:
    await given(container, Order("tea", id="o1"))
    async with UnitOfWork(container) as first, UnitOfWork(container) as second:
        for work in (first, second):
            work.events.create(OrderViewed(), about=await work.repository(Order).read("o1"))
        await first.commit()
        with pytest.raises(PreconditionFailed):
            await second.commit()

    assert await actions(container) == ["OrderPlaced", "OrderViewed"]


async def test_an_entity_that_is_removed_and_created_again_starts_at_one(
    container: ContainerProxy,
) -> None:
    await given(container, Order("tea", id="o1"))
    await pay_elsewhere(container)
    await container.delete_item("o1", "o1")

    await given(container, Order("tea", id="o1"))

    events = await events_of(container)
    assert [item["sequence"] for item in events] == [1, 2, 1]


async def test_of_two_concurrent_changes_one_commits_and_one_fails_its_precondition(
    container: ContainerProxy,
) -> None:
    await given(container, Order("tea", id="o1"))
    async with UnitOfWork(container) as first, UnitOfWork(container) as second:
        ours, theirs = [await work.repository(Order).read("o1") for work in (first, second)]
        ours.pay("1.00")
        theirs.resize(9)

        outcomes = await asyncio.gather(first.commit(), second.commit(), return_exceptions=True)

    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert [type(failure) for failure in failures] == [PreconditionFailed]
    assert "Order 'o1' was changed by another writer" in str(failures[0])
    assert len(await actions(container)) == 2


async def test_after_a_precondition_error_the_same_unit_of_work_reads_again_and_commits(
    container: ContainerProxy,
) -> None:
    await given(container, Order("tea", id="o1"))
    async with reading(container) as (work, order):
        await pay_elsewhere(container)
        order.resize(5)
        with pytest.raises(PreconditionFailed):
            await work.commit()
        assert await actions(container) == ["OrderPlaced", "OrderPaid"]

        work.rollback()
        order = await work.repository(Order).read("o1")
        order.resize(5)
        await work.commit()

    document = await container.read_item("o1", "o1")
    assert (document["data"]["quantity"], document["data"]["paid"]) == (5, "1.00")
    assert await actions(container) == ["OrderPlaced", "OrderPaid", "OrderResized"]


async def test_a_clients_etag_is_required_instead_of_the_one_that_was_read(container: ContainerProxy) -> None:
    order = Order("tea", id="o1")
    await given(container, order)
    seen = order.etag
    await pay_elsewhere(container)

    async with UnitOfWork(container) as work:
        orders = work.repository(Order)
        order = await orders.read("o1")
        order.resize(2)
        orders.update(order, if_match=seen)
        with pytest.raises(PreconditionFailed):
            await work.commit()
        orders.update(order)
        await work.commit()

    assert (await actions(container))[-1] == "OrderResized"


async def test_any_version_is_overwritten_and_the_sequence_continues(container: ContainerProxy) -> None:
    await given(container, Order("tea", id="o1"))
    async with reading(container) as (work, order):
        await pay_elsewhere(container)
        order.resize(2)
        work.repository(Order).update(order, if_match="*")
        await work.commit()

    document = await container.read_item("o1", "o1")
    assert (document["data"]["quantity"], document["data"]["paid"]) == (2, None)
    events = await events_of(container)
    assert [(event["data"]["action"], event["sequence"]) for event in events] == [
        ("OrderPlaced", 1),
        ("OrderPaid", 2),
        ("OrderResized", 3),
    ]
    assert document["sequence"] == 3


async def test_concurrent_overwrites_use_no_number_twice(
    container: ContainerProxy,
) -> None:
    await given(container, Order("tea", id="o1"))

    async def resize(quantity: int) -> None:
        async with UnitOfWork(container) as work:
            order = await work.repository(Order).read("o1")
            order.resize(quantity)
            work.repository(Order).update(order, if_match="*")
            await work.commit()

    async with asyncio.timeout(WATCHDOG_S), asyncio.TaskGroup() as tasks:
        for quantity in range(5):
            tasks.create_task(resize(quantity))

    events = await events_of(container)
    assert [event["sequence"] for event in events] == [1, 2, 3, 4, 5, 6]


async def test_an_overwrite_that_always_loses_the_race_gives_up(
    container: ContainerProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, others = container.execute_item_batch, 0

    async def after_another(*arguments: Any, **options: Any) -> Any:
        nonlocal others
        others += 1
        with monkeypatch.context() as patch:
            patch.setattr(container, "execute_item_batch", send)
            await pay_elsewhere(container)
        return await send(*arguments, **options)

    await given(container, Order("tea", id="o1"))
    async with reading(container) as (work, order):
        order.resize(2)
        work.repository(Order).update(order, if_match="*")
        monkeypatch.setattr(container, "execute_item_batch", after_another)
        with pytest.raises(PreconditionFailed):
            await work.commit()
        assert 5 <= others <= 20
        work.repository(Order).update(order)
        before = others
        with pytest.raises(PreconditionFailed):
            await work.commit()
        assert others == before + 1

    assert await actions(container) == ["OrderPlaced", *["OrderPaid"] * others]


async def test_an_overwrite_does_not_restore_a_deleted_or_removed_entity(container: ContainerProxy) -> None:
    await given(container, Order("tea", id="o1"))
    async with UnitOfWork(container) as work, UnitOfWork(container) as other:
        orders = work.repository(Order)
        order = await orders.read("o1")
        other.repository(Order).delete(await other.repository(Order).read("o1"))
        await other.commit()
        order.resize(2)
        orders.update(order, if_match="*")
        with pytest.raises(NotFound, match="order 'o1' is deleted"):
            await work.commit()
        await container.delete_item("o1", "o1")
        with pytest.raises(NotFound, match="Order 'o1' no longer exists"):
            await work.commit()

    assert await actions(container) == ["OrderPlaced", "OrderWithdrawn"]


async def test_an_etag_other_than_the_one_read_is_rejected_whatever_is_stored(
    container: ContainerProxy,
) -> None:
    await given(container, Order("tea", id="o1"))
    async with UnitOfWork(container) as work:
        orders = work.repository(Order)
        order = await orders.read("o1")
        await pay_elsewhere(container)
        order.resize(2)
        # Writing the changed copy of an older version over this one would undo the payment.
        orders.update(order, if_match=(await container.read_item("o1", "o1"))["_etag"])
        with pytest.raises(PreconditionFailed, match="order 'o1' was read in another version"):
            await work.commit()

    assert (await container.read_item("o1", "o1"))["data"]["paid"] == "1.00"


async def test_an_id_in_use_is_a_conflict_and_leaves_neither_entity_nor_event(container: ContainerProxy) -> None:
    await given(container, Order("tea", id="o1", partition_key="p"))
    async with UnitOfWork(container) as work:
        orders = work.repository(Order)
        orders.create(Order("coffee", id="o2", partition_key="p"))
        taken = Order("coffee", id="o1", partition_key="p")
        orders.create(taken)
        with pytest.raises(Conflict, match="Order 'o1' already exists"):
            await work.commit()
        assert await actions(container) == ["OrderPlaced"]

        work.forget(taken)
        await work.commit()

    assert sorted(item["id"] for item in await stored(container) if item["type"] == "order") == ["o1", "o2"]


async def test_an_event_that_fails_leaves_its_entity_unchanged(container: ContainerProxy) -> None:
    order = Order("tea", id="o1")
    await given(container, order)
    used = (await stored(container))[1]["id"]
    async with paying(container) as (work, order):
        work.events.create(OrderViewed(id=used), about=order)
        with pytest.raises(Conflict, match=f"OrderViewed domainEvent '{used}'"):
            await work.commit()

    assert (await container.read_item("o1", "o1"))["data"]["paid"] is None
    assert await actions(container) == ["OrderPlaced"]


async def test_an_entity_that_was_removed_since_is_not_found_and_no_event_is_stored(
    container: ContainerProxy,
) -> None:
    await given(container, Order("tea", id="o1"))
    async with reading(container) as (work, order):
        await container.delete_item("o1", "o1")
        order.pay("1.00")
        with pytest.raises(NotFound, match="Order 'o1' no longer exists"):
            await work.commit()
        assert await actions(container) == ["OrderPlaced"]

        work.forget(order)
        work.repository(Order).create(Order("coffee", id="o2"))
        await work.commit()

    assert await actions(container) == ["OrderPlaced", "OrderPlaced"]


async def test_an_invalid_commit_is_rejected_before_anything_is_sent_and_can_be_corrected(
    container: ContainerProxy,
) -> None:
    async with UnitOfWork(container) as work:
        orders = work.repository(Order)
        many = [Order("tea", partition_key="p") for _ in range(51)]
        for order in many:
            orders.create(order)
        with pytest.raises(BatchTooLarge, match="102 operations"):
            await work.commit()
        work.forget(many[0])
        many[1].note = "x" * 2_100_000
        with pytest.raises(BatchTooLarge, match="bytes"):
            await work.commit()
        many[1].note = float("nan")
        with pytest.raises(InvalidDocument):
            await work.commit()
        many[1].note = None
        elsewhere = Order("tea", partition_key="q")
        orders.create(elsewhere)
        with pytest.raises(MixedPartitions):
            await work.commit()
        assert await stored(container) == []

        work.forget(elsewhere)
        await work.commit()

    assert len(await stored(container)) == 100


async def test_a_batch_that_the_service_rejects_as_too_large_can_be_shrunk(
    container: ContainerProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the limit of the service were lower than the one the library knows.
    monkeypatch.setattr("outbox_relay.outbox.batch.MAX_BATCH_BYTES", 2 * MAX_BATCH_BYTES)
    order = Order("tea", note="x" * MAX_BATCH_BYTES)
    async with UnitOfWork(container) as work:
        work.repository(Order).create(order)
        with pytest.raises(BatchTooLarge, match=r"Cosmos DB refused the commit of order .* as too large"):
            await work.commit()
        order.note = "x"
        await work.commit()

    assert len(await stored(container)) == 2


async def test_a_batch_of_exactly_the_limit_is_accepted(container: ContainerProxy) -> None:
    order = Order("tea", note="")
    async with UnitOfWork(container) as work:
        work.repository(Order).create(order)
        order.note = "x" * (MAX_BATCH_BYTES - Batch.of(work.context.data_objects).size)
        await work.commit()

    assert len(await stored(container)) == 2


async def test_a_unit_of_work_rejects_a_concurrent_commit(container: ContainerProxy) -> None:
    async with UnitOfWork(container) as work:
        work.repository(Order).create(Order("tea"))
        outcomes = await asyncio.gather(work.commit(), work.commit(), return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [list, RuntimeError]
    assert len(await stored(container)) == 2
