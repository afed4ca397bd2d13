"""Reads, deletions and pages on the local Cosmos DB through the real SDK."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass

import pytest
from azure.cosmos.aio import ContainerProxy, CosmosClient

from local.stack.environment import DATABASE
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.outbox import (
    DomainEntity,
    DomainEvent,
    InvalidContinuation,
    NotFound,
    NotModified,
    PreconditionFailed,
    Repository,
    ServiceRefused,
    UnitOfWork,
)
from tests.support.order_container import actions, given, pay_elsewhere, reading
from tests.support.orders import Customer, Order


@dataclass
class Line:
    item_name: str
    count: int


@dataclass
class Invoice(DomainEntity):
    lines: list[Line]

    def created_event(self) -> DomainEvent:
        return DomainEvent()


async def test_a_list_of_dataclasses_is_saved_with_what_others_added(
    container: ContainerProxy,
) -> None:
    async with UnitOfWork(container) as work:
        work.repository(Invoice).create(Invoice([Line("tea", 2), Line("milk", 1)], id="i1"))
        await work.commit()
    document = await container.read_item("i1", "i1")
    document["data"]["lines"][0]["discount"] = "0.10"
    document["data"]["currency"] = "EUR"
    document["owner"] = "billing"
    await container.replace_item("i1", document)

    async with UnitOfWork(container) as work:
        invoices = work.repository(Invoice)
        invoice = await invoices.read("i1")
        assert invoice.lines == [Line("tea", 2), Line("milk", 1)]
        invoice.lines[0].count = 3
        invoices.update(invoice)
        await work.commit()

    saved = await container.read_item("i1", "i1")
    lines = [{"itemName": "tea", "count": 3, "discount": "0.10"}, {"itemName": "milk", "count": 1}]
    assert saved["data"] == {"lines": lines, "currency": "EUR", "id": "i1", "deleted": False} == invoice.to_data()
    assert saved["owner"] == "billing"


async def test_a_deletion_is_soft_raises_its_event_and_hides_the_entity(container: ContainerProxy) -> None:
    await given(container, Order("tea", id="o1"))
    async with UnitOfWork(container) as work:
        orders = work.repository(Order)
        order = await orders.read("o1")
        orders.delete(order, ttl=60)
        await work.commit()

        with pytest.raises(NotFound, match="order 'o1' is deleted"):
            await orders.read("o1")
        with pytest.raises(NotFound):
            orders.delete(order)
        with pytest.raises(NotFound):
            orders.update(order)
        assert (await orders.read("o1", include_deleted=True)).deleted
        assert (await orders.read_page()).items == ()
        assert [found.id for found in (await orders.read_page(include_deleted=True)).items] == ["o1"]

    document = await container.read_item("o1", "o1")
    assert (document["data"]["deleted"], document["ttl"]) == (True, 60)
    assert await actions(container) == ["OrderPlaced", "OrderWithdrawn"]


async def test_a_deletion_requires_the_version_too(container: ContainerProxy) -> None:
    await given(container, Order("tea", id="o1"))
    async with reading(container) as (work, order):
        await pay_elsewhere(container)
        work.repository(Order).delete(order)
        with pytest.raises(PreconditionFailed, match="changed by another writer"):
            await work.commit()
        work.rollback()
        order = await work.repository(Order).read("o1")
        work.repository(Order).delete(order, if_match='"another"')
        with pytest.raises(PreconditionFailed, match="in another version than `if_match` requires"):
            await work.commit()

    assert await actions(container) == ["OrderPlaced", "OrderPaid"]


async def test_a_version_the_reader_already_has_is_not_modified(container: ContainerProxy) -> None:
    order = Order("tea", id="o1")
    await given(container, order)
    async with UnitOfWork(container) as work:
        orders = work.repository(Order)
        with pytest.raises(NotModified):
            await orders.read("o1", if_none_match=order.etag)
        await pay_elsewhere(container)
        assert (await orders.read("o1", if_none_match=order.etag)).paid == "1.00"


async def test_what_does_not_exist_is_not_found(container: ContainerProxy) -> None:
    await given(container, Order("tea", id="o1"))
    async with UnitOfWork(container) as work:
        for identifier in ("none", "", "a/b", "../colls", "x" * 2000, "o1?"):
            with pytest.raises(NotFound):
                await work.repository(Order).read(identifier)


async def test_a_document_of_another_type_is_not_found(container: ContainerProxy) -> None:
    await given(container, Order("tea", id="o1"))
    async with UnitOfWork(container) as work:
        with pytest.raises(NotFound, match="has the type 'order'"):
            await work.repository(Customer).read("o1")


async def test_a_missing_container_is_not_a_missing_entity(account: CosmosClient) -> None:
    nowhere = account.get_database_client(DATABASE).get_container_client("nowhere")
    async with UnitOfWork(nowhere) as work:
        orders = work.repository(Order)
        with pytest.raises(ServiceRefused, match="Check that the database and the container exist") as raised:
            await orders.read("o1")
        assert raised.value.status == 404
        with pytest.raises(ServiceRefused):
            await orders.read_page()
        orders.create(Order("tea"))
        with pytest.raises(ServiceRefused, match="refused the commit of order"):
            await work.commit()


async def test_a_wrong_account_key_is_refused_by_the_service(cosmos: CosmosServer) -> None:
    async with CosmosClient(cosmos.endpoint, cosmos.key) as client:
        container = client.get_database_client(DATABASE).get_container_client("data")
        await given(container, Order("tea", id="o1"))
        client.client_connection.master_key = "AAAA" + cosmos.key[4:]
        async with UnitOfWork(container) as work:
            with pytest.raises(ServiceRefused) as raised:
                await work.repository(Order).read("o1")
        assert raised.value.status == 401


async def test_paging_returns_every_entity_once_and_ends(container: ContainerProxy) -> None:
    for number in range(17):
        await given(container, Order("tea", id=f"o{number:02}"))
    async with UnitOfWork(container) as work:
        orders = work.repository(Order)
        pages = [await orders.read_page(5)]
        while pages[-1].has_more:
            pages.append(await orders.read_page(5, pages[-1].continuation))

    found = [order.id for page in pages for order in page.items]
    assert sorted(found) == [f"o{number:02}" for number in range(17)]
    assert [len(page.items) for page in pages[:3]] == [5, 5, 5]
    tokens = [page.continuation for page in pages if page.continuation]
    assert all(token.replace("-", "").replace("_", "").isalnum() for token in tokens)


async def test_a_page_has_fifty_entities_by_default(container: ContainerProxy) -> None:
    for commit in range(2):
        await given(container, *(Order("tea", id=f"o{commit}{n:02}", partition_key="p") for n in range(26)))
    async with UnitOfWork(container) as work:
        page = await work.repository(Order).read_page(partition_key="p")

    assert len(page.items) == 50
    assert page.has_more


async def test_a_page_lists_one_partition_key_under_a_condition(container: ContainerProxy) -> None:
    same = [Order("tea", id=f"o{number}", partition_key="p", quantity=number) for number in range(6)]
    await given(container, *same)
    await given(container, Order("tea", quantity=5))

    async with UnitOfWork(container) as work:
        orders = work.repository(Order)
        page = await orders.read_page(
            partition_key="p", where="false OR c.data.quantity > @least", parameters={"@least": 3}
        )
        assert [order.id for order in page.items] == ["o4", "o5"]
        page.items[0].resize(1)
        await work.commit()

    assert (await container.read_item("o4", "p"))["data"]["quantity"] == 1


async def test_a_continuation_is_valid_only_for_its_listing(container: ContainerProxy) -> None:
    await given(container, *(Order("tea", partition_key="p") for _ in range(3)))
    async with UnitOfWork(container) as work:
        orders = work.repository(Order)
        token = (await orders.read_page(1)).continuation
        assert token is not None
        for wrong in (token[:-4], token + "A", "", "ü", "bnVsbA", "W10"):
            with pytest.raises(InvalidContinuation):
                await orders.read_page(1, wrong)
        with pytest.raises(InvalidContinuation, match="another listing"):
            await orders.read_page(1, token, include_deleted=True)
        with pytest.raises(InvalidContinuation, match="another listing"):
            await work.repository(Customer).read_page(1, token)
        with pytest.raises(ValueError, match="at least 1"):
            await orders.read_page(0)


async def test_a_refused_query_is_an_invalid_continuation_only_if_there_was_one(
    container: ContainerProxy,
) -> None:
    await given(container, *(Order("tea", partition_key="p") for _ in range(2)))
    async with UnitOfWork(container) as work:
        orders = work.repository(Order)
        token = (await orders.read_page(1)).continuation
        assert token is not None
        listing, _ = json.loads(base64.urlsafe_b64decode(token + "=="))
        forged = base64.urlsafe_b64encode(json.dumps([listing, "nonsense"]).encode()).decode().rstrip("=")
        with pytest.raises(InvalidContinuation, match="Cosmos DB rejected the continuation"):
            await orders.read_page(1, forged)
        with pytest.raises(ServiceRefused) as raised:
            await orders.read_page(where="c.data.")
        assert raised.value.status == 400


async def test_a_derived_repository_has_its_own_queries(container: ContainerProxy) -> None:
    class Orders(Repository[Order]):
        async def of_item(self, name: str) -> list[Order]:
            page = await self.read_page(where="c.data.itemName = @name", parameters={"@name": name})
            return list(page.items)

    await given(container, Order("tea", id="o1"))
    async with UnitOfWork(container) as work:
        assert [order.id for order in await Orders(work.context, Order).of_item("tea")] == ["o1"]
