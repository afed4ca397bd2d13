"""`python -m relay quarantine …` on the local stack: what stays in the container, what arrives."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from azure.cosmos.aio import ContainerProxy

from outbox_emulators.cosmos.server import CosmosServer
from outbox_emulators.servicebus.entities import Entities
from outbox_emulators.servicebus.server import ServiceBusServer
from relay.cli.records import Records
from relay.cosmos.containers import Containers
from relay.cosmos.quarantine import CosmosItems
from relay.events import Reason
from relay.quarantine.quarantine import StoredQuarantine
from relay.settings import Settings
from tests.integration.conftest import RelayMaker
from tests.support.broker import refuse, set_topic_status, stop_refusing, topic_counts
from tests.support.operators import relay_command, relay_subprocess
from tests.support.outbox import event, events, rejected
from tests.support.quarantined import quarantined
from tests.support.settling import settled
from tests.support.subscriber import body, properties, received


@pytest.fixture
def environment(environment: dict[str, str]) -> dict[str, str]:
    return environment | {"RELAY_SEND_TIMEOUT_S": "2"}


async def put(
    environment: dict[str, str], *documents: dict[str, Any], reason: Reason = Reason.MESSAGE_REFUSED
) -> None:
    """Quarantine documents, as the app does, in this order."""
    quarantine = StoredQuarantine(CosmosItems(Containers(Settings.from_environment(environment))))
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


@pytest.mark.parametrize(
    ("options", "shown", "total"),
    [
        (("--reason", "message-too-large"), ["m"], 1),
        (("--partition-key", "k1"), ["z", "m"], 2),
        (("--partition-key", "k1", "--reason", "message-refused"), ["z"], 1),
        (("--limit", "2"), ["z", "a"], 3),
        (("--limit", "1", "--partition-key", "k1"), ["z"], 2),
        (("--partition-key", "nobody"), [], 0),
    ],
)
async def test_list_can_be_narrowed(
    environment: dict[str, str], options: tuple[str, ...], shown: list[str], total: int
) -> None:
    await put(environment, event("z", "k1"), event("a", "k2"))
    await put(environment, event("m", "k1"), reason=Reason.MESSAGE_TOO_LARGE)

    run = await relay_command(environment, "quarantine", "list", "--json", *options)

    assert [record["documentId"] for record in run.json["records"]] == shown
    assert run.json["total"] == total


async def test_list_for_people_is_a_line_each_and_a_sum(environment: dict[str, str]) -> None:
    await put(environment, event("k1-0", "k\x1b[2J1"), *events("k1", 2)[1:], event("last", "k1"))

    run = await relay_command(environment, "quarantine", "list", "--limit", "2")

    lines = run.out.splitlines()
    assert lines[0].split() == ["RECORD", "QUARANTINED", "REASON", "PARTITION", "KEY", "DOCUMENT"]
    assert lines[1].endswith(r"Z  message-refused  k\x1b[2J1      k1-0")
    assert lines[2].endswith("Z  message-refused  k1             k1-1")
    assert lines[3:] == ["", "2 of 3 in quarantine"]


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


async def test_an_id_that_is_not_there_or_not_one_is_reported(environment: dict[str, str]) -> None:
    await put(environment, *events("k", 40))

    nowhere = await relay_command(environment, "quarantine", "show", "nowhere")
    ambiguous = await relay_command(environment, "quarantine", "release", "")

    assert (nowhere.code, nowhere.out) == (1, "nowhere is not in quarantine\n")
    assert (ambiguous.code, "40 records have an id that begins with ''" in ambiguous.err) == (2, True)


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


async def test_what_is_still_invalid_stays_with_its_reason_of_now_and_holds_up_nobody(
    environment: dict[str, str], servicebus: ServiceBusServer, quarantine: ContainerProxy
) -> None:
    first, second, third, fourth, fifth = events("k", 5)
    second["data"] = None
    third["data"]["text"] = "x" * 300_000
    fourth["type"] = "contact"
    await put(environment, first, second, third, fourth, fifth)

    run = await relay_command(environment, "quarantine", "release", "--all", "--json")

    assert run.code == 1
    assert {item["reason"] for item in run.json["stillInvalid"]} == {
        *("data-not-object", "message-too-large", "type-differs")
    }
    assert await left(quarantine) == ["k-1", "k-2", "k-3"]
    subscriber = await received(servicebus.connection_string, 2)
    assert subscriber.ids() == {"k": ["k-0", "k-4"]}


async def test_only_what_was_chosen_is_released(
    environment: dict[str, str], servicebus: ServiceBusServer, quarantine: ContainerProxy
) -> None:
    await put(environment, event("a", "k1"), event("b", "k2"))
    await put(environment, event("c", "k1"), reason=Reason.MESSAGE_TOO_LARGE)
    listed = (await relay_command(environment, "quarantine", "list", "--json")).json["records"]

    by_id = await relay_command(environment, "quarantine", "release", listed[1]["id"][:12], "nowhere", "--json")
    assert (by_id.code, by_id.json["missing"], await left(quarantine)) == (1, ["nowhere"], ["a", "c"])

    by_reason = await relay_command(environment, "quarantine", "release", "--reason", "message-too-large")
    assert (by_reason.code, await left(quarantine)) == (0, ["a"])

    by_key = await relay_command(environment, "quarantine", "release", "--all", "--partition-key", "k2")
    assert (by_key.code, await left(quarantine)) == (0, ["a"])
    assert (await topic_counts(servicebus.admin_port))["accepted"] == 2


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
    remove = Records.remove
    removed = 0

    async def remove_two(records: Records, head: Any) -> None:
        nonlocal removed
        removed += 1
        if removed > 2:
            raise KeyboardInterrupt
        await remove(records, head)

    monkeypatch.setattr(Records, "remove", remove_two)
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
    stored = [item async for item in quarantined(quarantine)]
    assert len(stored) > 2

    refused = await relay_command(environment, "quarantine", "release", "--all", "--json")
    assert [item["reason"] for item in refused.json["stillInvalid"]] == ["message-too-large"]
    assert len([item async for item in quarantined(quarantine)]) == len(stored)

    async with ServiceBusServer(entities, tier="premium") as premium:
        other = environment | {"SERVICEBUS": premium.connection_string}
        run = await relay_command(other, "quarantine", "release", "--all", "--json")

    assert (run.code, len(run.json["released"])) == (0, 1), run.out
    assert [item async for item in quarantined(quarantine)] == []


async def test_of_two_records_with_one_message_id_the_first_goes_out_and_the_other_is_kept(
    environment: dict[str, str], quarantine: ContainerProxy
) -> None:
    first, second = event("e1", "k", version=1), event("e1", "k", version=2)
    await put(environment, first, second)

    run = await relay_command(environment, "quarantine", "release", "--all", "--json")

    assert (run.code, [item["reason"] for item in run.json["stillInvalid"]]) == (1, ["id-repeated"])
    (record,) = [item async for item in quarantined(quarantine)]
    assert record["document"]["data"]["version"] == 2


async def test_a_topic_that_refuses_everything_is_exit_code_3_and_nothing_is_removed(
    environment: dict[str, str], servicebus: ServiceBusServer, quarantine: ContainerProxy
) -> None:
    await put(environment, *(event(f"e{number}", f"k{number % 2}") for number in range(60)))
    await set_topic_status(servicebus.admin_port, "SendDisabled")
    patient = environment | {"RELAY_SEND_TIMEOUT_S": "20"}

    run = await relay_command(patient, "quarantine", "release", "--all", "--json")

    assert (run.code, len(run.json["notSent"])) == (3, 60)
    assert "Set the topic's status to Active" in run.json["failures"][0]["error"]
    assert len(await left(quarantine)) == 60


@pytest.mark.parametrize(
    "words",
    [
        ("release",),
        ("release", "--partition-key", "k"),
        ("release", "abc", "--all"),
        ("discard",),
        ("discard", "abc", "--reason", "id-empty"),
    ],
)
async def test_a_choice_that_makes_no_sense_is_exit_code_2(
    environment: dict[str, str], words: tuple[str, ...]
) -> None:
    run = await relay_command(environment, "quarantine", *words)

    assert (run.code, run.out) == (2, "")
    assert run.err.startswith("error: ")


async def test_discard_asks_and_only_yes_discards(environment: dict[str, str], quarantine: ContainerProxy) -> None:
    await put(environment, *events("k", 12))

    no = await relay_command(environment, "quarantine", "discard", "--all", "--json", typed="no\n")

    assert "Discard 12 record(s) for good? Type yes to continue: " in no.err
    assert "document 'k-0'" in no.err
    assert "and 2 more" in no.err
    assert (no.code, no.json["discarded"], no.json["refused"]) == (1, [], True)
    assert len(await left(quarantine)) == 12

    yes = await relay_command(environment, "quarantine", "discard", "--all", "--json", typed="yes\n")

    assert (yes.code, len(yes.json["discarded"])) == (0, 12)
    assert await left(quarantine) == []


async def test_discard_where_nobody_can_be_asked_is_refused_without_yes(
    environment: dict[str, str], quarantine: ContainerProxy
) -> None:
    await put(environment, event("a", "k"), reason=Reason.ID_EMPTY)
    await put(environment, event("b", "k"))

    refused = await relay_command(environment, "quarantine", "discard", "--all")
    assert (refused.code, "add --yes" in refused.err, await left(quarantine)) == (2, True, ["a", "b"])

    run = await relay_command(environment, "quarantine", "discard", "--reason", "id-empty", "--yes")
    assert (run.code, run.out, await left(quarantine)) == (0, "discarded 1\n", ["b"])


async def test_discard_removes_the_parts_too(environment: dict[str, str], quarantine: ContainerProxy) -> None:
    await put(environment, event("e1", "a", text="é" * 950_000), event("e2", "a"))

    await relay_command(environment, "quarantine", "discard", "--all", "--yes")

    assert [item async for item in quarantined(quarantine)] == []


@pytest.mark.parametrize("character", ["x", '"', "é", "😀"])
async def test_whatever_a_document_is_made_of_it_can_be_quarantined_and_shown(
    environment: dict[str, str], character: str
) -> None:
    huge = event("e1", "a", text=character * (1_900_000 // len(orjson.dumps(character)[1:-1])))

    await put(environment, huge)

    (record,) = (await relay_command(environment, "quarantine", "list", "--json")).json["records"]
    shown = await relay_command(environment, "quarantine", "show", record["id"], "--json")
    assert shown.json["record"]["document"] == huge


async def test_a_record_half_removed_by_somebody_else_is_removed_all_the_same(
    environment: dict[str, str], quarantine: ContainerProxy
) -> None:
    await put(environment, event("e1", "a", text="é" * 950_000))
    (part, *_) = [item async for item in quarantined(quarantine) if item["type"] == "quarantinedEventPart"]
    await quarantine.delete_item(part["id"], partition_key="a")

    run = await relay_command(environment, "quarantine", "discard", "--all", "--yes")

    assert run.code == 0
    assert [item async for item in quarantined(quarantine)] == []


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
