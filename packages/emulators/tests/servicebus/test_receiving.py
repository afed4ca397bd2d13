"""Receiving with azure-servicebus from queues without sessions: locks and every way to settle."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.aio import AutoLockRenewer, ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    ServiceBusError,
)

from outbox_relay.emulators.servicebus.server import ServiceBusServer
from packages.emulators.tests.servicebus.support import pages, send
from tests.support.waiting import elapse
from tests.support.watchdog import WATCHDOG_S

DELETE = ServiceBusReceiveMode.RECEIVE_AND_DELETE


async def next_one(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
    found = await receiver.receive_messages(1, max_wait_time=WATCHDOG_S)
    assert found, "no message came"
    return found[0]


def left(server: ServiceBusServer, queue: str) -> tuple[int, int]:
    """Number of messages left in a queue, and of dead letters."""
    outlet = server.broker.namespace.outlet(queue)
    return len(outlet.messages.peek(0, 1_000)), len(outlet.dead_letters.peek(0, 1_000))


async def test_completed_messages_are_gone(server: ServiceBusServer, client: ServiceBusClient) -> None:
    await send(client, "orders", "1", "2")
    async with client.get_queue_receiver("orders") as receiver:
        for message in await receiver.receive_messages(2, max_wait_time=WATCHDOG_S):
            await receiver.complete_message(message)

    assert left(server, "orders") == (0, 0)


async def test_an_abandoned_message_comes_again_before_those_after_it(client: ServiceBusClient) -> None:
    await send(client, "orders", *"123")
    async with client.get_queue_receiver("orders") as receiver:
        first, second = [await next_one(receiver) for _ in range(2)]
        for message in (second, first):
            assert message.raw_amqp_message.delivery_annotations == {b"x-opt-lock-token": message.lock_token}
            await receiver.abandon_message(message)
        again = [await next_one(receiver) for _ in range(3)]

    assert [str(message) for message in again] == ["1", "2", "3"]
    assert [message.delivery_count for message in (first, *again)] == [0, 1, 1, 0]
    assert again[0].sequence_number == first.sequence_number
    assert again[0].lock_token != first.lock_token


async def test_a_dead_lettered_message_is_received_with_its_reason(client: ServiceBusClient) -> None:
    await send(client, "orders", "0", "1")
    async with client.get_queue_receiver("orders") as receiver:
        await next_one(receiver)
        await receiver.dead_letter_message(await next_one(receiver), reason="why", error_description="in words")
    async with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        dead = await next_one(receiver)
        await receiver.complete_message(dead)

    assert (str(dead), dead.dead_letter_reason, dead.dead_letter_error_description) == ("1", "why", "in words")
    assert (dead.sequence_number, dead.dead_letter_source) == (2, None)


async def test_a_deferred_message_is_received_and_settled_by_its_number(
    server: ServiceBusServer, client: ServiceBusClient
) -> None:
    await send(client, "orders", "1", "2")
    async with client.get_queue_receiver("orders") as receiver:
        deferred = await next_one(receiver)
        await receiver.defer_message(deferred)
        assert str(await next_one(receiver)) == "2"

        [message] = await receiver.receive_deferred_messages(deferred.sequence_number or 0)
        assert message.state is ServiceBusMessageState.DEFERRED
        # azservicebus 1.11.0, for Go, finds the token of a deferred message nowhere else.
        assert message.raw_amqp_message.delivery_annotations == {b"x-opt-lock-token": message.lock_token}
        await receiver.complete_message(message)
        with pytest.raises(MessageNotFoundError):
            await receiver.receive_deferred_messages(deferred.sequence_number or 0)

    assert left(server, "orders")[0] == 1


async def test_a_deferred_message_can_be_abandoned_and_dead_lettered_too(
    server: ServiceBusServer, client: ServiceBusClient
) -> None:
    await send(client, "orders", "1")
    async with client.get_queue_receiver("orders") as receiver:
        deferred = await next_one(receiver)
        await receiver.defer_message(deferred)
        number = deferred.sequence_number or 0
        [message] = await receiver.receive_deferred_messages(number)
        assert message.delivery_count == 1
        await receiver.abandon_message(message)
        [message] = await receiver.receive_deferred_messages(number)
        assert message.delivery_count == 2
        await receiver.dead_letter_message(message, reason="late")

    assert left(server, "orders") == (0, 1)


async def test_messages_deleted_on_receipt_need_no_settling(
    server: ServiceBusServer, client: ServiceBusClient
) -> None:
    await send(client, "orders", "1")
    async with client.get_queue_receiver("orders", receive_mode=DELETE) as receiver:
        assert (await next_one(receiver)).lock_token is None

    assert left(server, "orders") == (0, 0)


async def test_a_lock_that_expires_loses_the_message_to_the_next_receiver(client: ServiceBusClient) -> None:
    await send(client, "quick", "1")
    async with client.get_queue_receiver("quick") as first, client.get_queue_receiver("quick") as second:
        lost = await next_one(first)
        again = await next_one(second)
        assert again.delivery_count == 1
        # Were it left to the SDK's clock the broker would never be asked.
        lost._expiry = again.locked_until_utc
        with pytest.raises(MessageLockLostError):
            await first.complete_message(lost)
        await second.complete_message(again)


async def test_too_many_deliveries_end_in_the_dead_letter_queue(client: ServiceBusClient) -> None:
    await send(client, "quick", "1")
    async with client.get_queue_receiver("quick") as receiver:
        for _ in range(2):
            await receiver.abandon_message(await next_one(receiver))
    async with client.get_queue_receiver("quick", sub_queue="deadletter") as receiver:
        dead = await next_one(receiver)

    assert (dead.dead_letter_reason, dead.delivery_count) == ("MaxDeliveryCountExceeded", 2)


async def test_locks_are_renewed_many_at_once(client: ServiceBusClient) -> None:
    await send(client, "orders", *"1234567890")
    async with client.get_queue_receiver("orders") as receiver:
        messages = await receiver.receive_messages(10, max_wait_time=WATCHDOG_S)
        before = [message.locked_until_utc for message in messages]
        assert all(before)

        # The SDK gives requests it sends at once the same delivery-id.
        after = await asyncio.gather(*(receiver.renew_message_lock(message) for message in messages))

    assert all(now > was for now, was in zip(after, before, strict=True) if was)


async def test_a_renewer_keeps_messages_beyond_their_lock(
    server: ServiceBusServer, client: ServiceBusClient
) -> None:
    await send(client, "slow", *"123")
    async with client.get_queue_receiver("slow", prefetch_count=3) as receiver, AutoLockRenewer() as renewer:
        renewer._sleep_time = 0.1  # type: ignore[assignment]
        messages = await receiver.receive_messages(3, max_wait_time=WATCHDOG_S)
        for message in messages:
            renewer.register(receiver, message, max_lock_renewal_duration=10)
        # Longer than a lock lasts: without renewal each of them would be lost.
        await elapse(1.8)
        for message in messages:
            await receiver.complete_message(message)

    assert left(server, "slow") == (0, 0)


async def test_an_expired_message_is_dead_lettered(server: ServiceBusServer, client: ServiceBusClient) -> None:
    await send(client, "orders", "1", time_to_live=timedelta(seconds=1))
    async with client.get_queue_receiver("orders", sub_queue="deadletter") as receiver:
        assert (await next_one(receiver)).dead_letter_reason == "TTLExpiredException"

    assert left(server, "orders")[0] == 0


async def test_a_page_that_is_peeked_ends_with_a_partition_at_250_messages_and_at_256_kb(
    client: ServiceBusClient,
) -> None:
    await send(client, "orders", *["x"] * 300)
    async with client.get_queue_sender("slow") as sender:
        for _ in range(2):
            await sender.send_messages(ServiceBusMessage("x" * 200_000))
    for number, key in enumerate("aba"):
        await send(client, "spread", str(number), partition_key=key)

    async def sizes(queue: str) -> list[int]:
        async with client.get_queue_receiver(queue) as receiver:
            return [len(page) for page in await pages(receiver)]

    assert [await sizes(queue) for queue in ("orders", "slow")] == [[250, 50], [1, 1]]
    assert sorted(await sizes("spread")) == [1, 2]


async def test_a_batch_without_keys_stays_in_one_partition_and_the_next_is_in_another(
    client: ServiceBusClient,
) -> None:
    """3.4 of the .NET SDK peeks ten of ten (PeekAsyncTest)."""
    for count in (10, 5):
        async with client.get_queue_sender("spread") as sender:
            await sender.send_messages([ServiceBusMessage(str(number)) for number in range(count)])
    async with client.get_queue_receiver("spread") as receiver:
        assert [len(page) for page in await pages(receiver)] == [10, 5]


async def test_peeking_shows_every_state_and_locks_nothing(client: ServiceBusClient) -> None:
    await send(client, "orders", "1", "2", "3")
    async with client.get_queue_receiver("orders") as receiver:
        await receiver.defer_message(await next_one(receiver))

        peeked = await receiver.peek_messages(2, sequence_number=1)
        following = await receiver.peek_messages(5)

        assert [(str(each), each.state.name) for each in peeked] == [("1", "DEFERRED"), ("2", "ACTIVE")]
        assert [str(each) for each in following] == ["3"]
        assert await receiver.peek_messages(5, sequence_number=99) == []
        assert str(await next_one(receiver)) == "2"


async def test_a_receiver_that_closes_releases_messages_it_has_not_returned(client: ServiceBusClient) -> None:
    await send(client, "orders", *"123")
    async with client.get_queue_receiver("orders", prefetch_count=3) as receiver:
        await next_one(receiver)
    async with client.get_queue_receiver("orders") as receiver:
        messages = await receiver.receive_messages(3, max_wait_time=WATCHDOG_S)

    assert [(str(each), each.delivery_count) for each in messages] == [("2", 0), ("3", 0)]


async def test_waiting_receivers_share_what_comes(client: ServiceBusClient) -> None:
    async def drain(receiver: ServiceBusReceiver) -> list[str]:
        return [str(each) async for each in receiver]

    receivers = [client.get_queue_receiver("orders", receive_mode=DELETE, max_wait_time=1) for _ in range(3)]
    async with receivers[0], receivers[1], receivers[2]:
        draining = [asyncio.create_task(drain(each)) for each in receivers]
        async with client.get_queue_sender("orders") as sender:
            for number in range(30):
                await sender.send_messages(ServiceBusMessage(str(number)))
        found = await asyncio.gather(*draining)

    assert sorted(int(each) for part in found for each in part) == list(range(30))


async def test_a_receiver_with_sessions_is_refused_where_there_are_none(client: ServiceBusClient) -> None:
    with pytest.raises(ServiceBusError, match=r"sessionful message receiver cannot be created.*amqp:not-allowed"):
        await client.get_queue_receiver("orders", session_id="a").__aenter__()


async def test_a_message_that_was_received_can_be_sent_again(
    server: ServiceBusServer, client: ServiceBusClient
) -> None:
    await send(client, "chats", "m", session_id="s", partition_key="s")
    async with (
        client.get_queue_receiver("chats", session_id="s") as receiver,
        client.get_queue_sender("chats") as sender,
    ):
        received = await next_one(receiver)
        # Its id and partition key are bytes now (azure-servicebus 7.15.0), and go out as binary.
        await sender.send_messages(received)
        await receiver.complete_message(received)
        again = await next_one(receiver)

    assert (str(again), again.message_id, again.session_id, again.partition_key) == ("m", "m", "s", "s")
    [entry] = server.broker.namespace.outlet("chats").messages.peek(0, 10)
    assert entry.message.properties[0] == "m"
    assert entry.message.decoded_annotations["x-opt-partition-key"] == "s"


async def test_a_message_sent_without_an_id_is_received_with_one(client: ServiceBusClient) -> None:
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages([ServiceBusMessage(each, subject="s") for each in "12"])
    async with client.get_queue_receiver("orders", receive_mode=DELETE) as receiver:
        messages = [await next_one(receiver) for _ in range(2)]

    assert [(str(message), message.subject) for message in messages] == [("1", "s"), ("2", "s")]
    assert len({message.message_id for message in messages} - {None, ""}) == 2


async def test_a_dead_letter_is_not_dead_lettered_again_and_its_deliveries_do_not_count(
    server: ServiceBusServer, client: ServiceBusClient
) -> None:
    await send(client, "quick", "1")
    async with client.get_queue_receiver("quick") as receiver:
        await receiver.dead_letter_message(await next_one(receiver), reason="first")
    async with client.get_queue_receiver("quick", sub_queue="deadletter") as receiver:
        for _ in range(2):
            dead = await next_one(receiver)
            assert (dead.delivery_count, dead.dead_letter_reason) == (0, "first")
            await receiver.abandon_message(dead)
        with pytest.raises(ServiceBusError, match="amqp:not-allowed"):
            await receiver.dead_letter_message(await next_one(receiver), reason="second")
        dead = await next_one(receiver)
        assert (dead.delivery_count, dead.dead_letter_reason) == (0, "first")
        await receiver.complete_message(dead)
