"""Links, sessions and connections that end with transfers in flight, and unusual answers: what the SDK sees."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import ServiceBusError
from proton import Message

from emulators.tests.servicebus.raw_amqp import WAIT_S, connected
from emulators.tests.servicebus.support import Broker
from outbox_emulators.servicebus.fault_plans import Ending
from outbox_emulators.servicebus.frames import DISPOSITION, FrameReader, performative, without_states
from outbox_emulators.servicebus.server import ServiceBusServer
from outbox_emulators.testing import keep_alive

LARGE = "x" * 200_000


@pytest.fixture
def broker(admin: aiohttp.ClientSession, server: ServiceBusServer) -> Broker:
    return Broker(admin, server)


@pytest.fixture
async def sender(client: ServiceBusClient) -> AsyncIterator[ServiceBusSender]:
    async with client.get_queue_sender("orders") as opened:
        await opened.send_messages(ServiceBusMessage("0", message_id="0"))
        yield opened


def message(identifier: str, text: str = "x", **fields: Any) -> ServiceBusMessage:
    return ServiceBusMessage(text, message_id=identifier, **fields)


@pytest.mark.parametrize("taken", [False, True], ids=["not taken", "taken"])
@pytest.mark.parametrize("how", Ending)
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
            await asyncio.wait_for(sender.send_messages(message(identifier)), 10)
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
        await asyncio.sleep(0.01)
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
            await asyncio.wait_for(sender.send_messages(message(str(number))), 10)
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
            connection.wait(lambda: begun.pending == 0, timeout=WAIT_S)
            begun.abort()
            sender.send(Message("x", id="2"))

    await asyncio.to_thread(abort_one_and_send_another)

    assert await broker.held("orders") == ["2"]
