"""A broker in this process on free ports, and the real SDK as its client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from azure.servicebus.aio import ServiceBusClient

from local.servicebus.entities import Entities
from local.servicebus.server import ServiceBusServer

from .doubles import FakeClock

ENTITIES: dict[str, Any] = {
    "UserConfig": {
        "Logging": {"Type": "Console"},
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    {"Name": "orders", "Properties": {"DeadLetteringOnMessageExpiration": True}},
                    {"Name": "quick", "Properties": {"LockDuration": "PT0.4S", "MaxDeliveryCount": 2}},
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


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def entities() -> Entities:
    return Entities.from_document(ENTITIES)


@pytest.fixture
async def server(entities: Entities) -> AsyncIterator[ServiceBusServer]:
    async with ServiceBusServer(entities) as running:
        yield running


@pytest.fixture
async def client(server: ServiceBusServer) -> AsyncIterator[ServiceBusClient]:
    async with ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as connected:
        yield connected


@pytest.fixture
async def admin(server: ServiceBusServer) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{server.admin_port}") as session:
        yield session
