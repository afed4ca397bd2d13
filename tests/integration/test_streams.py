"""Several streams in one app: outboxes, a topic and a queue, and the rules of relay.toml between them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from azure.cosmos.aio import CosmosClient

from local.stack.environment import DATABASE
from local.stack.parts import ROOT
from outbox_relay.changefeed import connect_async
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.functions.host import Host
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.entity_types import (
    DAY_MS,
    DuplicateDetection,
    QueueEntity,
    Receiving,
    Sending,
)
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.operator.backends.sql.install import install
from relay.config.settings import Settings
from relay.config.streams import read_streams
from tests.support.broker import set_status, topic_counts
from tests.support.outbox import event
from tests.support.quarantine import quarantined
from tests.support.sql_deployment import CLAIM, FEED, TABLE, SqlDeployment, working
from tests.support.subscriber import Subscriber, received
from tests.support.watchdog import WATCHDOG_S

pytestmark = [pytest.mark.slow, pytest.mark.weekly]

QUEUE = "audit"

ROUTES = """
[destinations.audit]
queue = "audit"

[[routes]]
when = { key = { prefix = "order" } }
to = ["audit"]

[[routes]]
when = { action = "Both" }
to = ["default", "audit"]

[[routes]]
when = { action = "Topic" }
to = ["default"]

[[routes]]
when = { "/data/tenant" = ["a", "b"] }
to = ["audit"]
"""
COSMOS_FILE = f"""
[outboxes.default]

[outboxes.orders]
container = "orders"
{ROUTES}
"""
ACTIONS = ("Both", "Topic", "Audit")


@pytest.fixture
def entities(entities: Entities) -> Entities:
    """The project's own topic, and a queue."""
    queue = QueueEntity(QUEUE, Sending(DuplicateDetection(DAY_MS)), Receiving(requires_session=True))
    return replace(entities, queues=(queue,))


@pytest.fixture
def queue(servicebus: ServiceBusServer) -> Subscriber:
    return Subscriber(servicebus.connection_string, QUEUE, subscription=None)


def of_action(identifier: str, key: str, action: str) -> dict[str, Any]:
    return event(identifier, key, action=action, tenant="b") | {"sequence": 1}


def mixed(key: str) -> list[dict[str, Any]]:
    """Events of one key that belong to one destination, to the other and to both by turns."""
    return [of_action(f"{key}-{number}", key, ACTIONS[number % 3]) for number in range(12)]


def expected(keys: tuple[str, ...], action: str) -> dict[str, list[str]]:
    """By key, the ids of those events that one destination gets: those to both, and those of this action."""
    return {key: [each["id"] for each in mixed(key) if each["data"]["action"] in ("Both", action)] for key in keys}


async def test_each_destination_gets_its_events_in_order_while_another_is_disabled(
    cosmos: CosmosServer,
    account: CosmosClient,
    servicebus: ServiceBusServer,
    queue: Subscriber,
    environment: dict[str, str],
    tmp_path: Path,
) -> None:
    streams = ("audit", "orders", "orders-audit")
    made = [
        f"{DATABASE}/orders:/partitionKey",
        *(f"{DATABASE}/quarantine-{each}:/partitionKey" for each in streams),
    ]
    provision(cosmos.account, [ContainerSpec.parse(each) for each in made])
    database = account.get_database_client(DATABASE)
    (file := tmp_path / "relay.toml").write_text(COSMOS_FILE)
    await set_status(servicebus.admin_port, QUEUE, "SendDisabled")
    for document in (*mixed("a"), *mixed("b"), event("nowhere", "a", action="Other")):
        await database.get_container_client("data").create_item(document)
    for document in (*mixed("c"), *mixed("order-1"), event("nowhere-either", "c", action="Other")):
        await database.get_container_client("orders").create_item(document)
    host = Host(
        *(ROOT, environment | {"RELAY_POLL_DELAY_MS": "50", "RELAY_FILE": str(file)}),
        separate_worker=True,
        lease_acquire_ms=50,
        shutdown_timeout_s=0.1,
    )
    try:
        await host.start()
        topic = await received(servicebus.connection_string, 24)
        counts = await topic_counts(servicebus.admin_port, QUEUE)
        await set_status(servicebus.admin_port, QUEUE, "Active")
        await queue.receive(36)
    finally:
        await host.stop()

    assert topic.ids() == expected(("a", "b", "c"), "Topic")
    assert counts["accepted"] == 0
    assert queue.ids() == expected(("a", "b", "c"), "Audit") | {"order-1": [f"order-1-{n}" for n in range(12)]}
    aside = {
        name: [(record["document"]["id"], record["reason"]) for record in await quarantined(container)]
        for name in ("quarantine", *(f"quarantine-{each}" for each in streams))
        if (container := database.get_container_client(name))
    }
    assert aside == {
        "quarantine": [("nowhere", "no-route")],
        "quarantine-audit": [],
        "quarantine-orders": [("nowhere-either", "no-route")],
        "quarantine-orders-audit": [],
    }


SQL_FILE = f"""
[outboxes.default]
feed = "{TABLE}"
shards = 1
{ROUTES}
"""
# What everyone has read, whatever its age.
PRUNE = f"""
select coalesce(sum(deleted), 0) from changefeed.prune_shard(
    '{TABLE}', 0, changefeed.ulid((extract(epoch from clock_timestamp()) * 1000)::bigint + 1000, 0, 0), 1000)
"""


PASSED = f"select consumer from {CLAIM} where last_ulid = (select ulid from {FEED} order by ulid desc limit 1)"


async def sql_streams(sql: SqlDeployment, servicebus: ServiceBusServer, folder: Path) -> list[Settings]:
    """The streams of a file, on a database that has what they need."""
    (folder / "relay.toml").write_text(SQL_FILE)
    environment = {"SQL": sql.url, "SERVICEBUS": servicebus.connection_string, "RELAY_POLL_DELAY_MS": "50"}
    streams = read_streams(environment, app=folder)
    session = await connect_async(sql.url)
    for each in streams:
        assert each.sql is not None
        await install(session, each.sql.quarantine_table)
    await session.close()
    return streams


def commit(sql: SqlDeployment, *documents: dict[str, Any]) -> None:
    sql.write(*((each["id"], each["partitionKey"], each["data"]) for each in documents))


async def test_each_consumer_of_a_feed_is_its_own_and_retention_waits_for_both(
    sql: SqlDeployment, servicebus: ServiceBusServer, queue: Subscriber, tmp_path: Path
) -> None:
    sql.create()
    streams = await sql_streams(sql, servicebus, tmp_path)
    commit(sql, *mixed("a"), *mixed("order-1"), event("nowhere", "a", action="Other"))
    await set_status(servicebus.admin_port, QUEUE, "SendDisabled")
    async with AsyncExitStack() as running:
        for each in streams:
            await running.enter_async_context(working(each))
        topic = await received(servicebus.connection_string, 8)
        async with asyncio.timeout(WATCHDOG_S):
            while sql.rows(PASSED) != [("relay",)]:
                await asyncio.sleep(0.02)  # what another session commits can only be asked for again and again
        kept = sql.rows(PRUNE)
        await set_status(servicebus.admin_port, QUEUE, "Active")
        await queue.receive(20)
        await sql.until_passed()

    assert topic.ids() == expected(("a",), "Topic")
    assert queue.ids() == expected(("a",), "Audit") | {"order-1": [f"order-1-{n}" for n in range(12)]}
    assert kept == [(0,)]
    assert sql.rows(PRUNE) == [(25,)]
    assert sql.rows("select document_id, reason from relay.item where reason is not null") == [
        ("nowhere", "no-route")
    ]
    assert sql.rows("select document_id, reason from relay.item_audit") == []
