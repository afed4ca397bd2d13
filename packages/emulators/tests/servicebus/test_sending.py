"""Sending with azure-servicebus: what is taken, what is refused, and with which error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import (
    MessageNotFoundError,
    MessageSizeExceededError,
    ServiceBusError,
)

from outbox_relay.emulators.servicebus.edges import Edge
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.partitions import partition_of
from outbox_relay.emulators.servicebus.publishing import PublishEndpoint
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.emulators.servicebus.shorthand import entities_of
from packages.emulators.tests.servicebus.support import answered_as_missing, pages, take
from tests.support.watchdog import WATCHDOG_S

DELETE = ServiceBusReceiveMode.RECEIVE_AND_DELETE


def body(message: Any) -> bytes:
    return b"".join(message.body)


async def test_a_message_arrives_as_it_was_sent(client: ServiceBusClient) -> None:
    began = datetime.now(UTC).replace(microsecond=0)
    sent = ServiceBusMessage(
        b'{"n": 1.0, "s": "\xc3\xbc"}',
        message_id="m-1",
        session_id="key",
        partition_key="key",
        subject="Named",
        content_type="application/json",
        correlation_id="c",
        to="t",
        reply_to="r",
        reply_to_session_id="rs",
        application_properties={"type": "domainEvent", "n": 5, "f": 1.5, "b": True},
    )
    async with (
        client.get_topic_sender("events") as sender,
        client.get_subscription_receiver("events", "named", receive_mode=DELETE) as receiver,
    ):
        await sender.send_messages(sent)
        [message] = await take(receiver, 1)

    assert body(message) == b'{"n": 1.0, "s": "\xc3\xbc"}'
    for name in [
        "message_id",
        "session_id",
        "partition_key",
        "subject",
        "content_type",
        "correlation_id",
        "to",
        "reply_to",
        "reply_to_session_id",
    ]:
        assert getattr(message, name) == getattr(sent, name), name
    properties = {key.decode(): value for key, value in message.application_properties.items()}
    assert properties == {"type": b"domainEvent", "n": 5, "f": 1.5, "b": True}
    assert (message.sequence_number, message.enqueued_sequence_number, message.delivery_count) == (1, 1, 0)
    assert began <= message.enqueued_time_utc <= datetime.now(UTC)


async def test_a_batch_arrives_message_by_message_and_in_order(client: ServiceBusClient) -> None:
    async with (
        client.get_queue_sender("orders") as sender,
        client.get_queue_receiver("orders", receive_mode=DELETE) as receiver,
    ):
        batch = await sender.create_message_batch()
        for number in range(500):
            batch.add_message(ServiceBusMessage(str(number)))
        await sender.send_messages(batch)

        assert [body(message) for message in await take(receiver, 500)] == [b"%d" % n for n in range(500)]


async def test_a_body_that_looks_like_a_message_is_not_taken_for_a_batch(client: ServiceBusClient) -> None:
    inner = b"\x00\x53\x75\xa0\x02hi"
    async with (
        client.get_queue_sender("orders") as sender,
        client.get_queue_receiver("orders", receive_mode=DELETE) as receiver,
    ):
        await sender.send_messages(ServiceBusMessage(inner))

        [message] = await take(receiver, 1)

    assert body(message) == inner


async def test_a_duplicate_is_accepted_and_not_delivered(client: ServiceBusClient) -> None:
    async with (
        client.get_topic_sender("events") as sender,
        client.get_subscription_receiver("events", "named", receive_mode=DELETE) as receiver,
    ):
        for each in ("1", "1", "2"):
            await sender.send_messages(ServiceBusMessage(each, message_id=each, subject="Named"))

        assert [message.message_id for message in await take(receiver, 2)] == ["1", "2"]


async def test_a_partitioned_queue_detects_duplicates_by_key_and_id(client: ServiceBusClient) -> None:
    async with (
        client.get_queue_sender("spread") as sender,
        client.get_queue_receiver("spread", receive_mode=DELETE) as receiver,
    ):
        for key in ("a", "b", "a"):
            await sender.send_messages(ServiceBusMessage(key, message_id="1", partition_key=key))

        assert [message.partition_key for message in await take(receiver, 2)] == ["a", "b"]


async def test_sequence_numbers_of_a_partitioned_queue_have_the_partition_in_their_top_bits(
    client: ServiceBusClient,
) -> None:
    async with client.get_queue_sender("spread") as sender, client.get_queue_receiver("spread") as receiver:
        for key in ("a", "b", "a", None, None):
            await sender.send_messages(ServiceBusMessage(key or "", partition_key=key))
        later = datetime.now(UTC) + timedelta(hours=1)
        [scheduled] = await sender.schedule_messages(ServiceBusMessage("later", partition_key="b"), later)
        peeked = [message for page in await pages(receiver) for message in page]
        await sender.cancel_scheduled_messages(scheduled)
        messages = await receiver.receive_messages(5, max_wait_time=WATCHDOG_S)
        await receiver.abandon_message(messages[0])
        [again] = await receiver.receive_messages(1, max_wait_time=WATCHDOG_S)

    a, b = partition_of("a") << 48, partition_of("b") << 48
    assert a != b
    assert [message.sequence_number for message in messages] == [a + 1, b + 1, a + 2, 1, (1 << 48) + 1]
    assert scheduled == b + 2
    assert [message.sequence_number for message in peeked] == sorted(
        [a + 1, b + 1, a + 2, b + 2, 1, (1 << 48) + 1]
    )
    assert again.sequence_number == messages[0].sequence_number


@pytest.fixture
async def premium(entities: Entities) -> AsyncIterator[ServiceBusClient]:
    async with (
        ServiceBusServer(entities, tier="premium") as server,
        ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as connected,
    ):
        yield connected


async def test_standard_takes_256_kib_and_goes_on_after_refusing_more(client: ServiceBusClient) -> None:
    async with client.get_queue_sender("orders") as sender:
        assert (await sender.create_message_batch()).max_size_in_bytes == 256 * 1024
        await sender.send_messages(ServiceBusMessage(b"x" * 262_000))
        with pytest.raises(MessageSizeExceededError, match="exceeds the limit"):
            await sender.send_messages(ServiceBusMessage(b"x" * 3_000_000))
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"small"))


async def test_premium_takes_1_mib_and_large_messages_where_enabled(premium: ServiceBusClient) -> None:
    async with premium.get_queue_sender("orders") as sender:
        assert (await sender.create_message_batch()).max_size_in_bytes == 1024 * 1024
        await sender.send_messages(ServiceBusMessage(b"x" * 1_000_000))
        with pytest.raises(MessageSizeExceededError):
            await sender.send_messages(ServiceBusMessage(b"x" * 1_100_000))
    async with (
        premium.get_queue_sender("large") as sender,
        premium.get_queue_receiver("large", receive_mode=DELETE) as receiver,
    ):
        assert (await sender.create_message_batch()).max_size_in_bytes == 1024 * 1024
        await sender.send_messages(ServiceBusMessage(b"x" * 2_000_000))
        [message] = await take(receiver, 1)
        assert body(message) == b"x" * 2_000_000


async def test_a_message_without_session_is_refused_where_one_is_required(client: ServiceBusClient) -> None:
    async with client.get_queue_sender("chats") as sender:
        with pytest.raises(ServiceBusError, match=r"SessionId was not set.*amqp:not-allowed"):
            await sender.send_messages(ServiceBusMessage("x"))


async def test_a_partition_key_other_than_the_session_is_refused_with_the_whole_batch(
    client: ServiceBusClient,
) -> None:
    wrong = ServiceBusMessage("x", session_id="a")
    # The SDK's own setter refuses it, so it is set beneath.
    wrong.raw_amqp_message.annotations = {b"x-opt-partition-key": "b"}
    async with client.get_queue_sender("chats") as sender:
        with pytest.raises(ServiceBusError, match=r"cannot have different values.*amqp:not-allowed"):
            await sender.send_messages([ServiceBusMessage("good", session_id="a"), wrong])
        await sender.send_messages(ServiceBusMessage("after", session_id="a"))
    async with client.get_queue_receiver("chats", session_id="a", receive_mode=DELETE) as receiver:
        assert [body(each) for each in await take(receiver, 1)] == [b"after"]


async def test_properties_too_large_are_answered_as_a_failure_of_the_service(
    client: ServiceBusClient, server: ServiceBusServer
) -> None:
    async with client.get_queue_sender("orders") as sender:
        with pytest.raises(ServiceBusError, match=r"please retry the operation.*amqp:internal-error"):
            await sender.send_messages(ServiceBusMessage("x", application_properties={"h": "x" * 33_000}))

    assert server.broker.edges.met.keys() == {Edge.PROPERTIES_TOO_LARGE}


async def test_an_unknown_entity_is_not_found_when_the_token_is_put(
    client: ServiceBusClient, server: ServiceBusServer
) -> None:
    for path, link in (
        ("nowhere", client.get_queue_sender("nowhere")),
        ("events/Subscriptions/nobody", client.get_subscription_receiver("events", "nobody")),
    ):
        with answered_as_missing(path):
            await link.__aenter__()

    assert server.broker.edges.met == {Edge.ENTITY_NOT_FOUND_AT_TOKEN: 2}


async def test_scheduled_messages_come_at_their_time_or_not_at_all(client: ServiceBusClient) -> None:
    async with (
        client.get_topic_sender("events") as sender,
        client.get_subscription_receiver("events", "named", receive_mode=DELETE) as receiver,
    ):
        soon = datetime.now(UTC) + timedelta(seconds=1)
        kept, cancelled = await sender.schedule_messages(
            [ServiceBusMessage(each, subject="Named") for each in ("kept", "cancelled")], soon
        )
        await sender.cancel_scheduled_messages(cancelled)
        with pytest.raises(MessageNotFoundError):
            await sender.cancel_scheduled_messages(cancelled)

        [message] = await take(receiver, 1)

    assert body(message) == b"kept"
    assert datetime.now(UTC) >= soon
    assert message.enqueued_sequence_number > kept


async def test_an_acknowledgement_can_be_delayed_and_the_message_is_there_before_it(entities: Entities) -> None:
    async with (
        ServiceBusServer(entities, ack_delay_ms=300) as server,
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_sender("orders") as sender,
        client.get_queue_receiver("orders") as receiver,
    ):
        started = asyncio.get_running_loop().time()
        sending = asyncio.create_task(sender.send_messages(ServiceBusMessage("x")))
        await take(receiver, 1)
        assert not sending.done()
        await sending

    assert asyncio.get_running_loop().time() - started >= 0.3


async def test_many_senders_at_once_lose_nothing(client: ServiceBusClient) -> None:
    async def send(number: int) -> None:
        async with client.get_queue_sender("orders") as sender:
            for n in range(20):
                await sender.send_messages(ServiceBusMessage(f"{number}-{n}"))

    async with asyncio.TaskGroup() as group:
        for number in range(10):
            group.create_task(send(number))
    async with client.get_queue_receiver("orders", receive_mode=DELETE) as receiver:
        found = [body(message).decode() for message in await take(receiver, 200)]

    assert len(set(found)) == 200
    for number in range(10):
        assert [each for each in found if each.startswith(f"{number}-")] == [f"{number}-{n}" for n in range(20)]


async def test_eleven_connections_and_51_queues_are_served() -> None:
    """One more than the quotas of the official emulator, which this one does not have.

    https://learn.microsoft.com/azure/service-bus-messaging/overview-emulator#usage-quotas
    """
    names = [f"queue-{number}" for number in range(51)]
    async with ServiceBusServer(entities_of(names)) as server, AsyncExitStack() as stack:
        for name in names[-11:]:
            client = ServiceBusClient.from_connection_string(server.connection_string)
            await stack.enter_async_context(client)
            sender = await stack.enter_async_context(client.get_queue_sender(name))
            await sender.send_messages(ServiceBusMessage("acknowledged"))

        assert len(server.broker.connections) == 11


async def test_a_sender_that_goes_before_its_delayed_acknowledgement_affects_no_other(entities: Entities) -> None:
    async with (
        ServiceBusServer(entities, ack_delay_ms=200) as server,
        ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
        client.get_queue_receiver("orders", receive_mode=DELETE) as receiver,
    ):
        sender = client.get_queue_sender("orders")
        sending = asyncio.create_task(sender.send_messages(ServiceBusMessage("first")))
        assert [body(message) for message in await take(receiver, 1)] == [b"first"]
        for connection in list(server.broker.connections):
            if any(isinstance(endpoint, PublishEndpoint) for endpoint in connection.links.endpoints()):
                connection.abort()
        with pytest.raises(ServiceBusError):
            await sending

        await sender.send_messages(ServiceBusMessage("second"))
        assert [body(message) for message in await take(receiver, 1)] == [b"second"]
        await sender.close()
