"""A peer that falls silent at a step of its handshake: what the SDK sees, and that other connections go on."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from emulators.tests.servicebus.support import Broker
from outbox_emulators.servicebus.entities import Entities
from outbox_emulators.servicebus.fault_plans import Step
from outbox_emulators.servicebus.frames import HEARTBEAT
from outbox_emulators.servicebus.sasl import HEADER
from outbox_emulators.servicebus.server import ServiceBusServer

SILENT_S = 0.6


@pytest.fixture
def broker(admin: aiohttp.ClientSession, server: ServiceBusServer) -> Broker:
    return Broker(admin, server)


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
        await asyncio.sleep(0.01)
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
    await asyncio.wait_for(send(server, "1"), 10)

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

    await asyncio.wait_for(send(server, "1"), 10)

    assert (await broker.fault(fault))["applied"] == 0


async def test_heartbeats_come_from_a_silent_peer_only_when_asked_for(
    broker: Broker, server: ServiceBusServer
) -> None:
    fault = await broker.inject(kind="silent-handshake", step="sasl", heartbeats=True)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(HEADER)
    while not (await broker.fault(fault))["applied"]:
        await asyncio.sleep(0.01)

    # Before the open is answered no frame may be sent.
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), 1.5)
    writer.close()

    await broker.inject(kind="silent-handshake", step="begin", heartbeats=True)
    sending = asyncio.create_task(send(server, "1"))
    while not (beating := [each for each in server.broker.connections if vars(each)["_held"]]):
        await asyncio.sleep(0.01)
    assert beating[0].is_open
    assert bytes.fromhex("0000000802000000") == HEARTBEAT
    # The SDK can swallow one cancellation while it opens a link.
    while not sending.done():
        sending.cancel()
        await asyncio.wait([sending], timeout=0.1)
