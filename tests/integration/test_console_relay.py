"""The console's counts while a relay publishes: exactly the committed events, and their fate."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from azure.cosmos.aio import CosmosClient

from local.stack.environment import CONTAINERS, container_argument
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.operator.backends.backend import open_backend
from outbox_relay.operator.console.model import Stage
from outbox_relay.operator.console.observer import Observer, observer_of
from relay.config.settings import Settings
from tests.integration.conftest import RelayMaker
from tests.support.broker import topic_counts
from tests.support.leases import TriggerLeases
from tests.support.outbox import event
from tests.support.sql_deployment import working
from tests.support.sql_outbox import SqlOutbox, provisioned
from tests.support.watchdog import WATCHDOG_S

_KEYS = 12
_BAD_KEY = "key-5"


@pytest.fixture
async def cosmos() -> AsyncIterator[CosmosServer]:
    async with CosmosServer(physical_partitions=2) as server:
        provision(server.account, [ContainerSpec.parse(container_argument(*spec)) for spec in CONTAINERS])
        yield server


def documents(first: int, last: int) -> list[dict[str, Any]]:
    """Events of all keys in turn; one of the bad key is too large to be sent, and others park keys too."""
    found = []
    for number in range(first, last):
        document = event(f"e-{number}", f"key-{number % _KEYS}") | {"sequence": number // _KEYS}
        if number == 17:
            document["data"]["text"] = "x" * 300_000
        if number % 10 == 9:
            document["data"]["action"] = 5  # it can never become a message
        found.append({name: value for name, value in document.items() if name[0] != "_"})
    return found


async def test_the_counts_are_those_of_the_relay_with_quarantine_a_parked_key_and_a_split(
    make_relay: RelayMaker, cosmos: CosmosServer, servicebus: ServiceBusServer
) -> None:
    relay, invocations = make_relay(RELAY_ON_POISON="park"), itertools.count()
    settings = Settings.from_environment(
        {"COSMOS": cosmos.connection_string, "SERVICEBUS": servicebus.connection_string}
    )
    environment = {"SERVICEBUS_ADMIN": f"http://127.0.0.1:{servicebus.admin_port}"}
    async with CosmosClient.from_connection_string(cosmos.connection_string) as client:
        trigger = TriggerLeases(client, max_items=7)
        async with observer_of(open_backend(settings), environment, from_beginning=True) as observer:

            async def handle(page: list[dict[str, Any]]) -> None:
                await relay.handle(page, f"i{next(invocations)}")
                # After each batch, nothing that is in quarantine is counted as published.
                accepted = (await topic_counts(servicebus.admin_port))["accepted"]
                await observer.look_at_flow()
                assert observer.latest.flow.published is not None
                assert observer.latest.flow.published <= accepted

            for document in documents(0, 60):
                await trigger.data.create_item(document)
            await observer.look()
            assert (observer.latest.flow.committed, observer.latest.flow.waiting) == (60, 60)
            await trigger.deliver(handle)
            await the_counts_are_right(observer, servicebus, committed=60)

            cosmos.account.split("outbox", "data", "0")
            for document in documents(60, 100):
                await trigger.data.create_item(document)
            await observer.look()
            assert (observer.latest.flow.committed, observer.latest.flow.waiting) == (100, 40)
            assert sum(each.behind for each in observer.latest.partitions) == 40
            await trigger.deliver(handle)
            snapshot = await the_counts_are_right(observer, servicebus, committed=100)

            assert {each.name for each in snapshot.partitions} == {"1", "2", "3"}
            assert snapshot.flow.parked == 6
            assert {group.reason for group in snapshot.quarantine} == {
                *("message-too-large", "key-parked", "action-not-string"),
            }
            timeline = await observer.timeline(_BAD_KEY, 100, data=False)
            assert [each.id for each in timeline.events] == [
                f"e-{number}" for number in range(100) if number % _KEYS == 5
            ]
            assert [str(each.stage) for each in timeline.events][:3] == ["published", "quarantined", "quarantined"]
            assert {each.stage for each in timeline.events[3:]} == {Stage.PARKED, Stage.QUARANTINED}
            assert timeline.parked_since is not None
            assert [each.missing_before for each in timeline.events] == [0] * 8

        # A console that begins now begins where the children of the split partition are.
        for document in documents(100, 104):
            await trigger.data.create_item(document)
        async with observer_of(open_backend(settings), environment, from_beginning=False) as later:
            flow = (await later.look()).flow
            assert (flow.committed, flow.waiting) == (4, 4)


async def the_counts_are_right(observer: Observer, servicebus: ServiceBusServer, *, committed: int) -> Any:
    snapshot = await observer.look()
    accepted = (await topic_counts(servicebus.admin_port))["accepted"]
    flow = snapshot.flow
    assert (flow.committed, flow.published, flow.waiting) == (committed, accepted, 0)
    assert flow.quarantined == committed - accepted
    stages = Counter(each.stage for each in snapshot.recent)
    assert stages[Stage.COMMITTED] == 0
    assert (sum(each.behind for each in snapshot.partitions), flow.lag_s, snapshot.problems) == (0, 0.0, ())
    held = {each.name: each.active for each in snapshot.subscriptions}
    assert held["all"] == accepted
    return snapshot


async def test_the_counts_of_an_sql_outbox_are_those_of_its_relay(
    postgres_database: str, servicebus: ServiceBusServer
) -> None:
    session = await provisioned(postgres_database)
    writer = SqlOutbox(session)
    settings = Settings.from_environment(
        {"SQL": postgres_database, "SQL_SHARDS": "2", "SERVICEBUS": servicebus.connection_string}
    )
    environment = {"SERVICEBUS_ADMIN": f"http://127.0.0.1:{servicebus.admin_port}"}
    written = [{"type": "domainEvent", **document} for document in documents(0, 40)]
    async with observer_of(open_backend(settings), environment, from_beginning=False) as observer:
        for number, document in enumerate(written[:20]):
            await writer.commit(document, shard_id=number % _KEYS % 2)
        snapshot = await observer.look()
        assert (snapshot.flow.committed, snapshot.flow.waiting) == (20, 20)
        assert [(each.name, each.owner, each.behind > 0) for each in snapshot.partitions] == [
            *(("0", None, True), ("1", None, True)),
        ]
        async with working(settings), asyncio.timeout(WATCHDOG_S), asyncio.TaskGroup() as group:
            group.create_task(_commit(writer, written[20:]))
            # It polls on its own, because somebody waits for its events.
            while (snapshot.flow.committed or 0) < 40 or snapshot.flow.waiting:
                snapshot = await observer.changed(snapshot.number)
                accepted = (await topic_counts(servicebus.admin_port))["accepted"]
                assert (snapshot.flow.published or 0) <= accepted
            assert all(each.owner for each in snapshot.partitions)
            assert snapshot.flow.latency_p50_ms is not None
        await the_counts_are_right(observer, servicebus, committed=40)
        timeline = await observer.timeline(_BAD_KEY, 100, data=True)
        assert [(each.id, str(each.stage)) for each in timeline.events] == [
            *(("e-5", "published"), ("e-17", "quarantined"), ("e-29", "quarantined")),
        ]
    await session.close()


async def _commit(writer: SqlOutbox, written: list[dict[str, Any]]) -> None:
    for number, document in enumerate(written, 20):
        await writer.commit(document, shard_id=number % _KEYS % 2)
