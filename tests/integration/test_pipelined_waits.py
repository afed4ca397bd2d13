"""Every wait of a sender has an end: a peer that goes silent at any step costs a connection, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from azure.servicebus import TransportType
from azure.servicebus.aio import ServiceBusClient

from outbox_relay.emulators.servicebus import codec
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.frames import performative
from outbox_relay.emulators.servicebus.listeners import Tls
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from relay.config.clients import Connection, servicebus_client
from relay.core.errors import RetryableError
from relay.core.evidence import AcceptedLedger
from relay.core.results import KeyOutcome
from relay.servicebus import messages
from relay.servicebus.pipelined.lanes import PipelinedSenders
from relay.servicebus.pool import SenderPool
from relay.servicebus.publisher import ServiceBusPublisher
from relay.servicebus.senders import Senders
from tests.support.amqp_proxy import STEPS, Proxy, with_window
from tests.support.amqp_proxy import Connection as Proxied
from tests.support.broker import topic_counts
from tests.support.outbox import event, sound
from tests.support.watchdog import WATCHDOG_S

pytestmark = [pytest.mark.slow, pytest.mark.weekly]

TOPIC = "domain-events"
WAIT_S = 30.0
LIMIT_S = 4.0


@pytest.fixture
async def proxy(servicebus: ServiceBusServer) -> AsyncIterator[Proxy]:
    async with Proxy(servicebus.port) as running:
        yield running


@pytest.fixture
async def client(proxy: Proxy, servicebus: ServiceBusServer) -> AsyncIterator[ServiceBusClient]:
    async with servicebus_client(Connection(proxy.through(servicebus.connection_string)), retry_total=0) as made:
        yield made


def senders(client: ServiceBusClient, *, pipelined: bool) -> Senders:
    if pipelined:
        return PipelinedSenders(client, TOPIC, 8, open_timeout_s=LIMIT_S)
    return SenderPool(client, TOPIC, 8)


def publisher(senders: Senders, *, send_timeout_s: float = LIMIT_S) -> ServiceBusPublisher:
    return ServiceBusPublisher(
        senders, messages.plain, AcceptedLedger(), send_timeout_s=send_timeout_s, attempt_timeout_s=20, pauses_s=()
    )


async def attempt(publisher: ServiceBusPublisher, *names: str) -> list[KeyOutcome]:
    """One attempt with an event of each key."""
    async with asyncio.timeout(WATCHDOG_S):
        return await publisher.publish({name: [sound(event(f"e-{name}", name))] for name in names})


@pytest.mark.parametrize("pipelined", [True, False], ids=["pipelined", "pool"])
# The pool's link is of the SDK's own session.
@pytest.mark.parametrize("step", STEPS)
async def test_a_peer_that_goes_silent_while_a_link_opens_costs_one_attempt(
    client: ServiceBusClient, proxy: Proxy, step: str, pipelined: bool
) -> None:
    if not pipelined and step == "begin of the link's session":
        pytest.skip("the pool has no session of its own")
    used = senders(client, pipelined=pipelined)
    # The attempt sees the end of the opening, whose limit is shorter.
    sender = publisher(used, send_timeout_s=2 * LIMIT_S)
    proxy.silent_at = step
    try:
        failed = await attempt(sender, "a", "b", "c")
        assert all(isinstance(outcome.error, RetryableError) for outcome in failed)
        proxy.silent_at = None
        connections = proxy.connections

        outcomes = await attempt(publisher(used, send_timeout_s=10), "a", "b", "c")

        assert [outcome.error for outcome in outcomes] == [None] * 3
        assert proxy.connections > connections
    finally:
        await used.close()
    async with asyncio.timeout(WATCHDOG_S):
        while proxy.open_connections:
            await asyncio.sleep(0.02)


async def test_a_tls_handshake_without_an_answer_costs_one_attempt(entities: Entities, tmp_path: Path) -> None:
    async with ServiceBusServer(entities, tls=Tls(ca_file=tmp_path / "ca.pem")) as server:
        assert server.secured is not None
        assert server.secure_connection_strings is not None
        async with Proxy(server.secured.port) as proxy:
            client = ServiceBusClient.from_connection_string(
                server.secure_connection_strings[0],
                # With TLS, the SDK takes a port other than the service's as a custom endpoint only.
                custom_endpoint_address=f"sb://localhost:{proxy.port}",
                transport_type=TransportType.Amqp,
                connection_verify=str(server.secured.ca_file),
                retry_total=0,
            )
            # On a busy machine, certificates and handshake take seconds.
            used = PipelinedSenders(client, TOPIC, 8, open_timeout_s=2 * LIMIT_S)
            proxy.silent_at = "connect"
            try:
                (failed,) = await attempt(publisher(used, send_timeout_s=WAIT_S), "a")
                assert isinstance(failed.error, RetryableError)
                proxy.silent_at = None
                proxy.is_raw = True

                (outcome,) = await attempt(publisher(used, send_timeout_s=WAIT_S), "a")

                assert outcome.error is None
            finally:
                await used.close()
                await client.close()


async def test_one_waiter_that_gives_up_takes_the_opening_from_no_other(
    client: ServiceBusClient, proxy: Proxy
) -> None:
    used = PipelinedSenders(client, TOPIC, 8)
    try:
        impatient = asyncio.create_task(used.shared.link(0.001))
        patient = asyncio.create_task(used.shared.link(WAIT_S))
        with pytest.raises(RetryableError, match="No link"):
            await impatient

        assert (await patient).is_usable
        assert proxy.connections == 1
    finally:
        await used.close()


async def test_a_permit_is_given_back_after_an_error(client: ServiceBusClient, proxy: Proxy) -> None:
    used = PipelinedSenders(client, TOPIC, 1, open_timeout_s=LIMIT_S)
    # With the same limit, the attempt may end before the opening, which the next attempt then joins.
    sender = publisher(used, send_timeout_s=2 * LIMIT_S)
    proxy.silent_at = "open"
    try:
        (failed,) = await attempt(sender, "a")
        assert failed.error is not None
        proxy.silent_at = None

        outcomes = await attempt(publisher(used, send_timeout_s=10), "a", "b", "c")

        assert [outcome.published for outcome in outcomes] == [1, 1, 1]
    finally:
        await used.close()


# Late answers


@pytest.mark.parametrize("pipelined", [True, False], ids=["pipelined", "pool"])
async def test_a_page_completes_though_each_answer_comes_after_the_timeout(
    client: ServiceBusClient, servicebus: ServiceBusServer, pipelined: bool
) -> None:
    used = senders(client, pipelined=pipelined)
    sender = publisher(used, send_timeout_s=1.0)
    names = ["a", "b", "c"]
    try:
        # The links are open.
        await attempt(sender, "x", "y", "z")
        servicebus.broker.ack_delay_ms = 1_600
        failed = await attempt(sender, *names)
        assert all("RELAY_SEND_TIMEOUT_S (1 s)" in str(outcome.error) for outcome in failed)

        # The next attempt has another link; the answers come on the first one.
        (failed_again,) = await attempt(sender, "d")

        async with asyncio.timeout(WATCHDOG_S):
            while not all(sender.has_accepted(sound(event(f"e-{name}", name))) for name in (*names, "d")):
                await asyncio.sleep(0.05)

        assert (await topic_counts(servicebus.admin_port))["accepted"] == 7
        assert "it accepted an earlier transfer after 1." in str(failed_again.error)
        assert "set a larger value" in str(failed_again.error)
    finally:
        await used.close()


async def test_a_link_on_which_a_transfer_has_timed_out_takes_no_further_ones(
    client: ServiceBusClient, proxy: Proxy, servicebus: ServiceBusServer
) -> None:
    used = senders(client, pipelined=True)
    sender = publisher(used, send_timeout_s=1.0)
    try:
        await attempt(sender, "x")
        servicebus.broker.ack_delay_ms = 1_500
        await attempt(sender, "a")
        servicebus.broker.ack_delay_ms = 0

        (outcome,) = await attempt(sender, "b")

        assert outcome.error is None
        assert proxy.connections == 2
    finally:
        await used.close()


# What is given up


async def test_the_last_frames_of_what_was_given_up_never_leave_behind_its_successor(
    client: ServiceBusClient, proxy: Proxy, servicebus: ServiceBusServer
) -> None:
    used = senders(client, pipelined=True)
    left: dict[Proxied, list[bytes]] = {}
    proxy.on_transfer = lambda connection, frame: left.setdefault(connection, []).append(frame)
    # The token is one of the frames of the SDK's own session.
    proxy.rewrite = lambda frame: with_window(frame, 1)
    large = sound(event("large", "a", text="x" * 200_000))
    try:
        (failed,) = await publisher(used, send_timeout_s=0.4).publish({"a": [large]})
        assert "RELAY_SEND_TIMEOUT_S" in str(failed.error)
        (old,) = left
        before = list(left[old])
        proxy.rewrite = lambda frame: frame

        (outcome,) = await publisher(used, send_timeout_s=10).publish(
            {"a": [large, sound(event("successor", "a"))]}
        )
        old.widen(received=1)

        assert outcome.error is None
        async with asyncio.timeout(WATCHDOG_S):
            while proxy.open_connections > 1:
                await asyncio.sleep(0.01)
        assert [_aborts(frame) for frame in left[old][len(before) :]] == [True]
        held = servicebus.broker.namespace.outlet(f"{TOPIC}/Subscriptions/all").messages.peek(0, 10)
        assert [entry.message.message_id for entry in held] == ["large", "successor"]
        assert (await topic_counts(servicebus.admin_port))["accepted"] == 2
    finally:
        await used.close()


def _aborts(transfer: bytes) -> bool:
    found = performative(transfer)
    assert found is not None
    fields = [codec.decode(each)[0] for each in codec.items(transfer, found.fields_at)]
    return len(fields) > 9 and bool(fields[9])
