"""What a container holds after a commit, and what others do to it meanwhile."""

from __future__ import annotations

from typing import Any

from azure.cosmos.aio import ContainerProxy

from outbox import UnitOfWork
from tests.unit.outbox.orders import Order


async def stored(container: ContainerProxy) -> list[dict[str, Any]]:
    """All documents; those of one partition in the order they were written, as the relay sees them."""
    return [item async for item in container.query_items_change_feed(start_time="Beginning")]


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
