"""Transfers that are too large: how the broker may answer them, and what azure-servicebus makes of each answer.

An idle sender's keep-alive reads what the service has sent meanwhile, every 30 s of the connection's life; the
tests have it read at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusConnectionError

from outbox_relay.emulators.servicebus.edges import Edge
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.emulators.testing import keep_alive
from packages.emulators.tests.servicebus.support import Broker

THEN_DETACHED = "rejected-then-detached"
DETACHED = "detached-without-disposition"
ALONE = "rejected-alone"

TOO_LARGE = b"x" * 262_200


@pytest.fixture
async def sender(client: ServiceBusClient) -> AsyncIterator[ServiceBusSender]:
    async with client.get_queue_sender("orders") as opened:
        yield opened


async def refuse_one(sender: ServiceBusSender) -> None:
    with pytest.raises(MessageSizeExceededError, match="exceeds the limit"):
        await sender.send_messages(ServiceBusMessage(TOO_LARGE))


@pytest.mark.parametrize("answer", [THEN_DETACHED, ALONE])
async def test_a_rejection_is_the_outcome_of_the_transfer(
    broker: Broker, sender: ServiceBusSender, answer: str
) -> None:
    await broker.inject(kind="answer-oversized", entity="orders", answer=answer)

    await refuse_one(sender)

    assert (await broker.counts("orders"))["refused"] == 1
    assert await broker.edges() == {answer: 1}


async def test_a_limit_that_shrinks_is_announced_to_new_links_and_enforced_on_old_ones(
    broker: Broker, client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    await broker.inject(kind="answer-oversized", entity="orders", answer=THEN_DETACHED)
    await broker.inject(kind="shrink-limit", entity="orders", bytes=2000)

    with pytest.raises(MessageSizeExceededError, match="present limit"):
        await sender.send_messages(ServiceBusMessage("x" * 2000))

    async with client.get_queue_sender("orders") as fresh:
        batch = await fresh.create_message_batch()
        assert batch.max_size_in_bytes == 2000
        await fresh.send_messages(ServiceBusMessage("small", message_id="small"))
    assert await broker.held("orders") == ["small"]
    assert await broker.edges() == {THEN_DETACHED: 1}


async def test_a_detach_alone_says_nothing_of_size_to_this_sdk(broker: Broker, sender: ServiceBusSender) -> None:
    await broker.inject(kind="answer-oversized", entity="orders", answer=DETACHED)

    with pytest.raises(ServiceBusConnectionError, match="amqp:unknown-error"):
        await sender.send_messages(ServiceBusMessage(TOO_LARGE))

    assert (await broker.edges()).keys() == {DETACHED}
    await sender.send_messages(ServiceBusMessage("small", message_id="small"))
    assert await broker.held("orders") == ["small"]


async def test_what_was_detached_while_idle_raises_for_every_later_message(
    broker: Broker, sender: ServiceBusSender
) -> None:
    await broker.inject(kind="answer-oversized", entity="orders", answer=THEN_DETACHED)
    await refuse_one(sender)

    await keep_alive(sender)

    for number in range(3):
        with pytest.raises(MessageSizeExceededError):
            await sender.send_messages(ServiceBusMessage(f"small {number}"))
    assert await broker.held("orders") == []
    assert (await broker.counts("orders"))["refused"] == 1  # none of the small ones was ever sent


async def test_a_rejection_alone_leaves_the_link_as_it_is(broker: Broker, sender: ServiceBusSender) -> None:
    await broker.inject(kind="answer-oversized", entity="orders", answer=ALONE)
    await refuse_one(sender)

    await keep_alive(sender)

    await sender.send_messages(ServiceBusMessage("small", message_id="small"))
    assert await broker.held("orders") == ["small"]


async def test_a_batch_over_its_limit_is_answered_as_a_message_over_its_own(entities: Entities) -> None:
    async with (
        ServiceBusServer(entities, tier="premium", edges=None) as server,
        ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
        client.get_queue_sender("large") as sender,
    ):
        batch = await sender.create_message_batch()
        batch._max_size_in_bytes = 1_100_000  # what the SDK holds back, other clients send
        for _ in range(3):
            batch.add_message(ServiceBusMessage(b"x" * 350_000))

        with pytest.raises(MessageSizeExceededError, match="batch"):
            await sender.send_messages(batch)
        await keep_alive(sender)

        with pytest.raises(MessageSizeExceededError):
            await sender.send_messages(ServiceBusMessage("small"))
        assert server.broker.edges.as_object() == {"seed": None, "edges": {THEN_DETACHED: 1}}


async def test_the_seed_decides_on_the_answer_and_draws_all_of_them(entities: Entities) -> None:
    async def answers(seed: int) -> dict[str, int]:
        async with (
            ServiceBusServer(entities, edges=seed) as server,
            ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
        ):
            for _ in range(8):
                async with client.get_queue_sender("orders") as sender:
                    with pytest.raises((MessageSizeExceededError, ServiceBusConnectionError)):
                        await sender.send_messages(ServiceBusMessage(TOO_LARGE))
            found: dict[str, int] = server.broker.edges.as_object()["edges"]
            return found

    drawn = await answers(7)

    assert drawn.keys() - {Edge.LITTLE_CREDIT} == {THEN_DETACHED, DETACHED, ALONE}
    assert await answers(7) == drawn
