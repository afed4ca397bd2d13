"""A process that was frozen, or lost its lease, and continues with events that others have published long ago."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from azure.cosmos.aio import CosmosClient

from local.stack.environment import DATABASE
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.functions.edges import Edges
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from relay.core.errors import LeaseError, PublishError
from tests.integration.conftest import BOTH_SENDERS, RelayMaker
from tests.support.broker import TurnableClock
from tests.support.leases import TriggerLeases
from tests.support.outbox import event
from tests.support.subscriber import received

WINDOW_MS = 5 * 60_000  # of infra/emulators/Config.json
OLD_S = 3600


@pytest.fixture
def clock() -> TurnableClock:
    return TurnableClock()


@pytest.fixture
async def servicebus(entities: Entities, clock: TurnableClock) -> AsyncIterator[ServiceBusServer]:
    async with ServiceBusServer(entities, clock=clock) as server:
        yield server


def stored(identifier: str, key: str) -> dict[str, Any]:
    """An event as a service writes it."""
    return {name: value for name, value in event(identifier, key).items() if name[0] != "_"}


async def committed(trigger: TriggerLeases, *identifiers: str, key: str = "k") -> list[dict[str, Any]]:
    """Events in the outbox, as the change feed delivers them, an hour old."""
    for identifier in identifiers:
        await trigger.data.create_item(stored(identifier, key))
    feed = trigger.data.query_items_change_feed(partition_key=key, start_time="Beginning")
    return [document | {"_ts": int(time.time()) - OLD_S} async for document in feed]


def split_all(cosmos: CosmosServer) -> None:
    for token in "0123":
        cosmos.account.split(DATABASE, "data", token)


async def test_what_the_lease_has_passed_is_not_sent_behind_newer_events(
    make_relay: RelayMaker, servicebus: ServiceBusServer, trigger: TriggerLeases, clock: TurnableClock
) -> None:
    documents = await committed(trigger, "e1", "e2", "e3")
    await make_relay(RELAY_DUPLICATE_WINDOW_S="300").handle(documents, "of the next owner")
    await trigger.pass_all()
    newer = event("e4", "k")
    await make_relay().handle([newer], "of the next owner")
    clock.ahead_ms = 2 * WINDOW_MS

    outcome = await make_relay(RELAY_DUPLICATE_WINDOW_S="300").handle(documents, "of the frozen one")

    assert (outcome.published, outcome.superseded) == (0, 3)
    subscriber = await received(servicebus.connection_string, 4)
    await subscriber.receive_rest()
    assert subscriber.ids() == {"k": ["e1", "e2", "e3", "e4"]}


async def test_a_frozen_process_is_stopped_once_a_lease_that_a_split_left_behind_is_gone(
    make_relay: RelayMaker,
    cosmos: CosmosServer,
    servicebus: ServiceBusServer,
    clock: TurnableClock,
    account: CosmosClient,
) -> None:
    """Before that, no position says that the old lease has nothing left to deliver."""
    edges = Edges(seed=1)
    trigger = TriggerLeases(account, edges=edges)
    await committed(trigger, "e0")
    await trigger.pass_all()
    split_all(cosmos)
    documents = (await committed(trigger, "e1", "e2", "e3", "e4", "e5"))[1:]
    relay = make_relay(RELAY_DUPLICATE_WINDOW_S="300")
    await trigger.deliver(lambda page: relay.handle(page, "of the next owner"))
    assert edges.as_json()["edges"].get("parent-lease-left", 0) > 0
    outcomes = []
    for _ in range(2):
        clock.ahead_ms += 2 * WINDOW_MS
        outcome = await make_relay(RELAY_DUPLICATE_WINDOW_S="300").handle(documents, "of the frozen one")
        outcomes.append((outcome.published, outcome.superseded))
        await TriggerLeases(account).deliver(lambda page: relay.handle(page, "of the next owner"))

    assert outcomes == [(5, 0), (0, 5)]


async def key_of(trigger: TriggerLeases, partition: str) -> str:
    """A key that the physical partition has."""
    [bounds] = [each for each in await trigger.feed.ranges() if each.id == partition]
    for key in map(str, range(100)):
        first = (await trigger.data.feed_range_from_partition_key(key))["Range"]["min"]
        if bounds.minimum <= first < bounds.maximum:
            return key
    raise AssertionError(f"none of a hundred keys is in the partition {partition}")


async def notice(trigger: TriggerLeases, *tokens: str) -> None:
    """Divide these leases, as their hosts do once they find that the partitions are gone."""
    store, ranges = await trigger.store(), await trigger.feed.ranges()
    for lease in await store.all():
        if lease.token in tokens:
            await store.divide(lease, lease.partition.successors(ranges), lease.continuation)


@pytest.mark.parametrize("third", ["split", "merge"])
async def test_what_only_an_old_lease_still_delivers_is_sent_after_a_split_a_merge_and_another_change(
    make_relay: RelayMaker, cosmos: CosmosServer, trigger: TriggerLeases, third: str
) -> None:
    behind, ahead = await key_of(trigger, "0"), await key_of(trigger, "1")
    for number in range(30):
        await trigger.data.create_item(stored(f"a{number}", ahead))
    await trigger.pass_all()
    documents = await committed(trigger, "e1", "e2", "e3", "e4", "e5", key=behind)
    _, upper = cosmos.account.split(DATABASE, "data", "1")["into"]
    merged = cosmos.account.merge(DATABASE, "data", ["0", "4"])["into"]
    await notice(trigger, "0", "1")
    if third == "split":
        cosmos.account.split(DATABASE, "data", merged)
    else:
        cosmos.account.merge(DATABASE, "data", [merged, upper])
    await notice(trigger, merged, upper)

    # The range of partition 0 has a lease of its own, which is where partition 0 was.
    outcome = await make_relay(RELAY_DUPLICATE_WINDOW_S="300").handle(documents, "of the old range")

    assert (outcome.published, outcome.superseded) == (5, 0)


async def test_events_that_only_another_function_has_passed_are_sent_after_a_split(
    make_relay: RelayMaker,
    cosmos: CosmosServer,
    servicebus: ServiceBusServer,
    trigger: TriggerLeases,
    account: CosmosClient,
) -> None:
    await trigger.store()
    documents = await committed(trigger, "e1", "e2")
    another = TriggerLeases(account, prefix="another", edges=Edges(seed=1))
    await another.store()
    split_all(cosmos)

    async def nothing(page: list[dict[str, Any]]) -> None:
        return None

    await another.deliver(nothing)

    outcome = await make_relay(RELAY_DUPLICATE_WINDOW_S="300").handle(documents, "i1")

    assert (outcome.published, outcome.superseded) == (2, 0)


async def test_old_events_that_the_lease_has_not_passed_are_a_backlog_and_are_sent(
    make_relay: RelayMaker, servicebus: ServiceBusServer, trigger: TriggerLeases
) -> None:
    documents = await committed(trigger, "e1", "e2", "e3")
    await trigger.store()

    outcome = await make_relay(RELAY_DUPLICATE_WINDOW_S="300").handle(documents, "i1")

    assert (outcome.published, outcome.superseded) == (3, 0)


async def test_the_leases_of_another_function_do_not_count(
    make_relay: RelayMaker, servicebus: ServiceBusServer, trigger: TriggerLeases, account: CosmosClient
) -> None:
    documents = await committed(trigger, "e1", "e2")
    await TriggerLeases(account, prefix="another").pass_all()

    outcome = await make_relay(RELAY_DUPLICATE_WINDOW_S="300").handle(documents, "i1")

    assert (outcome.published, outcome.superseded) == (2, 0)


async def test_without_the_leases_nothing_old_is_sent_and_the_setting_is_named(
    make_relay: RelayMaker, trigger: TriggerLeases
) -> None:
    documents = await committed(trigger, "e1")
    relay = make_relay(RELAY_DUPLICATE_WINDOW_S="300", COSMOS_LEASE_CONTAINER="nowhere")

    with pytest.raises(LeaseError, match="nowhere"):
        await relay.handle(documents, "i1")


@BOTH_SENDERS
async def test_an_attempt_that_outlasts_its_clearance_stops_and_the_next_one_goes_on(
    make_relay: RelayMaker,
    servicebus: ServiceBusServer,
    trigger: TriggerLeases,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await trigger.store()
    servicebus.broker.ack_delay_ms = 500
    relay = make_relay(RELAY_DUPLICATE_WINDOW_S="20", RELAY_SENDERS="1")
    began = time.time()
    documents = [event(f"e{number}", f"k{number}") | {"_ts": int(began) - 8} for number in range(8)]

    # They are compared, and may be sent for 10 s. A send takes half a second, which this clock makes five.
    with monkeypatch.context() as patched:
        clock = time.time
        patched.setattr("relay.core.fence.time", SimpleNamespace(time=lambda: began + 10 * (clock() - began)))
        with pytest.raises(PublishError, match="RELAY_DUPLICATE_WINDOW_S"):
            await relay.handle(documents, "i1")
    outcome = await relay.handle(documents, "i1", 1)

    assert outcome.published + outcome.already_published == 8
