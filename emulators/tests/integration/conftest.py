"""A Cosmos DB account in this process, with the containers of an outbox, and hosts, stopped after the test.

The tests of this folder run whole hosts, or emulators as processes: they take minutes. Those of the other folders
take seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient

from emulators.tests.integration.apps import WITHIN_S, Recorder
from emulators.tests.integration.processes import Process, Start, run
from outbox_emulators.cosmos.server import CosmosServer
from outbox_emulators.functions.edges import Edges
from outbox_emulators.functions.host import Host
from outbox_emulators.testing import FaultClient

HostFactory = Callable[..., Host]


@pytest.fixture
async def server() -> AsyncIterator[CosmosServer]:
    async with CosmosServer(physical_partitions=4) as started:
        yield started


@pytest.fixture
async def account(server: CosmosServer) -> AsyncIterator[CosmosClient]:
    async with CosmosClient.from_connection_string(server.connection_string) as client:
        yield client


@pytest.fixture
async def data(account: CosmosClient) -> ContainerProxy:
    database = await account.create_database_if_not_exists("outbox")
    return await database.create_container("data", PartitionKey("/partitionKey"), default_ttl=-1)


@pytest.fixture
async def leases(account: CosmosClient) -> ContainerProxy:
    database = await account.create_database_if_not_exists("outbox")
    return await database.create_container("leases", PartitionKey("/id"), default_ttl=-1)


@pytest.fixture
async def faults(server: CosmosServer) -> AsyncIterator[FaultClient]:
    async with aiohttp.ClientSession() as session:
        yield FaultClient(session, server.endpoint)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setitem(sys.modules, "recorder", recorder)
    return recorder


@pytest.fixture
async def started() -> AsyncIterator[Start]:
    """Starts hosts as processes, each with the details of its READY line; kills those that are left."""
    processes: list[Process] = []

    async def start(*arguments: str, **environment: str) -> tuple[Process, dict[str, Any]]:
        process = await run(*arguments, **environment)
        processes.append(process)
        assert process.stdout is not None
        async with asyncio.timeout(WITHIN_S):
            line = (await process.stdout.readline()).decode()
        return process, json.loads(line.removeprefix("READY "))

    yield start
    for process in processes:
        with suppress(ProcessLookupError):  # nothing is left, not even a worker without its host
            os.killpg(process.pid, signal.SIGKILL)
        await process.communicate()


@pytest.fixture
async def host_of(server: CosmosServer) -> AsyncIterator[HostFactory]:
    """Makes hosts that take leases over quickly, and stops those that still run after the test."""
    hosts: list[Host] = []

    def make(app_directory: Path, settings: dict[str, str] | None = None, **options: Any) -> Host:
        timings = {"lease_acquire_ms": 100, "lease_renew_ms": 200, "lease_expiration_ms": 600}
        host = Host(
            app_directory,
            {"COSMOS": server.connection_string, **(settings or {})},
            **{"shutdown_timeout_s": 2.0, "edges": Edges(None), **timings, **options},
        )
        hosts.append(host)
        return host

    yield make
    for host in hosts:
        await host.stop()
