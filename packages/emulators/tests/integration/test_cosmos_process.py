"""The Cosmos DB emulator as a process: its options, and the data that it keeps in a file."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient

from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from packages.emulators.tests.cosmos.support import CosmosProcess, cannot_start

pytestmark = pytest.mark.slow


async def test_a_restart_keeps_items_containers_throughput_and_feed_positions(tmp_path: Path) -> None:
    file = tmp_path / "account.db"
    async with (
        CosmosServer(database=file, physical_partitions=3) as server,
        CosmosClient.from_connection_string(server.connection_string) as client,
    ):
        database = await client.create_database("db")
        container = await database.create_container(
            "c", PartitionKey(path="/pk"), default_ttl=1000, offer_throughput=900
        )
        await container.execute_item_batch([("create", ({"id": str(n), "pk": "a"},)) for n in range(5)], "a")
        written = await container.create_item({"id": "last", "pk": "a"})
        before = [item async for item in container.query_items_change_feed(start_time="Beginning")]
        token = container.client_connection.last_response_headers["etag"]
        properties = await container.read()

    async with (
        CosmosServer(database=file, physical_partitions=5) as server,
        CosmosClient.from_connection_string(server.connection_string) as client,
    ):
        container = client.get_database_client("db").get_container_client("c")
        assert await container.read() == properties
        assert (await container.get_throughput()).offer_throughput == 900
        assert len([each async for each in container.read_feed_ranges()]) == 3
        assert await container.read_item("last", "a") == written
        assert [item async for item in container.query_items_change_feed(start_time="Beginning")] == before
        await container.create_item({"id": "new", "pk": "a"})
        since = [item["id"] async for item in container.query_items_change_feed(continuation=token)]
        assert since == ["new"]


async def test_two_servers_cannot_use_one_file(tmp_path: Path) -> None:
    async with CosmosServer(database=tmp_path / "account.db"):
        with pytest.raises(RuntimeError, match="another server"):
            await CosmosServer(database=tmp_path / "account.db").start()


async def test_what_was_acknowledged_survives_a_killed_process(tmp_path: Path) -> None:
    arguments = ["--data", str(tmp_path / "account.db"), "--container", "db/c:/pk"]
    async with (
        CosmosProcess.start(*arguments) as process,
        CosmosClient.from_connection_string(process.details["connection_string"]) as client,
    ):
        container = client.get_database_client("db").get_container_client("c")
        for number in range(20):
            await container.create_item({"id": str(number), "pk": "a"})
        process.kill()
        await process.ended()

    async with (
        CosmosProcess.start(*arguments) as process,
        CosmosClient.from_connection_string(process.details["connection_string"]) as client,
    ):
        container = client.get_database_client("db").get_container_client("c")
        found = [item["id"] async for item in container.query_items("SELECT * FROM c", partition_key="a")]

    assert found == [str(number) for number in range(20)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_stops_the_process_cleanly(number: int) -> None:
    async with CosmosProcess.start() as process:
        process.signal(number)

        assert await process.ended() == 0


async def test_the_end_of_standard_input_stops_the_process() -> None:
    async with CosmosProcess.start("--exit-with-stdin") as process:
        process.close_stdin()

        assert await process.ended() == 0


async def test_the_ready_line_has_the_address_and_the_containers_exist() -> None:
    arguments = [
        "--container",
        "outbox/data:/partitionKey:-1",
        "--container",
        "outbox/leases:/id",
        "--partitions",
        "2",
    ]
    async with (
        CosmosProcess.start(*arguments) as process,
        CosmosClient.from_connection_string(process.details["connection_string"]) as client,
    ):
        details: dict[str, Any] = process.details
        data = client.get_database_client("outbox").get_container_client("data")
        properties = await data.read()

        assert details["part"] == "cosmos"
        assert details["endpoint"] == f"http://127.0.0.1:{details['port']}/"
        assert (properties["partitionKey"]["paths"], properties["defaultTtl"]) == (["/partitionKey"], -1)
        assert len([each async for each in data.read_feed_ranges()]) == 2
        leases = await client.get_database_client("outbox").get_container_client("leases").read()
        assert "defaultTtl" not in leases


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--container", "nonsense"], "DATABASE/CONTAINER"),
        (["--container", "db/c:/pk:0"], "defaultTtl"),
        (["--partitions", "0"], "at least 1"),
        (["--key", "no base64!"], "key"),
        (["--data", os.path.join(os.sep, "nowhere", "at", "all.db")], "unable to open"),
    ],
)
async def test_wrong_arguments_are_reported_and_end_the_command(arguments: list[str], message: str) -> None:
    code, errors = await cannot_start(*arguments)

    assert code != 0
    assert message in errors


async def test_a_requested_container_that_exists_with_another_key_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "account.db"
    async with CosmosServer(database=file) as server:
        provision(server.account, [ContainerSpec.parse("db/c:/pk")])

    code, errors = await cannot_start("--data", str(file), "--container", "db/c:/other")

    assert (code, "exists with partition key" in errors) == (1, True)
