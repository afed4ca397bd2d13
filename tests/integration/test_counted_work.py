"""What a thousand events take at the wire, counted: these numbers are the same on every machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from azure.servicebus._pyamqp import _encode
from azure.servicebus._pyamqp._encode import describe_performative
from azure.servicebus._pyamqp.message import Properties

from bench.counted import count
from bench.documents import TWENTY_KB, TWO_KB, Source, Workload
from bench.wiretap import Wiretap, Work
from outbox_emulators.cosmos.server import CosmosServer
from outbox_emulators.servicebus.server import ServiceBusServer
from tests.integration.conftest import RelayMaker

SENDERS = 8
MOST_BESIDE_THE_BODY = 340
"""Bytes of an event's properties, of frames and batches. The ids and keys are 36 characters long."""

Environment = dict[str, str]


@pytest.fixture
async def tap(servicebus: ServiceBusServer) -> AsyncIterator[Wiretap]:
    async with Wiretap(servicebus.port) as tap:
        yield tap


@pytest.fixture
def environment(cosmos: CosmosServer, servicebus: ServiceBusServer) -> Environment:
    return {
        "COSMOS": cosmos.connection_string,
        "SERVICEBUS": servicebus.connection_string,
        "RELAY_SENDERS": str(SENDERS),
    }


@pytest.mark.parametrize(
    ("shape", "sends", "connections"),
    [
        pytest.param(Workload(keys=100, per_key=1), 1000, SENDERS, id="a hundred keys with one event each"),
        pytest.param(Workload(keys=10, per_key=10), 100, SENDERS, id="ten keys with ten"),
        pytest.param(Workload(keys=4, per_key=25), 40, 4, id="fewer keys than senders"),
        pytest.param(Workload(keys=1, per_key=100), 10, 1, id="one key with a hundred"),
        pytest.param(Workload(keys=1, per_key=100, size=TWO_KB), 10, 1, id="one key, 2 KB"),
        # 256 KiB hold twelve of them: nine batches for a hundred.
        pytest.param(Workload(keys=1, per_key=100, size=TWENTY_KB), 90, 1, id="one key, 20 KB"),
        pytest.param(Workload(keys=10, per_key=10, others=0.95), 100, SENDERS, id="19 of 20 of another type"),
    ],
)
async def test_a_thousand_events_take_so_many_sends_connections_and_bytes(
    tap: Wiretap, environment: Environment, shape: Workload, sends: int, connections: int
) -> None:
    counted = await count(tap, environment, shape, Source(1))

    assert (counted.first.sends, counted.second.sends) == (sends, sends)
    # An event that is alone in its key has no batch.
    assert counted.first.batches == (0 if shape.per_key == 1 else sends)
    assert (counted.first.connections, counted.first.links) == (connections, connections)
    assert (counted.second.connections, counted.second.links) == (0, 0)
    for work in (counted.first, counted.second):
        assert 0 < (work.payload_bytes - bytes_of_bodies(shape)) / 1000 < MOST_BESIDE_THE_BODY


def bytes_of_bodies(shape: Workload) -> int:
    """Of a thousand events."""
    bodies = [len(orjson.dumps(each["data"])) for each in Source(1).batch(shape) if each["type"] == "domainEvent"]
    return 1000 // len(bodies) * sum(bodies)


@pytest.mark.parametrize(
    ("keys", "per_key", "encodings"),
    # In a batch: measured, added, and the envelope has the properties of the first. Alone: as it is sent.
    [(1, 100, 100 + 100 + 1), (100, 1, 100)],
    ids=["in a batch", "alone"],
)
async def test_events_are_encoded_as_seldom_as_the_sdk_allows(
    make_relay: RelayMaker, monkeypatch: pytest.MonkeyPatch, keys: int, per_key: int, encodings: int
) -> None:
    relay = make_relay()
    (documents,) = Source(1).invocations(Workload(keys=keys, per_key=per_key), 1)
    ids = {document["id"] for document in documents}
    encoded: list[Properties] = []

    def describe(performative: Any) -> Any:
        if isinstance(performative, Properties) and performative.message_id in ids:
            encoded.append(performative)
        return describe_performative(performative)

    monkeypatch.setattr(_encode, "describe_performative", describe)

    await relay.handle(documents, "i1")

    assert len(encoded) == encodings


async def test_documents_of_another_type_open_nothing(
    tap: Wiretap, make_relay: RelayMaker, servicebus: ServiceBusServer
) -> None:
    relay = make_relay(SERVICEBUS=tap.through(servicebus.connection_string))
    source = Source(1)

    outcome = await relay.handle(source.decoded([source.contact() for _ in range(1000)]), "i1")

    assert outcome.ignored == 1000
    assert tap.work == Work()


async def test_a_retry_of_what_was_accepted_sends_nothing(
    tap: Wiretap, make_relay: RelayMaker, servicebus: ServiceBusServer
) -> None:
    relay = make_relay(SERVICEBUS=tap.through(servicebus.connection_string), RELAY_SENDERS=str(SENDERS))
    (documents,) = Source(1).invocations(Workload(keys=10, per_key=10), 1)
    await relay.handle(documents, "i1")
    before = tap.work.copy()

    await relay.handle(documents, "i1")

    assert tap.work - before == Work()
