"""`python -m relay quarantine …` on the local stack: what stays in the container, what arrives."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from azure.cosmos.aio import ContainerProxy

from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.operator.cli.quarantine_admin import QuarantineAdmin
from relay.backends.cosmos.containers import Containers
from relay.backends.cosmos.quarantine import CosmosItems
from relay.config.settings import Settings
from relay.core.events import Reason
from relay.quarantine.quarantine import StoredQuarantine
from tests.integration.conftest import RelayMaker
from tests.support.broker import refuse, stop_refusing, topic_counts
from tests.support.leases import TriggerLeases
from tests.support.operators import relay_command, relay_subprocess
from tests.support.outbox import event, events, rejected
from tests.support.quarantine import quarantined, settled
from tests.support.subscriber import body, properties, received


@pytest.fixture
def environment(environment: dict[str, str]) -> dict[str, str]:
    return environment | {"RELAY_SEND_TIMEOUT_S": "2"}


async def put(
    environment: dict[str, str], *documents: dict[str, Any], reason: Reason = Reason.MESSAGE_REFUSED
) -> None:
    """Quarantine documents, as the app does, in this order."""
    quarantine = StoredQuarantine(CosmosItems(Containers(Settings.from_environment(environment).in_cosmos)))
    await quarantine.store(rejected(reason, *documents), "i1")
    await quarantine.close()


async def left(quarantine: ContainerProxy) -> list[str]:
    """The documents' ids that are still in quarantine."""
    rows = quarantine.query_items("SELECT * FROM c WHERE c.type = 'quarantinedEvent'")
    return sorted([row["document"]["id"] if "document" in row else "(in parts)" async for row in rows])


async def test_list_tells_what_is_there_in_order_of_arrival(environment: dict[str, str]) -> None:
    await put(environment, event("z", "k1"), event("a", "k2"))
    await put(environment, event("m", "k1"), reason=Reason.MESSAGE_TOO_LARGE)

    run = await relay_command(environment, "quarantine", "list", "--json")

    assert run.code == 0
    assert [record["documentId"] for record in run.json["records"]] == ["z", "a", "m"]
    assert (run.json["command"], run.json["total"]) == ("quarantine list", 3)
    assert set(run.json["records"][0]) == {
        *("id", "partitionKey", "reason", "detail", "quarantinedAt", "position", "invocationId"),
        *("documentId", "documentParts"),
    }


async def test_what_one_invocation_quarantines_is_listed_in_the_order_of_its_documents(
    environment: dict[str, str], make_relay: RelayMaker
) -> None:
    documents = [*events("a", 6), *events("b", 3)]
    for number in (1, 4, 7):
        documents[number]["data"]["text"] = "x" * 300_000
    for number in (2, 5, 6):
        documents[number]["data"] = None

    await make_relay().handle(documents, "i1")

    run = await relay_command(environment, "quarantine", "list", "--json")
    assert [record["documentId"] for record in run.json["records"]] == ["a-1", "a-2", "a-4", "a-5", "b-0", "b-1"]


async def test_show_gives_the_whole_document_by_the_beginning_of_an_id(environment: dict[str, str]) -> None:
    document = event("e1", "k", text="ü\u2028", big=2**80, empty={})
    await put(environment, document)
    listed = await relay_command(environment, "quarantine", "list", "--json")
    identifier = listed.json["records"][0]["id"]

    run = await relay_command(environment, "quarantine", "show", identifier[:8], "--json")
    for_people = await relay_command(environment, "quarantine", "show", identifier)

    assert run.json["record"]["document"] == document
    assert run.json["record"]["id"] == identifier
    assert json.loads(for_people.out) == run.json["record"]


async def test_show_puts_a_document_in_parts_together(environment: dict[str, str], make_relay: RelayMaker) -> None:
    huge = event("e1", "a") | {"data": '"é\n' * 330_000}
    await make_relay().handle([huge], "i1")
    (record,) = (await relay_command(environment, "quarantine", "list", "--json")).json["records"]

    run = await relay_command(environment, "quarantine", "show", record["id"], "--json")

    assert record["documentParts"] > 1
    assert run.json["record"]["document"] == huge


async def test_release_publishes_in_order_of_arrival_and_removes_what_was_accepted(
    environment: dict[str, str], servicebus: ServiceBusServer, quarantine: ContainerProxy
) -> None:
    # More than one chunk, keys interleaved, ids in no order.
    documents = [event(f"{99 - number:03}-{key}", key) for number in range(40) for key in ("k1", "k2", "k3")]
    await put(environment, *documents)

    run = await relay_command(environment, "quarantine", "release", "--all", "--json")

    assert (run.code, len(run.json["released"]), run.json["stillInvalid"]) == (0, 120, [])
    subscriber = await received(servicebus.connection_string, 120)
    assert subscriber.ids() == {
        key: [f"{99 - number:03}-{key}" for number in range(40)] for key in ("k1", "k2", "k3")
    }
    assert await left(quarantine) == []


async def test_a_released_message_is_what_the_app_would_have_sent(
    environment: dict[str, str], servicebus: ServiceBusServer, make_relay: RelayMaker
) -> None:
    document = event("e1", "köy", text="ü", exact=9007199254740993)
    await refuse(servicebus.admin_port, "e1", "amqp:not-allowed")
    await settled(make_relay(), [document])
    await stop_refusing(servicebus.admin_port)

    await relay_command(environment, "quarantine", "release", "--all")

    subscriber = await received(servicebus.connection_string, 1)
    message = subscriber.messages["köy"][0]
    assert json.loads(body(message)) == document["data"]
    assert (message.message_id, message.subject) == ("e1", "ContactNameUpdatedEvent")
    assert set(properties(message)) == {"type", "cosmosTimestamp", "createdAt"}


@pytest.mark.slow
async def test_a_partition_key_stops_at_its_first_event_that_fails_and_the_others_go_on(
    environment: dict[str, str], servicebus: ServiceBusServer, quarantine: ContainerProxy
) -> None:
    # In a later chunk there is more of the key that has failed in the first.
    documents = [event(f"{key}-{number:02}", key) for number in range(40) for key in ("bad", "good")]
    await put(environment, *documents)
    await refuse(servicebus.admin_port, "bad-03", "amqp:internal-error")

    run = await relay_command(environment, "quarantine", "release", "--all", "--json")

    assert run.code == 1
    assert (len(run.json["released"]), len(run.json["notSent"])) == (40, 40)
    assert [failure["partitionKey"] for failure in run.json["failures"]] == ["bad"]
    assert await left(quarantine) == [f"bad-{number:02}" for number in range(40)]

    await stop_refusing(servicebus.admin_port)
    again = await relay_command(environment, "quarantine", "release", "--all", "--json")

    assert (again.code, len(again.json["released"])) == (0, 40)
    subscriber = await received(servicebus.connection_string, 80)
    await subscriber.receive_rest()
    assert subscriber.ids() == {key: [f"{key}-{number:02}" for number in range(40)] for key in ("bad", "good")}
    assert await left(quarantine) == []


async def test_a_release_cut_off_before_the_removal_can_be_repeated(
    environment: dict[str, str],
    servicebus: ServiceBusServer,
    quarantine: ContainerProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await put(environment, *events("k", 6))
    remove = QuarantineAdmin.remove
    removed = 0

    async def remove_two(records: QuarantineAdmin, head: Any, *further: Any) -> None:
        nonlocal removed
        removed += 1
        if removed > 2:
            raise KeyboardInterrupt
        await remove(records, head, *further)

    monkeypatch.setattr(QuarantineAdmin, "remove", remove_two)
    with pytest.raises(KeyboardInterrupt):
        await relay_command(environment, "quarantine", "release", "--all")
    monkeypatch.undo()
    assert len(await left(quarantine)) == 4

    run = await relay_command(environment, "quarantine", "release", "--all")

    assert (run.code, await left(quarantine)) == (0, [])
    subscriber = await received(servicebus.connection_string, 6)
    await subscriber.receive_rest()
    assert subscriber.ids() == {"k": [f"k-{number}" for number in range(6)]}
    assert (await topic_counts(servicebus.admin_port))["duplicates_dropped"] == 4


async def test_a_document_in_parts_is_released_whole_and_its_parts_go_too(
    environment: dict[str, str], quarantine: ContainerProxy, entities: Entities
) -> None:
    # 800 KB in UTF-8, which only the Premium tier takes; 2.4 MB in the SDK's escapes, too much for one record.
    huge = event("e1", "a", text="é" * 400_000)
    await put(environment, huge, reason=Reason.MESSAGE_TOO_LARGE)
    stored = await quarantined(quarantine)
    assert len(stored) > 2

    refused = await relay_command(environment, "quarantine", "release", "--all", "--json")
    assert [item["reason"] for item in refused.json["stillInvalid"]] == ["message-too-large"]
    assert len(await quarantined(quarantine)) == len(stored)

    async with ServiceBusServer(entities, tier="premium") as premium:
        other = environment | {"SERVICEBUS": premium.connection_string}
        run = await relay_command(other, "quarantine", "release", "--all", "--json")

    assert (run.code, len(run.json["released"])) == (0, 1), run.out
    assert await quarantined(quarantine) == []


async def test_discard_removes_the_parts_too(environment: dict[str, str], quarantine: ContainerProxy) -> None:
    await put(environment, event("e1", "a", text="é" * 950_000), event("e2", "a"))

    await relay_command(environment, "quarantine", "discard", "--all", "--yes")

    assert await quarantined(quarantine) == []


@pytest.mark.parametrize("character", ["x", '"', "é", "😀"])
async def test_whatever_a_document_is_made_of_it_can_be_quarantined_and_shown(
    environment: dict[str, str], character: str
) -> None:
    huge = event("e1", "a", text=character * (1_900_000 // len(orjson.dumps(character)[1:-1])))

    await put(environment, huge)

    (record,) = (await relay_command(environment, "quarantine", "list", "--json")).json["records"]
    shown = await relay_command(environment, "quarantine", "show", record["id"], "--json")
    assert shown.json["record"]["document"] == huge


async def test_a_quarantine_that_cannot_be_reached_is_exit_code_3(
    environment: dict[str, str], cosmos: CosmosServer
) -> None:
    missing = await relay_command(
        environment | {"COSMOS_QUARANTINE_CONTAINER": "nowhere"}, "quarantine", "list", "--json"
    )
    assert (missing.code, missing.json["exitCode"]) == (3, 3)
    assert "the container 'nowhere' cannot be read" in missing.json["error"]

    await cosmos.stop()
    unreachable = await relay_command(environment, "quarantine", "list")
    assert (unreachable.code, unreachable.out) == (3, "")


async def test_the_commands_run_as_processes(environment: dict[str, str], quarantine: ContainerProxy) -> None:
    await put(environment, *events("k", 3))

    listed = await relay_subprocess(environment, "quarantine", "list", "--json")
    identifier = listed.json["records"][0]["id"]
    shown = await relay_command(environment, "quarantine", "show", identifier, "--json")
    refused = await relay_command(environment, "quarantine", "discard", identifier)
    discarded = await relay_command(environment, "quarantine", "discard", identifier, "--yes")
    released = await relay_subprocess(environment, "quarantine", "release", "--all")

    assert [run.code for run in (listed, shown, refused, discarded, released)] == [0, 0, 2, 0, 0]
    assert shown.json["record"]["document"]["id"] == "k-0"
    assert released.out == "released 2, still invalid 0, not sent 0\n"
    assert await left(quarantine) == []


UNREADABLE = ["a%20", "100%25", "a ", "a\u3000", "a/b\\c?d#e", "..", "a\tb"]
"""Ids by which no item can be read, with the signature of a client or at all."""


@pytest.mark.parametrize("text", UNREADABLE)
async def test_an_event_with_an_unreadable_id_is_ordered_set_aside_and_released(
    environment: dict[str, str],
    trigger: TriggerLeases,
    quarantine: ContainerProxy,
    servicebus: ServiceBusServer,
    make_relay: RelayMaker,
    text: str,
) -> None:
    await trigger.data.execute_item_batch([("create", (event(text, text),))], text)
    feed = [item async for item in trigger.data.query_items_change_feed(start_time="Beginning")]

    ordered = [await relay_command(environment, "quarantine", "add", text, text, "--yes", "--json")]
    (order,) = (await relay_command(environment, "quarantine", "list", "--json")).json["orders"]
    withdrawn = await relay_command(environment, "quarantine", "discard", order["id"], "--yes", "--json")
    ordered += [await relay_command(environment, "quarantine", "add", text, text, "--yes", "--json")]
    outcome = await make_relay().handle(feed, "i1", retry_count=1)
    (record,) = (await relay_command(environment, "quarantine", "list", "--json")).json["records"]
    shown = await relay_command(environment, "quarantine", "show", record["id"], "--json")
    released = await relay_command(environment, "quarantine", "release", record["id"], "--json")

    assert [(run.code, run.json["found"], run.json["ordered"]) for run in ordered] == [(0, True, True)] * 2
    assert withdrawn.json["withdrawn"] == [order["id"]]
    assert outcome.quarantined == {"set-aside": 1}
    assert (shown.json["record"]["documentId"], shown.json["record"]["partitionKey"]) == (text, text)
    assert released.json["released"] == [record["id"]]
    assert (await received(servicebus.connection_string, 1)).ids() == {text: [text]}
    assert await left(quarantine) == []


@pytest.mark.parametrize("text", UNREADABLE)
async def test_a_key_parked_by_an_unreadable_id_is_released(
    environment: dict[str, str],
    trigger: TriggerLeases,
    quarantine: ContainerProxy,
    servicebus: ServiceBusServer,
    make_relay: RelayMaker,
    text: str,
) -> None:
    invalid, sound = event(text, text) | {"data": 7}, event(f"2 {text}", text)
    for document in (invalid, sound):
        await trigger.data.execute_item_batch([("create", (document,))], text)
    feed = [item async for item in trigger.data.query_items_change_feed(start_time="Beginning")]

    outcome = await make_relay(RELAY_ON_POISON="park").handle(feed, "i1", retry_count=1)
    (first, _) = (await relay_command(environment, "quarantine", "list", "--json")).json["records"]
    discarded = await relay_command(environment, "quarantine", "discard", first["id"], "--yes", "--json")
    released = await relay_command(environment, "quarantine", "release", "--all", "--json")

    assert outcome.quarantined == {"data-not-object": 1, "key-parked": 1}
    assert discarded.json["discarded"] == [first["id"]]
    assert (released.json["unparked"], released.json["stillParked"]) == ([text], {})
    assert (await received(servicebus.connection_string, 1)).ids() == {text: [f"2 {text}"]}
    assert await quarantined(quarantine) == []
