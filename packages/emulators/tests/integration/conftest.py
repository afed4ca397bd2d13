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
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient

from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.functions.edges import Edges
from outbox_relay.emulators.functions.host import Host
from outbox_relay.emulators.testing import FaultClient
from packages.emulators.tests.integration.apps import Recorder, checkpoint_written, stored_leases, write_app
from packages.emulators.tests.integration.processes import Process, Start, run
from tests.support.watchdog import WATCHDOG_S

HostFactory = Callable[..., Host]

# Options of a host that neither takes nor renews a lease by itself during a test.
QUIET: dict[str, Any] = dict.fromkeys(("lease_acquire_ms", "lease_renew_ms", "lease_expiration_ms"), 3_600_000)


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
        async with asyncio.timeout(WATCHDOG_S):
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

    def make(app_directory: Path, settings: dict[str, str] | None = None, /, **options: Any) -> Host:
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


def status_of(host: Host) -> dict[str, Any]:
    """The status of its only function."""
    status: dict[str, Any] = host.status()["functions"][0]
    return status


@dataclass(frozen=True, slots=True)
class Outbox:
    """A container with its leases, and hosts of function apps that its change feed triggers.

    `app` changes what `write_app` writes, and `options` those of `Host`.
    """

    folder: Path
    server: CosmosServer
    data: ContainerProxy
    leases: ContainerProxy
    recorder: Recorder
    host_of: HostFactory

    def host(
        self,
        settings: dict[str, str] | None = None,
        /,
        *,
        name: str = "app",
        app: dict[str, Any] | None = None,
        **options: Any,
    ) -> Host:
        """A host that is not started yet."""
        return self.host_of(write_app(self.folder / name, **{"name": name, **(app or {})}), settings, **options)

    async def start(self, settings: dict[str, str] | None = None, /, **options: Any) -> Host:
        """A host that is started; as `host`."""
        host = self.host(settings, **options)
        await host.start()
        return host

    async def write(self, *ids: object, key: str = "a", **members: Any) -> None:
        """Create items, one after another."""
        for each in ids:
            await self.data.create_item({"id": str(each), "partitionKey": key, **members})

    async def until_succeeded(self, *ids: str, app: str | None = None) -> None:
        """Wait until these ids, and no others, were processed, in this order."""
        await self.recorder.until(lambda: self.recorder.succeeded_ids(app) == list(ids))

    async def until_all_succeeded(self, ids: Iterable[object], app: str | None = None) -> None:
        """Wait until each of these ids was processed, in any order and as often as it came."""
        expected = {str(each) for each in ids}
        await self.recorder.until(lambda: set(self.recorder.succeeded_ids(app)) == expected)

    async def until_delivered(self) -> None:
        """Wait for the first delivery."""
        await self.recorder.until(lambda: len(self.recorder.deliveries) == 1)

    async def stored_leases(self) -> list[dict[str, Any]]:
        return await stored_leases(self.leases)

    async def until_checkpointed(self) -> None:
        """Wait until some lease has a continuation."""
        await checkpoint_written(self.leases)


@pytest.fixture
def outbox(
    tmp_path: Path,
    server: CosmosServer,
    data: ContainerProxy,
    leases: ContainerProxy,
    recorder: Recorder,
    host_of: HostFactory,
) -> Outbox:
    return Outbox(tmp_path, server, data, leases, recorder, host_of)
