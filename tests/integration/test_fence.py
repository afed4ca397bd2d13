"""A process that was frozen, or lost its lease, and continues with events that others have published long ago."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from azure.cosmos.aio import CosmosClient

from local.stack.environment import DATABASE
from outbox_emulators.cosmos.server import CosmosServer
from outbox_emulators.functions.edges import Edges
from outbox_emulators.servicebus.entities import Entities
from outbox_emulators.servicebus.server import ServiceBusServer
from relay.errors import LeaseError, PublishError
from tests.integration.conftest import BOTH_SENDERS, RelayMaker
from tests.support.broker import TurnableClock
from tests.support.leases import TriggerLeases
from tests.support.outbox import event
from tests.support.subscriber import received

pytestmark = BOTH_SENDERS

WINDOW_MS = 5 * 60_000  # of infra/emulators/Config.json
OLD_S = 3600


@pytest.fixture
def clock() -> TurnableClock:
    return TurnableClock()


@pytest.fixture
async def servicebus(entities: Entities, clock: TurnableClock) -> AsyncIterator[ServiceBusServer]:
    async with ServiceBusServer(entities, clock=clock) as server:
        yield server


async def committed(trigger: TriggerLeases, *identifiers: str) -> list[dict[str, Any]]:
    """Events in the outbox, as the change feed delivers them, an hour old."""
    for identifier in identifiers:
        document = event(identifier, "k")
        await trigger.data.create_item({name: value for name, value in document.items() if name[0] != "_"})
    feed = trigger.data.query_items_change_feed(partition_key="k", start_time="Beginning")
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


async def test_a_parents_lease_that_a_split_left_behind_does_not_switch_the_fence_off(
    make_relay: RelayMaker,
    cosmos: CosmosServer,
    servicebus: ServiceBusServer,
    clock: TurnableClock,
    account: CosmosClient,
) -> None:
    edges = Edges(seed=1)
    trigger = TriggerLeases(account, edges=edges)
    await committed(trigger, "e0")
    await trigger.pass_all()
    split_all(cosmos)
    documents = (await committed(trigger, "e1", "e2", "e3", "e4", "e5"))[1:]
    relay = make_relay(RELAY_DUPLICATE_WINDOW_S="300")
    await trigger.deliver(lambda page: relay.handle(page, "of the next owner"))
    assert edges.as_json()["edges"].get("parent-lease-left", 0) > 0
    clock.ahead_ms = 2 * WINDOW_MS

    outcome = await make_relay(RELAY_DUPLICATE_WINDOW_S="300").handle(documents, "of the frozen one")

    assert (outcome.published, outcome.superseded) == (0, 5)


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
        patched.setattr("relay.fence.time", SimpleNamespace(time=lambda: began + 10 * (clock() - began)))
        with pytest.raises(PublishError, match="RELAY_DUPLICATE_WINDOW_S"):
            await relay.handle(documents, "i1")
    outcome = await relay.handle(documents, "i1", 1)

    assert outcome.published + outcome.already_published == 8
