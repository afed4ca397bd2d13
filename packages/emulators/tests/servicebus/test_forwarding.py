"""Forwarding between entities: messages, dead letters, and what cannot be forwarded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import EntityStatus

from outbox_relay.emulators.servicebus.entities import Entities, EntitiesError
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.emulators.servicebus.shorthand import entities_of
from packages.emulators.tests.servicebus.plain_http import requested
from packages.emulators.tests.servicebus.raw_amqp import Management, connected
from packages.emulators.tests.servicebus.support import send
from tests.support.watchdog import WATCHDOG_S

FORWARDING = r"Cannot create a message receiver on an entity with auto-forwarding enabled.*amqp:not-allowed"


async def received(
    client: ServiceBusClient, queue: str, count: int = 1, **options: Any
) -> list[ServiceBusReceivedMessage]:
    """Receive and complete messages."""
    found: list[ServiceBusReceivedMessage] = []
    async with client.get_queue_receiver(queue, **options) as receiver:
        while len(found) < count:
            batch = await receiver.receive_messages(count - len(found), max_wait_time=WATCHDOG_S)
            assert batch
            for message in batch:
                await receiver.complete_message(message)
            found += batch
    return found


async def test_a_chain_is_forwarded_in_order_with_the_first_numbers(
    server: ServiceBusServer, client: ServiceBusClient, management: Any
) -> None:
    await management.create_subscription("events", "on", forward_to="orders")
    await send(client, "orders", "0")

    await send(client, "events", "1", "2")

    messages = await received(client, "orders", 3)
    assert [str(message) for message in messages] == ["0", "1", "2"]
    assert [message.sequence_number for message in messages] == [1, 2, 3]
    assert [message.enqueued_sequence_number for message in messages] == [1, 1, 2]
    assert [message.delivery_count for message in messages] == [0, 0, 0]
    assert [message.dead_letter_source for message in messages] == [None, None, None]
    subscription = await management.get_subscription("events", "on")
    assert subscription.forward_to == f"sb://127.0.0.1:{server.admin_port}/orders"
    with pytest.raises(ServiceBusError, match=FORWARDING):
        await client.get_subscription_receiver("events", "on").__aenter__()


async def test_what_waits_is_forwarded_once_it_is_asked_for_and_receivers_end(
    client: ServiceBusClient, management: Any
) -> None:
    await management.create_queue("source")
    await send(client, "source", "1", "2")
    async with client.get_queue_receiver("source") as receiver:
        [first] = await receiver.receive_messages(1, max_wait_time=WATCHDOG_S)
        queue = await management.get_queue("source")
        queue.forward_to = "orders"
        await management.update_queue(queue)
        with pytest.raises(ServiceBusError):
            await receiver.complete_message(first)
    assert [str(message) for message in await received(client, "orders")] == ["2"]

    queue = await management.get_queue("source")
    queue.forward_to = None
    await management.update_queue(queue)

    await send(client, "source", "3")
    assert str((await received(client, "source"))[0]) == "3"


async def test_dead_letters_are_forwarded_with_their_source_and_only_then(
    client: ServiceBusClient, management: Any
) -> None:
    await management.create_queue("source", forward_dead_lettered_messages_to="orders")
    for queue in ("source", "slow"):
        await send(client, queue, queue)
        async with client.get_queue_receiver(queue) as receiver:
            [message] = await receiver.receive_messages(max_wait_time=WATCHDOG_S)
            await receiver.dead_letter_message(message, reason="bad", error_description="very")

    [forwarded] = await received(client, "orders")
    [kept] = await received(client, "slow", sub_queue="deadletter")

    assert (str(forwarded), forwarded.dead_letter_source, forwarded.delivery_count) == ("source", "source", 0)
    assert (forwarded.dead_letter_reason, forwarded.dead_letter_error_description) == ("bad", "very")
    assert (str(kept), kept.dead_letter_source) == ("slow", None)
    with pytest.raises(ServiceBusError, match=FORWARDING):
        await client.get_queue_receiver("source", sub_queue="deadletter").__aenter__()


async def test_what_the_destination_does_not_take_is_a_transfer_dead_letter(
    client: ServiceBusClient, management: Any
) -> None:
    await management.create_queue("target")
    await management.create_queue("source", forward_to="target")
    await management.create_queue("to-chats", forward_to="chats")
    target = await management.get_queue("target")
    target.status = EntityStatus.DISABLED
    await management.update_queue(target)
    await send(client, "source", "disabled")
    await management.delete_queue("target")
    await send(client, "source", "deleted")
    await send(client, "to-chats", "no-session")

    counts = (await management.get_queue_runtime_properties("source")).transfer_dead_letter_message_count
    assert counts == 2
    dead = await received(client, "source", 2, sub_queue="transferdeadletter")
    assert [(str(message), message.dead_letter_reason) for message in dead] == [
        ("disabled", "com.microsoft:entity-disabled"),
        ("deleted", "amqp:not-found"),
    ]
    [refused] = await received(client, "to-chats", sub_queue="transferdeadletter")
    assert "SessionId was not set" in (refused.dead_letter_error_description or "")


async def test_a_fifth_hop_is_not_made(client: ServiceBusClient, management: Any) -> None:
    names = [f"hop-{number}" for number in range(6)]
    for name, following in zip(reversed(names), [None, *reversed(names)], strict=False):
        await management.create_queue(name, forward_to=following)

    await send(client, "hop-0", "too far")
    await send(client, "hop-1", "just so")

    assert [str(message) for message in await received(client, "hop-5")] == ["just so"]
    [refused] = await received(client, "hop-4", sub_queue="transferdeadletter")
    assert (str(refused), refused.dead_letter_reason) == ("too far", "MaxTransferHopCountExceeded")


async def test_a_forwarding_queue_cannot_be_peeked(server: ServiceBusServer, management: Any) -> None:
    await management.create_queue("source", forward_to="orders")

    def peek() -> str:
        with connected(server) as connection:
            node = Management(connection, "source")
            return node.ask("peek-message", from_sequence_number=0, message_count=1).description

    assert "Cannot create a message browser" in await asyncio.to_thread(peek)


async def test_forwarding_without_a_token_for_the_destination_is_refused(server: ServiceBusServer) -> None:
    body = (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription '
        'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"><ForwardTo>orders</ForwardTo>'
        "</QueueDescription></content></entry>"
    )
    answer = await requested(server, "PUT", "source", body=body, status=401)
    assert "ServiceBusSupplementaryAuthorization header was not found" in answer


async def test_a_queue_may_forward_to_itself_until_there_are_no_hops_left(
    client: ServiceBusClient, management: Any
) -> None:
    await management.create_queue("circle")
    queue = await management.get_queue("circle")
    queue.forward_to = "circle"
    await management.update_queue(queue)

    await send(client, "circle", "around")

    [ended] = await received(client, "circle", sub_queue="transferdeadletter")
    assert (str(ended), ended.dead_letter_reason) == ("around", "MaxTransferHopCountExceeded")


async def test_a_subscription_may_forward_to_its_own_topic(client: ServiceBusClient, management: Any) -> None:
    await management.create_topic("circle")
    await management.create_subscription("circle", "back", forward_to="circle")
    await management.create_subscription("circle", "seen")

    async with client.get_topic_sender("circle") as sender:
        await sender.send_messages(ServiceBusMessage("around"))

    counts = await management.get_subscription_runtime_properties("circle", "seen")
    assert counts.active_message_count == 5
    counts = await management.get_subscription_runtime_properties("circle", "back")
    assert (counts.active_message_count, counts.transfer_dead_letter_message_count) == (0, 1)


async def test_an_entity_that_requires_sessions_cannot_forward(management: Any) -> None:
    await management.create_queue("target")
    await management.create_topic("topic")
    await management.create_queue("by-session", requires_session=True)
    changed = await management.get_queue("by-session")
    changed.forward_to = "target"

    for refused in (
        management.create_queue("other", requires_session=True, forward_to="target"),
        management.create_subscription("topic", "other", requires_session=True, forward_to="target"),
        management.update_queue(changed),
    ):
        with pytest.raises(HttpResponseError, match="SubCode=40000"):
            await refused

    assert "other" not in [each.name async for each in management.list_queues()]
    assert (await management.get_queue("by-session")).forward_to is None
    # Dead letters need no order.
    await management.create_queue("dead", requires_session=True, forward_dead_lettered_messages_to="target")


@pytest.mark.parametrize("where", ["queue", "subscription"])
def test_no_file_has_an_entity_that_requires_sessions_forward(where: str) -> None:
    forwards = {"Name": "s", "Properties": {"RequiresSession": True, "ForwardTo": "target"}}
    topics = [{"Name": "t", "Subscriptions": [forwards]}] if where == "subscription" else []
    queues = [{"Name": "target"}, *([forwards] if where == "queue" else [])]

    with pytest.raises(EntitiesError, match="has 's' forward and require sessions"):
        Entities.from_document({"UserConfig": {"Namespaces": [{"Name": "n", "Queues": queues, "Topics": topics}]}})


async def test_a_file_may_have_entities_forward() -> None:
    entities = entities_of({"a": {"ForwardTo": "b"}, "b": {"ForwardDeadLetteredMessagesTo": "c"}, "c": {}})
    async with (
        ServiceBusServer(entities, edges=None) as server,
        ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
    ):
        await send(client, "a", "1")
        async with client.get_queue_receiver("b") as receiver:
            [message] = await receiver.receive_messages(max_wait_time=WATCHDOG_S)
            await receiver.dead_letter_message(message)
        [dead] = await received(client, "c")
        assert (str(dead), dead.dead_letter_source) == ("1", "b")
