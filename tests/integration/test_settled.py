"""Which documents the relay's leases have passed, from an account over the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from outbox_relay.emulators.cosmos.server import CosmosServer
from relay.backends.cosmos.containers import Containers
from relay.backends.cosmos.source import CosmosSource
from relay.config.settings import Settings
from relay.core.documents import StoredDocument
from relay.core.events import Event
from tests.support.leases import TriggerLeases
from tests.support.outbox import event

SERVICEBUS = "Endpoint=sb://n/;SharedAccessKeyName=k;SharedAccessKey=YQ=="


@pytest.fixture
async def source(cosmos: CosmosServer) -> AsyncIterator[CosmosSource]:
    settings = Settings.from_environment({"COSMOS": cosmos.connection_string, "SERVICEBUS": SERVICEBUS})
    containers = Containers(settings.in_cosmos)
    yield CosmosSource(settings.selection, containers)
    await containers.close()


class Counted(list[Event]):
    """Events that are counted as they are taken."""

    taken = 0

    def __iter__(self) -> Iterator[Event]:
        for each in super().__iter__():
            self.taken += 1
            yield each


async def feed(trigger: TriggerLeases) -> list[StoredDocument]:
    """Every document, as the trigger delivers it."""
    return [document async for document in trigger.data.query_items_change_feed(start_time="Beginning")]


async def settled(source: CosmosSource, documents: list[StoredDocument]) -> list[bool]:
    received = await source.read(documents)
    passed = await source.passed_positions([*received.events, *received.rejected])
    return [position in passed for position in range(received.documents)]


KEYS: list[dict[str, Any]] = [{"partitionKey": key} for key in ("k", "", "k" * 200, None, 7, 1.5, True)]


async def test_documents_are_compared_by_whatever_partition_key_they_have(
    source: CosmosSource, trigger: TriggerLeases
) -> None:
    for number, key in enumerate([*KEYS, {}]):
        document = {name: value for name, value in event(f"e{number}", "").items() if name[0] != "_"}
        del document["partitionKey"]
        await trigger.data.create_item(document | key)
    delivered = await feed(trigger)
    await trigger.pass_all()
    assert await settled(source, delivered) == [True] * len(delivered)
    store = await trigger.store()

    for behind in await store.all():
        # Only one lease is behind, so that the key decides.
        for lease in await store.all():
            position = '"0"' if lease.token == behind.token else '"1000000"'
            await store.checkpoint(await store.acquire(lease), position)
        here, continuation = set(), None
        while (page := await trigger.feed.read(behind.partition, continuation)).documents:
            here |= {document["id"] for document in page.documents}
            continuation = page.continuation

        assert await settled(source, delivered) == [document["id"] not in here for document in delivered]


@pytest.mark.parametrize("key", [{"a": 1}, ["k"], "\ud83d"])
async def test_a_key_that_no_document_can_have_is_not_passed(
    source: CosmosSource, trigger: TriggerLeases, key: Any
) -> None:
    await trigger.data.create_item({name: value for name, value in event("e1", "k").items() if name != "_ts"})
    (delivered,) = await feed(trigger)
    (first, *_) = await trigger.pass_all()
    store = await trigger.store()
    await store.checkpoint(await store.acquire(first), '"1000000"')

    assert await settled(source, [{**delivered, "partitionKey": key, "_lsn": 999_999}]) == [False]


async def test_comparing_20_000_events_leaves_time_for_other_tasks(
    source: CosmosSource, trigger: TriggerLeases
) -> None:
    store = await trigger.store()
    (first, *_) = await store.all()
    await store.checkpoint(await store.acquire(first), '"1000"')
    received = await source.read(
        [{**event(f"e{number}", f"key-{number}"), "_lsn": 500} for number in range(20_000)]
    )
    events = Counted(received.events)
    most = 0
    ended = asyncio.Event()

    async def tick() -> None:
        nonlocal most
        last = 0
        while not ended.is_set():
            await asyncio.sleep(0)
            most, last = max(most, events.taken - last), events.taken

    ticking = asyncio.create_task(tick())
    passed = await source.passed_positions(events)
    ended.set()
    await ticking

    assert 0 < len(passed) < 20_000
    assert events.taken == 20_000
    assert most < 1_000
