"""Deleting messages in batches, and peeking without their bodies: azure-servicebus 7.15 has neither."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from proton import Message, int32, symbol, timestamp
from proton.reactor import Filter

from emulators.tests.servicebus.raw_amqp import Answer, Nodes, management_nodes
from outbox_emulators.servicebus.entities import Entities
from outbox_emulators.servicebus.limits import Tier
from outbox_emulators.servicebus.server import ServiceBusServer

FOREVER = timestamp(2**45)


async def send(client: ServiceBusClient, queue: str, *ids: str, session_id: str | None = None) -> None:
    async with client.get_queue_sender(queue) as sender:
        for each in ids:
            await sender.send_messages(ServiceBusMessage(each, message_id=each, session_id=session_id))


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
            [message] = await receiver.receive_messages(1, max_wait_time=5)
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
