"""Cosmos DB goes away while a host is at work, and pages that the host cannot parse."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient

from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.functions.host import Host
from outbox_relay.emulators.testing import FaultClient
from packages.emulators.tests.functions.test_documents import nested
from packages.emulators.tests.integration.apps import Recorder, eventually, write_app
from packages.emulators.tests.integration.conftest import Outbox, status_of

pytestmark = [pytest.mark.slow, pytest.mark.weekly]


async def test_a_host_outlives_an_outage_of_the_account(
    tmp_path: Path, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "outbox_relay.emulators.functions.transport")
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


# A page that the host cannot parse is neither delivered nor retried, and blocks its lease


def _withheld(caplog: pytest.LogCaptureFixture, reason: str) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == logging.WARNING
        and "encountered an unhandled user exception" in record.getMessage()
        and reason in record.getMessage()
    ]


@pytest.mark.parametrize(
    ("data_of_it", "keep_dates", "reason"),
    [
        (nested(63), True, "MaxDepth of 64 has been exceeded"),
        ({"at": "/Date(9999999999999999)/"}, False, "Ticks must be between"),
    ],
    ids=["64 levels", "a date beyond all years"],
)
async def test_a_page_that_cannot_be_parsed_blocks_its_lease_until_the_document_is_gone(
    outbox: Outbox, caplog: pytest.LogCaptureFixture, data_of_it: dict[str, Any], keep_dates: bool, reason: str
) -> None:
    host = await outbox.start(app={"keep_dates": keep_dates})
    await outbox.write("before")
    await outbox.until_succeeded("before")

    await outbox.data.create_item({"id": "1", "partitionKey": "a", "type": "contact", "data": data_of_it})
    await outbox.write("2")
    await eventually(lambda: len(_withheld(caplog, reason)) >= 3)
    for number in range(30):
        await outbox.data.create_item({"id": f"other-{number}", "partitionKey": f"key-{number}"})
    await outbox.recorder.until(lambda: len(outbox.recorder.succeeded_ids()) > 15)

    status = status_of(host)
    assert {"1", "2"}.isdisjoint(outbox.recorder.succeeded_ids())
    assert (status["failures"], status["retries"], status["documents_lost"]) == (0, 0, 0)
    assert reason in status["last_error"]
    assert [reason in each["error"] for each in status["withheld"].values()] == [True]
    assert [lease["Owner"] for lease in await outbox.stored_leases()].count(None) <= 1

    await outbox.data.delete_item("1", partition_key="a")
    await outbox.recorder.until(lambda: "2" in outbox.recorder.succeeded_ids())
    assert status_of(host)["withheld"] == {}
