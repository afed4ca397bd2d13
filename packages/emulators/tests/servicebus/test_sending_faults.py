"""Faults that are applied to senders: what the SDK makes of each, and what the broker holds afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from outbox_relay.emulators.servicebus.frames import DISPOSITION, FrameReader, performative
from outbox_relay.emulators.servicebus.partitions import partition_of
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.emulators.testing import keep_alive
from packages.emulators.tests.servicebus.support import Broker
from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S

LARGE = "x" * 200_000


@pytest.fixture
async def patient(server: ServiceBusServer) -> AsyncIterator[ServiceBusSender]:
    """A sender that retries, on a topic that detects duplicates."""
    async with (
        ServiceBusClient.from_connection_string(
            server.connection_string, retry_total=3, retry_backoff_factor=0.01, socket_timeout=0.05
        ) as client,
        client.get_topic_sender("events") as opened,
    ):
        await opened.send_messages(ServiceBusMessage("0", message_id="0", subject="Named"))
        yield opened


def message(number: int, text: str = "x", **fields: Any) -> ServiceBusMessage:
    return ServiceBusMessage(text, message_id=str(number), subject="Named", **fields)


CUTS = [
    ({"kind": "cut-before-transfer"}, False),
    ({"kind": "cut-mid-frame", "direction": "in"}, False),
    ({"kind": "cut-after-transfer"}, True),
    ({"kind": "cut-mid-frame", "direction": "out"}, True),
]


@pytest.mark.parametrize(
    ("size", "reset"), [("x", False), ("x", True), (LARGE, True)], ids=["closed", "reset", "large"]
)
@pytest.mark.parametrize(("fault", "taken"), CUTS)
async def test_a_cut_is_an_error_and_the_broker_has_the_message_or_not(
    broker: Broker, sender: ServiceBusSender, fault: dict[str, Any], taken: bool, size: str, reset: bool
) -> None:
    await broker.inject(**fault, entity="orders", reset=reset)

    with pytest.raises(ServiceBusConnectionError) as raised:
        await sender.send_messages(message(1, size))

    if size != LARGE:  # a connection that ends while it is written to always ends with a reset
        assert ("reset by peer" in str(raised.value)) is reset
    assert await broker.held("orders") == (["0", "1"] if taken else ["0"])
    assert await broker.applied() == {fault["kind"]: 1}
    await sender.send_messages(message(2, size))
    assert (await broker.held("orders"))[-1] == "2"


@pytest.mark.parametrize(("fault", "taken"), CUTS)
async def test_what_is_sent_again_after_a_cut_is_there_once(
    broker: Broker, patient: ServiceBusSender, fault: dict[str, Any], taken: bool
) -> None:
    await broker.inject(**fault, entity="events", count=2)

    await patient.send_messages([message(number) for number in (1, 2, 3)])

    assert await broker.held("events/Subscriptions/named") == ["0", "1", "2", "3"]
    counts = await broker.counts("events")
    # Each of the two attempts that were taken in and cut off is repeated, three messages at a time.
    assert counts["duplicates_dropped"] == (6 if taken else 0)
    assert await broker.applied() == {fault["kind"]: 2}


async def test_a_fault_is_applied_to_its_entity_only(
    broker: Broker, sender: ServiceBusSender, client: ServiceBusClient
) -> None:
    await broker.inject(kind="cut-before-transfer", entity="chats")

    await sender.send_messages(message(1))

    assert await broker.applied() == {}
    async with client.get_queue_sender("chats") as cut:
        with pytest.raises(ServiceBusError):
            await cut.send_messages(message(2, session_id="a"))


async def test_a_late_acknowledgement_is_waited_for_and_later_ones_come_after_it(
    broker: Broker, client: ServiceBusClient
) -> None:
    loop = asyncio.get_running_loop()
    await broker.inject(kind="delay-ack", entity="orders", ms=300)
    async with client.get_queue_sender("orders") as sender:
        started = loop.time()
        await sender.send_messages(message(1))
        assert loop.time() - started >= 0.3
        await sender.send_messages(message(2))

    assert await broker.applied() == {"delay-ack": 1}
    assert await broker.held("orders") == ["1", "2"]


async def test_an_acknowledgement_later_than_the_sender_waits_leaves_the_message_with_the_broker(
    broker: Broker, sender: ServiceBusSender
) -> None:
    await broker.inject(kind="delay-ack", entity="orders", ms=5_000)

    with pytest.raises((OperationTimeoutError, ServiceBusError)):
        await sender.send_messages(message(1), timeout=0.3)

    assert await broker.held("orders") == ["0", "1"]


async def test_a_busy_server_refuses_and_takes_nothing(broker: Broker, sender: ServiceBusSender) -> None:
    await broker.inject(kind="server-busy", entity="orders", count=2)

    for _ in range(2):
        with pytest.raises(ServiceBusServerBusyError, match="throttled"):
            await sender.send_messages(message(1))
    await sender.send_messages(message(2))

    assert await broker.held("orders") == ["0", "2"]
    assert (await broker.counts("orders"))["refused"] == 2
    assert await broker.pending() == []


@pytest.mark.parametrize(
    ("options", "error"),
    [({}, ServiceBusServerBusyError), ({"condition": "amqp:internal-error"}, ServiceBusError)],
    ids=["busy", "internal error"],
)
async def test_one_partition_can_be_unavailable_while_the_others_accept(
    broker: Broker, client: ServiceBusClient, options: dict[str, str], error: type[Exception]
) -> None:
    keys = [f"key-{number}" for number in range(20)]
    down = {key for key in keys if partition_of(key, 4) == 2}
    assert 0 < len(down) < 20
    fault = await broker.inject(kind="partition-unavailable", entity="events", partition=2, of=4, **options)
    refused = set()
    async with client.get_topic_sender("events") as sender:
        for number, key in enumerate(keys):
            try:
                await sender.send_messages([message(each, session_id=key) for each in (number, 100 + number)])
            except error:
                refused.add(key)
        await sender.send_messages(message(200))
        assert refused == down

        await broker.end(fault)
        await sender.send_messages([message(300 + number, session_id=key) for number, key in enumerate(down)])

    assert len(await broker.held("events/Subscriptions/named")) == 2 * (20 - len(down)) + 1 + len(down)


async def test_a_partition_comes_back_when_its_time_is_over(broker: Broker, sender: ServiceBusSender) -> None:
    await broker.inject(kind="partition-unavailable", entity="orders", of=1, for_ms=150)
    attempts = 0
    async with asyncio.timeout(WATCHDOG_S):
        while True:
            try:
                await sender.send_messages(message(1, partition_key="a"))
                break
            except ServiceBusServerBusyError:
                attempts += 1

    assert attempts > 0
    assert await broker.pending() == []
    assert await broker.held("orders") == ["0", "1"]


async def test_a_detached_link_is_attached_anew_by_a_sender_that_retries(
    broker: Broker, sender: ServiceBusSender, patient: ServiceBusSender
) -> None:
    await broker.inject(kind="detach-link", entity="orders")
    await broker.inject(kind="detach-link", entity="events")

    with pytest.raises(ServiceBusError):
        await sender.send_messages(message(1))
    await patient.send_messages(message(1))

    assert await broker.held("orders") == ["0"]
    assert await broker.held("events/Subscriptions/named") == ["0", "1"]
    assert (await broker.counts("events"))["duplicates_dropped"] == 0
    assert await broker.applied() == {"detach-link": 2}


async def test_a_refused_token_is_an_authentication_error_until_it_is_not(
    broker: Broker, client: ServiceBusClient
) -> None:
    await broker.inject(kind="refuse-token", count=2)

    for _ in range(2):
        with pytest.raises(ServiceBusAuthenticationError):
            await client.get_queue_sender("orders").__aenter__()
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages(message(1))

    assert await broker.applied() == {"refuse-token": 2}


async def test_while_tokens_are_refused_links_are_refused_too(broker: Broker, client: ServiceBusClient) -> None:
    async with client.get_queue_receiver("orders") as receiver:
        fault = await broker.inject(kind="refuse-token", entity="orders", for_ms=60_000)

        # The connection has its token: only the new link for management is refused.
        with pytest.raises(ServiceBusError, match="Failed to open mgmt link"):
            await receiver.peek_messages()
        async with client.get_queue_sender("chats"):
            pass
        await broker.end(fault)
        assert await receiver.peek_messages() == []


async def test_a_disabled_entity_is_reported_as_such(broker: Broker, sender: ServiceBusSender) -> None:
    await broker.inject(kind="disable-entity", entity="orders")

    with pytest.raises(ServiceBusError):
        await sender.send_messages(message(1))
    with pytest.raises(MessagingEntityDisabledError):
        await sender.send_messages(message(1))


async def test_a_disabled_entity_is_enabled_again_by_itself(broker: Broker, sender: ServiceBusSender) -> None:
    await broker.inject(kind="disable-entity", entity="orders", for_ms=300)
    assert (await broker.counts("orders"))["status"] == "Disabled"

    async with asyncio.timeout(WATCHDOG_S):
        while await broker.pending():
            await look_again()
    assert (await broker.counts("orders"))["status"] == "Active"


async def test_disabling_one_entity_twice_ends_with_the_status_it_had(broker: Broker) -> None:
    await broker.inject(kind="disable-entity", entity="orders", status="SendDisabled")
    second = await broker.inject(kind="disable-entity", entity="Orders", status="ReceiveDisabled")
    assert (await broker.counts("orders"))["status"] == "ReceiveDisabled"

    await broker.end(second)

    assert (await broker.counts("orders"))["status"] == "Active"


@pytest.mark.parametrize("keep", [True, False])
async def test_a_restart_cuts_everyone_and_keeps_messages_only_if_asked_to(
    broker: Broker, patient: ServiceBusSender, client: ServiceBusClient, keep: bool
) -> None:
    async with client.get_subscription_receiver("events", "all", session_id="a") as receiver:
        await patient.send_messages(message(1, session_id="a"))
        await receiver.receive_messages(1, max_wait_time=WATCHDOG_S)
        await receiver.session.set_state(b"state")

        await broker.restart(keep=keep)

        assert not broker.server.broker.connections
        with pytest.raises(ServiceBusError):
            await receiver.session.get_state()
    await patient.send_messages(message(1, session_id="a"))

    assert await broker.held("events/Subscriptions/named") == (["0", "1"] if keep else ["1"])
    assert (await broker.counts("events"))["duplicates_dropped"] == (1 if keep else 0)
    async with client.get_subscription_receiver("events", "all", session_id="a") as again:
        assert await again.session.get_state() == (b"state" if keep else None)
        assert len(await again.receive_messages(1, max_wait_time=WATCHDOG_S)) == 1
    assert await broker.applied() == {"restart": 1}


async def test_a_broker_that_was_down_for_a_while_is_reached_again(
    broker: Broker, client: ServiceBusClient
) -> None:
    await broker.restart(keep=True, for_ms=1_500)

    with pytest.raises((ServiceBusConnectionError, ServiceBusError)):
        await client.get_queue_sender("orders").__aenter__()
    async with asyncio.timeout(WATCHDOG_S):
        while broker.server.broker.is_down:
            await look_again()
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages(message(1))


@pytest.mark.parametrize(
    ("fault", "condition"),
    [
        ({"kind": "reject"}, "amqp:not-allowed"),
        ({"kind": "reject", "condition": "com.microsoft:argument-error"}, "com.microsoft:argument-error"),
        ({"kind": "internal-error"}, "amqp:internal-error"),
    ],
)
async def test_every_transfer_is_rejected_for_a_while_and_the_link_stays(
    broker: Broker, sender: ServiceBusSender, fault: dict[str, Any], condition: str
) -> None:
    links = len(broker.server.broker.connections)
    fault_id = await broker.inject(**fault, entity="orders", for_ms=60_000)
    for number in (1, 2):
        with pytest.raises(ServiceBusError, match=condition):
            await sender.send_messages([message(number), message(number + 10)])
    await keep_alive(sender)
    await broker.end(fault_id)

    await sender.send_messages(message(3))

    assert await broker.held("orders") == ["0", "3"]
    assert (await broker.counts("orders"))["refused"] == 2
    assert await broker.applied() == {fault["kind"]: 2}
    assert len(broker.server.broker.connections) == links


async def test_a_rejection_can_take_the_link_with_it(broker: Broker, sender: ServiceBusSender) -> None:
    await broker.inject(kind="reject-then-detach", entity="orders")
    with pytest.raises(MessageSizeExceededError):
        await sender.send_messages(message(1))

    await keep_alive(sender)

    # The reason is the link's now, and is raised for messages that were never sent.
    for number in (2, 3):
        with pytest.raises(MessageSizeExceededError):
            await sender.send_messages(message(number))
    assert await broker.held("orders") == ["0"]
    assert (await broker.counts("orders"))["refused"] == 1


async def test_after_other_rejections_the_sdk_opens_another_link_by_itself(
    broker: Broker, sender: ServiceBusSender
) -> None:
    await broker.inject(kind="reject-then-detach", entity="orders", condition="amqp:not-allowed")
    with pytest.raises(ServiceBusError, match="amqp:not-allowed"):
        await sender.send_messages(message(1))

    await sender.send_messages(message(2))

    assert await broker.held("orders") == ["0", "2"]


async def test_a_link_can_be_detached_without_a_reason(broker: Broker, sender: ServiceBusSender) -> None:
    await broker.inject(kind="detach-link", entity="orders", silent=True)

    with pytest.raises(ServiceBusConnectionError, match="amqp:unknown-error"):
        await sender.send_messages(message(1))

    await sender.send_messages(message(2))
    assert await broker.held("orders") == ["0", "2"]


async def test_faults_are_listed_and_can_be_ended(broker: Broker, sender: ServiceBusSender) -> None:
    first = await broker.inject(kind="cut-after-transfer", entity="orders", count=3)
    second = await broker.inject(kind="server-busy", entity="orders", for_ms=60_000)
    with pytest.raises(ServiceBusServerBusyError):
        await sender.send_messages(message(1))

    pending = {each["id"]: each for each in await broker.pending()}
    assert (pending[first]["kind"], pending[first]["count_left"], pending[first]["ms_left"]) == (
        "cut-after-transfer",
        3,
        None,
    )
    assert pending[second]["applied"] == 1
    assert 0 < pending[second]["ms_left"] <= 60_000

    await broker.end(second)
    assert [each["id"] for each in await broker.pending()] == [first]
    assert (await broker.fault(second))["pending"] is False
    await broker.end()
    assert await broker.pending() == []
    await sender.send_messages(message(1))


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        ({}, 400, ["kind is missing"]),
        ({"kind": "nonsense", "entity": "orders"}, 400, ["nonsense", "cut-before-transfer"]),
        ({"kind": "server-busy"}, 400, ["entity is missing"]),
        (
            {"kind": "server-busy", "entity": "orders", "count": 0, "ms": 3},
            400,
            ["count must", "ms is not"],
        ),
        ({"kind": "detach-link", "entity": "orders", "role": "x"}, 400, ["sender, receiver"]),
        ({"kind": "partition-unavailable", "entity": "orders", "partition": 2, "of": 2}, 400, ["less than 'of'"]),
        ({"kind": "partition-unavailable", "entity": "orders", "condition": "x"}, 400, ["amqp:internal-error"]),
        ({"kind": "server-busy", "entity": "nobody"}, 404, ["nobody"]),
        ({"kind": "expire-locks", "entity": "events"}, 404, ["events"]),
    ],
)
async def test_a_fault_that_is_asked_for_wrongly_is_refused_with_all_reasons(
    broker: Broker, fault: dict[str, Any], status: int, words: list[str]
) -> None:
    error = await broker.refused("POST", "/admin/faults", fault, status)

    assert all(word in error for word in words)
    assert "no fault 7" in await broker.refused("GET", "/admin/faults/7", None, 404)
    assert "no fault 7" in await broker.refused("DELETE", "/admin/faults/7", None, 404)
    assert "keep" in await broker.refused("POST", "/admin/restart", {"keep": "yes"}, 400)


async def test_what_is_cut_in_mid_frame_is_the_disposition(broker: Broker, server: ServiceBusServer) -> None:
    seen = bytearray()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, downstream = await asyncio.open_connection("127.0.0.1", server.port)
        async with asyncio.TaskGroup() as both:
            both.create_task(copy(reader, downstream))
            both.create_task(copy(upstream, writer, seen))

    async with await asyncio.start_server(relay, "127.0.0.1", 0) as proxy:
        there = server.connection_string.replace(str(server.port), str(proxy.sockets[0].getsockname()[1]))
        async with (
            ServiceBusClient.from_connection_string(there, retry_total=0, socket_timeout=0.05) as client,
            client.get_queue_sender("orders") as sender,
        ):
            await broker.inject(kind="cut-mid-frame", entity="orders")
            del seen[:]
            with pytest.raises(ServiceBusConnectionError):
                await sender.send_messages(message(1))

    frames = list(FrameReader(65536).feed(bytes(seen)))
    half = bytes(seen)[sum(len(each) for each in frames) :]
    assert [found.code for each in frames if (found := performative(each))].count(DISPOSITION) == 0
    assert len(half) == int.from_bytes(half[:4]) // 2
    assert half[8:11] == bytes((0, 0x53, DISPOSITION))


async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, seen: bytearray | None = None) -> None:
    while data := await source.read(65536):
        if seen is not None:
            seen += data
        target.write(data)
    target.close()
