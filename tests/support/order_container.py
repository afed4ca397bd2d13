"""Reads and writes a container of orders, as the tests' arrangement and as a concurrent writer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from azure.cosmos.aio import ContainerProxy

from outbox_relay.outbox import UnitOfWork
from tests.support.orders import Order


async def stored(container: ContainerProxy) -> list[dict[str, Any]]:
    """All documents. Those of one partition key are sorted by commit: the entities, then the events in order."""
    feed = container.query_items_change_feed(start_time="Beginning")
    return sorted([item async for item in feed], key=lambda item: (item["_lsn"], item.get("order", -1)))


async def events_of(container: ContainerProxy) -> list[dict[str, Any]]:
    return [item for item in await stored(container) if item["type"] == "domainEvent"]


async def actions(container: ContainerProxy) -> list[str]:
    """The actions of the stored events."""
    return [item["data"]["action"] for item in await events_of(container)]


async def given(container: ContainerProxy, *orders: Order) -> None:
    """Store orders."""
    async with UnitOfWork(container) as work:
        for order in orders:
            work.repository(Order).create(order)
        await work.commit()


@asynccontextmanager
async def reading(container: ContainerProxy) -> AsyncIterator[tuple[UnitOfWork, Order]]:
    """A unit of work that has read order o1."""
    async with UnitOfWork(container) as work:
        yield work, await work.repository(Order).read("o1")


@asynccontextmanager
async def paying(container: ContainerProxy) -> AsyncIterator[tuple[UnitOfWork, Order]]:
    """A unit of work that will commit a payment of order o1."""
    async with reading(container) as (work, order):
        order.pay("1.00")
        yield work, order


async def pay_elsewhere(container: ContainerProxy) -> None:
    """Pay order o1 as another writer."""
    async with paying(container) as (work, _):
        await work.commit()


async def resize_elsewhere(container: ContainerProxy) -> None:
    """Resize order o1 to 9 as another writer."""
    async with reading(container) as (work, order):
        order.resize(9)
        await work.commit()
