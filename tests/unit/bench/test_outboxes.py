"""The workloads of the benchmarks, what is written to each outbox, and how statements are counted."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from itertools import pairwise
from typing import Any

import orjson
import pytest
from azure.cosmos.aio import CosmosClient

from local.stack.environment import CONTAINERS, DATABASE, container_argument
from outbox_relay.changefeed import MAX_PAGE_SIZE, AsyncFeed, connect_async
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from relay.servicebus.transfers import Transfer
from tests.support.outbox import sound
from tests.support.sql_outbox import TABLE, provisioned
from verification.bench.counting import CountedSessions
from verification.bench.documents import ARTICLE, TWENTY_KB, TWO_KB, Source, Workload
from verification.bench.feed import fill
from verification.bench.offline import AcceptingSenders
from verification.bench.outbox import Outbox, balanced_keys, event, partition_of
from verification.bench.steady import running_worker

DOCUMENTS = [event(f"{number}-{key}", key) for key in ("a", "b", "a", "c") for number in range(3)]
for order, document in enumerate(DOCUMENTS):
    document["id"] = f"{order}-{document['partitionKey']}"


async def test_a_commit_is_a_business_document_and_its_event() -> None:
    async with CosmosServer() as server:
        provision(server.account, [ContainerSpec.parse(container_argument(*spec)) for spec in CONTAINERS])
        async with Outbox(server.connection_string) as outbox:
            await outbox.commit("k", "e1", 1)
            await outbox.commit("k", "e2", 2)
        async with CosmosClient.from_connection_string(server.connection_string) as client:
            container = client.get_database_client(DATABASE).get_container_client("data")
            stored = {document["id"]: document["data"] async for document in container.read_all_items()}

    assert stored.keys() == {"k", "e1", "e2"}
    assert stored["k"]["version"] == 2


async def test_a_feed_is_filled_in_order(postgres_database: str) -> None:
    session = await provisioned(postgres_database)
    await fill(postgres_database, DOCUMENTS)
    page = await AsyncFeed(session, TABLE).read(0)
    await session.close()

    assert [(entry.row or {})["id"] for entry in page.entries] == [each["id"] for each in DOCUMENTS]


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


# Statements are counted at the session: of a reader, and of the relay's worker


class Sending(AcceptingSenders):
    """Accepts everything, and tells when a number of events have been sent."""

    def __init__(self, events: int) -> None:
        super().__init__()
        self.all_sent = asyncio.Event()
        self._missing = events

    async def send(self, transfer: Transfer, *others: Any, **named: Any) -> None:
        await super().send(transfer, *others, **named)
        self._missing -= len(transfer.events)
        if not self._missing:
            self.all_sent.set()


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


async def test_the_worker_takes_two_statements_for_a_page(postgres_database: str) -> None:
    provisioning = await provisioned(postgres_database)
    await provisioning.close()
    pages = 4
    await fill(
        postgres_database, [event(f"e{number}", f"k{number % 5}") for number in range(pages * MAX_PAGE_SIZE)]
    )
    sessions = CountedSessions(lambda: connect_async(postgres_database))
    senders = Sending(pages * MAX_PAGE_SIZE)

    async with running_worker(senders, sessions.connect, SQL=postgres_database, SQL_SHARDS="1"):
        await senders.all_sent.wait()

    (reading,) = [found for found in map(stored_cursors, sessions.opened) if found]
    assert len(reading) >= pages
    assert {later - before for before, later in pairwise(reading[:pages])} == {2}


def stored_cursors(statements: list[str]) -> list[int]:
    return [number for number, text in enumerate(statements) if "set last_ulid = ?" in text]
