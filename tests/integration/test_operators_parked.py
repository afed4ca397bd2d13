"""Parked keys under `python -m relay quarantine`: released in order, to the last record, and only then let go."""

from __future__ import annotations

from typing import Any

import pytest
from azure.cosmos.aio import ContainerProxy

from outbox_emulators.servicebus.server import ServiceBusServer
from relay.cli.records import Records
from relay.cosmos.containers import Containers
from relay.cosmos.quarantine import CosmosItems
from relay.events import Reason
from relay.quarantine.items import Filter
from relay.quarantine.quarantine import StoredQuarantine
from relay.settings import Settings
from tests.integration.conftest import RelayMaker
from tests.support.broker import refuse, stop_refusing, topic_counts
from tests.support.leases import TriggerLeases
from tests.support.operators import relay_command
from tests.support.outbox import event, events, rejected
from tests.support.quarantined import quarantined
from tests.support.settling import settled
from tests.support.stores import items_in
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
    quarantine = StoredQuarantine(CosmosItems(Containers(Settings.from_environment(environment))))
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
    assert [item async for item in quarantined(quarantine)] == []


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


async def test_what_comes_while_a_key_is_released_goes_out_too(
    environment: dict[str, str],
    servicebus: ServiceBusServer,
    quarantine: ContainerProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    documents = committed(events("k", 3))
    await park(environment, documents[:2])
    unpark = Records.unpark
    came: list[str] = []

    async def late(records: Records, partition_key: str) -> bool:
        if not came:
            came.append("k-2")
            await park(environment, documents[2:])
        return await unpark(records, partition_key)

    monkeypatch.setattr(Records, "unpark", late)

    run = await relay_command(environment, "quarantine", "release", "--all", "--json")

    assert (run.code, run.json["unparked"]) == (0, ["k"])
    assert await arrived(servicebus, 3) == {"k": ["k-0", "k-1", "k-2"]}
    assert [item async for item in quarantined(quarantine)] == []


async def test_what_comes_between_the_count_and_the_removal_keeps_the_key_parked(
    environment: dict[str, str], quarantine: ContainerProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = committed(events("k", 2))
    await park(environment, documents[:1])
    (summary,) = await Records(items_in(quarantine)).find(Filter())
    await Records(items_in(quarantine)).remove(summary)
    count = Records.count

    async def raced(records: Records, chosen: Filter) -> int:
        counted = await count(records, chosen)
        await park(environment, documents[1:])
        return counted

    monkeypatch.setattr(Records, "count", raced)

    assert not await Records(items_in(quarantine)).unpark("k")
    assert list(await Records(items_in(quarantine)).parked()) == ["k"]


async def test_a_record_that_is_still_refused_holds_up_those_behind_it(
    environment: dict[str, str], servicebus: ServiceBusServer
) -> None:
    await park(environment, committed(events("k", 4)))
    await refuse(servicebus.admin_port, "k-1", CONTENT)

    run = await relay_command(environment, "quarantine", "release", "--all", "--json")

    assert run.code == 1
    assert (len(run.json["released"]), run.json["unparked"], run.json["stillParked"]) == (1, [], {"k": 3})
    assert [each["reason"] for each in run.json["stillInvalid"]] == ["message-refused"]
    assert await arrived(servicebus, 1) == {"k": ["k-0"]}
    assert list(await ids(environment)) == ["k-1", "k-2", "k-3"]


async def test_a_record_that_is_no_event_holds_up_those_behind_it(
    environment: dict[str, str], servicebus: ServiceBusServer
) -> None:
    documents = committed(events("k", 3))
    documents[1]["data"] = "no object"
    await park(environment, documents)

    run = await relay_command(environment, "quarantine", "release", "--all", "--json")

    assert (run.code, run.json["stillParked"]) == (1, {"k": 2})
    assert await arrived(servicebus, 1) == {"k": ["k-0"]}


async def test_a_record_that_is_chosen_waits_for_those_before_it(
    environment: dict[str, str], servicebus: ServiceBusServer
) -> None:
    await park(environment, committed(events("k", 3)))
    records = await ids(environment)

    run = await relay_command(environment, "quarantine", "release", records["k-0"], records["k-2"], "--json")

    assert run.code == 1
    assert (run.json["released"], run.json["stillParked"]) == ([records["k-0"]], {"k": 2})
    assert [(each["id"], each["reason"]) for each in run.json["stillInvalid"]] == [(records["k-2"], "key-parked")]
    assert await arrived(servicebus, 1) == {"k": ["k-0"]}


async def test_a_topic_that_refuses_leaves_the_key_parked(
    environment: dict[str, str], servicebus: ServiceBusServer
) -> None:
    await park(environment, committed(events("k", 2)))
    await refuse(servicebus.admin_port, "k-0", "amqp:internal-error")

    run = await relay_command(environment, "quarantine", "release", "--all", "--json")

    assert run.code == 3
    assert (run.json["released"], len(run.json["notSent"]), run.json["stillParked"]) == ([], 2, {"k": 2})


async def test_keys_that_are_not_parked_go_out_beside_it(
    environment: dict[str, str], servicebus: ServiceBusServer
) -> None:
    await park(environment, committed(events("k", 2)))
    quarantine = StoredQuarantine(CosmosItems(Containers(Settings.from_environment(environment))))
    (other,) = rejected(Reason.MESSAGE_REFUSED, event("o", "other"))
    await quarantine.store([other], "i1")
    await quarantine.close()

    run = await relay_command(environment, "quarantine", "release", "--all")

    assert run.code == 0
    assert "released 3, still invalid 0, not sent 0" in run.out
    assert "partition key 'k' is no longer parked" in run.out
    assert await arrived(servicebus, 3) == {"k": ["k-0", "k-1"], "other": ["o"]}


async def test_list_shows_parked_keys_and_what_parked_them(environment: dict[str, str]) -> None:
    await park(environment, committed(events("k", 2)))
    records = await ids(environment)

    run = await relay_command(environment, "quarantine", "list", "--json")
    for_people = await relay_command(environment, "quarantine", "list")
    narrowed = await relay_command(environment, "quarantine", "list", "--partition-key", "other", "--json")

    (parked,) = run.json["parked"]
    assert (parked["partitionKey"], parked["because"]) == ("k", records["k-0"])
    parked_line = for_people.out.splitlines()[-3]
    assert (parked_line.split()[0], parked_line.split()[-1]) == ("k", records["k-0"][:12])
    assert narrowed.json["parked"] == []


async def test_discarding_what_parked_a_key_leaves_its_successors_parked(
    environment: dict[str, str], servicebus: ServiceBusServer
) -> None:
    await park(environment, committed(events("k", 3)))
    records = await ids(environment)

    discarded = await relay_command(environment, "quarantine", "discard", records["k-0"], "--yes", "--json")
    after = await relay_command(environment, "quarantine", "list", "--json")
    released = await relay_command(environment, "quarantine", "release", "--all", "--json")

    assert (discarded.code, discarded.json["unparked"]) == (0, [])
    assert [each["partitionKey"] for each in after.json["parked"]] == ["k"]
    assert (released.code, released.json["unparked"]) == (0, ["k"])
    assert await arrived(servicebus, 2) == {"k": ["k-1", "k-2"]}


async def test_discarding_the_last_record_of_a_key_lets_it_go_on(
    environment: dict[str, str], quarantine: ContainerProxy
) -> None:
    await park(environment, committed(events("k", 2)))

    run = await relay_command(environment, "quarantine", "discard", "--all", "--yes", "--json")

    assert (run.code, run.json["unparked"]) == (0, ["k"])
    assert [item async for item in quarantined(quarantine)] == []


async def test_a_release_that_was_cut_off_before_the_marker_went_is_finished_by_the_next(
    environment: dict[str, str], quarantine: ContainerProxy
) -> None:
    await park(environment, committed(events("k", 1)))
    (summary,) = await Records(items_in(quarantine)).find(Filter())
    await Records(items_in(quarantine)).remove(summary)

    run = await relay_command(environment, "quarantine", "release", "--all", "--json")

    assert (run.code, run.json["unparked"]) == (0, ["k"])


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


async def test_what_the_relay_has_not_passed_yet_does_not_make_a_released_event_late(
    environment: dict[str, str], trigger: TriggerLeases, servicebus: ServiceBusServer, make_relay: RelayMaker
) -> None:
    poison, waiting = events("k", 2)
    await trigger.data.create_item(poison)
    feed = [item async for item in trigger.data.query_items_change_feed(start_time="Beginning")]
    await refuse(servicebus.admin_port, "k-0", CONTENT)
    await settled(make_relay(), feed)
    await trigger.pass_all()
    await stop_refusing(servicebus.admin_port)
    await trigger.data.create_item(waiting)

    run = await relay_command(environment, "quarantine", "release", "--all", "--json")

    assert (run.code, len(run.json["released"]), run.json["late"]) == (0, 1, [])
    assert (await topic_counts(servicebus.admin_port))["accepted"] == 1
