"""The edges of what can be stored and sent: it arrives as it was, or it is quarantined; nothing in between."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from azure.cosmos.aio import ContainerProxy

from outbox_emulators.functions.documents import to_text
from outbox_emulators.servicebus.server import ServiceBusServer
from tests.integration.conftest import BOTH_SENDERS, RelayMaker
from tests.support.outbox import event, events
from tests.support.quarantine import quarantined
from tests.support.subscriber import body, received

pytestmark = BOTH_SENDERS

STANDARD_BATCH = 262_144


def nested(levels: int) -> Any:
    value: Any = "deep"
    for level in range(levels):
        value = {"n": value} if level % 2 else [value]
    return value


VALUES: dict[str, Any] = {
    "smallest double": 5e-324,
    "largest double": 1.7976931348623157e308,
    "negative zero": -0.0,
    "whole double": 1.0,
    "beyond a double's integers": 9_007_199_254_740_993,
    "64 bits": -(2**63),
    "tenth": 0.1,
    "the deepest nesting the Functions host takes": nested(61),
    "every kind of nothing": [None, "", [], {}, 0, False],
    "text of every plane": 'ü 美 𝄞 \u0000 \u001f \u2028 \\ " / \ufeff',
    "dates": [
        "2021-09-22T11:07:37.3022907+02:00",
        "2019-01-01T00:00:01.0000000Z",
        "2019-01-01T00:00:01Z",
        "2019-01-01T00:00:01",
        "2019-01-01T00:00:01.100",
        "2019-01-01",
        "2019-01-01T24:00:00Z",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59.9999999Z",
        "/Date(1198908717056)/",
        "/Date(1198908717056+0200)/",
        "Fri, 20 Nov 2026 12:00:00 GMT",
    ],
}


@pytest.mark.parametrize("name", VALUES)
async def test_a_value_stored_in_cosmos_arrives_as_it_was_stored(
    make_relay: RelayMaker, servicebus: ServiceBusServer, name: str, container: ContainerProxy
) -> None:
    await container.create_item(event("e", "k", value=VALUES[name]))
    stored = [item async for item in container.query_items_change_feed(start_time="Beginning")]

    await make_relay().handle(orjson.loads(to_text(stored, rewrite_dates=False)), "i1")

    subscriber = await received(servicebus.connection_string, 1)
    # Text against text: Python's equality would take 1 for 1.0, and 0.0 for -0.0.
    arrived = json.loads(body(subscriber.messages["k"][0]))["value"]
    assert json.dumps(arrived) == json.dumps(VALUES[name])


@pytest.mark.parametrize("key", ["k" * 128, "鍵" * 128, "𝄞" * 64, " ", "a/b?c#d\\e%20", "'\"; --"])
async def test_keys_of_any_script_and_of_the_full_length_keep_their_order(
    make_relay: RelayMaker, servicebus: ServiceBusServer, key: str
) -> None:
    documents = [event(f"{number}-{key[:62]}", key) for number in range(5)]

    await make_relay().handle(documents, "i1")

    subscriber = await received(servicebus.connection_string, 5)
    assert subscriber.ids() == {key: [document["id"] for document in documents]}


async def test_an_event_without_fields_beside_its_action_arrives(
    make_relay: RelayMaker, servicebus: ServiceBusServer
) -> None:
    await make_relay().handle([event("e", "k") | {"data": {"action": ""}}], "i1")

    subscriber = await received(servicebus.connection_string, 1)
    assert body(subscriber.messages["k"][0]) == b'{"action":""}'


async def test_around_the_size_limit_each_message_either_arrives_or_is_quarantined(
    make_relay: RelayMaker, servicebus: ServiceBusServer, quarantine: ContainerProxy
) -> None:
    sizes = range(STANDARD_BATCH - 1500, STANDARD_BATCH + 100, 100)
    documents = [event(f"e-{size}", "k", text="x" * size) for size in sizes]

    outcome = await make_relay().handle(documents, "i1")

    set_aside = {item["document"]["id"] for item in await quarantined(quarantine)}
    subscriber = await received(servicebus.connection_string, outcome.published)
    arrived = subscriber.ids()["k"]
    assert 0 < len(arrived) < len(documents)
    assert arrived == [document["id"] for document in documents if document["id"] not in set_aside]
    assert set_aside == {document["id"] for document in documents[len(arrived) :]}


async def test_thousands_of_events_of_one_key_are_accepted_in_order_and_in_full_batches(
    make_relay: RelayMaker, servicebus: ServiceBusServer
) -> None:
    relay = make_relay()
    sends = 0
    for start in range(0, 6_000, 2_000):
        documents = [event(f"{start + number:06}", "k") for number in range(2_000)]
        sends += (await relay.handle(documents, "i1")).sends

    held = servicebus.broker.namespace.outlet("domain-events/Subscriptions/all").messages
    first_and_last = [entry.message.message_id for entry in (held.peek(1, 1)[0], held.peek(6_000, 1)[0])]
    assert held.counts().active == 6_000
    assert first_and_last == ["000000", "005999"]
    assert sends < 24


async def test_a_thousand_keys_of_one_event_each_are_all_accepted(
    make_relay: RelayMaker, servicebus: ServiceBusServer
) -> None:
    outcome = await make_relay().handle([event(f"e-{number}", f"k-{number}") for number in range(1_000)], "i1")

    assert (outcome.published, outcome.partition_keys, outcome.sends) == (1_000, 1_000, 1_000)
    assert servicebus.broker.namespace.outlet("domain-events/Subscriptions/all").messages.counts().active == 1_000


async def test_an_invocation_of_no_documents_does_nothing(make_relay: RelayMaker) -> None:
    outcome = await make_relay().handle([], "i1")

    assert (outcome.published, outcome.ignored, outcome.sends) == (0, 0, 0)


async def test_the_order_of_a_key_holds_across_invocations(
    make_relay: RelayMaker, servicebus: ServiceBusServer
) -> None:
    relay = make_relay()
    documents = events("k", 30)
    for start in range(0, 30, 3):
        await relay.handle(documents[start : start + 3], f"i{start}")

    subscriber = await received(servicebus.connection_string, 30)
    assert subscriber.ids() == {"k": [document["id"] for document in documents]}
