"""How much processor time a process has used, the relay without a network, and a proxy that counts what passes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from local.stack.processor import processor_seconds
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from verification.bench.documents import Source, Workload
from verification.bench.offline import offline_relay
from verification.bench.wiretap import Wiretap, Work

ROOT = Path(__file__).resolve().parents[3]
TOPIC = "domain-events"


@pytest.fixture
async def server() -> AsyncIterator[ServiceBusServer]:
    async with ServiceBusServer(Entities.from_file(ROOT / "infra" / "emulators" / "Config.json")) as server:
        yield server


async def test_it_counts_connections_links_sends_and_batches(server: ServiceBusServer) -> None:
    async with Wiretap(server.port) as tap:
        async with (
            ServiceBusClient.from_connection_string(tap.through(server.connection_string)) as client,
            client.get_topic_sender(TOPIC) as one,
            client.get_topic_sender(TOPIC) as other,
        ):
            await one.send_messages(ServiceBusMessage("a", session_id="s"))
            await other.send_messages([ServiceBusMessage(text, session_id="s") for text in "bc"])

        work = tap.work
        assert (work.connections, work.links, work.sends, work.batches) == (2, 2, 2, 1)
        assert 0 < work.payload_bytes < work.bytes


async def test_a_send_of_several_frames_is_one_send(server: ServiceBusServer) -> None:
    async with Wiretap(server.port) as tap:
        async with (
            ServiceBusClient.from_connection_string(tap.through(server.connection_string)) as client,
            client.get_topic_sender(TOPIC) as sender,
        ):
            await sender.send_messages(ServiceBusMessage("x" * 200_000, session_id="s"))

        assert (tap.work.sends, tap.work.batches) == (1, 0)
        assert 200_000 < tap.work.payload_bytes < 202_000


async def test_it_closes_while_a_client_is_still_connected(server: ServiceBusServer) -> None:
    async with Wiretap(server.port) as tap:
        client = ServiceBusClient.from_connection_string(tap.through(server.connection_string), retry_total=0)
        sender = client.get_topic_sender(TOPIC)
        await sender.send_messages(ServiceBusMessage("a", session_id="s"))

    await sender.close()
    await client.close()
    assert tap.work.connections == 1


def test_work_is_subtracted_field_by_field() -> None:
    before = Work(connections=1, sends=2)

    assert Work(connections=3, sends=2, bytes=5) - before == Work(connections=2, sends=0, bytes=5)


# How much processor time a process has used


_BURNT_S = 0.3
_BURN = f"""
import sys, time
while time.process_time() < {_BURNT_S}:
    pass
print("done", flush=True)
sys.stdin.read()
"""
_PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_BURN!r}])"


def test_processor_time_is_counted_with_the_descendants_but_of_this_process_alone() -> None:
    own = psutil.Process()
    before = processor_seconds(own)
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "done\n"

        assert processor_seconds(psutil.Process(parent.pid)) >= _BURNT_S
        assert processor_seconds(own) - before < _BURNT_S
        parent.communicate("")


# The relay without a network


async def test_its_senders_accept_every_batch() -> None:
    (documents,) = Source(1).invocations(Workload(keys=4, per_key=3, others=0.5), 1)

    with offline_relay() as (relay, senders):
        result = await relay.handle(documents, "i1")

    assert (result.published, result.sends) == (12, 4)
    assert [len(transfer.events) for transfer in senders.accepted] == [3] * 4
