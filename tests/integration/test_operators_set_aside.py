"""`python -m relay quarantine add`: an order to set an event aside, and what the relay does with it."""

from __future__ import annotations

from typing import Any

import pytest
from azure.cosmos.aio import ContainerProxy

from outbox_relay.emulators.servicebus.server import ServiceBusServer
from relay.core.errors import PublishError
from tests.integration.conftest import RelayMaker
from tests.support.broker import refuse
from tests.support.leases import TriggerLeases
from tests.support.operators import relay_command, relay_subprocess
from tests.support.outbox import event, events
from tests.support.subscriber import received

# What the service answers to properties that are too long: it asks to try again, forever.
RETRY = "amqp:internal-error"


async def committed(trigger: TriggerLeases, *documents: dict[str, Any]) -> list[dict[str, Any]]:
    for document in documents:
        await trigger.data.create_item(document)
    return [item async for item in trigger.data.query_items_change_feed(start_time="Beginning")]


async def test_a_blocking_event_is_set_aside_at_its_next_attempt_and_its_key_goes_on(
    environment: dict[str, str],
    trigger: TriggerLeases,
    quarantine: ContainerProxy,
    servicebus: ServiceBusServer,
    make_relay: RelayMaker,
) -> None:
    feed = await committed(trigger, *events("k", 3))
    relay = make_relay()
    await refuse(servicebus.admin_port, "k-1", RETRY)
    with pytest.raises(PublishError):
        await relay.handle(feed, "i1")

    run = await relay_command(environment, "quarantine", "add", "k", "k-1", "--yes", "--json")
    pending = await relay_command(environment, "quarantine", "list", "--json")
    outcome = await relay.handle(feed, "i1", retry_count=1)
    after = await relay_command(environment, "quarantine", "list", "--json")

    assert (run.code, run.json["ordered"], run.json["found"]) == (0, True, True)
    assert [(each["partitionKey"], each["eventId"]) for each in pending.json["orders"]] == [("k", "k-1")]
    assert outcome.quarantined == {"set-aside": 1}
    assert (after.json["orders"], [each["reason"] for each in after.json["records"]]) == ([], ["set-aside"])
    subscriber = await received(servicebus.connection_string, 2)
    assert subscriber.ids() == {"k": ["k-0", "k-2"]}


async def test_an_order_is_withdrawn_by_discard(
    environment: dict[str, str], trigger: TriggerLeases, quarantine: ContainerProxy
) -> None:
    await committed(trigger, event("e", "k"), event("f", "k"))
    for identifier in ("e", "f"):
        await relay_command(environment, "quarantine", "add", "k", identifier, "--yes")
    listed = await relay_command(environment, "quarantine", "list", "--json")
    first, second = (order["id"] for order in listed.json["orders"])

    short = await relay_command(environment, "quarantine", "discard", "set-aside:", "--yes")
    refused = await relay_command(environment, "quarantine", "discard", first[:22], "--json", typed="no\n")
    run = await relay_command(
        environment, "quarantine", "discard", first[:22], "set-aside:00000000", "--yes", "--json"
    )
    left = await relay_command(environment, "quarantine", "list", "--json")

    assert short.code == 2
    assert (refused.code, refused.json["withdrawn"]) == (1, [])
    assert (run.code, run.json["withdrawn"], run.json["missing"]) == (1, [first], ["set-aside:00000000"])
    assert [order["id"] for order in left.json["orders"]] == [second]


async def test_the_command_runs_as_a_process(environment: dict[str, str], trigger: TriggerLeases) -> None:
    await committed(trigger, event("e", "k"))

    run = await relay_subprocess(environment, "quarantine", "add", "k", "e", "--yes")

    assert (run.code, run.out.splitlines()[-1]) == (
        0,
        "ordered: the relay sets the event 'e' aside at its next attempt",
    )
