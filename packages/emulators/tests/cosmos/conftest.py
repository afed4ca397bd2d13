"""A server in this process on a free port, and the SDK's own client to talk to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient

from outbox_relay.emulators.cosmos.edges import DEFAULT_SEED
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.testing import FaultClient, ManualClock, RawClient
from packages.emulators.tests.cosmos.support import MakeContainer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def edges() -> int | None:
    """The seed of the behaviour that the service leaves open; None in tests of something else."""
    return DEFAULT_SEED


@pytest.fixture
async def server(clock: ManualClock, edges: int | None) -> AsyncIterator[CosmosServer]:
    async with CosmosServer(clock=clock, edges=edges) as running:
        yield running


@pytest.fixture
async def client(server: CosmosServer) -> AsyncIterator[CosmosClient]:
    async with CosmosClient.from_connection_string(server.connection_string) as connected:
        yield connected


@pytest.fixture
async def make_container(client: CosmosClient) -> MakeContainer:
    """Creates a container in the database `outbox`, partitioned by `/pk` by default."""

    async def make(name: str = "data", path: Any = "/pk", **options: Any) -> ContainerProxy:
        database = await client.create_database_if_not_exists("outbox")
        created: ContainerProxy = await database.create_container(name, PartitionKey(path=path), **options)
        return created

    return make


@pytest.fixture
async def container(make_container: MakeContainer) -> ContainerProxy:
    return await make_container()


@pytest.fixture
async def raw(server: CosmosServer) -> AsyncIterator[RawClient]:
    async with aiohttp.ClientSession() as session:
        yield RawClient(session, server.endpoint, server.key)


@pytest.fixture
async def stranger(server: CosmosServer) -> AsyncIterator[RawClient]:
    """A client that sends no session tokens by default."""
    async with aiohttp.ClientSession() as session:
        yield RawClient(session, server.endpoint, server.key, is_stranger=True)


@pytest.fixture
async def faults(server: CosmosServer) -> AsyncIterator[FaultClient]:
    async with aiohttp.ClientSession() as session:
        yield FaultClient(session, server.endpoint)
