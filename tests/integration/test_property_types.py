"""From both senders, an application property has one AMQP type for all values, as Qpid Proton decodes it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

from proton import Message, symbol, timestamp
from proton.reactor import Filter

from outbox_relay.emulators.servicebus.server import ServiceBusServer
from packages.emulators.tests.servicebus.raw_amqp import connected
from relay.backends.cosmos.backend import CosmosBackend
from tests.integration.conftest import BOTH_SENDERS
from tests.support.layouts import only_stream
from tests.support.outbox import event
from tests.support.watchdog import WATCHDOG_S

pytestmark = BOTH_SENDERS

# Where an encoding of AMQP or a type ends. Proton decodes a long as int, and other integers as types of its own.
BORDERS = sorted(
    {sign * 2**bits + near for bits in (0, 7, 8, 15, 31, 32, 53, 62) for sign in (1, -1) for near in (-1, 0)}
)
SEQUENCES = [*BORDERS, 2**63 - 1, -(2**63)]
BEYOND = [2**63, -(2**63) - 1]

MAPPED = """
[properties]
number = "/data/number"
text = "/data/text"
double = "/data/double"
flag = "/data/flag"
total = { from = "/data/total", as = "long" }
due = { from = "/data/due", as = "date" }
"""
TYPES = {
    "type": str,
    "createdAt": str,
    "cosmosTimestamp": int,
    "sequence": int,
    "number": int,
    "text": str,
    "double": float,
    "flag": bool,
    "total": int,
    "due": timestamp,
}


def document(place: int, number: int) -> dict[str, Any]:
    data = {
        "number": number if -(2**63) <= number < 2**63 else 0,
        "total": str(number) if -(2**63) <= number < 2**63 else "0",
        "text": str(number),
        "double": place / 2,
        "flag": place % 2 == 0,
        "due": f"{2026 + place}-02-10T00:00:00Z",
    }
    # From 19 January 2038 on, a time in seconds has more than 31 bits.
    return event(str(place), "k", **data) | {"sequence": number, "_ts": 2**31 - 2 + place}


def received_by_proton(server: ServiceBusServer, count: int) -> list[Message]:
    session = Filter({symbol("com.microsoft:session-filter"): cast(Any, "k")})
    with connected(server) as connection:
        receiver = connection.create_receiver("domain-events/Subscriptions/all", credit=count, options=session)
        return [receiver.receive(WATCHDOG_S) for _ in range(count)]


async def test_a_property_has_one_type_for_all_values(
    servicebus: ServiceBusServer, environment: dict[str, str], pipelined: bool, quick_sdk: None, tmp_path: Path
) -> None:
    numbers = [*SEQUENCES, *BEYOND]
    documents = [document(place, number) for place, number in enumerate(numbers)]
    relay = CosmosBackend(only_stream(environment | {"RELAY_PIPELINED": str(pipelined)}, tmp_path, MAPPED)).relay
    try:
        await relay.handle(documents, "i1")
        messages = await asyncio.to_thread(received_by_proton, servicebus, len(documents))
    finally:
        await relay.close()

    found = [cast("dict[str, Any]", message.properties) for message in messages]
    assert [each["cosmosTimestamp"] for each in found] == [each["_ts"] for each in documents]
    assert [each.get("sequence") for each in found] == [*SEQUENCES, *(None for _ in BEYOND)]
    assert [each["number"] for each in found] == [each["data"]["number"] for each in documents]
    for each in found:
        assert {name: type(value) for name, value in each.items()} == {
            name: kind for name, kind in TYPES.items() if name in each
        }
