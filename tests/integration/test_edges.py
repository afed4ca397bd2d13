"""The edges of what can be stored and sent: it arrives as it was, or it is quarantined; nothing in between."""

from __future__ import annotations

import itertools
import json
from typing import Any

import orjson
from azure.cosmos.aio import ContainerProxy

from outbox_relay.emulators.functions.documents import to_text
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from tests.integration.conftest import BOTH_SENDERS, RelayMaker
from tests.support.outbox import event
from tests.support.subscriber import body, received

pytestmark = BOTH_SENDERS


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


async def test_values_stored_in_cosmos_arrive_as_they_were_stored(
    make_relay: RelayMaker, servicebus: ServiceBusServer, container: ContainerProxy
) -> None:
    for name, value in VALUES.items():
        await container.create_item(event(name, "k", value=value))
    await container.create_item(event("action alone", "k") | {"data": {"action": ""}})
    stored = [item async for item in container.query_items_change_feed(start_time="Beginning")]

    await make_relay().handle(orjson.loads(to_text(stored, rewrite_dates=False)), "i1")

    subscriber = await received(servicebus.connection_string, len(stored))
    *arrived, alone = map(body, subscriber.messages["k"])
    # Text against text: Python's equality would take 1 for 1.0, and 0.0 for -0.0.
    assert {name: json.dumps(json.loads(each)["value"]) for name, each in zip(VALUES, arrived, strict=True)} == {
        name: json.dumps(value) for name, value in VALUES.items()
    }
    assert alone == b'{"action":""}'


async def test_keys_of_any_script_and_of_the_full_length_keep_their_order(
    make_relay: RelayMaker, servicebus: ServiceBusServer
) -> None:
    keys = ["k" * 128, "鍵" * 128, "𝄞" * 64, " ", "a/b?c#d\\e%20", "'\"; --"]
    documents = {key: [event(f"{number}-{key[:62]}", key) for number in range(5)] for key in keys}

    await make_relay().handle(list(itertools.chain(*documents.values())), "i1")

    subscriber = await received(servicebus.connection_string, 5 * len(keys))
    assert subscriber.ids() == {key: [each["id"] for each in documents[key]] for key in keys}


async def test_thousands_of_events_of_one_key_are_accepted_in_order_and_in_full_batches(
    make_relay: RelayMaker, servicebus: ServiceBusServer
) -> None:
    relay = make_relay()
    sends = 0
    for start in range(0, 3_000, 1_500):
        documents = [event(f"{start + number:06}", "k") for number in range(1_500)]
        sends += (await relay.handle(documents, "i1")).sends

    held = servicebus.broker.namespace.outlet("domain-events/Subscriptions/all").messages
    assert [entry.message.message_id for entry in held.peek(1, 3_001)] == [
        f"{number:06}" for number in range(3_000)
    ]
    assert sends < 12


async def test_hundreds_of_keys_of_one_event_each_are_all_accepted(
    make_relay: RelayMaker, servicebus: ServiceBusServer
) -> None:
    outcome = await make_relay().handle([event(f"e-{number}", f"k-{number}") for number in range(300)], "i1")

    assert (outcome.published, outcome.partition_keys, outcome.sends) == (300, 300, 300)
    assert servicebus.broker.namespace.outlet("domain-events/Subscriptions/all").messages.counts().active == 300


async def test_an_invocation_of_no_documents_does_nothing(make_relay: RelayMaker) -> None:
    outcome = await make_relay().handle([], "i1")

    assert (outcome.published, outcome.ignored, outcome.sends) == (0, 0, 0)
