"""Receiving with azure-servicebus from a queue that requires sessions."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from azure.servicebus.aio import AutoLockRenewer, ServiceBusClient
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)
from proton import Described, symbol, ulong
from proton.reactor import Filter
from proton.utils import LinkDetached

from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.emulators.servicebus.session_queue import SessionQueue
from packages.emulators.tests.servicebus.raw_amqp import connected
from packages.emulators.tests.servicebus.support import send, take
from tests.support.waiting import elapse
from tests.support.watchdog import WATCHDOG_S


async def test_a_session_is_received_in_order_whatever_its_neighbours_do(client: ServiceBusClient) -> None:
    async with client.get_queue_sender("chats") as sender:
        for number in range(20):
            await sender.send_messages(ServiceBusMessage(str(number), session_id=f"s{number % 2}"))
    async with client.get_queue_receiver("chats", session_id="s1") as receiver:
        messages = await take(receiver, 10)
        assert receiver.session.session_id == "s1"

    assert [str(message) for message in messages] == [str(number) for number in range(1, 20, 2)]


async def test_the_next_available_session_is_one_that_nobody_holds(client: ServiceBusClient) -> None:
    await send(client, "chats", "1", session_id="a")
    await send(client, "chats", "2", session_id="ü ber/b")
    async with (
        client.get_queue_receiver("chats", session_id=NEXT_AVAILABLE_SESSION) as first,
        client.get_queue_receiver("chats", session_id=NEXT_AVAILABLE_SESSION) as second,
    ):
        assert {first.session.session_id, second.session.session_id} == {"a", "ü ber/b"}


async def test_waiting_for_a_session_ends_with_a_timeout(client: ServiceBusClient) -> None:
    receiver = client.get_queue_receiver("chats", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1)
    started = asyncio.get_running_loop().time()

    with pytest.raises(OperationTimeoutError):
        await receiver.__aenter__()

    assert 0.9 <= asyncio.get_running_loop().time() - started < WATCHDOG_S


async def test_waiting_for_a_session_ends_when_a_message_comes(client: ServiceBusClient) -> None:
    receiver = client.get_queue_receiver("chats", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=30)
    opening = asyncio.create_task(receiver.__aenter__())
    await elapse(0.1)

    await send(client, "chats", "1", session_id="a")
    await asyncio.wait_for(opening, WATCHDOG_S)

    assert [str(message) for message in await take(receiver, 1)] == ["1"]
    await receiver.close()


async def test_a_waiter_that_gives_up_does_not_take_a_session_with_it(client: ServiceBusClient) -> None:
    waiter = client.get_queue_receiver("chats", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=30)
    opening = asyncio.create_task(waiter.__aenter__())
    await elapse(0.3)
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    await waiter.close()

    await send(client, "chats", "1", session_id="a")
    async with client.get_queue_receiver("chats", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=3) as receiver:
        assert receiver.session.session_id == "a"


async def test_a_session_for_several_receivers_is_refused_by_the_name_of_its_filter(
    server: ServiceBusServer,
) -> None:
    """Azure.Messaging.ServiceBus 7.21 raises NotSupportedException by these words."""
    name = "com.microsoft:non-exclusive-session-filter:list"
    wanted = Filter({symbol(name): cast(Any, Described(ulong(0x13700000E), ["a", None]))})

    def attach() -> None:
        with connected(server) as connection:
            connection.create_receiver("chats", credit=0, options=wanted)

    with pytest.raises(LinkDetached) as raised:
        await asyncio.to_thread(attach)

    assert raised.value.condition == "amqp:not-allowed"
    assert f"invalid filter type: '{name}'" in str(raised.value)


@pytest.mark.parametrize("wanted", ["a", Described(ulong(0x13700000C), "a")], ids=["plain", "described"])
async def test_the_session_filter_is_answered_as_it_was_asked_for(server: ServiceBusServer, wanted: Any) -> None:
    """azservicebus 1.11.0, for Go, ends its connection at a filter that is not described."""
    name = symbol("com.microsoft:session-filter")

    def attach() -> Any:
        with connected(server) as connection:
            link = connection.create_receiver("chats", credit=0, options=Filter({name: wanted})).link
            answered = link.remote_source.filter
            answered.rewind()
            answered.next()
            return answered.get_object()

    assert await asyncio.to_thread(attach) == {name: wanted}


async def test_a_session_held_by_another_cannot_be_locked(client: ServiceBusClient) -> None:
    async with client.get_queue_receiver("chats", session_id="a"):
        with pytest.raises(SessionCannotBeLockedError):
            await client.get_queue_receiver("chats", session_id="a").__aenter__()
    async with client.get_queue_receiver("chats", session_id="a"):
        pass


async def test_a_receiver_without_session_is_refused(client: ServiceBusClient) -> None:
    with pytest.raises(ServiceBusError, match=r"requires sessions.*amqp:not-allowed"):
        await client.get_queue_receiver("chats").__aenter__()


async def test_a_session_id_that_is_no_string_is_refused(client: ServiceBusClient) -> None:
    with pytest.raises(ServiceBusError, match=r"session id of a receiver is a .*int.*; it has to be a string"):
        await client.get_queue_receiver("chats", session_id=1).__aenter__()  # type: ignore[arg-type]


async def test_messages_are_settled_in_every_way(server: ServiceBusServer, client: ServiceBusClient) -> None:
    await send(client, "chats", "done", "again", "dead", "later", session_id="a")
    async with client.get_queue_receiver("chats", session_id="a") as receiver:
        done, again, dead, later = await take(receiver, 4)
        await receiver.complete_message(done)
        await receiver.dead_letter_message(dead, reason="why")
        await receiver.defer_message(later)
        await receiver.abandon_message(again)

        [repeated] = await take(receiver, 1)
        assert (str(repeated), repeated.delivery_count) == ("again", 1)
        [deferred] = await receiver.receive_deferred_messages(later.sequence_number)
        await receiver.complete_message(deferred)
        await receiver.complete_message(repeated)
    async with client.get_queue_receiver("chats", sub_queue="deadletter") as receiver:
        [dead] = await take(receiver, 1)
        await receiver.complete_message(dead)

    assert (str(dead), dead.dead_letter_reason, dead.session_id) == ("dead", "why", "a")
    outlet = server.broker.namespace.outlet("chats")
    assert (outlet.messages.peek(0, 9), outlet.dead_letters.peek(0, 9)) == ([], [])


async def test_what_a_receiver_leaves_unsettled_comes_again_without_counting(client: ServiceBusClient) -> None:
    await send(client, "chats", "1", "2", session_id="a")
    async with client.get_queue_receiver("chats", session_id="a") as receiver:
        await take(receiver, 2)
    async with client.get_queue_receiver("chats", session_id="a") as receiver:
        messages = await take(receiver, 2)

    assert [(str(message), message.delivery_count) for message in messages] == [("1", 0), ("2", 0)]


async def test_the_state_of_a_session_is_kept_until_taken_away(client: ServiceBusClient) -> None:
    async with client.get_queue_receiver("chats", session_id="a") as receiver:
        assert await receiver.session.get_state() is None
        await receiver.session.set_state("half way")
    async with client.get_queue_receiver("chats", session_id="a") as receiver:
        assert await receiver.session.get_state() == b"half way"
        await receiver.session.set_state(None)
        assert await receiver.session.get_state() is None


async def test_a_session_state_may_be_as_large_as_a_message(client: ServiceBusClient) -> None:
    async with client.get_queue_receiver("chats", session_id="a") as receiver:
        await receiver.session.set_state(b"x" * 256 * 1024)
        with pytest.raises(MessageSizeExceededError, match="262145 bytes; the limit is 262144"):
            await receiver.session.set_state(b"x" * (256 * 1024 + 1))
        assert await receiver.session.get_state() == b"x" * 256 * 1024


async def test_a_session_lock_is_renewed_by_hand_and_by_the_renewer(client: ServiceBusClient) -> None:
    await send(client, "quick-chats", "1", session_id="a")
    async with client.get_queue_receiver("quick-chats", session_id="a") as receiver, AutoLockRenewer() as renewer:
        before = receiver.session.locked_until_utc
        assert before is not None
        assert await receiver.session.renew_lock() > before
        renewer._sleep_time = 0.1  # type: ignore[assignment]
        renewer.register(receiver, receiver.session, max_lock_renewal_duration=10)
        [message] = await take(receiver, 1)
        # Longer than the lock lasts.
        await elapse(1)
        await receiver.complete_message(message)


async def test_a_session_whose_lock_expires_is_lost(server: ServiceBusServer, client: ServiceBusClient) -> None:
    await send(client, "quick-chats", "1", session_id="a")
    async with client.get_queue_receiver("quick-chats", session_id="a") as first:
        [lost] = await take(first, 1)
        async with client.get_queue_receiver(
            "quick-chats", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=WATCHDOG_S
        ) as second:
            [again] = await take(second, 1)
            # Were it left to the SDK's clock the broker would never be asked.
            first.session._locked_until_utc = None  # type: ignore[assignment]
            with pytest.raises(SessionLockLostError):
                await first.complete_message(lost)
            await second.complete_message(again)

    assert again.delivery_count == 1
    assert server.broker.namespace.outlet("quick-chats").messages.peek(0, 9) == []


async def test_peeking_stays_within_the_session(client: ServiceBusClient) -> None:
    await send(client, "chats", "1", "2", session_id="a")
    await send(client, "chats", "3", session_id="b")
    async with client.get_queue_receiver("chats", session_id="a") as receiver:
        assert [str(message) for message in await receiver.peek_messages(9)] == ["1", "2"]


async def test_sessions_can_be_listed(client: ServiceBusClient) -> None:
    async with client.get_queue_sender("chats") as sender:
        await sender.send_messages([ServiceBusMessage("x", session_id=f"{number:03}") for number in range(120)])

    found = [name async for name in client.list_queue_sessions("chats")]

    assert found == [f"{number:03}" for number in range(120)]
    assert [name async for name in client.list_subscription_sessions("events", "all")] == []


async def test_a_connection_that_breaks_frees_its_session(
    server: ServiceBusServer, client: ServiceBusClient
) -> None:
    await send(client, "chats", "1", session_id="a")
    broken = client.get_queue_receiver("chats", session_id="a")
    await broken.__aenter__()
    queue = server.broker.namespace.outlet("chats").messages
    assert isinstance(queue, SessionQueue)
    assert queue.session_counts()["a"][1]

    for connection in list(server.broker.connections):
        connection.abort()
    async with client.get_queue_receiver(
        "chats", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=WATCHDOG_S
    ) as receiver:
        assert [str(message) for message in await take(receiver, 1)] == ["1"]
    await broken.close()
