"""Commits and reads with a lagging replica: an applied commit is never reported as failed, and clients read it
back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from azure.cosmos.aio import ContainerProxy, CosmosClient

from local.stack.environment import CONTAINERS, DATABASE, container_argument
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.outbox import CommitUncertain, PreconditionFailed, UnitOfWork
from tests.support.lagging_gateway import LaggingGateway, Lost
from tests.support.order_container import actions, given, pay_elsewhere, paying, reading, resize_elsewhere
from tests.support.orders import Order

EVERY_LOSS = pytest.mark.parametrize("loss", list(Lost))


@pytest.fixture
async def cosmos() -> AsyncIterator[CosmosServer]:
    """Without random behaviour: only the gateway decides which read is stale."""
    async with CosmosServer(edges=None) as server:
        provision(server.account, [ContainerSpec.parse(container_argument(*spec)) for spec in CONTAINERS])
        yield server


@pytest.fixture
async def gateway(cosmos: CosmosServer) -> AsyncIterator[LaggingGateway]:
    async with LaggingGateway(cosmos.endpoint, cosmos.key) as between:
        yield between


@pytest.fixture
async def container(cosmos: CosmosServer, gateway: LaggingGateway) -> AsyncIterator[ContainerProxy]:
    """The replica has order o1 and no later write."""
    options: dict[str, Any] = {"retry_backoff_factor": 0.01, "retry_total": 3}
    async with CosmosClient(gateway.endpoint, cosmos.key, **options) as client:
        container = client.get_database_client(DATABASE).get_container_client("data")
        await given(container, Order("tea", id="o1"))
        gateway.lag()
        yield container


@pytest.fixture
async def primary(cosmos: CosmosServer) -> AsyncIterator[ContainerProxy]:
    """The container without the gateway: every read is current."""
    async with CosmosClient.from_connection_string(cosmos.connection_string) as client:
        yield client.get_database_client(DATABASE).get_container_client("data")


async def test_a_client_reads_its_own_commit(container: ContainerProxy, gateway: LaggingGateway) -> None:
    async with paying(container) as (work, _):
        await work.commit()

    async with UnitOfWork(container) as work:
        assert (await work.repository(Order).read("o1")).paid == "1.00"
    assert gateway.stale_reads == 0


async def test_a_client_reads_its_own_creation(container: ContainerProxy) -> None:
    await given(container, Order("tea", id="o2"))

    async with UnitOfWork(container) as work:
        assert (await work.repository(Order).read("o2")).item_name == "tea"


async def test_a_client_without_session_tokens_may_read_an_earlier_version(
    container: ContainerProxy, gateway: LaggingGateway, cosmos: CosmosServer, primary: ContainerProxy
) -> None:
    async with CosmosClient(gateway.endpoint, cosmos.key, consistency_level="Eventual") as client:
        weak = client.get_database_client(DATABASE).get_container_client("data")
        async with UnitOfWork(weak) as work:
            (await work.repository(Order).read("o1")).pay("1.00")
            await work.commit()
            assert (await work.repository(Order).read("o1")).paid is None

    assert await actions(primary) == ["OrderPlaced", "OrderPaid"]


async def test_another_client_may_read_an_earlier_version(
    container: ContainerProxy, gateway: LaggingGateway, cosmos: CosmosServer
) -> None:
    await given(container, Order("tea", id="o2"))
    async with CosmosClient(gateway.endpoint, cosmos.key) as client:
        other = client.get_database_client(DATABASE).get_container_client("data")
        with pytest.raises(Exception, match="o2"):
            async with UnitOfWork(other) as work:
                await work.repository(Order).read("o2")

    assert gateway.stale_reads == 1


@EVERY_LOSS
async def test_an_update_whose_response_was_lost_is_applied(
    container: ContainerProxy, gateway: LaggingGateway, primary: ContainerProxy, loss: Lost
) -> None:
    async with paying(container) as (work, order):
        gateway.lose(loss)
        await work.commit()
        assert order.etag == (await primary.read_item("o1", "o1"))["_etag"]
        order.resize(2)
        await work.commit()

    assert await actions(primary) == ["OrderPlaced", "OrderPaid", "OrderResized"]


@EVERY_LOSS
@pytest.mark.parametrize("meanwhile", [False, True])
async def test_an_overwrite_whose_response_was_lost_is_applied(
    container: ContainerProxy, gateway: LaggingGateway, primary: ContainerProxy, loss: Lost, meanwhile: bool
) -> None:
    async with reading(container) as (work, order):
        if meanwhile:
            await resize_elsewhere(primary)
        order.pay("1.00")
        work.repository(Order).update(order, if_match="*")
        gateway.lose(loss)
        if meanwhile and loss is Lost.TIMED_OUT:
            with pytest.raises(CommitUncertain):
                await work.commit()
            gateway.lose(loss)
            with pytest.raises(CommitUncertain):
                await work.commit()
        await work.commit()

    expected = ["OrderPlaced", *["OrderResized"] * meanwhile, "OrderPaid"]
    assert await actions(primary) == expected
    assert (await primary.read_item("o1", "o1"))["sequence"] == len(expected)


async def create_and_resize(container: ContainerProxy, gateway: LaggingGateway, loss: Lost) -> None:
    """Commit a new order twice; the response to the first commit is lost."""
    async with UnitOfWork(container) as work:
        order = Order("tea", id="o2")
        work.repository(Order).create(order)
        gateway.lose(loss)
        await work.commit()
        order.resize(2)
        await work.commit()


@EVERY_LOSS
async def test_a_creation_whose_response_was_lost_is_applied(
    container: ContainerProxy, gateway: LaggingGateway, primary: ContainerProxy, loss: Lost
) -> None:
    await create_and_resize(container, gateway, loss)

    assert await actions(primary) == ["OrderPlaced", "OrderPlaced", "OrderResized"]


@EVERY_LOSS
async def test_a_clients_first_commit_whose_response_was_lost_is_applied(
    gateway: LaggingGateway, cosmos: CosmosServer, primary: ContainerProxy, loss: Lost
) -> None:
    # The client has no session token yet and has not read the container's properties.
    gateway.lag()
    async with CosmosClient(gateway.endpoint, cosmos.key) as client:
        container = client.get_database_client(DATABASE).get_container_client("data")
        await create_and_resize(container, gateway, loss)

    assert await actions(primary) == ["OrderPlaced", "OrderResized"]


@EVERY_LOSS
async def test_another_writers_commit_is_not_taken_for_ones_own(
    container: ContainerProxy, gateway: LaggingGateway, primary: ContainerProxy, loss: Lost
) -> None:
    async with reading(container) as (work, order):
        await resize_elsewhere(primary)
        order.pay("1.00")
        gateway.lose(loss)
        with pytest.raises((PreconditionFailed, CommitUncertain)) as raised:
            await work.commit()
        if raised.type is CommitUncertain:
            with pytest.raises(PreconditionFailed):
                await work.commit()

    assert await actions(primary) == ["OrderPlaced", "OrderResized"]


async def test_after_a_failed_precondition_the_client_reads_the_newer_version(
    container: ContainerProxy, primary: ContainerProxy
) -> None:
    async with UnitOfWork(container) as first, UnitOfWork(container) as second:
        ours, theirs = [await work.repository(Order).read("o1") for work in (first, second)]
        ours.pay("1.00")
        await first.commit()
        theirs.resize(9)
        with pytest.raises(PreconditionFailed):
            await second.commit()
        second.rollback()
        again = await second.repository(Order).read("o1")
        assert again.paid == "1.00"
        again.resize(9)
        await second.commit()

    assert await actions(primary) == ["OrderPlaced", "OrderPaid", "OrderResized"]


async def test_after_a_failed_precondition_without_events_the_client_reads_the_newer_version(
    container: ContainerProxy, gateway: LaggingGateway, cosmos: CosmosServer
) -> None:
    async with CosmosClient(gateway.endpoint, cosmos.key) as client:
        other = client.get_database_client(DATABASE).get_container_client("data")
        async with UnitOfWork(container) as work:
            order = await work.repository(Order).read("o1")
            await pay_elsewhere(other)
            work.repository(Order).update(order)
            with pytest.raises(PreconditionFailed):
                await work.commit()
            work.rollback()
            assert (await work.repository(Order).read("o1")).paid == "1.00"


@pytest.mark.parametrize("behind", [True, False])
async def test_after_a_failed_precondition_the_client_reads_what_another_client_wrote(
    container: ContainerProxy, gateway: LaggingGateway, cosmos: CosmosServer, behind: bool
) -> None:
    async with CosmosClient(gateway.endpoint, cosmos.key) as client:
        other = client.get_database_client(DATABASE).get_container_client("data")
        async with UnitOfWork(container) as work:
            order = await work.repository(Order).read("o1")
            await pay_elsewhere(other)
            if behind:
                # The repeated read is stale.
                work.rollback()
                order = await work.repository(Order).read("o1")
                assert order.paid is None
            order.resize(9)
            with pytest.raises(PreconditionFailed):
                await work.commit()
            work.rollback()
            assert (await work.repository(Order).read("o1")).paid == "1.00"
