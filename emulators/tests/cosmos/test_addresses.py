"""The account behind a mapped port or under another name: clients stay where they can reach it."""

from __future__ import annotations

import argparse
import json
from typing import Any

import aiohttp
import pytest
from azure.core.pipeline import PipelineRequest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient

from emulators.tests.cosmos.support import CosmosProcess, cannot_start
from emulators.tests.forwarder import forwarded
from outbox_emulators.cosmos.command import add_arguments
from outbox_emulators.cosmos.server import CosmosServer
from outbox_emulators.testing import RawClient

PUBLIC = "https://cosmos.test:8443/"


async def account_of(endpoint: str, key: str, host: str | None = None) -> dict[str, Any]:
    """The account document, as a client gets it that sends this Host header."""
    async with aiohttp.ClientSession() as session:
        client = RawClient(session, endpoint, key)
        answer = await client.send("GET", "/", headers={"Host": host} if host else None)
    found: dict[str, Any] = json.loads(answer.text)
    return found


def endpoints(account: dict[str, Any]) -> set[str]:
    return {
        location["databaseAccountEndpoint"]
        for kind in ("writableLocations", "readableLocations")
        for location in account[kind]
    }


async def test_a_client_stays_on_the_mapped_port(server: CosmosServer) -> None:
    asked: list[str] = []

    def note(request: PipelineRequest[Any]) -> None:
        asked.append(request.http_request.url)

    async with forwarded(server.port) as port:
        mapped = f"http://127.0.0.1:{port}/"
        async with CosmosClient(mapped, server.key, raw_request_hook=note) as client:
            database = await client.create_database("shop")
            orders = await database.create_container("orders", PartitionKey(path="/pk"))
            await orders.create_item({"id": "1", "pk": "a"})

            assert (await orders.read_item("1", "a"))["id"] == "1"
            assert [item["id"] async for item in orders.query_items("SELECT * FROM c", partition_key="a")] == ["1"]
            changes = orders.query_items_change_feed(start_time="Beginning")
            assert [item["id"] async for item in changes] == ["1"]

    assert len(asked) >= 6
    assert [url for url in asked if not url.startswith(mapped)] == []


async def test_the_account_names_the_endpoint_that_the_client_asked() -> None:
    async with CosmosServer(allowed_hosts=["cosmos"]) as server:
        assert endpoints(await account_of(server.endpoint, server.key)) == {server.endpoint}
        assert endpoints(await account_of(server.endpoint, server.key, "cosmos:18081")) == {"http://cosmos:18081/"}
        assert endpoints(await account_of(server.endpoint, server.key, "[::1]:8081")) == {"http://[::1]:8081/"}


async def test_a_process_serves_every_address_and_names_the_public_endpoint() -> None:
    async with CosmosProcess.start(
        "--host", "0.0.0.0", "--public-endpoint", "https://cosmos.test:8443"
    ) as process:
        own = f"http://127.0.0.1:{process.details['port']}/"
        key = process.details["connection_string"].partition("AccountKey=")[2].rstrip(";")

        assert process.details["endpoint"] == PUBLIC
        assert endpoints(await account_of(own, key)) == {PUBLIC}


@pytest.mark.parametrize(
    ("host", "name"), [("0.0.0.0", "127.0.0.1"), ("::1", "[::1]"), ("localhost", "localhost")]
)
async def test_the_connection_string_is_one_that_this_machine_reaches(host: str, name: str) -> None:
    server = CosmosServer(host=host)
    try:
        await server.start()
    except OSError as error:
        pytest.skip(f"this machine has no {host}: {error}")
    try:
        assert server.connection_string.startswith(f"AccountEndpoint=http://{name}:{server.port}/;")
        assert endpoints(await account_of(server.endpoint, server.key)) == {server.endpoint}
    finally:
        await server.stop()


def test_the_default_address_is_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    def default() -> str:
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        host: str = parser.parse_args([]).host
        return host

    monkeypatch.delenv("EMULATORS_HOST", raising=False)
    assert default() == "127.0.0.1"
    monkeypatch.setenv("EMULATORS_HOST", "0.0.0.0")
    assert default() == "0.0.0.0"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", ""], "--host"),
        (["--public-endpoint", "cosmos:8081"], "https://cosmos.test:8443/"),
        (["--public-endpoint", "http://cosmos/path"], "http://cosmos/path"),
    ],
)
async def test_an_address_that_is_wrong_is_named(arguments: list[str], message: str) -> None:
    code, errors = await cannot_start(*arguments)

    assert code != 0
    assert message in errors
