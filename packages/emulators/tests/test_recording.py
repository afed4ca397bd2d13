"""`--record FILE`: what the emulators append to a file, for whoever checks a run afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient
from azure.cosmos.exceptions import CosmosBatchOperationError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.recording import Recording
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.emulators.testing import RawClient, entities_of

NOW = 1_700_000_000.25


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "recording.jsonl"


@pytest.fixture
def recording(path: Path) -> Iterator[Recording]:
    made = Recording(path, lambda: NOW)
    yield made
    made.close()


async def test_the_broker_records_what_it_accepts_and_drops(path: Path, recording: Recording) -> None:
    entities = entities_of(queues=["jobs"], topics={"orders": {"RequiresDuplicateDetection": True}})
    async with (
        ServiceBusServer(entities, recording=recording) as server,
        ServiceBusClient.from_connection_string(server.connection_string) as client,
    ):
        message = ServiceBusMessage("{}", message_id="1", session_id="s", subject="Placed")
        message.application_properties = {"sequence": 7}
        async with client.get_topic_sender("orders") as orders:
            await orders.send_messages(message)
            await orders.send_messages(message)
        async with client.get_queue_sender("jobs") as jobs:
            await jobs.send_messages(ServiceBusMessage(b"\xff", message_id="2"))

        accepted, dropped, job = lines(path)

    assert accepted == {
        "at": NOW,
        "entity": "orders",
        "outcome": "accepted",
        "sequence_number": 1,
        "message_id": "1",
        "session_id": "s",
        "subject": "Placed",
        "properties": {"sequence": 7},
        "body": "{}",
    }
    assert dropped == {**accepted, "outcome": "duplicate", "sequence_number": 0}
    assert (job["entity"], job["session_id"], job["body"]) == ("jobs", None, "\\xff")


async def test_the_account_records_each_commit_whole(path: Path, recording: Recording) -> None:
    async with (
        CosmosServer(physical_partitions=2, recording=recording) as server,
        CosmosClient.from_connection_string(server.connection_string) as client,
    ):
        database = await client.create_database("shop")
        carts = await database.create_container("carts", PartitionKey(path="/pk"))
        batch = [
            ("create", ({"id": "1", "pk": "k\u00e9y", "n": 1.0},)),
            ("create", ({"id": "2", "pk": "k\u00e9y"},)),
        ]
        await carts.execute_item_batch(batch, partition_key="k\u00e9y")
        await carts.replace_item("1", {"id": "1", "pk": "k\u00e9y"})
        await carts.delete_item("2", partition_key="k\u00e9y")

        created, replaced, deleted = lines(path)

    assert created["container"] == "dbs/shop/colls/carts"
    assert (created["key"], created["at"]) == (["k\u00e9y"], NOW)
    assert [(each["id"], each["place"]) for each in created["changes"]] == [("1", 1), ("2", 2)]
    assert created["lsn"] == 2
    assert str(created["changes"][0]["item"]["n"]) == "1.0"
    assert [each["item"]["id"] for each in replaced["changes"]] == ["1"]
    assert deleted["changes"] == [{"id": "2", "place": 4, "item": None}]
    assert {each["effective"] for each in (created, replaced, deleted)} == {created["effective"]}
    assert {each["range"] for each in (created, replaced, deleted)} == {created["range"]}


async def test_a_refused_commit_leaves_no_line(path: Path, recording: Recording) -> None:
    async with (
        CosmosServer(recording=recording) as server,
        CosmosClient.from_connection_string(server.connection_string) as client,
    ):
        database = await client.create_database("shop")
        carts = await database.create_container("carts", PartitionKey(path="/pk"))
        batch = [("create", ({"id": "1", "pk": "k"},)), ("create", ({"id": "1", "pk": "k"},))]

        with pytest.raises(CosmosBatchOperationError):
            await carts.execute_item_batch(batch, partition_key="k")

    assert lines(path) == []


async def test_an_item_that_was_sent_in_several_lines_is_one(path: Path, recording: Recording) -> None:
    async with CosmosServer(recording=recording) as server, aiohttp.ClientSession() as session:
        provision(server.account, [ContainerSpec.parse("shop/carts:/pk")])
        raw = RawClient(session, server.endpoint, server.key)
        headers = {"x-ms-documentdb-partitionkey": '["k"]'}
        text = '{\n "id": "1",\r\n "pk": "k"}'
        answer = await raw.send("POST", "/dbs/shop/colls/carts/docs", headers=headers, body=text)

    assert answer.status == 201
    assert [line["changes"][0]["item"] for line in lines(path)] == [{"id": "1", "pk": "k"}]
