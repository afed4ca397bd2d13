"""What the benchmarks write: to Cosmos DB's emulator, and to a real PostgreSQL."""

from __future__ import annotations

from azure.cosmos.aio import CosmosClient

from bench.outbox import CosmosOutbox, balanced_keys, event, partition_of
from bench.sql_outbox import SqlOutbox
from changefeed import AsyncFeed
from changefeed.statements import Statement
from local.stack.environment import CONTAINERS, DATABASE, container_argument
from outbox_emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_emulators.cosmos.server import CosmosServer
from tests.support.sql_outbox import TABLE, provisioned

DOCUMENTS = [event(f"{number}-{key}", key) for key in ("a", "b", "a", "c") for number in range(3)]
for order, document in enumerate(DOCUMENTS):
    document["id"] = f"{order}-{document['partitionKey']}"


async def test_a_container_is_filled_with_every_document() -> None:
    async with CosmosServer() as server:
        provision(server.account, [ContainerSpec.parse(container_argument(*spec)) for spec in CONTAINERS])
        async with CosmosOutbox(server.connection_string) as outbox:
            await outbox.fill(DOCUMENTS)
        async with CosmosClient.from_connection_string(server.connection_string) as client:
            container = client.get_database_client(DATABASE).get_container_client("data")
            stored = {document["id"]: document["data"] async for document in container.read_all_items()}

    assert stored == {document["id"]: document["data"] for document in DOCUMENTS}


async def test_a_feed_is_filled_in_order_and_by_shard(postgres_database: str) -> None:
    shards = 2
    keys = ["a", "b", "c"]
    session = await provisioned(postgres_database)
    async with SqlOutbox(postgres_database, shards) as outbox:
        await outbox.fill(DOCUMENTS)
    pages = [await AsyncFeed(session, TABLE).read(shard_id) for shard_id in range(shards)]
    await session.close()

    read = [[(entry.row or {})["id"] for entry in page.entries] for page in pages]
    assert {partition_of(key, shards) for key in keys} == {0, 1}
    assert read == [
        [each["id"] for each in DOCUMENTS if partition_of(each["partitionKey"], shards) == shard_id]
        for shard_id in range(shards)
    ]


async def test_a_commit_writes_the_business_row_and_the_event(postgres_database: str) -> None:
    session = await provisioned(postgres_database)
    async with SqlOutbox(postgres_database, 1) as outbox:
        await outbox.commit("k", "e1", 1)
        await outbox.commit("k", "e2", 2)
    page = await AsyncFeed(session, TABLE).read(0)
    contacts = await session.execute(Statement("select id, version from bench_contact"))
    await session.close()

    assert [(entry.row or {})["id"] for entry in page.entries] == ["e1", "e2"]
    assert list(contacts.rows) == [("k", 2)]


def test_keys_fill_the_partitions_in_turn() -> None:
    keys = [key for key, _ in zip(balanced_keys(4), range(12), strict=False)]

    assert [partition_of(key, 4) for key in keys] == [0, 1, 2, 3] * 3
