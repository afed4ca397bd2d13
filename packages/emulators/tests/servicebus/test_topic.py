"""Topics: duplicates, copies, refusals; messages that are deleted in batches or peeked without bodies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from azure.servicebus.aio import ServiceBusClient
from proton import Message, int32, symbol, timestamp
from proton.reactor import Filter

from outbox_relay.emulators.servicebus.broker import Tier
from outbox_relay.emulators.servicebus.ends import DuplicateHistory
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.entity_types import (
    DuplicateDetection,
    Receiving,
    Sending,
    SubscriptionEntity,
    TopicEntity,
)
from outbox_relay.emulators.servicebus.errors import MessageNotFound, NotAllowed
from outbox_relay.emulators.servicebus.filters import CorrelationFilter, Rule
from outbox_relay.emulators.servicebus.message import Property
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.emulators.servicebus.topic import Topic
from packages.emulators.tests.servicebus.fakes import FakeClock, a_message
from packages.emulators.tests.servicebus.raw_amqp import Answer, Nodes, management_nodes
from packages.emulators.tests.servicebus.support import send
from tests.support.watchdog import WATCHDOG_S

WINDOW_MS = 10_000
LABELLED = (Rule("r", CorrelationFilter({Property.SUBJECT: "L"})),)


def a_topic(clock: FakeClock, *, partitioned: bool = False) -> Topic:
    subscriptions = (
        SubscriptionEntity("all"),
        SubscriptionEntity("labelled", rules=LABELLED),
        SubscriptionEntity("chats", Receiving(requires_session=True)),
    )
    sending = Sending(DuplicateDetection(WINDOW_MS), partitioned)
    return Topic(TopicEntity("t", sending, None, subscriptions), clock.timers)


def held_by(topic: Topic, name: str) -> list[str | None]:
    [found] = [each.outlet.messages for each in topic.subscriptions if each.name == name]
    return [entry.message.message_id for entry in found.peek(0, 100)]


def test_a_duplicate_is_detected_for_the_length_of_the_window_from_the_first(clock: FakeClock) -> None:
    topic = a_topic(clock)
    topic.publish([a_message(message_id="1")])

    clock.advance(WINDOW_MS - 1)
    topic.publish([a_message(message_id="1")])
    assert held_by(topic, "all") == ["1"]
    clock.advance(1)
    topic.publish([a_message(message_id="1")])

    assert held_by(topic, "all") == ["1", "1"]


@pytest.mark.parametrize(("partitioned", "held"), [(False, ["1"]), (True, ["1", "1"])])
def test_the_same_id_in_two_sessions_is_a_duplicate_unless_they_are_in_partitions(
    clock: FakeClock, partitioned: bool, held: list[str]
) -> None:
    topic = a_topic(clock, partitioned=partitioned)

    for session in ("a", "b", "a"):
        topic.publish([a_message(message_id="1", session_id=session)])

    assert held_by(topic, "all") == held


def test_the_history_is_bounded_by_the_window(clock: FakeClock) -> None:
    history = DuplicateHistory(WINDOW_MS, lambda: clock.now_ms)
    for number in range(1_000):
        history.is_new(number)
        clock.advance(100)

    assert len(history) <= WINDOW_MS // 100


def test_a_window_made_shorter_holds_for_what_comes_after(clock: FakeClock) -> None:
    history = DuplicateHistory(WINDOW_MS, lambda: clock.now_ms)
    history.is_new("long")
    history.window_ms = WINDOW_MS // 10
    history.is_new("short")

    clock.advance(WINDOW_MS // 10)

    assert [history.is_new(key) for key in ("long", "short")] == [False, True]


def test_a_batch_on_a_partitioned_topic_must_have_one_key(clock: FakeClock) -> None:
    topic = a_topic(clock, partitioned=True)

    with pytest.raises(NotAllowed, match="distinct SessionId or PartitionKey"):
        topic.publish([a_message(session_id="a"), a_message(session_id="b")])


def test_a_message_without_session_is_dead_lettered_by_a_subscription_that_requires_one(clock: FakeClock) -> None:
    topic = a_topic(clock)

    topic.publish([a_message(message_id="1")])

    [dead] = topic.subscriptions[2].outlet.dead_letters.peek(0, 10)
    assert dead.message.application_properties["DeadLetterReason"] == "Session ID is null"
    assert held_by(topic, "all") == ["1"]


def test_scheduled_messages_wait_in_the_topic(clock: FakeClock) -> None:
    topic = a_topic(clock)
    numbers = topic.publish([a_message(message_id=each, scheduled_ms=clock.now_ms + 1_000) for each in ("1", "2")])
    assert [entry.message.message_id for entry in topic.peek(0, 10)] == ["1", "2"]

    topic.cancel_scheduled(numbers[:1])
    clock.advance(1_000)

    assert held_by(topic, "all") == ["2"]
    with pytest.raises(MessageNotFound):
        topic.cancel_scheduled(numbers[1:])


# Deleting messages in batches, and peeking without their bodies: azure-servicebus 7.15 has neither


FOREVER = timestamp(2**45)


@pytest.fixture
async def nodes(server: ServiceBusServer) -> AsyncIterator[Nodes]:
    async with management_nodes(server) as found:
        yield found


async def delete(nodes: Nodes, path: str, count: int, before: timestamp = FOREVER, **more: Any) -> Answer:
    return await nodes.ask(
        path, "batch-delete-messages", message_count=int32(count), enqueued_time_utc=before, **more
    )


def held(server: ServiceBusServer, path: str) -> list[str | None]:
    entries = server.broker.namespace.source(path).queue.peek(0, 100)
    return [entry.message.message_id for entry in entries]


async def test_the_oldest_messages_are_deleted_and_locked_ones_stay(
    server: ServiceBusServer, client: ServiceBusClient, nodes: Nodes
) -> None:
    await send(client, "orders", *"12345")
    async with client.get_queue_receiver("orders") as receiver:
        for _ in range(2):
            [message] = await receiver.receive_messages(1, max_wait_time=WATCHDOG_S)
        await receiver.dead_letter_message(message)

        answer = await delete(nodes, "orders", 2)
        assert (answer.status, answer.body) == (200, {"message-count": 2})
        assert held(server, "orders") == ["1", "5"]
        assert (await delete(nodes, "orders", 500)).body == {"message-count": 1}
        nothing = await delete(nodes, "orders", 500)
        assert (nothing.status, nothing.error) == (204, "com.microsoft:message-not-found")
        assert held(server, "orders") == ["1"]

    assert (await delete(nodes, "orders/$DeadLetterQueue", 1)).body == {"message-count": 1}


async def test_only_what_was_enqueued_before_the_moment_is_deleted(
    server: ServiceBusServer, client: ServiceBusClient, nodes: Nodes
) -> None:
    await send(client, "orders", "1", "2")
    first, second = server.broker.namespace.outlet("orders").messages.peek(0, 2)
    second.enqueued_ms = first.enqueued_ms + 1

    answer = await delete(nodes, "orders", 2, timestamp(second.enqueued_ms))

    assert answer.body == {"message-count": 1}
    assert held(server, "orders") == ["2"]


@pytest.mark.parametrize(("tier", "largest"), [("standard", 500), ("premium", 4000)])
async def test_the_tier_limits_how_many_at_once(entities: Entities, tier: Tier, largest: int) -> None:
    async with ServiceBusServer(entities, tier=tier) as server, management_nodes(server) as nodes:
        assert (await delete(nodes, "orders", largest)).status == 204
        for count in (largest + 1, 0):
            refused = await delete(nodes, "orders", count)
            assert (refused.status, refused.error) == (400, "com.microsoft:argument-error")


async def test_messages_of_a_partitioned_entity_are_not_deleted(nodes: Nodes) -> None:
    refused = await delete(nodes, "spread", 1)

    assert (refused.status, refused.error) == (400, "amqp:not-allowed")


async def test_a_session_is_deleted_from_by_its_holder(
    server: ServiceBusServer, client: ServiceBusClient, nodes: Nodes
) -> None:
    await send(client, "chats", "1", session_id="a")
    await send(client, "chats", "2", session_id="b")
    refused = await delete(nodes, "chats", 5, session_id="a")
    assert refused.error == "com.microsoft:session-lock-lost"
    assert "session-id" in (await delete(nodes, "chats", 5)).description
    session = Filter({symbol("com.microsoft:session-filter"): cast(Any, "a")})

    await asyncio.to_thread(nodes.connection.create_receiver, "chats", credit=0, options=session)

    assert (await delete(nodes, "chats", 5, session_id="a")).body == {"message-count": 1}
    assert held(server, "chats") == ["2"]


async def test_messages_are_peeked_with_and_without_their_bodies(client: ServiceBusClient, nodes: Nodes) -> None:
    await send(client, "orders", "1")

    async def peeked(**more: Any) -> Message:
        answer = await nodes.ask("orders", "peek-message", from_sequence_number=0, message_count=1, **more)
        message = Message()
        message.decode(bytes(answer.body["messages"][0]["message"]))
        return message

    whole, bare = await peeked(omit_message_body=False), await peeked(omit_message_body=True)

    assert (whole.id, whole.body) == ("1", b"1")
    assert (bare.id, bare.body) == ("1", None)
    assert whole.annotations == bare.annotations
