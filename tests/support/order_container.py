"""What a container holds after a commit, and what others do to it meanwhile."""

from __future__ import annotations

from typing import Any

from azure.cosmos.aio import ContainerProxy

from outbox import UnitOfWork
from tests.support.orders import Order


async def stored(container: ContainerProxy) -> list[dict[str, Any]]:
    """All documents; those of one partition by commit, in each the entities, then the events in their order."""
    feed = container.query_items_change_feed(start_time="Beginning")
    return sorted([item async for item in feed], key=lambda item: (item["_lsn"], item.get("order", -1)))


async def actions(container: ContainerProxy) -> list[str]:
    """What the stored events tell."""
    return [item["data"]["action"] for item in await stored(container) if item["type"] == "domainEvent"]


async def given(container: ContainerProxy, *orders: Order) -> None:
    """Orders that are there already."""
    async with UnitOfWork(container) as work:
        for order in orders:
            work.repository(Order).create(order)
        await work.commit()


async def pay_elsewhere(container: ContainerProxy) -> None:
    """Someone else changes order o1."""
    async with UnitOfWork(container) as work:
        (await work.repository(Order).read("o1")).pay("1.00")
        await work.commit()
