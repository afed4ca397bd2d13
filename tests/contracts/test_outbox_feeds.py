"""What `replay` and `quarantine` ask of the outbox container: of the one in memory, and over the wire."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from azure.cosmos.aio import ContainerProxy, CosmosClient

from outbox_emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_emulators.cosmos.server import CosmosServer
from relay.cli.committed import Outbox, Range
from tests.unit.relay.commands import Feed

EVERYTHING = Range("domainEvent", 0, 10_000)


class Harness(ABC):
    """One outbox: what is committed at a given time, and the container to read it from."""

    container: ContainerProxy

    async def commit(self, identifier: str, key: str, at: int = 1000, **more: Any) -> None:
        """Commit one event at `at`, in whole seconds since 1970."""
        await self.transaction([event(identifier, key, **more)], at)

    @abstractmethod
    async def transaction(self, documents: list[dict[str, Any]], at: int = 1000) -> None:
        """Commit documents of one key in one transaction."""


class InMemory(Harness):
    def __init__(self) -> None:
        self._feed = Feed()
        self._commits = 0
        self.container = cast(ContainerProxy, self._feed)

    async def transaction(self, documents: list[dict[str, Any]], at: int = 1000) -> None:
        self._commits += 1
        for document in documents:
            self._feed.commit(document["id"], document["partitionKey"], self._commits, **(document | {"_ts": at}))


class OnEmulator(Harness):
    def __init__(self, container: ContainerProxy, clock: list[int]) -> None:
        self.container = container
        self._clock = clock

    async def transaction(self, documents: list[dict[str, Any]], at: int = 1000) -> None:
        self._clock[0] = at
        operations: list[Any] = [("create", (document,)) for document in documents]
        await self.container.execute_item_batch(operations, partition_key=documents[0]["partitionKey"])


@pytest.fixture(params=["in memory", "Cosmos DB emulator"])
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    if request.param == "in memory":
        yield InMemory()
        return
    clock = [0]
    async with CosmosServer(clock=lambda: clock[0], physical_partitions=2) as server:
        provision(server.account, [ContainerSpec.parse("outbox/data:/partitionKey")])
        async with CosmosClient.from_connection_string(server.connection_string) as client:
            container = client.get_database_client("outbox").get_container_client("data")
            yield OnEmulator(container, clock)


def event(identifier: str, key: str, **more: Any) -> dict[str, Any]:
    document = {"id": identifier, "partitionKey": key, "type": "domainEvent", "data": {"action": "Named"}}
    return document | more


async def read(harness: Harness, chosen: Range) -> list[str]:
    """The ids of the documents that a replay of the range reads, which must be as many as it counts."""
    outbox = Outbox(harness.container, harness.container)
    found: list[str] = []
    for feed_range in await outbox.feed_ranges(chosen):
        count = await outbox.count(chosen, feed_range)
        before = len(found)
        async for page in outbox.pages(chosen, feed_range, count):
            found += [document["id"] for document in page]
        assert len(found) - before == count
    return found


async def feed(harness: Harness, feed_range: Any, start: int) -> list[dict[str, Any]]:
    """What the change feed of a range has behind `start`, in seconds since 1970."""
    return [document for page in await pages(harness, feed_range, start) for document in page]


async def pages(harness: Harness, feed_range: Any, start: int) -> list[list[dict[str, Any]]]:
    """The same, in pages of two documents at most."""
    found = harness.container.query_items_change_feed(
        feed_range=feed_range, start_time=datetime.fromtimestamp(start, UTC), max_item_count=2
    ).by_page()
    return [[document async for document in page] async for page in found]


async def test_the_container_has_a_resource_id(harness: Harness) -> None:
    assert (await harness.container.read())["_rid"]


async def test_the_ranges_together_have_every_event_once_and_each_key_in_commit_order(harness: Harness) -> None:
    for number in range(20):
        await harness.commit(f"{number:02}", f"{'az'[number % 2]}{number % 5}")

    found = await read(harness, EVERYTHING)

    assert sorted(found) == [f"{number:02}" for number in range(20)]
    for key in range(10):
        of_key = [identifier for identifier in found if int(identifier) % 10 == key]
        assert of_key == sorted(of_key)


async def test_a_range_has_what_was_committed_from_its_start_to_before_its_end(harness: Harness) -> None:
    for at in (999, 1000, 1001, 1002):
        await harness.commit(str(at), "k", at)

    assert await read(harness, Range("domainEvent", 1000, 1002)) == ["1000", "1001"]


async def test_a_range_has_only_its_type_its_key_and_its_action(harness: Harness) -> None:
    await harness.commit("a", "k")
    await harness.commit("b", "k", type="contact")
    await harness.commit("c", "other")
    await harness.commit("d", "k", data={"action": "Removed"})
    await harness.commit("e", "k", data="text")

    assert sorted(await read(harness, EVERYTHING)) == ["a", "c", "d", "e"]
    assert await read(harness, Range("domainEvent", 0, 10_000, "k")) == ["a", "d", "e"]
    assert await read(harness, Range("domainEvent", 0, 10_000, "k", "Removed")) == ["d"]
    assert await read(harness, Range("domainEvent", 0, 10_000, "nobody")) == []


async def test_the_feed_of_a_key_has_no_other_key(harness: Harness) -> None:
    for name in ("a", "b", "c", "d", "e"):
        await harness.commit(name, name)

    feed_range = await harness.container.feed_range_from_partition_key("c")

    assert [document["id"] for document in await feed(harness, feed_range, 0)] == ["c"]


async def test_the_feed_starts_behind_the_second_that_it_is_started_at(harness: Harness) -> None:
    for at in (999, 1000, 1001):
        await harness.commit(str(at), "k", at)

    feed_range = await harness.container.feed_range_from_partition_key("k")

    assert [document["id"] for document in await feed(harness, feed_range, 1000)] == ["1001"]


async def test_a_page_has_no_more_documents_than_asked_for(harness: Harness) -> None:
    for name in ("a", "b", "c"):
        await harness.commit(name, "k")

    feed_range = await harness.container.feed_range_from_partition_key("k")

    assert [len(page) for page in await pages(harness, feed_range, 0)] == [2, 1]


async def test_documents_of_one_transaction_have_one_lsn_and_later_ones_a_higher_one(harness: Harness) -> None:
    await harness.transaction([event("a", "k"), event("b", "k")])
    await harness.transaction([event("c", "k")])

    feed_range = await harness.container.feed_range_from_partition_key("k")
    lsns = {document["id"]: document["_lsn"] for document in await feed(harness, feed_range, 0)}

    assert lsns["a"] == lsns["b"] < lsns["c"]


@pytest.mark.parametrize("identifier", ["plain", "ü😀"])
async def test_a_document_is_found_with_its_type_and_its_lsn(harness: Harness, identifier: str) -> None:
    outbox = Outbox(harness.container, harness.container)
    await harness.commit("before", "k")
    await harness.commit(identifier, "k", type="contact")

    found = await outbox.find("k", identifier)

    feed_range = await harness.container.feed_range_from_partition_key("k")
    (lsn,) = [each["_lsn"] for each in await feed(harness, feed_range, 0) if each["id"] == identifier]
    assert found is not None
    assert (found.type, found.lsn) == ("contact", lsn)
    assert await outbox.find("other", identifier) is None
    assert await outbox.find("k", "another") is None
