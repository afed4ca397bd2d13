"""Commits that are throttled or refused, or whose response is lost, are applied once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import pytest
from azure.cosmos.aio import ContainerProxy, CosmosClient

from local.stack.environment import DATABASE
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.testing import FaultClient
from outbox_relay.outbox import (
    CommitUncertain,
    Conflict,
    OutboxError,
    PreconditionFailed,
    ServiceRefused,
    Throttled,
    Unavailable,
    UnitOfWork,
)
from tests.support.order_container import events_of, given, paying, reading, resize_elsewhere
from tests.support.orders import Order
from tests.support.waiting import elapse
from tests.support.watchdog import WATCHDOG_S


@dataclass(frozen=True, slots=True)
class Shop:
    """A container with the order o1, and the faults of its account."""

    container: ContainerProxy
    faults: FaultClient

    def reading(self) -> AbstractAsyncContextManager[tuple[UnitOfWork, Order]]:
        return reading(self.container)

    def paying(self) -> AbstractAsyncContextManager[tuple[UnitOfWork, Order]]:
        return paying(self.container)

    async def actions(self) -> list[str]:
        return [item["data"]["action"] for item in await events_of(self.container)]

    async def data(self) -> dict[str, Any]:
        """The stored data of order o1."""
        stored: dict[str, Any] = (await self.container.read_item("o1", "o1"))["data"]
        return stored


@pytest.fixture
async def shop(cosmos: CosmosServer, faults: FaultClient) -> AsyncIterator[Shop]:
    options: dict[str, Any] = {"retry_backoff_factor": 0.01, "retry_total": 3, "retry_throttle_total": 2}
    async with CosmosClient(cosmos.endpoint, cosmos.key, **options) as client:
        container = client.get_database_client(DATABASE).get_container_client("data")
        # The client's first request reads the container's properties. The faults are meant for later requests.
        await given(container, Order("tea", id="o1"))
        yield Shop(container, faults)


async def commit_in_doubt(work: UnitOfWork, shop: Shop) -> None:
    """A commit that is applied, but whose response is lost and whose outcome cannot be looked up."""
    await shop.faults.add("timeout", "batch", applies=True)
    unavailable = await shop.faults.add("unavailable", "replace", count=100)
    with pytest.raises(CommitUncertain, match="The outcome of the commit of order 'o1' and 1 more is unknown"):
        await work.commit()
    await shop.faults.remove(unavailable)


async def repeat(work: UnitOfWork) -> list[OutboxError]:
    """Commit until it succeeds, as the errors advise. Return the errors."""
    raised: list[OutboxError] = []
    async with asyncio.timeout(WATCHDOG_S):
        while True:
            try:
                await work.commit()
                return raised
            except (CommitUncertain, Throttled) as error:
                raised.append(error)


async def test_an_update_without_events_whose_response_was_lost_does_not_fail_its_own_precondition(
    shop: Shop,
) -> None:
    async with shop.reading() as (work, order):
        order.quantity = 7
        work.repository(Order).update(order)
        fault = await shop.faults.add("drop-after", "batch")
        await work.commit()

        assert await shop.faults.applied(fault) == 1
        order.resize(8)
        await work.commit()

    assert await shop.actions() == ["OrderPlaced", "OrderResized"]


@pytest.mark.parametrize("applies", [True, False])
async def test_after_a_timeout_an_update_without_events_is_applied(shop: Shop, applies: bool) -> None:
    async with shop.reading() as (work, order):
        order.quantity = 7
        work.repository(Order).update(order)
        await shop.faults.add("timeout", "batch", applies=applies)
        raised = await repeat(work)

    assert [type(error) for error in raised] == ([] if applies else [CommitUncertain])
    assert (await shop.data())["quantity"] == 7


async def test_an_update_without_events_that_was_applied_and_changed_since_is_not_said_to_be_unwritten(
    shop: Shop,
) -> None:
    async with shop.reading() as (work, order):
        order.quantity = 7
        work.repository(Order).update(order)
        await shop.faults.add("timeout", "batch", applies=True)
        unreadable = await shop.faults.add("unavailable", "read", count=100)
        with pytest.raises(CommitUncertain, match="Order 'o1' could not be read"):
            await work.commit()
        await shop.faults.remove(unreadable)
        await resize_elsewhere(shop.container)

        with pytest.raises(PreconditionFailed, match="may have been applied") as raised:
            await work.commit()

    assert "othing" not in str(raised.value)


async def test_an_update_that_changes_nothing_and_was_overtaken_is_not_taken_for_applied(
    shop: Shop,
) -> None:
    async with UnitOfWork(shop.container) as work:
        work.repository(Order).update(await work.repository(Order).read("o1"))
        await resize_elsewhere(shop.container)
        with pytest.raises(PreconditionFailed):
            await work.commit()


@pytest.mark.parametrize("applies", [True, False])
async def test_after_a_timeout_the_commit_is_applied_once(shop: Shop, applies: bool) -> None:
    async with shop.paying() as (work, _):
        await shop.faults.add("timeout", "batch", applies=applies)
        raised = await repeat(work)

    assert [type(error) for error in raised] == ([] if applies else [CommitUncertain])
    assert await shop.actions() == ["OrderPlaced", "OrderPaid"]


async def test_a_commit_that_cannot_be_verified_is_uncertain_and_applied_once_when_repeated(shop: Shop) -> None:
    async with shop.paying() as (work, order):
        await commit_in_doubt(work, shop)

        assert await repeat(work) == []
        order.resize(2)
        await work.commit()

    assert await shop.actions() == ["OrderPlaced", "OrderPaid", "OrderResized"]


async def test_a_precondition_error_that_may_be_its_own_is_uncertain(shop: Shop) -> None:
    async with shop.paying() as (work, _):
        await shop.faults.add("drop-after", "batch")
        unreadable = await shop.faults.add("throttle", "replace", count=100, retry_after_ms=1)
        with pytest.raises(CommitUncertain, match=r"was changed by another writer .* was throttled"):
            await work.commit()
        await shop.faults.remove(unreadable)

        assert await repeat(work) == []

    assert await shop.actions() == ["OrderPlaced", "OrderPaid"]


async def test_a_change_after_an_uncertain_commit_is_never_taken_for_applied(shop: Shop) -> None:
    async with shop.paying() as (work, order):
        await commit_in_doubt(work, shop)
        order.quantity = 7
        with pytest.raises(PreconditionFailed, match="it was changed since"):
            await work.commit()

        work.rollback()
        order = await work.repository(Order).read("o1")
        assert (order.paid, order.quantity) == ("1.00", 1)
        order.resize(7)
        await work.commit()

    assert await shop.actions() == ["OrderPlaced", "OrderPaid", "OrderResized"]


async def test_an_uncertain_commit_followed_by_another_writer_is_applied_and_its_etag_is_stale(shop: Shop) -> None:
    async with shop.paying() as (work, order):
        await commit_in_doubt(work, shop)
        await resize_elsewhere(shop.container)

        await work.commit()
        order.resize(2)
        with pytest.raises(PreconditionFailed):
            await work.commit()

    assert await shop.actions() == ["OrderPlaced", "OrderPaid", "OrderResized"]
    assert (await shop.data())["quantity"] == 9


async def test_an_applied_commit_does_not_fail_when_its_etags_cannot_be_read(shop: Shop) -> None:
    async with shop.paying() as (work, order):
        await shop.faults.add("timeout", "batch", applies=True)
        unreadable = await shop.faults.add("unavailable", "read", count=100)
        await work.commit()
        await shop.faults.remove(unreadable)
        order.resize(2)
        with pytest.raises(PreconditionFailed):
            await work.commit()

    assert await shop.actions() == ["OrderPlaced", "OrderPaid"]


async def test_an_overwrite_that_cannot_read_the_stored_version_is_uncertain(shop: Shop) -> None:
    async with shop.reading() as (work, order):
        await resize_elsewhere(shop.container)
        order.pay("1.00")
        work.repository(Order).update(order, if_match="*")
        unreadable = await shop.faults.add("unavailable", "read", count=100)
        with pytest.raises(CommitUncertain, match="Order 'o1' could not be read"):
            await work.commit()
        await shop.faults.remove(unreadable)

        assert await repeat(work) == []

    assert await shop.actions() == ["OrderPlaced", "OrderResized", "OrderPaid"]


async def test_a_real_precondition_error_after_a_lost_response_is_raised(shop: Shop) -> None:
    async with shop.reading() as (work, order):
        await resize_elsewhere(shop.container)
        order.pay("1.00")
        await shop.faults.add("drop-after", "batch")
        with pytest.raises(PreconditionFailed, match="Nothing of this commit was written"):
            await work.commit()

    assert await shop.actions() == ["OrderPlaced", "OrderResized"]
    assert (await shop.data())["paid"] is None


async def test_a_commit_whose_event_conflicts_is_not_taken_for_applied(shop: Shop) -> None:
    async with shop.paying() as (work, order):
        paid_event = order.domain_events[0]
        await work.commit()
        order.paid = "2.00"
        order.add_event(paid_event)
        with pytest.raises(Conflict, match="OrderPaid domainEvent"):
            await work.commit()

    assert (await shop.data())["paid"] == "1.00"


async def test_a_cancelled_commit_can_be_repeated_and_is_applied_once(shop: Shop) -> None:
    async with shop.paying() as (work, _):
        await shop.faults.add("timeout", "batch", applies=True, hang_ms=20_000)
        attempt = asyncio.create_task(work.commit())
        async with asyncio.timeout(WATCHDOG_S):
            # Only a reader can see that the batch is applied while its response is held back.
            while await shop.actions() != ["OrderPlaced", "OrderPaid"]:
                pass
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt

        assert await repeat(work) == []

    assert await shop.actions() == ["OrderPlaced", "OrderPaid"]


async def test_a_throttled_commit_reports_the_wait_and_is_applied_once(shop: Shop) -> None:
    async with shop.paying() as (work, _):
        throttle = await shop.faults.add("throttle", "batch", count=3, retry_after_ms=20)
        with pytest.raises(Throttled, match="The commit of order 'o1' and 1 more was throttled") as raised:
            await work.commit()
        assert raised.value.retry_after == 0.02
        assert await shop.faults.applied(throttle) == 3
        assert await shop.actions() == ["OrderPlaced"]

        await elapse(raised.value.retry_after)
        await work.commit()

    assert await shop.actions() == ["OrderPlaced", "OrderPaid"]


async def test_a_response_lost_before_throttling_is_taken_into_account(shop: Shop) -> None:
    async with shop.paying() as (work, _):
        await shop.faults.add("drop-after", "batch")
        await shop.faults.add("throttle", "batch", count=3, retry_after_ms=1)
        raised = await repeat(work)

    assert [type(error) for error in raised] == [Throttled]
    assert await shop.actions() == ["OrderPlaced", "OrderPaid"]


async def test_throttled_and_failed_reads_raise_their_errors(shop: Shop) -> None:
    async with UnitOfWork(shop.container) as work:
        orders = work.repository(Order)
        await shop.faults.add("throttle", "read", count=3, retry_after_ms=20)
        with pytest.raises(Throttled, match="Reading order 'o1' was throttled") as raised:
            await orders.read("o1")
        assert raised.value.retry_after == 0.02
        throttled = await shop.faults.add("throttle", "query", count=100, retry_after_ms=1)
        with pytest.raises(Throttled):
            await orders.read_page()
        await shop.faults.remove(throttled)
        unavailable = await shop.faults.add("unavailable", "any", count=100)
        with pytest.raises(Unavailable):
            await orders.read("o1")
        with pytest.raises(Unavailable):
            await orders.read_page()
        await shop.faults.remove(unavailable)
        assert (await orders.read("o1")).id == "o1"


async def test_a_commit_to_a_service_that_is_down_is_uncertain(shop: Shop, cosmos: CosmosServer) -> None:
    async with shop.paying() as (work, _):
        await cosmos.stop()
        with pytest.raises(CommitUncertain, match=r"Call commit\(\) again"):
            await work.commit()
        with pytest.raises(Unavailable):
            await work.repository(Order).read("o1")


async def test_a_commit_that_was_refused_can_be_changed_and_repeated(shop: Shop) -> None:
    client: Any = shop.container.client_connection
    async with shop.paying() as (work, order):
        key, client.master_key = client.master_key, "AAAA" + client.master_key[4:]
        with pytest.raises(ServiceRefused):
            await work.commit()
        client.master_key = key
        order.quantity = 7
        await work.commit()

    assert await shop.actions() == ["OrderPlaced", "OrderPaid"]


async def test_a_refusal_does_not_resolve_an_earlier_uncertain_commit(shop: Shop) -> None:
    client: Any = shop.container.client_connection
    async with shop.paying() as (work, order):
        await commit_in_doubt(work, shop)
        key, client.master_key = client.master_key, "AAAA" + client.master_key[4:]
        with pytest.raises(ServiceRefused):
            await work.commit()
        client.master_key = key
        order.quantity = 7
        with pytest.raises(PreconditionFailed, match="is unknown"):
            await work.commit()


@pytest.mark.parametrize("kind", ["drop", "unavailable"])
async def test_the_sdk_retries_after_a_short_interruption(shop: Shop, kind: str) -> None:
    async with shop.paying() as (work, _):
        await shop.faults.add(kind, "batch")
        await work.commit()

    assert await shop.actions() == ["OrderPlaced", "OrderPaid"]


async def test_concurrent_tasks_under_faults_lose_nothing_and_apply_nothing_twice(shop: Shop) -> None:
    injected: tuple[tuple[str, dict[str, Any]], ...] = (
        ("drop-after", {"count": 6}),
        ("timeout", {"count": 4, "applies": True}),
        ("timeout", {"count": 4}),
        ("throttle", {"count": 6, "retry_after_ms": 1}),
        ("drop", {"count": 4}),
    )
    for kind, options in injected:
        await shop.faults.add(kind, "batch", **options)
    await shop.faults.add("unavailable", "read", count=6)
    await shop.faults.add("unavailable", "replace", count=6)

    async def add_one() -> None:
        async with UnitOfWork(shop.container) as work:
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

    async with asyncio.timeout(WATCHDOG_S), asyncio.TaskGroup() as tasks:
        for _ in range(12):
            tasks.create_task(add_one())

    feed = shop.container.query_items_change_feed(start_time="Beginning", partition_key="o1")
    resized = [item async for item in feed if item["data"].get("action") == "OrderResized"]
    assert [item["data"]["quantity"] for item in resized] == list(range(2, 14))
    assert [item["sequence"] for item in resized] == list(range(2, 14))
