"""The broker's behaviour by seed: redelivery, late and reordered answers, and order across partitions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus._pyamqp.error import AMQPLinkError
from azure.servicebus._pyamqp.message import Message, Properties
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import MessageLockLostError, SessionLockLostError

from outbox_relay.emulators.servicebus.delayed_answers import DelayedAnswers
from outbox_relay.emulators.servicebus.edges import Edge, Edges, Odds, parse_seed
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from packages.emulators.tests.servicebus.support import send, take
from tests.support.waiting import elapse
from tests.support.watchdog import WATCHDOG_S

ALWAYS = Odds(redelivered=1.0, slow_ms=0, delayed=0.0, little_credit=0.0)


@pytest.fixture
async def harsh(entities: Entities) -> AsyncIterator[ServiceBusServer]:
    async with ServiceBusServer(entities, edges=1) as server:
        server.broker.edges.odds = ALWAYS
        yield server


@pytest.fixture
async def client(harsh: ServiceBusServer) -> AsyncIterator[ServiceBusClient]:
    async with ServiceBusClient.from_connection_string(
        harsh.connection_string, retry_total=0, socket_timeout=0.05
    ) as connected:
        yield connected


async def test_a_completion_that_comes_too_late_brings_the_message_again(
    client: ServiceBusClient, harsh: ServiceBusServer
) -> None:
    await send(client, "orders", "1")
    deliveries = []
    async with client.get_queue_receiver("orders") as receiver:
        while True:
            [message] = await take(receiver, 1)
            deliveries.append((message.sequence_number, message.delivery_count))
            try:
                await receiver.complete_message(message)
            except MessageLockLostError:
                continue
            break

    assert deliveries == [(1, 0), (1, 1), (1, 2)]  # never so often that it would be dead-lettered
    assert harsh.broker.edges.met == {Edge.REDELIVERED: 2}
    assert harsh.broker.namespace.outlet("orders").size_bytes == 0


async def work(sender: ServiceBusSender) -> None:
    """Let the SDK process what comes, until it raises."""
    async with asyncio.timeout(WATCHDOG_S):
        while True:
            await sender._handler.do_work_async()


async def test_a_sender_that_goes_beyond_its_credit_is_detached(
    client: ServiceBusClient, harsh: ServiceBusServer
) -> None:
    harsh.broker.edges.odds = Odds(delayed=0.0, little_credit=1.0)
    harsh.broker.edges._credit = Random(1)
    sender = client.get_queue_sender("orders")
    await sender.create_message_batch()
    handler: Any = sender._handler
    link = handler._link
    writer = handler._connection._transport.writer
    written: list[bytes] = []
    kept, writer.write = writer.write, written.append
    for number in range(21):
        await link.send_transfer(
            Message(data=[b"x"], properties=Properties(message_id=str(number))), settled=False
        )
    writer.write = kept
    # All at once: no grant can come in between.
    writer.write(b"".join(written))

    with pytest.raises(AMQPLinkError, match="no credit"):
        await work(sender)
    assert harsh.broker.edges.met == {Edge.LITTLE_CREDIT: 1}
    await sender.close()


async def test_a_session_that_is_lost_on_a_slow_completion_comes_again_in_its_order(
    client: ServiceBusClient, harsh: ServiceBusServer
) -> None:
    await send(client, "chats", "1", "2", "3", session_id="s")
    async with client.get_queue_receiver("chats", session_id="s", prefetch_count=10) as receiver:
        first, *_ = await take(receiver, 3)
        with pytest.raises(SessionLockLostError):
            await receiver.complete_message(first)
    harsh.broker.edges.odds = Odds(delayed=0.0)

    async with client.get_queue_receiver("chats", session_id="s", prefetch_count=10) as receiver:
        again = await take(receiver, 3)
        for message in again:
            await receiver.complete_message(message)

    assert [(message.message_id, message.delivery_count) for message in again] == [("1", 1), ("2", 1), ("3", 1)]
    assert harsh.broker.edges.met == {Edge.REDELIVERED: 1}


async def test_a_quick_completion_is_in_time(client: ServiceBusClient, harsh: ServiceBusServer) -> None:
    harsh.broker.edges.odds = Odds(redelivered=1.0, slow_ms=60_000, delayed=0.0)
    await send(client, "orders", "1")

    async with client.get_queue_receiver("orders") as receiver:
        [message] = await take(receiver, 1)
        await receiver.complete_message(message)

    assert harsh.broker.edges.met == {}


async def dead_letter(client: ServiceBusClient, *ids: str) -> None:
    await send(client, "orders", *ids)
    async with client.get_queue_receiver("orders") as receiver:
        for message in await take(receiver, len(ids)):
            await receiver.dead_letter_message(message)


async def test_a_dead_letter_whose_completion_comes_too_late_comes_again_and_is_not_counted(
    client: ServiceBusClient, harsh: ServiceBusServer
) -> None:
    await dead_letter(client, "1")

    async with client.get_queue_receiver("orders", sub_queue="deadletter") as receiver:
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message((await take(receiver, 1))[0])
        harsh.broker.edges.odds = Odds(delayed=0.0)
        [again] = await take(receiver, 1)
        await receiver.complete_message(again)

    assert (again.message_id, again.delivery_count) == ("1", 0)
    assert harsh.broker.edges.met == {Edge.REDELIVERED: 1}


async def test_dead_letters_come_in_an_order_of_their_own(
    client: ServiceBusClient, harsh: ServiceBusServer
) -> None:
    harsh.broker.edges.odds = Odds(delayed=0.0)
    ids = [str(number) for number in range(20)]
    await dead_letter(client, *ids)

    async with client.get_queue_receiver("orders", sub_queue="deadletter") as receiver:
        found = [str(message.message_id) for message in await take(receiver, 20)]

    assert found != ids
    assert sorted(found) == sorted(ids)
    assert set(harsh.broker.edges.met) == {Edge.DEAD_LETTERS_INTERLEAVED}


async def test_late_answers_reach_those_who_wait_for_them(
    client: ServiceBusClient, harsh: ServiceBusServer
) -> None:
    harsh.broker.edges.odds = Odds(delayed=1.0, redelivered=0.0)
    await send(client, "orders", "1", "2")

    async with client.get_queue_receiver("orders") as receiver:
        for message in await take(receiver, 2):
            await receiver.complete_message(message)

    assert harsh.broker.edges.met == {Edge.SETTLEMENT_DELAYED: 3}
    assert harsh.broker.namespace.outlet("orders").size_bytes == 0


async def test_some_answers_are_late_and_come_in_another_order() -> None:
    edges = Edges(1, Odds(delayed=0.3, longest_delay_ms=20))
    given: list[int] = []
    all_given = asyncio.Event()
    answers = DelayedAnswers(edges, lambda: all_given.set() if len(given) == 50 else None)

    for number in range(50):
        answers.give(lambda number=number: given.append(number))  # type: ignore[misc]
    assert answers.pending
    await asyncio.wait_for(all_given.wait(), WATCHDOG_S)

    assert sorted(given) == list(range(50))
    assert given != sorted(given)
    assert edges.met[Edge.SETTLEMENT_DELAYED] >= 5
    assert edges.met[Edge.SETTLEMENT_REORDERED] >= 5
    assert not answers.pending


async def test_an_answer_that_overtakes_others_is_counted_whether_or_not_it_was_late_itself() -> None:
    edges = Edges(1)
    given: list[str] = []
    all_given = asyncio.Event()
    answers = DelayedAnswers(edges, lambda: all_given.set() if len(given) == 3 else None)

    answers.give_later(lambda: given.append("first"), 60)
    answers.give_later(lambda: given.append("second"), 5)
    answers.note_overtaking()
    given.append("third")
    await asyncio.wait_for(all_given.wait(), WATCHDOG_S)

    assert given == ["third", "second", "first"]
    assert edges.met == {Edge.SETTLEMENT_DELAYED: 2, Edge.SETTLEMENT_REORDERED: 2}


async def test_late_answers_of_a_link_that_is_gone_are_not_given() -> None:
    given: list[int] = []
    answers = DelayedAnswers(Edges(1, Odds(delayed=1.0, longest_delay_ms=1)), lambda: None)
    answers.give(lambda: given.append(1))

    answers.cancel()
    await elapse(0.02)

    assert given == []


async def test_without_a_seed_nothing_is_late_redelivered_or_interleaved(entities: Entities) -> None:
    edges = Edges(None, Odds(delayed=1.0, redelivered=1.0))

    assert edges.settlement_delay_ms() == 0
    assert not edges.redelivers()
    found, _ = await of_partitions(entities, seed=None)
    assert found == sorted(found)


async def test_order_holds_within_a_partition_key_and_not_across_them(entities: Entities) -> None:
    found, met = await of_partitions(entities, seed=1)

    assert found != sorted(found)
    assert sorted(found) == list(range(40))
    for key in range(8):
        of_key = [number for number in found if number % 8 == key]
        assert of_key == sorted(of_key)
    assert met == {Edge.PARTITIONS_INTERLEAVED}
    assert await of_partitions(entities, seed=1) == (found, met)


async def of_partitions(entities: Entities, seed: int | None) -> tuple[list[int], set[Edge]]:
    """Send 40 messages of 8 partition keys to a partitioned queue; returns their numbers as they are received."""
    async with (
        ServiceBusServer(entities, edges=seed) as server,
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_sender("spread") as sender,
    ):
        server.broker.edges.odds = Odds(delayed=0.0)
        for number in range(40):
            message = ServiceBusMessage("x", message_id=str(number), partition_key=str(number % 8))
            await sender.send_messages(message)
        receive_mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        async with client.get_queue_receiver("spread", receive_mode=receive_mode, prefetch_count=50) as receiver:
            found = [int(message.message_id) for message in await take(receiver, 40)]
        return found, set(server.broker.edges.met)


@pytest.mark.parametrize(("text", "seed"), [("off", None), ("0", 0), ("17", 17)])
def test_a_seed_is_a_number_or_off(text: str, seed: int | None) -> None:
    assert parse_seed(text) == seed


def test_what_is_no_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="on"):
        parse_seed("on")
