"""The relay through the real SDKs: what arrives at a subscription, and what the invocation says of it."""

from __future__ import annotations

import asyncio
import gc
import itertools
import weakref
from contextlib import nullcontext
from typing import Any

import orjson
import pytest
from azure.cosmos.aio import ContainerProxy

from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from relay.core.errors import LeaseError, PublishError, QuarantineError
from relay.core.events import Reason
from tests.integration.conftest import BOTH_SENDERS, RelayMaker
from tests.support.broker import refuse, set_topic_status, stop_refusing, topic_counts
from tests.support.outbox import event, events, just_committed
from tests.support.quarantine import quarantined
from tests.support.subscriber import received
from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S


@BOTH_SENDERS
async def test_every_event_arrives_once_in_order_and_as_stored(
    make_relay: RelayMaker, servicebus: ServiceBusServer
) -> None:
    keys = [f"key-{number}" for number in range(10)]
    documents = [document for batch in zip(*(events(key, 15) for key in keys), strict=True) for document in batch]
    others = [{"id": "c", "partitionKey": "key-1", "type": "contact", "data": {}}, None]

    outcome = await make_relay().handle([*documents, *others], "i1")

    assert (outcome.published, outcome.ignored, outcome.partition_keys, outcome.sends) == (150, 2, 10, 10)
    subscriber = await received(servicebus.connection_string, 150)
    assert subscriber.ids() == {key: [f"{key}-{number}" for number in range(15)] for key in keys}


# Every reason, with a document that has it.
MALFORMED: dict[str, dict[str, Any]] = {
    "id-missing": {"id": ...},
    "id-not-string": {"id": 7},
    "id-empty": {"id": ""},
    "id-too-long": {"id": "x" * 129},
    "partition-key-missing": {"partitionKey": ...},
    "partition-key-not-string": {"partitionKey": 4.5},
    "partition-key-empty": {"partitionKey": ""},
    "partition-key-too-long": {"partitionKey": "k" * 129},
    "data-not-object": {"data": [1, 2]},
    "action-not-string": {"data": {"action": 5}},
    "property-not-unicode": {"data": {"action": "A", "createdAt": "\ud800"}},
    "properties-too-large": {"data": {"action": "A", "createdAt": "x" * 15_001}},
    "message-too-large": {"data": {"action": "A", "text": "x" * 300_000}},
    "message-refused": {"id": "refused"},
}
# Not what a document has, but what the relay or an operator decided.
DECISIONS = {"key-parked", "set-aside", "not-mapped", "no-route"}


def malformed(reason: str) -> dict[str, Any]:
    document = event(f"bad-{reason}", "a") | MALFORMED[reason]
    return {name: value for name, value in document.items() if value is not ...}


def test_there_is_a_malformed_document_for_every_reason() -> None:
    assert MALFORMED.keys() == {str(reason) for reason in Reason} - DECISIONS


@BOTH_SENDERS
async def test_documents_with_any_defect_are_quarantined_while_their_neighbours_arrive(
    make_relay: RelayMaker, servicebus: ServiceBusServer, quarantine: ContainerProxy
) -> None:
    await refuse(servicebus.admin_port, "refused", "amqp:not-allowed")
    relay = make_relay()
    good = events("a", len(MALFORMED) + 1)
    documents = [good[0], *itertools.chain(*zip(map(malformed, MALFORMED), good[1:], strict=True))]

    for attempt in range(3):
        # What the service refuses is set aside at its third refusal, where it accepts others in between.
        with nullcontext() if attempt == 2 else pytest.raises(PublishError):
            await relay.handle(documents, "i1", attempt)
        await relay.handle([event(f"other-{attempt}", "b")], f"other-{attempt}")

    records = await quarantined(quarantine)
    assert {record["reason"]: record["document"] for record in records} == {
        reason: malformed(reason) for reason in MALFORMED
    }
    assert len(records) == len(MALFORMED)
    subscriber = await received(servicebus.connection_string, len(good) + 3)
    await subscriber.receive_rest()
    assert subscriber.ids()["a"] == [document["id"] for document in good]


class Watched(dict[str, object]):
    """A document that a weak reference can be made to."""


@BOTH_SENDERS
async def test_nothing_holds_the_documents_of_an_invocation_that_has_ended(make_relay: RelayMaker) -> None:
    # Timers and tasks that outlive an invocation keep its context.
    relay = make_relay()
    documents = [Watched(event(f"e{number}", f"key-{number % 20}")) for number in range(100)]
    watched = [weakref.ref(document) for document in documents]

    while documents:
        assert (await relay.handle([documents.pop() for _ in range(25)], "i1")).published == 25

    gc.collect()
    # One is kept, to be repeated where the service refuses an event.
    assert len([each() for each in watched if each() is not None]) <= 1


@BOTH_SENDERS
async def test_batches_fill_up_to_the_links_limit_and_split_there(
    make_relay: RelayMaker, servicebus: ServiceBusServer
) -> None:
    # Twelve messages of 20 KB and a little fit into a batch of 256 KiB.
    documents = events("big", 60, text="x" * 20_000)

    outcome = await make_relay().handle(documents, "i1")

    assert (outcome.published, outcome.sends) == (60, 5)
    subscriber = await received(servicebus.connection_string, 60)
    assert subscriber.ids() == {"big": [document["id"] for document in documents]}


@BOTH_SENDERS
async def test_a_batch_that_is_full_to_the_byte_is_accepted_at_once(
    make_relay: RelayMaker, servicebus: ServiceBusServer
) -> None:
    # The SDK does not count the batch's own properties: with long keys they push a full batch over the limit.
    key = "鍵" * 128
    relay = make_relay()
    for padding in range(4):
        text = "x" * (300 + padding)
        documents = [event(f"{padding}{number:0127}", key, text=text) for number in range(500)]

        outcome = await relay.handle(documents, "i1")

        assert (outcome.published, 1 < outcome.sends < 10) == (500, True)
    assert (await topic_counts(servicebus.admin_port))["refused"] == 0


@BOTH_SENDERS
async def test_the_culprit_of_a_refused_batch_is_found_by_splitting(
    make_relay: RelayMaker, servicebus: ServiceBusServer, quarantine: ContainerProxy
) -> None:
    await refuse(servicebus.admin_port, "a-37", "amqp:not-allowed")

    relay = make_relay()
    documents = [*events("a", 100), *events("b", 3)]
    for attempt in range(2):
        with pytest.raises(PublishError, match="tried again before it is set aside"):
            await relay.handle(documents, "i1", attempt)
        await relay.handle([event(f"c-{attempt}", "c")], f"other-{attempt}")
    outcome = await relay.handle(documents, "i1", 2)

    assert (outcome.published + outcome.already_published, outcome.quarantined) == (102, {"message-refused": 1})
    (record,) = await quarantined(quarantine)
    assert (record["id"] != "a-37", record["document"]["id"], record["invocationId"]) == (True, "a-37", "i1")
    assert "amqp:not-allowed" in record["detail"]
    subscriber = await received(servicebus.connection_string, 104)
    assert subscriber.ids()["a"] == [f"a-{number}" for number in range(100) if number != 37]


@BOTH_SENDERS
async def test_when_one_partition_key_fails_the_others_finish_and_the_error_names_it(
    make_relay: RelayMaker, servicebus: ServiceBusServer, quarantine: ContainerProxy
) -> None:
    await refuse(servicebus.admin_port, "k7-1", "amqp:internal-error")
    relay = make_relay(RELAY_SEND_TIMEOUT_S="2")
    documents = [document for number in range(10) for document in events(f"k{number}", 3)]

    with pytest.raises(PublishError) as raised:
        await relay.handle(documents, "i1")

    assert "3 event(s) of 1 partition key(s) were not accepted" in str(raised.value)
    assert "27 event(s) of this invocation were" in str(raised.value)
    assert "'k7': 3 event(s): " in str(raised.value)
    assert await quarantined(quarantine) == []

    await stop_refusing(servicebus.admin_port)
    outcome = await relay.handle(documents, "i1")

    assert (outcome.published, outcome.already_published) == (3, 27)
    assert (await topic_counts(servicebus.admin_port))["duplicates_dropped"] == 0
    subscriber = await received(servicebus.connection_string, 30)
    assert subscriber.ids()["k7"] == ["k7-0", "k7-1", "k7-2"]


@BOTH_SENDERS
async def test_a_disabled_topic_blocks_and_is_not_poison(
    make_relay: RelayMaker, servicebus: ServiceBusServer, quarantine: ContainerProxy
) -> None:
    await set_topic_status(servicebus.admin_port, "SendDisabled")
    relay = make_relay()

    with pytest.raises(PublishError, match="Set the topic's status to Active"):
        await relay.handle(events("a", 3), "i1")

    assert await quarantined(quarantine) == []
    await set_topic_status(servicebus.admin_port, "Active")
    assert (await relay.handle(events("a", 3), "i1")).published == 3


@BOTH_SENDERS
async def test_wrong_credentials_are_reported_with_their_remedy(
    make_relay: RelayMaker, servicebus: ServiceBusServer
) -> None:
    wrong = servicebus.connection_string.replace("SharedAccessKey=", "SharedAccessKey=AAAA")
    relay = make_relay(SERVICEBUS=wrong)

    with pytest.raises(PublishError, match="SERVICEBUS"):
        await relay.handle(events("a", 1), "i1")


@BOTH_SENDERS
async def test_an_invocation_gives_up_when_nothing_gets_through_any_more(
    make_relay: RelayMaker, servicebus: ServiceBusServer
) -> None:
    relay = make_relay(RELAY_SENDERS="2", RELAY_SEND_TIMEOUT_S="0.2")
    await servicebus.stop()

    with pytest.raises(PublishError) as raised:
        await relay.handle([event("e", f"k{number}") for number in range(500)], "i1")

    assert "500 event(s) of 500 partition key(s) were not accepted" in str(raised.value)
    assert "not tried, as 4 partition keys in a row failed" in str(raised.value)


@BOTH_SENDERS
async def test_a_cancelled_invocation_raises_and_the_next_attempt_completes_it(
    make_relay: RelayMaker, servicebus: ServiceBusServer
) -> None:
    servicebus.broker.ack_delay_ms = 50
    relay = make_relay(RELAY_SENDERS="1")
    documents = [document for number in range(20) for document in events(f"k{number}", 2)]
    attempt = asyncio.create_task(relay.handle(documents, "i1"))
    async with asyncio.timeout(WATCHDOG_S):
        while (await topic_counts(servicebus.admin_port))["accepted"] < 10:
            await look_again()

    attempt.cancel()

    with pytest.raises(asyncio.CancelledError):
        await attempt
    outcome = await relay.handle(documents, "i1")
    assert outcome.published + outcome.already_published == 40
    assert 0 < outcome.published < 40
    subscriber = await received(servicebus.connection_string, 40)
    await subscriber.receive_rest()
    assert subscriber.ids() == {f"k{number}": [f"k{number}-0", f"k{number}-1"] for number in range(20)}


async def test_a_document_near_the_item_limit_is_quarantined_in_parts(
    make_relay: RelayMaker, quarantine: ContainerProxy
) -> None:
    huge = event("e1", "a") | {"data": '"é\n' * 330_000}
    assert len(orjson.dumps(huge)) < 2 * 1024 * 1024

    await make_relay().handle([huge], "i1")

    stored = {item["id"]: item for item in await quarantined(quarantine)}
    (head,) = [item for item in stored.values() if item["type"] == "quarantinedEvent"]
    parts = [stored[f"{head['id']}-{number}"]["text"] for number in range(head["documentParts"])]
    assert orjson.loads("".join(parts)) == huge
    assert "document" not in head


async def test_without_its_quarantine_container_the_invocation_fails_and_says_what_to_do(
    make_relay: RelayMaker, servicebus: ServiceBusServer
) -> None:
    relay = make_relay(COSMOS_QUARANTINE_CONTAINER="nowhere")

    with pytest.raises(QuarantineError, match=r"'nowhere' cannot be read or written.*partition key /partitionKey"):
        await relay.handle([*map(just_committed, events("a", 2)), event("x", "")], "i1")

    await received(servicebus.connection_string, 2)


async def test_quarantine_waits_for_cosmos_to_come_back(make_relay: RelayMaker, cosmos: CosmosServer) -> None:
    relay = make_relay()
    await cosmos.stop()

    with pytest.raises(LeaseError):
        await relay.handle([event("x", "")], "i1")
