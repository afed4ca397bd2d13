"""`python -m relay quarantine add`: an order to set an event aside, and what the relay does with it."""

from __future__ import annotations

from typing import Any

import pytest
from azure.cosmos.aio import ContainerProxy

from outbox_emulators.servicebus.server import ServiceBusServer
from relay.errors import PublishError
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


async def test_an_event_that_is_not_in_the_outbox_is_ordered_only_by_force(environment: dict[str, str]) -> None:
    run = await relay_command(environment, "quarantine", "add", "k", "nothing", "--yes", "--json")
    forced = await relay_command(environment, "quarantine", "add", "k", "nothing", "--yes", "--force", "--json")
    for_people = await relay_command(environment, "quarantine", "add", "k", "none", "--yes")

    assert (run.code, run.json["ordered"], run.json["found"]) == (1, False, False)
    assert (forced.code, forced.json["ordered"]) == (0, True)
    assert "The outbox has no document 'none' with the partition key 'k'" in for_people.out


async def test_a_document_of_another_type_is_ordered_only_by_force(
    environment: dict[str, str], trigger: TriggerLeases
) -> None:
    await committed(trigger, {"id": "c", "partitionKey": "k", "type": "contact"})

    run = await relay_command(environment, "quarantine", "add", "k", "c", "--yes")

    assert run.code == 1
    assert "is of the type 'contact', not 'domainEvent'" in run.out


async def test_it_says_whether_the_relay_has_passed_the_event(
    environment: dict[str, str], trigger: TriggerLeases
) -> None:
    await committed(trigger, event("early", "k"))
    unknown = await relay_command(environment, "quarantine", "add", "k", "early", "--yes", "--json")
    await trigger.pass_all()
    await committed(trigger, event("late", "k"))

    passed = await relay_command(environment, "quarantine", "add", "k", "early", "--yes", "--json")
    for_people = await relay_command(environment, "quarantine", "add", "k", "early", "--yes")
    waiting = await relay_command(environment, "quarantine", "add", "k", "late", "--yes", "--json")

    assert [run.json["passed"] for run in (unknown, passed, waiting)] == [None, True, False]
    assert "The relay has already passed this event" in for_people.out
    assert "already ordered" in for_people.out


async def test_it_asks_and_only_yes_orders(environment: dict[str, str], trigger: TriggerLeases) -> None:
    await committed(trigger, event("e", "k"))

    no = await relay_command(environment, "quarantine", "add", "k", "e", "--json", typed="no\n")
    yes = await relay_command(environment, "quarantine", "add", "k", "e", "--json", typed="yes\n")

    assert (no.code, no.json["ordered"]) == (1, False)
    assert "Set the event 'e' of partition key 'k' aside?" in no.err
    assert (yes.code, yes.json["ordered"]) == (0, True)


async def test_where_nobody_can_be_asked_it_is_refused(environment: dict[str, str]) -> None:
    run = await relay_command(environment, "quarantine", "add", "k", "e")

    assert run.code == 2
    assert "add --yes" in run.err


async def test_an_order_is_withdrawn_by_discard(
    environment: dict[str, str], trigger: TriggerLeases, quarantine: ContainerProxy
) -> None:
    await committed(trigger, event("e", "k"), event("f", "k"))
    for identifier in ("e", "f"):
        await relay_command(environment, "quarantine", "add", "k", identifier, "--yes")
    listed = await relay_command(environment, "quarantine", "list", "--json")
    first, second = (order["id"] for order in listed.json["orders"])

    ambiguous = await relay_command(environment, "quarantine", "discard", "set-aside:", "--yes")
    refused = await relay_command(environment, "quarantine", "discard", first[:22], "--json", typed="no\n")
    run = await relay_command(environment, "quarantine", "discard", first[:22], "set-aside:zz", "--yes", "--json")
    left = await relay_command(environment, "quarantine", "list", "--json")

    assert ambiguous.code == 2
    assert (refused.code, refused.json["withdrawn"]) == (1, [])
    assert (run.code, run.json["withdrawn"], run.json["missing"]) == (1, [first], ["set-aside:zz"])
    assert [order["id"] for order in left.json["orders"]] == [second]


async def test_discarding_every_record_keeps_the_orders(
    environment: dict[str, str], trigger: TriggerLeases
) -> None:
    await committed(trigger, event("e", "k"))
    await relay_command(environment, "quarantine", "add", "k", "e", "--yes")

    await relay_command(environment, "quarantine", "discard", "--all", "--yes")

    listed = await relay_command(environment, "quarantine", "list")
    assert listed.out.splitlines()[-3].split()[-2:] == ["k", "e"]


async def test_the_command_runs_as_a_process(environment: dict[str, str], trigger: TriggerLeases) -> None:
    await committed(trigger, event("e", "k"))

    run = await relay_subprocess(environment, "quarantine", "add", "k", "e", "--yes")

    assert (run.code, run.out.splitlines()[-1]) == (
        0,
        "ordered: the relay sets the event 'e' aside at its next attempt",
    )
