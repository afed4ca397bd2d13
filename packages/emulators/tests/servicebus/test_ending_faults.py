"""Links, sessions and connections that end with transfers in flight, and peers that fall silent in a handshake."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import ServiceBusError
from proton import Message

from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.fault_plans import Ending, Step
from outbox_relay.emulators.servicebus.frames import (
    DISPOSITION,
    HEARTBEAT,
    FrameReader,
    performative,
    without_states,
)
from outbox_relay.emulators.servicebus.sasl import HEADER
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.emulators.testing import keep_alive
from packages.emulators.tests.servicebus.raw_amqp import connected
from packages.emulators.tests.servicebus.support import Broker
from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S

LARGE = "x" * 200_000


def message(identifier: str, text: str = "x", **fields: Any) -> ServiceBusMessage:
    return ServiceBusMessage(text, message_id=identifier, **fields)


# Each way to end once: the broker takes the message in the same way before each.
@pytest.mark.parametrize(("how", "taken"), [(how, number % 2 == 1) for number, how in enumerate(Ending)])
async def test_an_end_is_an_error_for_the_transfer_in_flight_and_another_sender_goes_on(
    broker: Broker, client: ServiceBusClient, sender: ServiceBusSender, how: Ending, taken: bool
) -> None:
    fault = await broker.inject(kind="end-on-transfer", entity="orders", how=how, taken=taken, ms=50)

    # azure-servicebus 7.15.0 does not notice that a session ends: it waits for longer than a minute.
    with pytest.raises((ServiceBusError, TimeoutError)):
        async with asyncio.timeout(2):
            await sender.send_messages(message("1"))
    async with client.get_queue_sender("orders") as another:
        await another.send_messages(message("2"))

    assert (await broker.fault(fault))["applied"] == 1
    assert await broker.held("orders") == (["0", "1", "2"] if taken else ["0", "2"])


async def test_what_is_refused_is_not_taken_at_an_end_either(
    broker: Broker, client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    await broker.inject(kind="reject", entity="orders", condition="amqp:not-allowed", message_id="bad-*")
    await broker.inject(kind="end-on-transfer", entity="orders", how="link", taken=True)

    with pytest.raises(ServiceBusError):
        await sender.send_messages(message("bad-1"))

    assert await broker.held("orders") == ["0"]


@pytest.mark.parametrize(
    "chosen",
    [{"message_id": "bad-*"}, {"message_id": "bad-1"}, {"property": "harmful"}, {"session_id": "s"}],
    ids=["by the id's beginning", "by id", "by property", "by session"],
)
async def test_a_chosen_message_ends_the_link_each_time_and_others_pass(
    broker: Broker, client: ServiceBusClient, chosen: dict[str, str]
) -> None:
    fault = await broker.inject(kind="end-on-transfer", entity="orders", how="link", **chosen)
    bad: dict[str, Any] = {"application_properties": {"harmful": 1}, "session_id": "s"}

    for number in range(3):
        async with client.get_queue_sender("orders") as sender:
            await sender.send_messages(message(f"good-{number}"))
            with pytest.raises(ServiceBusError):
                await sender.send_messages(message("bad-1", **bad))

    assert (await broker.fault(fault))["applied"] >= 3
    assert await broker.held("orders") == ["good-0", "good-1", "good-2"]


async def test_a_refused_message_is_refused_for_ever_alone_and_in_a_batch(
    broker: Broker, sender: ServiceBusSender
) -> None:
    await broker.inject(kind="reject", entity="orders", message_id="bad-*", condition="amqp:decode-error")
    batch = await sender.create_message_batch()
    for identifier in ("1", "bad-2"):
        batch.add_message(message(identifier))

    for refused in (message("bad-1"), batch, message("bad-1")):
        with pytest.raises(ServiceBusError, match="amqp:decode-error"):
            await sender.send_messages(refused)
    await sender.send_messages(message("3"))

    assert await broker.held("orders") == ["0", "3"]


async def test_a_topic_that_refuses_everything_still_accepts_repeats(
    broker: Broker, client: ServiceBusClient
) -> None:
    async with client.get_topic_sender("events") as sender:
        await sender.send_messages(message("1", subject="Named"))
        await broker.inject(kind="reject", entity="events", for_ms=60_000, accepts_repeats=True)

        await sender.send_messages(message("1", subject="Named"))
        with pytest.raises(ServiceBusError, match="amqp:not-allowed"):
            await sender.send_messages(message("2", subject="Named"))
        mixed = await sender.create_message_batch()
        for identifier in ("1", "2"):
            mixed.add_message(message(identifier, subject="Named"))
        with pytest.raises(ServiceBusError, match="amqp:not-allowed"):
            await sender.send_messages(mixed)

    counts = await broker.counts("events")
    assert (counts["accepted"], counts["duplicates_dropped"]) == (2, 1)


async def test_an_error_whose_info_has_described_types_arrives(broker: Broker, sender: ServiceBusSender) -> None:
    await broker.inject(kind="reject", entity="orders", described_info=True)

    with pytest.raises(ServiceBusError, match="amqp:not-allowed"):
        await sender.send_messages(message("1"))
    await sender.send_messages(message("2"))

    assert await broker.held("orders") == ["0", "2"]


async def test_a_settlement_in_two_dispositions_accepts_the_transfer(
    broker: Broker, sender: ServiceBusSender
) -> None:
    fault = await broker.inject(kind="settle-in-two", entity="orders", ms=20, count=2)

    # azure-servicebus 7.15.0 takes the second disposition, which has no state, for a failure.
    for identifier in ("1", "2"):
        try:
            await asyncio.wait_for(sender.send_messages(message(identifier)), WATCHDOG_S)
        except ServiceBusError:
            continue

    assert (await broker.fault(fault))["applied"] == 2
    assert await broker.held("orders") == ["0", "1", "2"]


def test_only_dispositions_lose_their_state() -> None:
    accepted = bytes.fromhex("0000001602000000005315c009054143404100532445")
    empty = bytes.fromhex("0000000802000000")

    (first, second) = FrameReader(1000).feed(without_states(accepted + empty))

    found = performative(first)
    assert found is not None
    assert found.code == DISPOSITION
    assert first.hex() == "0000001202000000005315c0050441434041"
    assert second == empty


async def test_a_stalled_transfer_of_several_frames_arrives_later(
    broker: Broker, sender: ServiceBusSender
) -> None:
    fault = await broker.inject(kind="stall-transfer", entity="orders", ms=400)
    loop = asyncio.get_running_loop()

    started = loop.time()
    await sender.send_messages(message("1", LARGE))

    assert loop.time() - started >= 0.4
    assert (await broker.fault(fault))["applied"] == 1
    assert await broker.held("orders") == ["0", "1"]


async def test_a_transfer_that_is_given_up_while_it_stalls_is_dropped_with_its_connection(
    broker: Broker, server: ServiceBusServer, client: ServiceBusClient
) -> None:
    fault = await broker.inject(kind="stall-transfer", entity="orders", ms=60_000)
    sender = client.get_queue_sender("orders")

    sending = asyncio.create_task(sender.send_messages(message("1", LARGE)))
    while not (await broker.fault(fault))["applied"]:
        await look_again()
    for connection in list(server.broker.connections):
        connection.abort()
    await asyncio.gather(sending, return_exceptions=True)
    await sender.close()
    async with client.get_queue_sender("orders") as another:
        await another.send_messages(message("2"))

    assert await broker.held("orders") == ["2"]


async def test_a_session_begun_by_the_broker_does_not_disturb_the_sender(
    broker: Broker, client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    fault = await broker.inject(kind="begin-session", entity="orders")

    for number in (1, 2):
        try:
            await asyncio.wait_for(sender.send_messages(message(str(number))), WATCHDOG_S)
        except ServiceBusError:
            await keep_alive(sender)
    async with client.get_queue_sender("orders") as another:
        await another.send_messages(message("3"))

    assert (await broker.fault(fault))["applied"] == 1
    assert "3" in await broker.held("orders")


async def test_a_transfer_that_the_client_aborts_is_dropped(broker: Broker, server: ServiceBusServer) -> None:
    def abort_one_and_send_another() -> None:
        with connected(server) as connection:
            sender = connection.create_sender("orders")
            begun = sender.link.delivery("1")
            sender.link.stream(Message(LARGE).encode()[:150_000])
            connection.wait(lambda: begun.pending == 0, timeout=WATCHDOG_S)
            begun.abort()
            sender.send(Message("x", id="2"))

    await asyncio.to_thread(abort_one_and_send_another)

    assert await broker.held("orders") == ["2"]


# A peer that falls silent at a step of its handshake: what the SDK sees, and that other connections go on


SILENT_S = 0.6


async def send(server: ServiceBusServer, identifier: str) -> None:
    async with (
        ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
        client.get_queue_sender("orders") as sender,
    ):
        await sender.send_messages(ServiceBusMessage("x", message_id=identifier))


@pytest.mark.parametrize("step", Step)
async def test_a_silent_handshake_is_never_answered_and_another_connection_is(
    broker: Broker, server: ServiceBusServer, step: Step
) -> None:
    fault = await broker.inject(kind="silent-handshake", step=step, entity="orders")

    first = asyncio.create_task(send(server, "1"))
    while not (await broker.fault(fault))["applied"]:
        await look_again()
    done, _ = await asyncio.wait([first], timeout=SILENT_S)
    await send(server, "2")

    assert not done
    assert await broker.held("orders") == ["2"]
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)


@pytest.mark.parametrize("step", Step)
async def test_a_handshake_that_is_silent_for_a_while_goes_on(
    broker: Broker, server: ServiceBusServer, step: Step
) -> None:
    fault = await broker.inject(kind="silent-handshake", step=step, ms=300)

    started = asyncio.get_running_loop().time()
    await asyncio.wait_for(send(server, "1"), WATCHDOG_S)

    assert asyncio.get_running_loop().time() - started >= 0.3
    assert (await broker.fault(fault))["applied"] == 1
    assert await broker.held("orders") == ["1"]


async def test_a_silent_connection_is_not_closed_as_idle(entities: Entities) -> None:
    async with (
        ServiceBusServer(entities, edges=None, idle_ms=100) as server,
        aiohttp.ClientSession(f"http://127.0.0.1:{server.admin_port}") as admin,
    ):
        await Broker(admin, server).inject(kind="silent-handshake", step="sasl")
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(HEADER)

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.5)
        writer.close()


async def test_the_attach_to_another_entity_is_answered(broker: Broker, server: ServiceBusServer) -> None:
    fault = await broker.inject(kind="silent-handshake", step="attach", entity="chats")

    await asyncio.wait_for(send(server, "1"), WATCHDOG_S)

    assert (await broker.fault(fault))["applied"] == 0


async def test_heartbeats_come_from_a_silent_peer_only_when_asked_for(
    broker: Broker, server: ServiceBusServer
) -> None:
    fault = await broker.inject(kind="silent-handshake", step="sasl", heartbeats=True)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(HEADER)
    while not (await broker.fault(fault))["applied"]:
        await look_again()

    # Before the open is answered no frame may be sent.
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), 1.5)
    writer.close()

    await broker.inject(kind="silent-handshake", step="begin", heartbeats=True)
    sending = asyncio.create_task(send(server, "1"))
    while not (beating := [each for each in server.broker.connections if vars(each)["_held"]]):
        await look_again()
    assert beating[0].is_open
    assert bytes.fromhex("0000000802000000") == HEARTBEAT
    # The SDK can swallow one cancellation while it opens a link.
    while not sending.done():
        sending.cancel()
        await asyncio.wait([sending], timeout=0.1)
