"""Cosmos DB goes away and comes back while a host is running."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient

from emulators.tests.integration.apps import Recorder, eventually, write_app
from emulators.tests.integration.conftest import Outbox, status_of
from outbox_emulators.cosmos.server import CosmosServer
from outbox_emulators.functions.host import Host
from outbox_emulators.testing import FaultClient


async def test_a_host_outlives_an_outage_of_the_account(
    tmp_path: Path, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "outbox_emulators.functions.transport")
    file = tmp_path / "cosmos.db"
    server = CosmosServer(database=file)
    await server.start()
    port, connection = server.port, server.connection_string
    host = Host(
        write_app(tmp_path / "app"),
        {"COSMOS": connection},
        lease_acquire_ms=50,
        lease_renew_ms=100,
        lease_expiration_ms=400,
    )
    try:
        async with CosmosClient.from_connection_string(connection) as account:
            database = await account.create_database("outbox")
            data = await database.create_container("data", PartitionKey("/partitionKey"))
            await database.create_container("leases", PartitionKey("/id"), default_ttl=-1)
            await data.create_item({"id": "before", "partitionKey": "a"})
        await host.start()
        await recorder.until(lambda: recorder.succeeded_ids() == ["before"])
        await server.stop()
        await eventually(lambda: caplog.text.count("has no connection") > 8)
        server = CosmosServer(database=file, port=port)
        await server.start()
        async with CosmosClient.from_connection_string(connection) as account:
            data = account.get_database_client("outbox").get_container_client("data")
            await data.create_item({"id": "after", "partitionKey": "a"})
        await recorder.until(lambda: "after" in recorder.succeeded_ids())
    finally:
        await host.stop()
        await server.stop()


async def test_a_host_that_cannot_reach_its_account_at_the_start_runs_on_and_listens_once_it_can(
    tmp_path: Path, recorder: Recorder
) -> None:
    file = tmp_path / "cosmos.db"
    async with CosmosServer(database=file) as server:
        port, connection = server.port, server.connection_string
        async with CosmosClient.from_connection_string(connection) as account:
            database = await account.create_database("outbox")
            data = await database.create_container("data", PartitionKey("/partitionKey"))
            await database.create_container("leases", PartitionKey("/id"), default_ttl=-1)
            await data.create_item({"id": "1", "partitionKey": "a"})
    host = Host(write_app(tmp_path / "app"), {"COSMOS": connection}, lease_acquire_ms=50)
    try:
        await host.start()
        status = status_of(host)
        assert status["last_error"].startswith("the listener was unable to start: ")
        assert status["leases"] == []
        async with CosmosServer(database=file, port=port):
            await recorder.until(lambda: recorder.succeeded_ids() == ["1"])
            await host.stop()
    finally:
        await host.stop()


async def test_a_service_that_is_unavailable_at_the_start_does_not_end_the_host(
    outbox: Outbox, faults: FaultClient
) -> None:
    outage = await faults.add("timeout", "query", "leases", for_ms=60_000)
    host = await outbox.start()
    assert status_of(host)["leases"] == []
    await faults.remove(outage)
    await eventually(lambda: len(status_of(host)["leases"]) == 4)


@pytest.mark.parametrize("missing", ["data", "leases"])
async def test_a_container_that_is_missing_at_the_start_is_never_recovered_from(
    outbox: Outbox, account: CosmosClient, caplog: pytest.LogCaptureFixture, missing: str
) -> None:
    database = account.get_database_client("outbox")
    await database.delete_container(missing)
    host = await outbox.start()
    assert f"container '{missing}'" in status_of(host)["last_error"]

    paths = {"data": "/partitionKey", "leases": "/id"}
    await database.create_container(missing, PartitionKey(paths[missing]))
    await outbox.write("1")
    await eventually(lambda: caplog.text.count("This builder instance has already been used") >= 2)
    assert (outbox.recorder.deliveries, status_of(host)["leases"]) == ([], [])

    await host.stop()
    await outbox.start()
    await outbox.until_succeeded("1")
