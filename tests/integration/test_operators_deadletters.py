"""`python -m relay deadletters list | show | discard` through the real SDK, on two subscriptions."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient
from proton import char

from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.operator.deadletters.queue import DeadLetterQueue
from outbox_relay.operator.deadletters.receiving_entity import ReceivingEntity
from tests.support.dead_letters import TOPIC, Topic, event
from tests.support.operators import relay_command
from tests.support.watchdog import WATCHDOG_S


@pytest.fixture
def topic(servicebus: ServiceBusServer, quick_sdk: None) -> Topic:
    return Topic(servicebus)


@pytest.fixture
def environment(topic: Topic) -> dict[str, str]:
    return topic.environment


async def test_the_dead_letters_of_every_subscription_are_listed_without_their_bodies(
    environment: dict[str, str], topic: Topic
) -> None:
    topic.publish(event("k", 1), event("k", 2), event("l", 1, "ContactNameUpdatedEvent"))
    topic.dead_letter("all", "k", count=2, reason="schema", description="no title")
    topic.dead_letter("names", "l", reason="unreadable")

    listed = await relay_command(environment, "deadletters", "list")
    result = (await relay_command(environment, "deadletters", "list", "--limit", "2", "--json")).json

    assert (listed.code, listed.err) == (0, "")
    lines = listed.out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["DEAD", "all/1", "all/2", "names/1"]
    assert lines[-1] == "3 dead letter(s) in 'all', 'names'"
    assert (result["total"], result["subscriptions"]) == (3, ["all", "names"])
    first = result["deadLetters"][0]
    assert first.pop("enqueuedAt").endswith("Z")
    assert first.pop("bytes") > 0
    place = {"name": "all/1", "subscription": "all", "sequenceNumber": 1}
    message = {"id": "k-1", "partitionKey": "k", "subject": "Renamed", "deliveryCount": 0}
    assert first == {**place, **message, "reason": "schema", "description": "no title"}
    assert [each["name"] for each in result["deadLetters"]] == ["all/1", "all/2"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--subscription", "names"), ["names/1"]),
        (("--reason", "schema"), ["all/1", "all/3"]),
        (("--partition-key", "l"), ["all/3", "names/1"]),
        (("--reason", "schema", "--partition-key", "l"), ["all/3"]),
        (("--id", "k-1", "--id", "k-2"), ["all/1", "all/2"]),
        (("--reason", "(no reason)"), ["all/4"]),
    ],
)
async def test_the_list_is_narrowed_by_subscription_reason_key_and_id(
    environment: dict[str, str], topic: Topic, options: tuple[str, ...], expected: list[str]
) -> None:
    topic.publish(event("k", 1), event("k", 2), event("l", 1, "ContactNameUpdatedEvent"), event("m", 1))
    topic.dead_letter("all", "m", reason=None)
    topic.dead_letter("all", "k", reason="schema")
    topic.dead_letter("all", "k", reason="unreadable")
    topic.dead_letter("all", "l", reason="schema")
    topic.dead_letter("names", "l", reason="unreadable")

    result = (await relay_command(environment, "deadletters", "list", *options, "--json")).json

    assert [each["name"] for each in result["deadLetters"]] == expected


async def test_a_body_is_shown_only_on_request(environment: dict[str, str], topic: Topic) -> None:
    topic.publish(event("k", 1, traceparent="00-1-2-01"))
    topic.dead_letter("all", "k")

    without = await relay_command(environment, "deadletters", "show", "all/1")
    with_data = await relay_command(environment, "deadletters", "show", "all/1", "--data", "--json")
    missing = await relay_command(environment, "deadletters", "show", "all/9")

    shown = json.loads(without.out)
    known = {"messageId": "k-1", "sessionId": "k", "subject": "Renamed", "contentType": "application/json"}
    assert shown["properties"].items() >= known.items()
    assert shown["applicationProperties"] == {"type": "domainEvent", "sequence": 1, "traceparent": "00-1-2-01"}
    assert "data" not in shown
    assert "number" not in without.out
    assert json.loads(with_data.json["deadLetter"]["data"]) == {"action": "Renamed", "number": 1}
    assert (missing.code, missing.out) == (1, "all/9 is no dead letter\n")


async def test_dead_letters_that_the_sdk_cannot_decode_are_listed_shown_and_discarded(
    environment: dict[str, str], topic: Topic
) -> None:
    topic.publish(event("k", 1, letter=char("é")), event("k", 2))
    topic.dead_letter("all", "k", count=2)

    listed = await relay_command(environment, "deadletters", "list", "--json")
    shown = await relay_command(environment, "deadletters", "show", "all/1", "--json")
    discarded = await relay_command(environment, "deadletters", "discard", "all/1", "--yes", "--json")

    assert [each["id"] for each in listed.json["deadLetters"]] == ["k-1", "k-2"]
    assert shown.json["deadLetter"]["applicationProperties"]["letter"] == "é"
    assert discarded.json["discarded"] == ["all/1"]
    assert topic.dead("all") == ["k-2"]


async def test_only_what_is_chosen_is_discarded(environment: dict[str, str], topic: Topic) -> None:
    topic.publish(*(event("k", number) for number in range(1, 6)))
    topic.dead_letter("all", "k", reason="schema")
    topic.dead_letter("all", "k", count=2, reason="unreadable")
    topic.dead_letter("all", "k", reason="schema")

    by_name = await relay_command(environment, "deadletters", "discard", "all/3", "all/9", "--yes")
    by_reason = await relay_command(environment, "deadletters", "discard", "--reason", "schema", "--yes", "--json")

    assert by_name.code == 1
    assert by_name.out.splitlines()[1].split()[0] == "all/3"
    assert by_name.out.splitlines()[2:] == ["discarded 1", "all/9 is no dead letter"]
    assert (by_reason.code, by_reason.json["discarded"]) == (0, ["all/1", "all/4"])
    assert topic.dead("all") == ["k-2"]
    assert topic.counts("all").locked == 0
    assert topic.ids("all") == ["k-5"]


async def test_discarding_asks_first(environment: dict[str, str], topic: Topic) -> None:
    topic.publish(event("k", 1))
    topic.dead_letter("all", "k")

    nobody = await relay_command(environment, "deadletters", "discard", "--all")
    no = await relay_command(environment, "deadletters", "discard", "--all", typed="y\n")

    assert (nobody.code, no.code) == (2, 1)
    assert "all/1" in no.err
    assert no.err.endswith("Discard 1 dead letter(s) for good? Type yes to continue: ")
    assert topic.dead("all") == ["k-1"]

    yes = await relay_command(environment, "deadletters", "discard", "--all", typed="yes\n")

    assert yes.code == 0
    assert topic.dead("all") == []


@pytest.mark.parametrize("words", [(), ("all/1", "--reason", "schema"), ("all/1", "--subscription", "all")])
async def test_a_choice_is_made_once(environment: dict[str, str], words: tuple[str, ...]) -> None:
    for command in ("discard", "resubmit"):
        run = await relay_command(environment, "deadletters", command, *words, "--yes")
        assert run.code == 2


async def test_what_another_receiver_has_locked_is_not_discarded(
    environment: dict[str, str], topic: Topic
) -> None:
    topic.publish(event("k", 1), event("k", 2))
    topic.dead_letter("all", "k", count=2)

    async with (
        ServiceBusClient.from_connection_string(topic.servicebus.connection_string) as client,
        client.get_subscription_receiver(TOPIC, "all", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver,
    ):
        [locked] = await receiver.receive_messages(1, max_wait_time=WATCHDOG_S)
        run = await relay_command(environment, "deadletters", "discard", "--all", "--yes", "--json")

    assert run.code == 1
    assert run.json["locked"] == [f"all/{locked.sequence_number}"]
    assert [*run.json["discarded"], *run.json["locked"]] in (["all/1", "all/2"], ["all/2", "all/1"])


@pytest.mark.slow
async def test_a_lock_that_is_lost_does_not_keep_others_from_being_renewed(topic: Topic) -> None:
    dead_letters = topic.outlet("all").dead_letters
    dead_letters.settings = replace(dead_letters.settings, lock_ms=6_000)
    topic.publish(event("k", 1), event("k", 2))
    topic.dead_letter("all", "k", count=2)
    async with (
        ServiceBusClient.from_connection_string(topic.servicebus.connection_string) as client,
        DeadLetterQueue(client, ReceivingEntity(TOPIC, "all")) as queue,
    ):
        lost, kept = [each async for each in queue.receive({1, 2})]
        dead_letters.expire_lock(UUID(str(lost.received.lock_token)).bytes_le)
        # Longer than the lock.
        await asyncio.sleep(6.5)

        assert (await queue.complete(kept), await queue.complete(lost)) == (True, False)
        assert [letter.sequence_number async for letter in queue.remove([lost.letter.sequence_number])] == [
            lost.letter.sequence_number
        ]
    assert topic.dead("all") == []


async def test_without_the_right_to_manage_the_subscription_has_to_be_named(
    environment: dict[str, str], topic: Topic
) -> None:
    topic.publish(event("k", 1))
    topic.dead_letter("all", "k")
    limited = topic.without_manage

    unnamed = await relay_command(limited, "deadletters", "list")
    named = await relay_command(limited, "deadletters", "list", "--subscription", "all", "--json")
    missing = await relay_command(limited, "deadletters", "list", "--subscription", "none")

    assert unnamed.code == 2
    assert "give --subscription NAME" in unnamed.err
    assert named.json["total"] == 1
    assert missing.code == 2
    assert "'none'" in missing.err
