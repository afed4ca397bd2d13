"""Parked keys under `python -m relay quarantine`: released in order, to the last record, and only then let go."""

from __future__ import annotations

from typing import Any

import pytest
from azure.cosmos.aio import ContainerProxy

from outbox_relay.emulators.servicebus.server import ServiceBusServer
from relay.backends.cosmos.containers import Containers
from relay.backends.cosmos.quarantine import CosmosItems
from relay.config.settings import Settings
from relay.core.events import Reason
from relay.quarantine.quarantine import StoredQuarantine
from tests.integration.conftest import RelayMaker
from tests.support.broker import refuse, stop_refusing
from tests.support.leases import TriggerLeases
from tests.support.operators import relay_command
from tests.support.outbox import event, events, rejected
from tests.support.quarantine import quarantined, settled
from tests.support.subscriber import received

CONTENT = "com.microsoft:argument-error"


@pytest.fixture
def environment(environment: dict[str, str]) -> dict[str, str]:
    return environment | {"RELAY_SEND_TIMEOUT_S": "2"}


def committed(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The documents as the change feed gives them, each its own commit."""
    return [{**document, "_lsn": lsn} for lsn, document in enumerate(documents, start=1)]


async def park(environment: dict[str, str], documents: list[dict[str, Any]]) -> None:
    """Quarantine documents of one key as the app does where poison parks its key."""
    quarantine = StoredQuarantine(CosmosItems(Containers(Settings.from_environment(environment).in_cosmos)))
    poison, *others = documents
    items = rejected(Reason.MESSAGE_REFUSED, poison)
    items += rejected(Reason.KEY_PARKED, *others, first=1)
    await quarantine.store(items, "i1", park=True)
    await quarantine.close()


async def ids(environment: dict[str, str]) -> dict[str, str]:
    """Record ids by document id."""
    run = await relay_command(environment, "quarantine", "list", "--json")
    return {record["documentId"]: record["id"] for record in run.json["records"]}


async def arrived(servicebus: ServiceBusServer, count: int) -> dict[str, list[str]]:
    subscriber = await received(servicebus.connection_string, count)
    return subscriber.ids()


async def test_a_parked_key_goes_out_in_order_and_is_parked_no_more(
    environment: dict[str, str], quarantine: ContainerProxy, servicebus: ServiceBusServer, make_relay: RelayMaker
) -> None:
    documents = committed([*events("k", 130)])
    relay = make_relay(RELAY_ON_POISON="park")
    await refuse(servicebus.admin_port, "k-0", CONTENT)
    await settled(relay, documents[:100])
    await relay.handle(documents[100:], "i2")
    await stop_refusing(servicebus.admin_port)

    run = await relay_command(environment, "quarantine", "release", "--all", "--json")

    assert run.code == 0
    assert (len(run.json["released"]), run.json["unparked"], run.json["stillParked"]) == (130, ["k"], {})
    assert await arrived(servicebus, 130) == {"k": [each["id"] for each in documents]}
    assert await quarantined(quarantine) == []


async def test_a_key_goes_out_in_commit_order_whichever_host_quarantined_which(
    environment: dict[str, str], servicebus: ServiceBusServer
) -> None:
    documents = committed(events("k", 4))
    await park(environment, [documents[2], documents[3]])
    await park(environment, [documents[0], documents[1]])

    await relay_command(environment, "quarantine", "release", "--all")

    assert await arrived(servicebus, 4) == {"k": ["k-0", "k-1", "k-2", "k-3"]}


async def test_of_one_commit_the_events_own_order_decides(
    environment: dict[str, str], servicebus: ServiceBusServer
) -> None:
    documents = [{**event(f"e{order}", "k"), "_lsn": 7, "order": order} for order in (2, 0, 1)]
    await park(environment, documents)

    await relay_command(environment, "quarantine", "release", "--all")

    assert await arrived(servicebus, 3) == {"k": ["e0", "e1", "e2"]}


async def test_release_says_what_arrives_after_later_events_of_its_key(
    environment: dict[str, str], trigger: TriggerLeases, servicebus: ServiceBusServer, make_relay: RelayMaker
) -> None:
    for document in [*events("gap", 3), *events("last", 2)]:
        await trigger.data.create_item(document)
    feed = [item async for item in trigger.data.query_items_change_feed(start_time="Beginning")]
    for identifier in ("gap-1", "last-1"):
        await refuse(servicebus.admin_port, identifier, CONTENT)
    await settled(make_relay(), feed)
    await trigger.pass_all()
    await stop_refusing(servicebus.admin_port)
    records = await ids(environment)
    assert set(records) == {"gap-1", "last-1"}

    run = await relay_command(environment, "quarantine", "release", "--all", "--json")

    assert (run.code, len(run.json["released"]), run.json["late"]) == (0, 2, [records["gap-1"]])
