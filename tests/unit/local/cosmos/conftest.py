"""A server in this process on a free port, and the SDK's own client to talk to it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient

from local.cosmos.server import CosmosServer

MakeContainer = Callable[..., Awaitable[ContainerProxy]]


@dataclass
class TurnableClock:
    """Time that passes only when a test says so."""

    now: float = field(default_factory=time.time)

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> TurnableClock:
    return TurnableClock()


@pytest.fixture
async def server(clock: TurnableClock) -> AsyncIterator[CosmosServer]:
    async with CosmosServer(clock=clock) as running:
        yield running


@pytest.fixture
async def client(server: CosmosServer) -> AsyncIterator[CosmosClient]:
    async with CosmosClient.from_connection_string(server.connection_string) as connected:
        yield connected


@pytest.fixture
async def make_container(client: CosmosClient) -> MakeContainer:
    """Creates a container in the database `outbox`, partitioned by `/pk` unless told otherwise."""

    async def make(name: str = "data", path: Any = "/pk", **options: Any) -> ContainerProxy:
        database = await client.create_database_if_not_exists("outbox")
        return await database.create_container(name, PartitionKey(path=path), **options)

    return make


@pytest.fixture
async def container(make_container: MakeContainer) -> ContainerProxy:
    return await make_container()
