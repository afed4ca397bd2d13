"""The relay and its baselines on a broker: each publishes every event, in order within its key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from azure.functions import DocumentList
from azure.servicebus.exceptions import MessageSizeExceededError

from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from tests.support.subscriber import Subscriber, received
from verification.bench.amqp import NotAccepted, PipelinedSender
from verification.bench.baselines.article import Article
from verification.bench.baselines.candidate import Candidate
from verification.bench.baselines.relay import TheRelay
from verification.bench.baselines.sdk import Prebuilt
from verification.bench.baselines.wire import Wire
from verification.bench.broker import environment
from verification.bench.documents import TWENTY_KB, Source, Workload

pytestmark = [pytest.mark.slow, pytest.mark.weekly]

ROOT = Path(__file__).resolve().parents[3]
SENDERS = 3

Maker = Callable[[str], Candidate]

MAKERS: dict[str, Maker] = {
    "article": Article,
    "relay": lambda connection: TheRelay({**environment(connection), "RELAY_SENDERS": str(SENDERS)}, Source(99)),
    "prebuilt": lambda connection: Prebuilt(connection, SENDERS),
    "wire": Wire,
}


@pytest.fixture
async def server() -> AsyncIterator[ServiceBusServer]:
    async with ServiceBusServer(Entities.from_file(ROOT / "infra" / "emulators" / "Config.json")) as server:
        yield server


async def published(make: Maker, server: ServiceBusServer, invocations: list[DocumentList]) -> int:
    candidate = make(server.connection_string)
    try:
        await candidate.open()
        await candidate.prepare(invocations)
        return await candidate.run()
    finally:
        await candidate.close()


def ids_by_key(invocations: list[DocumentList]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for documents in invocations:
        for document in documents:
            if document["type"] == "domainEvent":
                found.setdefault(document["partitionKey"], []).append(document["id"])
    return found


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
async def test_every_event_arrives_once_and_in_order(make: Maker, server: ServiceBusServer) -> None:
    invocations = Source(1).invocations(Workload(keys=4, per_key=3, others=0.5), 2)

    sends = await published(make, server, invocations)

    subscriber = Subscriber(server.connection_string)
    expected = ids_by_key(invocations)
    warm_up_events = SENDERS if make is MAKERS["relay"] else 0
    await subscriber.receive(24 + warm_up_events)
    assert sends == 8
    assert {
        key: ids[-len(expected[key]) :] for key, ids in subscriber.ids().items() if key in expected
    } == expected


async def test_the_ceilings_send_the_relays_messages() -> None:
    (documents,) = Source(1).invocations(Workload(keys=2, per_key=2), 1)
    contents = {}
    for name, warm_up_events in (("relay", SENDERS), ("prebuilt", 0), ("wire", 0)):
        async with ServiceBusServer(Entities.from_file(ROOT / "infra" / "emulators" / "Config.json")) as server:
            await published(MAKERS[name], server, [documents])
            subscriber = await received(server.connection_string, 4 + warm_up_events)
        contents[name] = _contents(subscriber, documents)

    assert len(contents["relay"]) == 4
    assert contents["prebuilt"] == contents["wire"] == contents["relay"]


@pytest.mark.parametrize("name", ["relay", "prebuilt"])
async def test_events_that_do_not_fit_into_one_batch_take_several(name: str, server: ServiceBusServer) -> None:
    invocations = Source(1).invocations(Workload(keys=1, per_key=30, size=TWENTY_KB), 1)

    assert await published(MAKERS[name], server, invocations) == 3


@pytest.mark.parametrize("name", ["article", "wire"])
async def test_a_baseline_raises_for_a_key_whose_events_need_two_batches(
    name: str, server: ServiceBusServer
) -> None:
    invocations = Source(1).invocations(Workload(keys=1, per_key=30, size=TWENTY_KB), 1)

    with pytest.raises(MessageSizeExceededError):
        await published(MAKERS[name], server, invocations)


async def test_the_pipelined_sender_raises_for_an_unknown_topic(server: ServiceBusServer) -> None:
    with pytest.raises(NotAccepted):
        await PipelinedSender.open(server.connection_string, "no-such-topic")


def _contents(subscriber: Subscriber, documents: DocumentList) -> dict[str, tuple[object, ...]]:
    wanted = {document["id"] for document in documents}
    return {
        str(message.message_id): (
            b"".join(message.body),
            message.session_id,
            message.partition_key,
            message.subject,
            message.content_type,
            message.application_properties,
        )
        for messages in subscriber.messages.values()
        for message in messages
        if message.message_id in wanted
    }
