"""Cosmos DB goes away and comes back while a host is at work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import ServiceResponseError
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import CosmosHttpResponseError

from local.cosmos.server import CosmosServer
from local.functions.errors import HostError
from local.functions.feed import ChangeFeed, Page, PartitionRange
from local.functions.host import Host
from tests.unit.local.functions.apps import Recorder, eventually, write_app
from tests.unit.local.functions.conftest import HostFactory


async def test_a_host_outlives_an_outage_of_the_account(tmp_path: Path, recorder: Recorder) -> None:
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
            await database.create_container("leases", PartitionKey("/id"))
            await data.create_item({"id": "before", "partitionKey": "a"})
        await host.start()
        await recorder.until(lambda: recorder.succeeded_ids() == ["before"])
        await server.stop()
        await eventually(lambda: bool(host.status()["functions"][0]["last_error"]))
        server = CosmosServer(database=file, port=port)
        await server.start()
        async with CosmosClient.from_connection_string(connection) as account:
            data = account.get_database_client("outbox").get_container_client("data")
            await data.create_item({"id": "after", "partitionKey": "a"})
        await recorder.until(lambda: "after" in recorder.succeeded_ids())
    finally:
        await host.stop()
        await server.stop()


async def test_a_throttled_or_broken_read_is_tried_again_when_the_service_says(
    tmp_path: Path,
    data: ContainerProxy,
    leases: ContainerProxy,
    recorder: Recorder,
    host_of: HostFactory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    answered: Any = CosmosHttpResponseError  # its constructor has no annotations
    throttled = answered(429, "(429) Request rate is large")
    throttled.headers = {"x-ms-retry-after-ms": "20"}
    failures = [throttled, answered(503, "(ServiceUnavailable) away"), ServiceResponseError("cut")]
    read = ChangeFeed.read

    async def fail_at_first(feed: ChangeFeed, partition: PartitionRange, continuation: str | None) -> Page:
        if failures:
            raise failures.pop(0)
        return await read(feed, partition, continuation)

    monkeypatch.setattr(ChangeFeed, "read", fail_at_first)
    await data.create_item({"id": "1", "partitionKey": "a"})
    host = host_of(write_app(tmp_path))
    await host.start()
    await recorder.until(lambda: recorder.succeeded_ids() == ["1"])
    assert host.status()["functions"][0]["leases"] == ["0", "1", "2", "3"]
    assert "next try in 0.020 s: the change feed could not be read: 429 " in caplog.text
    assert "next try in 0.030 s: the change feed could not be read: 503 " in caplog.text
    assert "next try in 0.030 s: the change feed could not be read: cut" in caplog.text


@pytest.mark.usefixtures("recorder")
async def test_an_account_that_cannot_be_reached_is_told_with_the_connections_name(tmp_path: Path) -> None:
    async with CosmosServer() as server:
        connection = server.connection_string
    with pytest.raises(HostError, match="the connection 'COSMOS' does not work: "):
        await Host(write_app(tmp_path), {"COSMOS": connection}).start()
