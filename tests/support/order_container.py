"""Reads and writes a container of orders, as the tests' arrangement and as a concurrent writer."""

from __future__ import annotations

from typing import Any

from azure.cosmos.aio import ContainerProxy

from outbox import UnitOfWork
from tests.support.orders import Order


async def stored(container: ContainerProxy) -> list[dict[str, Any]]:
    """All documents. Those of one partition key are sorted by commit: the entities, then the events in order."""
    feed = container.query_items_change_feed(start_time="Beginning")
    return sorted([item async for item in feed], key=lambda item: (item["_lsn"], item.get("order", -1)))


async def actions(container: ContainerProxy) -> list[str]:
    """The actions of the stored events."""
    return [item["data"]["action"] for item in await stored(container) if item["type"] == "domainEvent"]


async def given(container: ContainerProxy, *orders: Order) -> None:
    """Store orders."""
    async with UnitOfWork(container) as work:
        for order in orders:
            work.repository(Order).create(order)
        await work.commit()


async def pay_elsewhere(container: ContainerProxy) -> None:
    """Pay order o1 as another writer."""
    async with UnitOfWork(container) as work:
        (await work.repository(Order).read("o1")).pay("1.00")
        await work.commit()


async def resize_elsewhere(container: ContainerProxy) -> None:
    """Resize order o1 to 9 as another writer."""
    async with UnitOfWork(container) as work:
        (await work.repository(Order).read("o1")).resize(9)
        await work.commit()
