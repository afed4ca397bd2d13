"""`CosmosStore` beyond the contract of a store: its batches, their limits, and answers that are lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import aiohttp
import pytest
from azure.core.exceptions import AzureError
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient
from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosResourceNotFoundError

from outbox_relay import inbox
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.testing import FaultClient, ManualClock
from outbox_relay.inbox.parking import Cause, Claim, ParkedMessage
from tests.support.inbox_stores import InCosmos, cosmos_container, gap, handle, message
from tests.support.watchdog import WATCHDOG_S

CAUSE = Cause("unknown-title", "DeadLetter", "Nobody knows 'Frankenstein'.")


@pytest.fixture
async def shop() -> AsyncIterator[tuple[InCosmos, FaultClient]]:
    options: dict[str, Any] = {"retry_backoff_factor": 0.01, "retry_total": 2, "retry_throttle_total": 1}
    async with cosmos_container(**options) as (container, server), aiohttp.ClientSession() as session:
        await container.read()  # The faults are meant for later requests.
        yield InCosmos(container), FaultClient(session, server.endpoint)


@pytest.fixture
def harness(shop: tuple[InCosmos, FaultClient]) -> InCosmos:
    return shop[0]


async def documents(harness: InCosmos, kind: str) -> list[dict[str, Any]]:
    query = f"SELECT * FROM c WHERE c.type = '{kind}'"
    return [each async for each in harness.container.query_items(query)]


async def test_what_the_handler_adds_is_written_with_the_message_or_not_at_all(harness: InCosmos) -> None:
    await harness.container.create_item({"id": "there", "partitionKey": "k", "type": "other", "times": 1})

    async def block(*, fails: bool) -> None:
        stored = await harness.container.read_item("there", "k")
        async with harness.store.once(message("a", 1)) as arrival:
            batch = arrival.connection
            assert arrival.first
            batch.upsert({"id": "new", "partitionKey": "k", "type": "other"})
            batch.patch(
                "there", [{"op": "incr", "path": "/times", "value": 1}], condition="from c where c.times = 1"
            )
            batch.replace({**stored, "type": "other", "times": 5}, etag='"old"' if fails else None)

    with pytest.raises(CosmosBatchOperationError):
        await block(fails=True)
    assert [each["id"] for each in await documents(harness, "other")] == ["there"]

    await block(fails=False)
    assert {each["id"]: each.get("times") for each in await documents(harness, "other")} == {
        "there": 5,
        "new": None,
    }
    assert not (await handle(harness, "a", 1)).first

    async with harness.store.once(message("b", 2)) as arrival:
        arrival.connection.delete("there")
    assert [each["id"] for each in await documents(harness, "other")] == ["new"]


@pytest.mark.parametrize(
    ("kind", "plan"),
    [
        ("drop-after", {}),
        ("timeout", {"applies": True}),
        ("timeout", {"applies": False}),
        ("unavailable", {}),
        ("drop", {}),
        ("throttle", {}),
    ],
)
async def test_whatever_becomes_of_a_batch_its_effect_is_once(
    shop: tuple[InCosmos, FaultClient], kind: str, plan: dict[str, Any]
) -> None:
    harness, faults = shop
    await handle(harness, "before", 1)
    await faults.add(kind, "batch", count=5, **plan)
    failures = 0

    async with asyncio.timeout(WATCHDOG_S):
        while True:  # as the receiver does after an error
            try:
                await handle(harness, "a", 3)
            except (AzureError, inbox.Conflict):
                failures += 1
            else:
                break

    assert failures > 0
    assert not (await handle(harness, "a", 3)).first
    assert await harness.effects() == ["before", "a"]
    assert await harness.store.gaps() == [gap("k", 2, 2)]


async def test_of_two_events_of_an_entity_at_once_one_comes_again(harness: InCosmos) -> None:
    await handle(harness, "e1", 1)

    async def slower() -> None:
        async with harness.store.once(message("e3", 3)) as arrival:
            await harness.effect(arrival, "e3")
            await handle(harness.another(), "e2", 2)

    with pytest.raises(inbox.Conflict, match="another event of its entity"):
        await slower()
    assert await handle(harness, "e3", 3) == inbox.Arrival(first=True)
    assert await harness.effects() == ["e1", "e2", "e3"]


async def test_more_than_a_batch_takes_says_so_before_it_is_sent(harness: InCosmos) -> None:
    async def block(count: int, size: int) -> None:
        async with harness.store.once(message(f"{count} of {size}", 1)) as arrival:
            for number in range(count):
                arrival.connection.create(
                    {"id": f"{size}-{number}", "partitionKey": "k", "type": "big", "of": "x" * size}
                )

    for count, size in ((99, 1), (2, 1024 * 1024)):
        with pytest.raises(inbox.BatchTooLarge, match="Write less in one block"):
            await block(count, size)
    await block(98, 1)
    await block(1, 1_900_000)
    assert len(await documents(harness, "big")) == 99


async def test_records_are_in_the_partition_of_the_effect_and_live_as_long_as_they_should(
    harness: InCosmos,
) -> None:
    store = inbox.CosmosStore(harness.container, consumer="loans", ttl_s=3600)
    for number in (1, 3):
        async with store.once(
            message(f"e{number}", number, "key/?#\\"), entity="e" * 300, partition="p"
        ) as arrival:
            assert arrival.connection.partition == "p"
            arrival.connection.create({"id": f"{number}", "partitionKey": "p"})

    notes = await documents(harness, "inboxHandled")
    assert [(note["partitionKey"], note["ttl"], note["key"]) for note in notes] == [("p", 3600, "key/?#\\")] * 2
    (progress,) = await documents(harness, "inboxProgress")
    assert progress["ttl"] == -1
    assert await store.gaps() == [inbox.Gap("e" * 300, 2, 2, "key/?#\\", "events")]
    assert await harness.store.gaps() == []


async def test_records_outlive_the_time_after_which_the_container_deletes_documents() -> None:
    clock = ManualClock(1_770_634_800.0)
    async with CosmosServer(clock=clock) as server, CosmosClient(server.endpoint, server.key) as client:
        provision(server.account, [ContainerSpec.parse("consumer/state:/partitionKey:60")])
        harness = InCosmos(client.get_database_client("consumer").get_container_client("state"))
        await handle(harness, "e1", 1)
        await handle(harness, "e3", 3)
        for number in (1, 2):
            await harness.store.park(
                ParkedMessage.of(replace(message(f"p{number}"), sequence_number=number)), CAUSE
            )
        await harness.container.create_item({"id": "of a handler", "partitionKey": "k"})

        clock.now += 3600

        assert not (await handle(harness, "e1", 1)).first
        assert await harness.store.gaps() == [gap("k", 2, 2)]
        assert [each.id for each in await harness.store.messages("events", "k")] == ["p1", "p2"]
        with pytest.raises(CosmosResourceNotFoundError):
            await harness.container.read_item("of a handler", "k")


async def test_an_event_whose_count_is_deleted_meanwhile_comes_again(harness: InCosmos) -> None:
    await handle(harness, "e1", 1)

    async def deleted() -> None:
        async with harness.store.once(message("e2", 2)):
            (progress,) = await documents(harness, "inboxProgress")
            await harness.container.delete_item(progress["id"], "k")

    with pytest.raises(inbox.Conflict, match="another event of its entity"):
        await deleted()
    assert (await handle(harness, "e2", 2)).first


async def test_records_are_forgotten_in_a_container_of_hierarchical_keys() -> None:
    async with CosmosServer() as server, CosmosClient(server.endpoint, server.key) as client:
        database = await client.create_database("consumer")
        paths = PartitionKey(["/tenant", "/partitionKey"], kind="MultiHash")
        store = inbox.CosmosStore(await database.create_container("state", paths))
        async with store.once(message("a"), partition=["t", "k"]):
            pass

        # What will be younger than two seconds from now.
        assert await store.forget(timedelta(seconds=-2)) == 1
        assert await store.forget(timedelta(seconds=-2)) == 0


# Parked keys: another process is ahead


class Raced(inbox.CosmosStore):
    """A store at which another process goes ahead: between what it has read and its next batch."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def _batch(self, partition: str, operations: Sequence[Any]) -> None:
        step, self.meanwhile = self.meanwhile, None
        if step is not None:
            await step()
        await super()._batch(partition, operations)


def aside(number: int, body: bytes = b"{}") -> ParkedMessage:
    sent = inbox.Message(id=f"e{number}", key="k", body=body, sequence_number=number, topic="events")
    return ParkedMessage.of(sent)


Step = Callable[[Raced, Claim, ParkedMessage], Awaitable[object]]


@pytest.mark.parametrize(
    ("step", "left", "is_released"),
    [
        (lambda store, claim, first: store.next(claim, first), [2, 9], True),
        (lambda store, claim, first: store.give_back(claim, first), [2, 9], True),
        (lambda store, claim, first: store.fail(claim, CAUSE), [1, 2, 9], False),
        (lambda store, claim, first: store.discard("events", "k", [first]), [2, 9], True),
        (lambda store, claim, first: store.set_aside(aside(5)), [1, 2, 9, 5], True),
        (lambda store, claim, first: store.park(aside(5), CAUSE), [1, 2, 9, 5], True),
    ],
    ids=["next", "give back", "fail", "discard", "set aside", "park"],
)
async def test_a_change_of_a_parked_key_that_another_one_overtakes_is_done_after_it(
    harness: InCosmos, step: Step, left: list[int], is_released: bool
) -> None:
    store = Raced(harness.container)
    await store.park(aside(1), CAUSE)
    await store.set_aside(aside(2))
    await store.release("events", "k")
    claim = await store.claim("events", timedelta(minutes=1))
    assert claim is not None
    first = await store.next(claim)
    assert first is not None

    store.meanwhile = lambda: inbox.CosmosStore(harness.container).set_aside(aside(9))
    await step(store, claim, first)

    (key,) = await store.keys()
    assert [each.number for each in await store.messages("events", "k")] == left
    assert (key.messages, key.is_released) == (len(left), is_released)


async def test_a_release_that_a_message_overtakes_is_one_after_it(harness: InCosmos) -> None:
    store = Raced(harness.container)
    await store.park(aside(1), CAUSE)

    store.meanwhile = lambda: inbox.CosmosStore(harness.container).set_aside(aside(9))
    assert await store.release("events", "k")

    (key,) = await store.keys()
    assert (key.messages, key.is_released) == (2, True)


async def test_the_last_message_is_removed_with_its_key_unless_another_one_comes(harness: InCosmos) -> None:
    store = Raced(harness.container)
    await store.park(aside(1), CAUSE)
    await store.release("events", "k")
    claim = await store.claim("events", timedelta(minutes=1))
    assert claim is not None
    first = await store.next(claim)

    store.meanwhile = lambda: inbox.CosmosStore(harness.container).set_aside(aside(9))
    second = await store.next(claim, first)

    assert second is not None
    assert second.number == 9
    assert await store.next(claim, second) is None
    assert await store.keys() == []


async def test_a_message_that_is_too_large_to_be_kept_says_so_and_parks_nothing(harness: InCosmos) -> None:
    store = inbox.CosmosStore(harness.container)

    with pytest.raises(inbox.NotStorable, match="bytes as it is stored"):
        await store.park(aside(1, b"x" * 3_000_000), CAUSE)

    assert await store.keys() == []


async def test_a_partition_that_does_not_fit_the_container_is_refused(harness: InCosmos) -> None:
    with pytest.raises(ValueError, match="has 1 parts"):
        async with harness.store.once(message("a"), partition=["p", "q"]):
            pass


@pytest.mark.parametrize("options", [{"consumer": ""}, {"ttl_s": 0}])
def test_a_setting_that_is_wrong_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        inbox.CosmosStore(None, **options)  # type: ignore[arg-type]


def test_a_record_may_live_for_a_second() -> None:
    inbox.CosmosStore(None, ttl_s=1)  # type: ignore[arg-type]
