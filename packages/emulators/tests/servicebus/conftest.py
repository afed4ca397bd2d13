"""A broker in this process on free ports, and the real SDK as its client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp.aio._transport_async import AsyncTransport, WebSocketTransportAsync
from azure.servicebus.aio import (
    ServiceBusClient,
    ServiceBusSender,
)

from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from packages.emulators.tests.servicebus.fakes import FakeClock
from packages.emulators.tests.servicebus.plain_http import management_client
from packages.emulators.tests.servicebus.support import Broker, spare_idle_waits

ENTITIES: dict[str, Any] = {
    "UserConfig": {
        "Logging": {"Type": "Console"},
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    {"Name": "orders", "Properties": {"DeadLetteringOnMessageExpiration": True}},
                    {"Name": "quick", "Properties": {"LockDuration": "PT0.4S", "MaxDeliveryCount": 2}},
                    {"Name": "slow", "Properties": {"LockDuration": "PT1.2S"}},
                    {"Name": "chats", "Properties": {"RequiresSession": True}},
                    {"Name": "quick-chats", "Properties": {"RequiresSession": True, "LockDuration": "PT0.6S"}},
                    {"Name": "large", "Properties": {"MaxMessageSizeInKilobytes": 2048}},
                    {
                        "Name": "spread",
                        "Properties": {"EnablePartitioning": True, "RequiresDuplicateDetection": True},
                    },
                ],
                "Topics": [
                    {
                        "Name": "events",
                        "Properties": {
                            "RequiresDuplicateDetection": True,
                            "DuplicateDetectionHistoryTimeWindow": "PT5M",
                        },
                        "Subscriptions": [
                            {"Name": "all", "Properties": {"RequiresSession": True}},
                            {
                                "Name": "named",
                                "Rules": [
                                    {
                                        "Name": "by-label",
                                        "Properties": {
                                            "FilterType": "Correlation",
                                            "CorrelationFilter": {"Label": "Named"},
                                        },
                                    }
                                ],
                            },
                            {
                                "Name": "dear",
                                "Rules": [
                                    {
                                        "Name": "by-price",
                                        "Properties": {
                                            "FilterType": "Sql",
                                            "SqlFilter": {"SqlExpression": "price > 100"},
                                            "Action": {"SqlExpression": "SET sys.Label = 'Dear'; SET dear = TRUE"},
                                        },
                                    }
                                ],
                            },
                        ],
                    }
                ],
            }
        ],
    }
}


@pytest.fixture(autouse=True)
async def sdk_connections(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Close the sockets that the SDK (7.15.0) forgets: of connections that end while it opens or uses them."""
    made: list[Any] = []

    def note(kind: type[AsyncTransport | WebSocketTransportAsync]) -> None:
        connect = kind.connect

        async def connect_and_note(transport: Any) -> None:
            made.append(transport)
            await connect(transport)

        monkeypatch.setattr(kind, "connect", connect_and_note)

    note(AsyncTransport)
    note(WebSocketTransportAsync)
    yield
    for transport in made:
        session, writer = (getattr(transport, name, None) for name in ("session", "writer"))
        if session is not None:
            await session.close()
        if writer is not None:
            writer.transport.abort()


@pytest.fixture(autouse=True)
def quick_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare the tests the SDK's idle waits."""
    spare_idle_waits(monkeypatch)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def entities() -> Entities:
    return Entities.from_document(ENTITIES)


@pytest.fixture
async def server(entities: Entities) -> AsyncIterator[ServiceBusServer]:
    async with ServiceBusServer(entities, edges=None) as running:
        yield running


@pytest.fixture
async def client(server: ServiceBusServer) -> AsyncIterator[ServiceBusClient]:
    # A shorter wait for frames than the SDK's 0.2 s: it waits in full whenever it looks for one more.
    async with ServiceBusClient.from_connection_string(
        server.connection_string, retry_total=0, socket_timeout=0.05
    ) as connected:
        yield connected


@pytest.fixture
async def admin(server: ServiceBusServer) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{server.admin_port}") as session:
        yield session


@pytest.fixture
async def management(server: ServiceBusServer) -> AsyncIterator[Any]:
    """A ServiceBusAdministrationClient; every property of what it returns may be None to a type checker."""
    async with management_client(server) as client:
        yield client


@pytest.fixture
def broker(admin: aiohttp.ClientSession, server: ServiceBusServer) -> Broker:
    return Broker(admin, server)


@pytest.fixture
async def sender(client: ServiceBusClient) -> AsyncIterator[ServiceBusSender]:
    async with client.get_queue_sender("orders") as opened:
        await opened.send_messages(ServiceBusMessage("0", message_id="0"))
        yield opened
