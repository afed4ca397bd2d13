"""Faults that had no effect are injected again, and those that had one are not."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import suppress
from types import MappingProxyType, SimpleNamespace
from typing import Any

import aiohttp
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from local.chaos import inject
from local.chaos.admin import AdminPorts
from local.chaos.streams import DESTINATIONS
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from tests.support.watchdog import WATCHDOG_S

KIND, EDGE = "reject-then-detach", "rejection-then-detach"
TOPIC = DESTINATIONS[0]


class NoOutbox:
    """The side of a source without an outbox: this test sends itself."""

    causes: Mapping[str, str] = MappingProxyType({})
    parts: Collection[Any] = ()

    def lasting(self, fault: object) -> None:
        return None

    async def met(self) -> Counter[str]:
        return Counter()

    async def end_faults(self) -> None:
        pass


@pytest.fixture
async def injector(
    servicebus: ServiceBusServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[inject.Injector]:
    monkeypatch.setattr(inject, "_MET_WITHIN_S", 0.5)
    part = SimpleNamespace(details={"admin_port": servicebus.admin_port, "port": servicebus.port})
    stack: Any = SimpleNamespace(servicebus=part, blobs=None)
    side: Any = NoOutbox()
    async with aiohttp.ClientSession() as http:
        yield inject.Injector(stack, AdminPorts(http), side, None, destinations=[TOPIC], seed=1, shrunk_bytes=0)  # type: ignore[arg-type]  # nobody else uses the account


async def nothing() -> None:
    """Commit nothing: there is nothing that a fault could hit."""


async def send(connection_string: str) -> None:
    """Send a message, which may be refused."""
    async with (
        ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client,
        client.get_topic_sender(TOPIC.entity) as sender,
    ):
        with suppress(ServiceBusError):
            await sender.send_messages(ServiceBusMessage(b"{}", message_id="m", session_id="k"))


async def test_a_fault_is_injected_again_until_it_has_hit_something(
    injector: inject.Injector, servicebus: ServiceBusServer
) -> None:
    attempts = 0

    async def more() -> None:
        nonlocal attempts
        attempts += 1
        # At first there is nothing that the fault could hit.
        if attempts == 2:
            await send(servicebus.connection_string)

    await injector.cover(1, [KIND], more)

    assert (await injector.met())[EDGE] > 0
    assert (attempts, injector.injected) == (2, {KIND: 2})


async def test_a_fault_that_never_hits_anything_is_given_up(injector: inject.Injector) -> None:
    async with asyncio.timeout(WATCHDOG_S):
        await injector.cover(1, [KIND], nothing)

    assert (await injector.met())[EDGE] == 0
    assert injector.injected == {KIND: 3}


async def test_a_fault_that_has_hit_something_is_not_injected_again(
    injector: inject.Injector, servicebus: ServiceBusServer
) -> None:
    await injector.cover(1, [KIND], lambda: send(servicebus.connection_string))

    await injector.cover(1, [KIND], lambda: send(servicebus.connection_string))

    assert injector.injected == {KIND: 1}
