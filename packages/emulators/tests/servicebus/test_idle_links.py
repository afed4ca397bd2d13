"""Links and connections that the broker ends while nobody uses them, and when one was last active."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError, ServiceBusError
from proton import Event, Message
from proton.utils import LinkDetached

from outbox_relay.emulators.servicebus.edges import Edge
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.frames import DeliveryTracker
from outbox_relay.emulators.servicebus.link_table import LinkTable
from outbox_relay.emulators.servicebus.links import LinkEndpoint
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.emulators.testing import keep_alive
from packages.emulators.tests.servicebus.raw_amqp import connected
from packages.emulators.tests.servicebus.support import Broker
from tests.support.waiting import elapse, look_again
from tests.support.watchdog import WATCHDOG_S

IDLE_MS = 600_000
IDLE_S = IDLE_MS / 1000
UNANSWERED_MS = 300
IDLE_ENDS = {
    Edge.IDLE_LINK_DETACHED,
    Edge.IDLE_LINK_DETACHED_WITH_ERROR,
    Edge.IDLE_CONNECTION_CLOSED,
    Edge.IDLE_CONNECTION_CLOSED_WITH_ERROR,
}


@pytest.fixture
async def patient(server: ServiceBusServer) -> AsyncIterator[ServiceBusClient]:
    async with ServiceBusClient.from_connection_string(
        server.connection_string, retry_total=3, retry_backoff_factor=0.01, socket_timeout=0.05
    ) as client:
        yield client


async def send(sender: ServiceBusSender, identifier: str) -> None:
    await sender.send_messages(ServiceBusMessage(identifier, message_id=identifier))


@pytest.mark.parametrize(
    ("kind", "silent", "reads"),
    [
        ("detach-idle", False, False),
        ("detach-idle", True, True),
        ("close-idle", False, True),
        ("close-idle", True, False),
    ],
)
async def test_a_sender_that_retries_rides_out_the_end_of_its_link(
    broker: Broker, patient: ServiceBusClient, kind: str, silent: bool, reads: bool
) -> None:
    async with patient.get_queue_sender("orders") as sender:
        await send(sender, "1")
        await broker.inject(kind=kind, entity="orders", silent=silent)
        if reads:
            await keep_alive(sender)

        await send(sender, "2")

    assert await broker.held("orders") == ["1", "2"]
    assert await broker.applied() == {kind: 1}


@pytest.mark.parametrize("silent", [False, True], ids=["with a reason", "without"])
@pytest.mark.parametrize("kind", ["detach-idle", "close-idle"])
async def test_a_receiver_that_retries_rides_out_the_end_of_its_link(
    broker: Broker, patient: ServiceBusClient, kind: str, silent: bool
) -> None:
    async with patient.get_queue_sender("orders") as sender, patient.get_queue_receiver("orders") as receiver:
        await broker.inject(kind=kind, entity="orders", role="receiver", silent=silent)
        await send(sender, "1")

        found = await receiver.receive_messages(1, max_wait_time=5)
        if not found:
            found = await receiver.receive_messages(1, max_wait_time=5)

    assert [message.message_id for message in found] == ["1"]


class IdleTime:
    """The time by which links idle; it passes when a test says so. The broker's own timer never comes to look."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def pass_by(self, server: ServiceBusServer, seconds: float) -> None:
        """Let time pass, and let the broker look."""
        self.now_s += seconds
        server.idle_links.look()


@pytest.fixture
def idle_time() -> IdleTime:
    return IdleTime()


async def test_what_has_an_answer_to_come_does_not_idle(entities: Entities, idle_time: IdleTime) -> None:
    async with (
        ServiceBusServer(
            entities, edges=None, idle_ms=IDLE_MS, idle_clock=idle_time, ack_delay_ms=UNANSWERED_MS
        ) as server,
        ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sending = asyncio.create_task(send(sender, "1"))
        async with asyncio.timeout(WATCHDOG_S):
            while not server.broker.namespace.outlet("orders").messages.peek(0, 1):
                await look_again()
        idle_time.pass_by(server, IDLE_S)
        await sending

        assert server.broker.edges.met == {}
        idle_time.pass_by(server, IDLE_S)
        assert server.broker.edges.met == {Edge.IDLE_LINK_DETACHED_WITH_ERROR: 1}


async def test_a_receiver_that_waits_for_a_session_does_not_idle(entities: Entities, idle_time: IdleTime) -> None:
    async with (
        ServiceBusServer(entities, edges=None, idle_ms=IDLE_MS, idle_clock=idle_time) as server,
        ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
    ):

        def waits() -> bool:
            endpoints = [each for connection in server.broker.connections for each in connection.links.endpoints()]
            return any(endpoint.is_busy for endpoint in endpoints)

        waiting = client.get_queue_receiver("chats", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=0.5)
        opening = asyncio.create_task(waiting.__aenter__())
        async with asyncio.timeout(WATCHDOG_S):
            while not waits():
                await look_again()
            idle_time.pass_by(server, IDLE_S)
            with pytest.raises(OperationTimeoutError):
                await opening

        assert Edge.IDLE_LINK_DETACHED_WITH_ERROR not in server.broker.edges.met


async def test_a_link_that_idles_is_detached_and_its_connection_closed_after_it(
    entities: Entities, idle_time: IdleTime
) -> None:
    async with (
        ServiceBusServer(entities, edges=None, idle_ms=IDLE_MS, idle_clock=idle_time) as server,
        ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
        client.get_queue_sender("orders") as sender,
    ):
        await send(sender, "1")
        idle_time.pass_by(server, IDLE_S)
        assert server.broker.edges.met == {Edge.IDLE_LINK_DETACHED_WITH_ERROR: 1}
        await keep_alive(sender)
        with pytest.raises(ServiceBusConnectionError, match=r"IdleTimerExpired: Idle timeout: 0:10:00"):
            await send(sender, "2")
        await send(sender, "2")
        idle_time.pass_by(server, IDLE_S)
        assert server.broker.edges.met[Edge.IDLE_LINK_DETACHED_WITH_ERROR] == 2
        idle_time.pass_by(server, IDLE_S / 2)
        assert server.broker.edges.met[Edge.IDLE_CONNECTION_CLOSED_WITH_ERROR] == 1

        async with asyncio.timeout(WATCHDOG_S):
            while server.broker.connections:
                await look_again()
        with pytest.raises(ServiceBusError):
            await send(sender, "3")
        await send(sender, "4")


async def test_a_link_in_use_does_not_idle(entities: Entities, idle_time: IdleTime) -> None:
    async with (
        ServiceBusServer(entities, edges=None, idle_ms=IDLE_MS, idle_clock=idle_time) as server,
        ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
        client.get_queue_sender("orders") as sender,
    ):
        for _ in range(4):
            await send(sender, "x")
            idle_time.pass_by(server, 0.9 * IDLE_S)

        assert server.broker.edges.met == {}


async def test_a_connection_with_a_link_in_use_is_not_closed_for_those_that_idle(
    entities: Entities, idle_time: IdleTime
) -> None:
    idle = 8
    async with ServiceBusServer(entities, edges=3, idle_ms=IDLE_MS, idle_clock=idle_time) as server:
        met = server.broker.edges.met
        loop = asyncio.get_running_loop()

        def use() -> None:
            with connected(server) as connection:
                sender = connection.create_sender("orders")
                for number in range(idle):
                    connection.create_receiver("slow", credit=0, name=f"idle-{number}")
                for share in (0.9, 0.2):
                    sender.send(Message(body="x"))
                    asyncio.run_coroutine_threadsafe(let_pass(share), loop).result()
                detached = 0
                while detached < idle:
                    try:
                        sender.send(Message(body="x"))
                    except LinkDetached:
                        detached += 1

        async def let_pass(share: float) -> None:
            idle_time.pass_by(server, share * IDLE_S)

        async with asyncio.timeout(WATCHDOG_S):
            await asyncio.to_thread(use)

        assert met[Edge.IDLE_LINK_DETACHED] + met[Edge.IDLE_LINK_DETACHED_WITH_ERROR] == idle
        assert not met.keys() & {Edge.IDLE_CONNECTION_CLOSED, Edge.IDLE_CONNECTION_CLOSED_WITH_ERROR}


async def test_the_broker_looks_by_itself(entities: Entities) -> None:
    async with ServiceBusServer(entities, edges=None, idle_ms=100) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)

        async with asyncio.timeout(WATCHDOG_S):
            while not server.broker.edges.met[Edge.IDLE_CONNECTION_CLOSED_WITH_ERROR]:
                await look_again()
        writer.close()
        await writer.wait_closed()


async def test_the_seed_decides_how_what_idles_ends_and_draws_all_of_it(
    entities: Entities, idle_time: IdleTime
) -> None:
    async with (
        ServiceBusServer(entities, edges=3, idle_ms=IDLE_MS, idle_clock=idle_time) as server,
        ServiceBusClient.from_connection_string(
            server.connection_string, retry_total=10, retry_backoff_factor=0.01, socket_timeout=0.02
        ) as client,
        client.get_queue_sender("orders") as sender,
    ):
        met = server.broker.edges.met

        sent = 0
        async with asyncio.timeout(WATCHDOG_S):
            while not met.keys() >= IDLE_ENDS:
                await send(sender, str(sent))
                sent += 1
                before = sum(met[edge] for edge in IDLE_ENDS)
                idle_time.pass_by(server, IDLE_S)
                assert sum(met[edge] for edge in IDLE_ENDS) > before

        outlet = server.broker.namespace.outlet("orders").messages
        received = Counter(entry.message.message_id for entry in outlet.peek(0, 1_000))
        assert received.keys() == {str(number) for number in range(sent)}


# When a connection was last active: what its links carry counts, and so do links that come and go


class FakeLink:
    """A link of the engine that does nothing."""

    _impl = "the engine's C object"

    def close(self) -> None:
        pass


class QuietEndpoint(LinkEndpoint):
    """An endpoint that answers nothing."""

    def open(self) -> None:
        pass


@pytest.fixture
async def links() -> LinkTable:
    return LinkTable(QuietEndpoint, DeliveryTracker(), lambda: None)


async def later() -> float:
    """Let a moment pass that the loop's clock can measure; returns the time after it."""
    await elapse(0.01)
    return asyncio.get_running_loop().time()


async def test_a_connection_is_active_when_a_link_is_attached_carries_something_or_ends(links: LinkTable) -> None:
    link = FakeLink()

    for kind in (Event.LINK_REMOTE_OPEN, Event.LINK_FLOW, Event.LINK_REMOTE_CLOSE):
        before = await later()
        assert links.active_s < before
        links.handle(kind, link)
        assert links.active_s >= before

    assert links.items() == []
