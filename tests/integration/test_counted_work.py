"""The cost of work: sends, bytes and connections of many events, and the buffers of a pool."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import orjson
import pytest

from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from relay.core.errors import RetryableError
from relay.servicebus import encoding, messages
from relay.servicebus.messages import Message
from relay.servicebus.pool import SenderPool, _socket
from relay.servicebus.transfers import alone
from tests.integration.conftest import RelayMaker
from tests.support.amqp_peer import Peer
from tests.support.broker import topic_counts
from tests.support.watchdog import WATCHDOG_S
from tests.unit.relay.topics import event
from verification.bench.counted import count
from verification.bench.documents import TWENTY_KB, TWO_KB, Source, Workload
from verification.bench.wiretap import Wiretap, Work

pytestmark = pytest.mark.slow

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
    ("shape", "sends"),
    [
        pytest.param(Workload(keys=100, per_key=1), 1000, id="a hundred keys with one event each"),
        pytest.param(Workload(keys=10, per_key=10), 100, id="ten keys with ten"),
        pytest.param(Workload(keys=1, per_key=100), 10, id="one key with a hundred"),
        pytest.param(Workload(keys=1, per_key=100, size=TWO_KB), 10, id="one key, 2 KB"),
        # 256 KiB hold twelve of them: nine batches for a hundred.
        pytest.param(Workload(keys=1, per_key=100, size=TWENTY_KB), 90, id="one key, 20 KB"),
        pytest.param(Workload(keys=10, per_key=10, others=0.95), 100, id="19 of 20 of another type"),
    ],
)
async def test_a_thousand_events_take_so_many_sends_and_bytes_over_one_connection(
    tap: Wiretap, environment: Environment, shape: Workload, sends: int
) -> None:
    counted = await count(tap, environment, shape, Source(1))

    assert (counted.first.sends, counted.second.sends) == (sends, sends)
    # An event that is alone in its key has no batch.
    assert counted.first.batches == (0 if shape.per_key == 1 else sends)
    assert (counted.first.connections, counted.first.links) == (1, 1)
    assert (counted.second.connections, counted.second.links) == (0, 0)
    for work in (counted.first, counted.second):
        assert 0 < (work.payload_bytes - bytes_of_bodies(shape)) / 1000 < MOST_BESIDE_THE_BODY


@pytest.mark.parametrize("keys", [4, 20])
async def test_the_pool_opens_a_connection_for_each_sender_that_has_a_key(
    tap: Wiretap, environment: Environment, keys: int
) -> None:
    settings = {**environment, "RELAY_PIPELINED": "false"}

    counted = await count(tap, settings, Workload(keys, 100 // keys), Source(1))

    connections = min(keys, SENDERS)
    assert (counted.first.connections, counted.first.links) == (connections, connections)
    assert (counted.second.connections, counted.second.links) == (0, 0)


def bytes_of_bodies(shape: Workload) -> int:
    """Of a thousand events."""
    bodies = [len(orjson.dumps(each["data"])) for each in Source(1).batch(shape) if each["type"] == "domainEvent"]
    return 1000 // len(bodies) * sum(bodies)


@pytest.mark.parametrize(("keys", "per_key"), [(1, 100), (100, 1)], ids=["in a batch", "alone"])
async def test_every_event_is_encoded_once(
    make_relay: RelayMaker, monkeypatch: pytest.MonkeyPatch, keys: int, per_key: int
) -> None:
    relay = make_relay()
    (documents,) = Source(1).invocations(Workload(keys=keys, per_key=per_key), 1)
    encoded: list[str] = []

    def encode(message: Message, encode: Callable[[Message], bytes] = encoding.encode) -> bytes:
        encoded.append(message.id)
        return encode(message)

    monkeypatch.setattr(encoding, "encode", encode)

    await relay.handle(documents, "i1")

    assert sorted(encoded) == sorted(document["id"] for document in documents)


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


# What a pooled sender has handed to its socket, and the peer has not taken


ENTITIES = Path(__file__).resolve().parents[2] / "infra" / "emulators" / "Config.json"


def never_late() -> None:
    pytest.fail("accepted after it was given up")


async def test_what_is_left_in_the_buffer_of_a_transfer_that_is_given_up_never_leaves() -> None:
    async with Peer(Entities.from_file(ENTITIES)) as peer:
        client = peer.client()
        pool = SenderPool(client, "domain-events", 1)
        try:
            async with pool.acquire() as sender:
                await sender.limits(10)
                assert sender._link is not None
                transport = _socket(sender._link)
                assert transport is not None
                # Little goes to the kernel, the rest waits in asyncio's buffer.
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
                peer.stop_reading()

                with pytest.raises(RetryableError):
                    await sender.send(
                        alone(event("a", size=250_000), messages.plain), 0.5, lambda: None, never_late
                    )
                peer.go_on_reading()
        finally:
            async with asyncio.timeout(WATCHDOG_S):
                await pool.close()

        assert (await topic_counts(peer.admin_port))["accepted"] == 0
