"""Commits whose answer is lost, throttled or refused: done once, whatever the service and the SDK make of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from azure.cosmos.aio import ContainerProxy, CosmosClient

from local.stack.environment import DATABASE
from outbox import (
    CommitUncertain,
    Conflict,
    OutboxError,
    PreconditionFailed,
    ServiceRefused,
    Throttled,
    Unavailable,
    UnitOfWork,
)
from outbox_emulators.cosmos.server import CosmosServer
from outbox_emulators.testing import FaultClient
from tests.unit.outbox.orders import Order
from tests.unit.outbox.stored import stored


@pytest.fixture
async def container(cosmos: CosmosServer) -> AsyncIterator[ContainerProxy]:
    options: dict[str, Any] = {"retry_backoff_factor": 0.01, "retry_total": 3, "retry_throttle_total": 2}
    async with CosmosClient(cosmos.endpoint, cosmos.key, **options) as client:
        container = client.get_database_client(DATABASE).get_container_client("data")
        async with UnitOfWork(container) as work:
            # The client learns about the container by its first request, which no fault is meant for.
            work.repository(Order).create(Order("tea", id="o1"))
            await work.commit()
        yield container


@pytest.fixture
async def faults(cosmos: CosmosServer) -> AsyncIterator[FaultClient]:
    async with aiohttp.ClientSession() as session:
        yield FaultClient(session, cosmos.endpoint)


async def actions(container: ContainerProxy, key: str = "o1") -> list[str]:
    return [
        item["data"]["action"]
        for item in await stored(container)
        if item["type"] == "domainEvent" and item["partitionKey"] == key
    ]


async def paid(container: ContainerProxy) -> str | None:
    value: str | None = (await container.read_item("o1", "o1"))["data"]["paid"]
    return value


async def repeat(work: UnitOfWork) -> list[OutboxError]:
    """Commit until it succeeds, as the errors say; what was raised until then."""
    raised: list[OutboxError] = []
    async with asyncio.timeout(20):
        while True:
            try:
                await work.commit()
                return raised
            except (CommitUncertain, Throttled) as error:
                raised.append(error)


async def test_an_update_whose_answer_was_lost_is_no_precondition_error_of_its_own(
    container: ContainerProxy, faults: FaultClient
) -> None:
    async with UnitOfWork(container) as work:
        order = await work.repository(Order).read("o1")
        order.pay("1.00")
        fault = await faults.add("drop-after", "batch")
        await work.commit()

        assert await faults.applied(fault) == 1
        assert order.etag == (await container.read_item("o1", "o1"))["_etag"]
        order.resize(2)
        await work.commit()

    assert await actions(container) == ["OrderPlaced", "OrderPaid", "OrderResized"]


async def test_a_creation_whose_answer_was_lost_is_no_conflict_of_its_own(
    container: ContainerProxy, faults: FaultClient
) -> None:
    async with UnitOfWork(container) as work:
        order = Order("tea", id="o2")
        work.repository(Order).create(order)
        await faults.add("drop-after", "batch")
        await work.commit()
        assert not order.is_new
        order.resize(2)
        await work.commit()

    assert await actions(container, "o2") == ["OrderPlaced", "OrderResized"]


@pytest.mark.parametrize("applies", [True, False])
async def test_after_a_timeout_the_commit_is_done_once(
    container: ContainerProxy, faults: FaultClient, applies: bool
) -> None:
    async with UnitOfWork(container) as work:
        order = await work.repository(Order).read("o1")
        order.pay("1.00")
        await faults.add("timeout", "batch", applies=applies)
        raised = await repeat(work)

    assert [type(error) for error in raised] == ([] if applies else [CommitUncertain])
    assert await actions(container) == ["OrderPlaced", "OrderPaid"]


async def test_a_commit_that_could_not_be_read_back_is_uncertain_and_repeating_it_does_it_once(
    container: ContainerProxy, faults: FaultClient
) -> None:
    async with UnitOfWork(container) as work:
        order = await work.repository(Order).read("o1")
        order.pay("1.00")
        await faults.add("timeout", "batch", applies=True)
        unreadable = await faults.add("unavailable", "replace", count=100)
        with pytest.raises(CommitUncertain, match="Whether the commit of order 'o1' and 1 more was done"):
            await work.commit()
        await faults.remove(unreadable)

        assert await repeat(work) == []
        order.resize(2)
        await work.commit()

    assert await actions(container) == ["OrderPlaced", "OrderPaid", "OrderResized"]


async def test_a_precondition_error_that_could_not_be_told_from_ones_own_commit_is_uncertain(
    container: ContainerProxy, faults: FaultClient
) -> None:
    async with UnitOfWork(container) as work:
        order = await work.repository(Order).read("o1")
        order.pay("1.00")
        await faults.add("drop-after", "batch")
        unreadable = await faults.add("throttle", "replace", count=100, retry_after_ms=1)
        with pytest.raises(CommitUncertain, match=r"was changed by someone else .* was throttled"):
            await work.commit()
        await faults.remove(unreadable)

        assert await repeat(work) == []

    assert await actions(container) == ["OrderPlaced", "OrderPaid"]


async def test_what_was_changed_after_an_uncertain_commit_is_never_taken_for_done(
    container: ContainerProxy, faults: FaultClient
) -> None:
    async with UnitOfWork(container) as work:
        order = await work.repository(Order).read("o1")
        order.pay("1.00")
        await faults.add("timeout", "batch", applies=True)
        unreadable = await faults.add("unavailable", "replace", count=100)
        with pytest.raises(CommitUncertain):
            await work.commit()
        await faults.remove(unreadable)
        order.quantity = 7
        with pytest.raises(PreconditionFailed, match="it was changed since"):
            await work.commit()

        work.rollback()
        order = await work.repository(Order).read("o1")
        assert (order.paid, order.quantity) == ("1.00", 1)
        order.resize(7)
        await work.commit()

    assert await actions(container) == ["OrderPlaced", "OrderPaid", "OrderResized"]


async def test_a_commit_that_someone_elses_followed_is_done_and_its_version_is_old(
    container: ContainerProxy, faults: FaultClient
) -> None:
    async with UnitOfWork(container) as work:
        order = await work.repository(Order).read("o1")
        order.pay("1.00")
        await faults.add("timeout", "batch", applies=True)
        unreadable = await faults.add("unavailable", "replace", count=100)
        with pytest.raises(CommitUncertain):
            await work.commit()
        await faults.remove(unreadable)
        async with UnitOfWork(container) as other:
            (await other.repository(Order).read("o1")).resize(9)
            await other.commit()

        await work.commit()
        order.resize(2)
        with pytest.raises(PreconditionFailed):
            await work.commit()

    assert await actions(container) == ["OrderPlaced", "OrderPaid", "OrderResized"]
    assert (await container.read_item("o1", "o1"))["data"]["quantity"] == 9


async def test_a_commit_that_was_done_does_not_fail_for_want_of_its_etags(
    container: ContainerProxy, faults: FaultClient
) -> None:
    async with UnitOfWork(container) as work:
        order = await work.repository(Order).read("o1")
        order.pay("1.00")
        await faults.add("timeout", "batch", applies=True)
        unreadable = await faults.add("unavailable", "read", count=100)
        await work.commit()
        await faults.remove(unreadable)
        order.resize(2)
        with pytest.raises(PreconditionFailed):
            await work.commit()

    assert await actions(container) == ["OrderPlaced", "OrderPaid"]


async def test_a_version_that_could_not_be_read_to_go_over_it_leaves_the_commit_uncertain(
    container: ContainerProxy, faults: FaultClient
) -> None:
    async with UnitOfWork(container) as work:
        order = await work.repository(Order).read("o1")
        async with UnitOfWork(container) as other:
            (await other.repository(Order).read("o1")).resize(9)
            await other.commit()
        order.pay("1.00")
        work.repository(Order).update(order, if_match="*")
        unreadable = await faults.add("unavailable", "read", count=100)
        with pytest.raises(CommitUncertain, match="order 'o1' could not be read"):
            await work.commit()
        await faults.remove(unreadable)

        assert await repeat(work) == []

    assert await actions(container) == ["OrderPlaced", "OrderResized", "OrderPaid"]


async def test_a_real_precondition_error_after_a_lost_answer_stays_one(
    container: ContainerProxy, faults: FaultClient
) -> None:
    async with UnitOfWork(container) as work:
        order = await work.repository(Order).read("o1")
        async with UnitOfWork(container) as other:
            (await other.repository(Order).read("o1")).resize(9)
            await other.commit()
        order.pay("1.00")
        await faults.add("drop-after", "batch")
        with pytest.raises(PreconditionFailed):
            await work.commit()

    assert await actions(container) == ["OrderPlaced", "OrderResized"]
    assert await paid(container) is None


async def test_a_commit_that_is_refused_for_an_event_is_not_taken_for_done(container: ContainerProxy) -> None:
    async with UnitOfWork(container) as work:
        order = await work.repository(Order).read("o1")
        order.pay("1.00")
        told = order.domain_events[0]
        await work.commit()
        order.paid = "2.00"
        order.add_event(told)
        with pytest.raises(Conflict, match="OrderPaid domainEvent"):
            await work.commit()

    assert await paid(container) == "1.00"


async def test_a_commit_that_is_cancelled_can_be_repeated_and_is_done_once(
    container: ContainerProxy, faults: FaultClient
) -> None:
    async with UnitOfWork(container) as work:
        order = await work.repository(Order).read("o1")
        order.pay("1.00")
        await faults.add("timeout", "batch", applies=True, hang_ms=20_000)
        attempt = asyncio.create_task(work.commit())
        async with asyncio.timeout(10):
            # What is committed and not answered shows only to a reader.
            while await actions(container) != ["OrderPlaced", "OrderPaid"]:
                pass
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt

        assert await repeat(work) == []

    assert await actions(container) == ["OrderPlaced", "OrderPaid"]


async def test_a_throttled_commit_says_how_long_to_wait_and_is_done_once(
    container: ContainerProxy, faults: FaultClient
) -> None:
    async with UnitOfWork(container) as work:
        order = await work.repository(Order).read("o1")
        order.pay("1.00")
        throttle = await faults.add("throttle", "batch", count=3, retry_after_ms=20)
        with pytest.raises(Throttled, match="The commit of order 'o1' and 1 more was throttled") as raised:
            await work.commit()
        assert raised.value.retry_after == 0.02
        assert await faults.applied(throttle) == 3
        assert await actions(container) == ["OrderPlaced"]

        # As the error tells its caller to.
        await asyncio.sleep(raised.value.retry_after)
        await work.commit()

    assert await actions(container) == ["OrderPlaced", "OrderPaid"]


async def test_a_lost_answer_before_throttling_is_remembered(
    container: ContainerProxy, faults: FaultClient
) -> None:
    async with UnitOfWork(container) as work:
        order = await work.repository(Order).read("o1")
        order.pay("1.00")
        await faults.add("drop-after", "batch")
        await faults.add("throttle", "batch", count=3, retry_after_ms=1)
        raised = await repeat(work)

    assert [type(error) for error in raised] == [Throttled]
    assert await actions(container) == ["OrderPlaced", "OrderPaid"]


async def test_throttled_and_failing_reads_say_so(container: ContainerProxy, faults: FaultClient) -> None:
    async with UnitOfWork(container) as work:
        orders = work.repository(Order)
        await faults.add("throttle", "read", count=3, retry_after_ms=20)
        with pytest.raises(Throttled, match="Reading order 'o1' was throttled") as raised:
            await orders.read("o1")
        assert raised.value.retry_after == 0.02
        throttled = await faults.add("throttle", "query", count=100, retry_after_ms=1)
        with pytest.raises(Throttled):
            await orders.read_page()
        await faults.remove(throttled)
        unavailable = await faults.add("unavailable", "any", count=100)
        with pytest.raises(Unavailable):
            await orders.read("o1")
        with pytest.raises(Unavailable):
            await orders.read_page()
        await faults.remove(unavailable)
        assert (await orders.read("o1")).id == "o1"


async def test_a_service_that_is_gone_leaves_an_uncertain_commit(
    container: ContainerProxy, cosmos: CosmosServer
) -> None:
    async with UnitOfWork(container) as work:
        order = await work.repository(Order).read("o1")
        order.pay("1.00")
        await cosmos.stop()
        with pytest.raises(CommitUncertain, match=r"Call commit\(\) again"):
            await work.commit()
        with pytest.raises(Unavailable):
            await work.repository(Order).read("o1")


async def test_what_was_refused_as_a_whole_can_be_changed_and_committed(container: ContainerProxy) -> None:
    client: Any = container.client_connection
    async with UnitOfWork(container) as work:
        order = await work.repository(Order).read("o1")
        order.pay("1.00")
        key, client.master_key = client.master_key, "AAAA" + client.master_key[4:]
        with pytest.raises(ServiceRefused):
            await work.commit()
        client.master_key = key
        order.quantity = 7
        await work.commit()

    assert await actions(container) == ["OrderPlaced", "OrderPaid"]


async def test_a_refusal_does_not_settle_an_earlier_uncertain_commit(
    container: ContainerProxy, faults: FaultClient
) -> None:
    client: Any = container.client_connection
    async with UnitOfWork(container) as work:
        order = await work.repository(Order).read("o1")
        order.pay("1.00")
        await faults.add("timeout", "batch", applies=True)
        unreadable = await faults.add("unavailable", "replace", count=100)
        with pytest.raises(CommitUncertain):
            await work.commit()
        await faults.remove(unreadable)
        key, client.master_key = client.master_key, "AAAA" + client.master_key[4:]
        with pytest.raises(ServiceRefused):
            await work.commit()
        client.master_key = key
        order.quantity = 7
        with pytest.raises(PreconditionFailed, match="is not known"):
            await work.commit()


@pytest.mark.parametrize("kind", ["drop", "unavailable"])
async def test_a_short_interruption_is_bridged_by_the_sdk(
    container: ContainerProxy, faults: FaultClient, kind: str
) -> None:
    async with UnitOfWork(container) as work:
        (await work.repository(Order).read("o1")).pay("1.00")
        await faults.add(kind, "batch")
        await work.commit()

    assert await actions(container) == ["OrderPlaced", "OrderPaid"]


async def test_many_tasks_under_faults_lose_nothing_and_do_nothing_twice(
    container: ContainerProxy, faults: FaultClient
) -> None:
    drawn: tuple[tuple[str, dict[str, Any]], ...] = (
        ("drop-after", {"count": 6}),
        ("timeout", {"count": 4, "applies": True}),
        ("timeout", {"count": 4}),
        ("throttle", {"count": 6, "retry_after_ms": 1}),
        ("drop", {"count": 4}),
    )
    for kind, options in drawn:
        await faults.add(kind, "batch", **options)
    await faults.add("unavailable", "read", count=6)
    await faults.add("unavailable", "replace", count=6)

    async def add_one() -> None:
        async with UnitOfWork(container) as work:
            while True:
                try:
                    order = await work.repository(Order).read("o1")
                    order.resize(order.quantity + 1)
                    await repeat(work)
                    return
                except Unavailable:
                    continue
                except PreconditionFailed:
                    work.rollback()

    async with asyncio.timeout(40), asyncio.TaskGroup() as tasks:
        for _ in range(12):
            tasks.create_task(add_one())

    feed = container.query_items_change_feed(start_time="Beginning", partition_key="o1")
    told = [item["data"]["quantity"] async for item in feed if item["data"].get("action") == "OrderResized"]
    assert told == list(range(2, 14))
