"""Parked keys and orders that somebody else removes at the same moment are simply gone."""

from __future__ import annotations

from azure.cosmos.aio import ContainerProxy

from relay.cli.quarantine.holdings import Holdings, Order
from tests.support.stores import items_in


async def test_an_order_that_is_gone_already_stays_gone(quarantine: ContainerProxy) -> None:
    holdings = Holdings(items_in(quarantine))
    await holdings.add("k", "e1")
    (order,) = await holdings.orders()

    await holdings.withdraw(order)
    await holdings.withdraw(order)
    await holdings.withdraw(Order("set-aside:never", "k", "e2", ""))

    assert await holdings.orders() == []


async def test_a_key_that_is_not_parked_counts_as_released(quarantine: ContainerProxy) -> None:
    assert await Holdings(items_in(quarantine)).unpark("k") is True
