"""The workloads of the benchmarks, what is written to each outbox, and how statements are counted."""

from __future__ import annotations

import time
from collections import Counter

import orjson
import pytest
from azure.cosmos.aio import CosmosClient

from bench.counting import CountedSessions
from bench.documents import ARTICLE, TWENTY_KB, TWO_KB, Source, Workload
from bench.feed_statements import between_stores, count_statements
from bench.offline import ENVIRONMENT
from bench.outbox import CosmosOutbox, balanced_keys, event, partition_of
from bench.sql_outbox import SqlOutbox
from changefeed import MAX_PAGE_SIZE, AsyncFeed, connect_async
from changefeed.statements import Statement
from local.stack.environment import CONTAINERS, DATABASE, container_argument
from outbox_emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_emulators.cosmos.server import CosmosServer
from tests.support.outbox import sound
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


# The workloads of the benchmarks


def test_a_batch_has_the_requested_events_of_each_key() -> None:
    batch = Source(1).batch(Workload(keys=10, per_key=7))

    assert set(Counter(document["partitionKey"] for document in batch).values()) == {7}
    assert len(batch) == Workload(keys=10, per_key=7).events == 70


def test_no_two_documents_of_a_source_share_an_id() -> None:
    source, workload = Source(1), Workload(keys=3, per_key=3, others=0.5)

    identifiers = [document["id"] for _ in range(50) for document in source.batch(workload)]

    assert len(set(identifiers)) == len(identifiers) == 50 * 18


def test_a_seed_determines_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)
    workload = Workload(keys=100, per_key=1, size=TWO_KB)

    assert Source(1).batch(workload) == Source(1).batch(workload)
    assert Source(1).batch(workload) != Source(2).batch(workload)


@pytest.mark.parametrize("size", [100, ARTICLE, 300, TWO_KB, TWENTY_KB, 200_000])
def test_an_event_has_data_of_about_the_requested_size(size: int) -> None:
    for document in Source(1).batch(Workload(keys=5, per_key=5, size=size)):
        assert len(orjson.dumps(document["data"])) == pytest.approx(size, rel=0.1)


@pytest.mark.parametrize(("others", "documents"), [(0.0, 100), (0.5, 200), (0.95, 2000)])
def test_documents_of_other_types_are_added_to_the_events(others: float, documents: int) -> None:
    batch = Source(1).batch(Workload(keys=10, per_key=10, others=others))

    assert len(batch) == documents
    assert sum(document["type"] == "domainEvent" for document in batch) == 100


def test_the_relay_accepts_every_event() -> None:
    for document in Source(1).batch(Workload(keys=3, per_key=2)):
        assert sound(document).id == document["id"]


@pytest.mark.parametrize(
    ("workload", "name"),
    [
        (Workload(100, 1), "100x1"),
        (Workload(10, 10, TWO_KB), "10x10 2 KB"),
        (Workload(10, 10, ARTICLE, 0.95), "10x10 95 % others"),
        (Workload(10, 10, 300), "10x10 300 B"),
    ],
)
def test_a_workload_is_named_after_its_shape(workload: Workload, name: str) -> None:
    assert workload.name == name


# Statements are counted at the session: of a list, of a reader, and of the relay's worker


STORE = "update claim set last_ulid = ? where epoch = ?"


def test_what_lies_between_two_stored_cursors_belongs_to_a_page() -> None:
    statements = ["connect", "read", STORE, "read", STORE, "read", "read", STORE, "wait"]

    assert between_stores(statements) == 2.5


async def test_a_read_is_one_statement_and_the_first_wait_two(postgres_database: str) -> None:
    provisioning = await provisioned(postgres_database)
    await provisioning.close()
    sessions = CountedSessions(lambda: connect_async(postgres_database))
    session = await sessions.connect()
    feed = AsyncFeed(session, TABLE)

    page = await feed.read(0)
    assert (page.entries, sessions.total) == ([], 1)

    # It asks for the channel, and looks for news.
    assert not await feed.wait(0, page.cursor, 0)
    assert sessions.total == 3
    await session.close()


async def test_the_worker_takes_two_statements_for_a_page_and_few_while_idle(postgres_database: str) -> None:
    provisioning = await provisioned(postgres_database)
    await provisioning.close()
    async with SqlOutbox(postgres_database, 1) as outbox:
        await outbox.fill([event(f"e{number}", f"k{number % 5}") for number in range(3 * MAX_PAGE_SIZE)])

    counted = await count_statements({**ENVIRONMENT, "SQL": postgres_database}, idle_s=2.0)

    assert counted.a_page == 2
    # A look every 150 ms and at both ends of two waits; one statement for the claim.
    assert 0 < counted.idle <= 12
