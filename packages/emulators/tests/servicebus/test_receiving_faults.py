"""Faults that are applied to receivers: what the SDK makes of each, and where the messages are afterwards."""

from __future__ import annotations

import asyncio

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusError, SessionLockLostError

from outbox_relay.emulators.servicebus.server import ServiceBusServer
from packages.emulators.tests.servicebus.support import Broker, send, take
from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S


async def settle_and_receive(receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> None:
    """Use a receiver: that its connection is cut it may find out at the second step only."""
    await receiver.complete_message(message)
    await receiver.receive_messages(1, max_wait_time=1)


async def until(broker: Broker, queue: str, **counts: int) -> None:
    """Wait until the admin port shows these counts: a receiver does not wait for its settlement to be done."""
    async with asyncio.timeout(WATCHDOG_S):
        while not counts.items() <= (await broker.counts(queue)).items():
            await look_again()


async def test_receivers_can_be_cut_while_senders_go_on(broker: Broker, client: ServiceBusClient) -> None:
    await send(client, "chats", "1", "2", session_id="a")
    async with (
        client.get_queue_sender("chats") as sender,
        client.get_queue_receiver("chats", session_id="a") as receiver,
    ):
        [message] = await take(receiver, 1)
        await broker.inject(kind="cut-receiver", entity="chats")

        with pytest.raises(ServiceBusError):
            await settle_and_receive(receiver, message)
        await sender.send_messages(ServiceBusMessage("3", message_id="3", session_id="a"))

    assert await broker.applied() == {"cut-receiver": 1}
    async with client.get_queue_receiver("chats", session_id=NEXT_AVAILABLE_SESSION) as again:
        assert [str(message) for message in await take(again, 3)] == ["1", "2", "3"]


async def test_cutting_receivers_that_are_not_there_does_nothing(broker: Broker) -> None:
    await broker.inject(kind="cut-receiver", entity="chats")

    assert await broker.pending() == []
    assert await broker.applied() == {"cut-receiver": 0}


async def test_cutting_the_receivers_of_a_topic_cuts_those_of_its_subscriptions(
    broker: Broker, client: ServiceBusClient
) -> None:
    async with (
        client.get_subscription_receiver("events", "named"),
        client.get_subscription_receiver("events", "all", session_id="a"),
        client.get_queue_receiver("orders"),
    ):
        await broker.inject(kind="cut-receiver", entity="events", reset=True)
        assert await broker.applied() == {"cut-receiver": 2}


async def test_locks_on_messages_can_be_made_to_expire(broker: Broker, client: ServiceBusClient) -> None:
    await send(client, "orders", "1", "2")
    async with client.get_queue_receiver("orders") as receiver:
        messages = await take(receiver, 2)
        await broker.inject(kind="expire-locks", entity="orders")

        with pytest.raises(MessageLockLostError):
            await receiver.renew_message_lock(messages[0])
        again = await take(receiver, 2)

    assert [(str(message), message.delivery_count) for message in again] == [("1", 1), ("2", 1)]
    assert await broker.applied() == {"expire-locks": 2}


async def test_locks_on_sessions_can_be_made_to_expire(broker: Broker, client: ServiceBusClient) -> None:
    await send(client, "chats", "1", "2", session_id="a")
    async with client.get_queue_receiver("chats", session_id="a") as receiver:
        await take(receiver, 1)
        await broker.inject(kind="expire-locks", entity="chats")

        with pytest.raises(SessionLockLostError):
            await receiver.session.renew_lock()
    async with client.get_queue_receiver("chats", session_id=NEXT_AVAILABLE_SESSION) as again:
        messages = await take(again, 2)

    assert [(str(message), message.delivery_count) for message in messages] == [("1", 1), ("2", 0)]


async def test_a_receivers_link_is_detached_in_place_of_a_delivery(
    broker: Broker, client: ServiceBusClient
) -> None:
    await broker.inject(kind="detach-link", entity="chats", role="receiver")
    async with client.get_queue_receiver("chats", session_id="a") as receiver:
        assert await receiver.receive_messages(1, max_wait_time=0.2) == []
        await send(client, "chats", "1", session_id="a")
        with pytest.raises(ServiceBusError):
            await receiver.receive_messages(1, max_wait_time=WATCHDOG_S)

    assert await broker.applied() == {"detach-link": 1}
    async with client.get_queue_receiver("chats", session_id="a") as again:
        [message] = await take(again, 1)
        assert (str(message), message.delivery_count) == ("1", 0)


async def test_a_receiver_without_sessions_attaches_anew_by_itself_when_it_is_detached(
    broker: Broker, server: ServiceBusServer, client: ServiceBusClient
) -> None:
    await send(client, "orders", "1", "2")
    await broker.inject(kind="detach-link", entity="orders", role="receiver", count=2)
    async with (
        ServiceBusClient.from_connection_string(
            server.connection_string, retry_backoff_factor=0.01, socket_timeout=0.05
        ) as patient,
        patient.get_queue_receiver("orders") as receiver,
    ):
        assert [str(message) for message in await take(receiver, 2)] == ["1", "2"]

    assert await broker.applied() == {"detach-link": 2}


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
async def test_a_delivery_cut_in_mid_frame_is_delivered_again(
    broker: Broker, client: ServiceBusClient, reset: bool
) -> None:
    await send(client, "chats", "1", "2", session_id="a")
    await broker.inject(kind="cut-mid-frame", entity="chats", role="receiver", reset=reset)
    async with client.get_queue_receiver("chats", session_id="a") as receiver:
        with pytest.raises(ServiceBusError):
            await receiver.receive_messages(2, max_wait_time=WATCHDOG_S)

    async with client.get_queue_receiver("chats", session_id="a") as again:
        assert [str(message) for message in await take(again, 2)] == ["1", "2"]
    assert await broker.applied() == {"cut-mid-frame": 1}


async def test_a_settlement_cut_in_mid_frame_did_not_happen(broker: Broker, client: ServiceBusClient) -> None:
    await send(client, "chats", "1", "2", session_id="a")
    async with client.get_queue_receiver("chats", session_id="a") as receiver:
        first, second = await take(receiver, 2)
        await receiver.complete_message(first)
        await until(broker, "chats", locked=1)
        await broker.inject(kind="cut-mid-frame", entity="chats", role="receiver", direction="in")

        with pytest.raises(ServiceBusError):
            await settle_and_receive(receiver, second)

    assert await broker.applied() == {"cut-mid-frame": 1}
    assert await broker.held("chats") == ["2"]
    async with client.get_queue_receiver("chats", session_id="a") as again:
        assert [str(message) for message in await take(again, 1)] == ["2"]


async def test_a_fault_of_receivers_leaves_senders_alone(broker: Broker, client: ServiceBusClient) -> None:
    await broker.inject(kind="cut-mid-frame", entity="orders", role="receiver", direction="in")
    await broker.inject(kind="detach-link", entity="orders", role="receiver")

    await send(client, "orders", "1")

    assert await broker.applied() == {}
