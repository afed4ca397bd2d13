"""The broker as a process, and its server's start and stop."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from outbox_relay.emulators.program import PROGRAM
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.emulators.servicebus.shorthand import entities_of_names
from tests.support.watchdog import WATCHDOG_S

ENTITIES = Path(__file__).resolve().parents[4] / "infra" / "emulators" / "Config.json"


@pytest.fixture
async def process() -> AsyncIterator[asyncio.subprocess.Process]:
    options = ["--port", "0", "--admin-port", "0", "--tier", "premium", "--exit-with-stdin"]
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "outbox_relay.emulators", "servicebus", "--entities", str(ENTITIES), *options),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    yield running
    if running.returncode is None:
        running.kill()
    await running.communicate()


async def ready(process: asyncio.subprocess.Process) -> dict[str, str]:
    assert process.stdout is not None
    line = (await asyncio.wait_for(process.stdout.readline(), WATCHDOG_S)).decode()
    assert line.startswith("READY ")
    details: dict[str, str] = json.loads(line.removeprefix("READY "))
    return details


async def test_it_reports_that_it_is_ready_serves_and_stops_on_a_signal(
    process: asyncio.subprocess.Process,
) -> None:
    details = await ready(process)
    assert details["part"] == "servicebus"
    async with (
        ServiceBusClient.from_connection_string(details["connection_string"]) as client,
        client.get_topic_sender("domain-events") as sender,
    ):
        assert (await sender.create_message_batch()).max_size_in_bytes == 1024 * 1024
        await sender.send_messages(ServiceBusMessage("x", session_id="s"))

    process.send_signal(signal.SIGTERM)

    assert await asyncio.wait_for(process.wait(), WATCHDOG_S) == 0


async def test_it_goes_with_the_process_that_started_it(process: asyncio.subprocess.Process) -> None:
    await ready(process)
    assert process.stdin is not None

    process.stdin.close()

    assert await asyncio.wait_for(process.wait(), WATCHDOG_S) == 0


async def run(*options: str) -> int:
    """The exit code of the command, run here."""
    call = PROGRAM.parse(["servicebus", *options])
    code: int = await call.function(**call.options)
    return code


def test_edges_are_on_unless_they_are_turned_off() -> None:
    def edges(*options: str) -> int | None:
        call = PROGRAM.parse(["servicebus", "--entities", "Config.json", *options])
        seed: int | None = call.options["options"].edges
        return seed

    assert edges() == 1
    assert edges("--edges", "7", "--idle-ms", "3000") == 7
    assert edges("--edges", "off") is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--edges", "on"], "a whole number or 'off'"),
        (["--idle-ms", "0"], "above 0"),
        (["--idle-ms", "-1"], "--idle-ms"),
        (["--tls", "--tls-name", "münchen"], "a host name in ASCII"),
    ],
)
def test_an_option_that_is_wrong_is_named(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        PROGRAM.parse(["servicebus", *options])

    assert words in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--ca-file", "ca.pem"], ["--tls-name", "servicebus"]])
async def test_a_certificate_is_made_with_tls_only(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert await run(*options) == 1
    assert "add --tls" in capsys.readouterr().err


def test_options_name_queues_and_subscriptions_with_and_without_sessions() -> None:
    entities = entities_of_names(
        ["jobs"], ["orders/all", "orders/mail"], ["carts", "orders/lent", "loans/all", "loans/mail"]
    )

    assert {each.name: each.receiving.requires_session for each in entities.queues} == {
        "jobs": False,
        "carts": True,
    }
    assert {
        topic.name: {each.name: each.receiving.requires_session for each in topic.subscriptions}
        for topic in entities.topics
    } == {"orders": {"all": False, "mail": False, "lent": True}, "loans": {"all": True, "mail": True}}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--queue", "a", "--sessions", "a"], "'a' is given with --sessions and without: give it once"),
        (["--topic", "a/b", "--sessions", "a/b"], "'a/b' is given with --sessions and without"),
        (["--topic", "a", "--sessions", "A"], "has 'a' more than once"),
        (["--sessions", "a/"], "'a/' is neither the name of a queue nor NAME/SUBSCRIPTION"),
        (["--sessions", "a", "--entities", "Config.json"], "give --entities, or --queue, --topic and --sessions"),
    ],
)
async def test_entities_that_contradict_are_named(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(*options, "--port", "0", "--admin-port", "0") == 1
    assert words in capsys.readouterr().err


async def test_a_port_that_is_taken_is_an_error_and_leaves_nothing_open(entities: Entities) -> None:
    async with ServiceBusServer(entities) as first:
        second = ServiceBusServer(entities, admin_port=first.admin_port)
        with pytest.raises(OSError, match="in use"):
            await second.start()
        third = ServiceBusServer(entities, port=second.port)
        await third.start()
        await third.stop()


async def test_stopping_ends_the_clients_connections(entities: Entities) -> None:
    server = ServiceBusServer(entities)
    await server.start()
    async with (
        ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
        client.get_queue_sender("orders") as sender,
    ):
        await sender.send_messages(ServiceBusMessage("x"))

        async with asyncio.timeout(WATCHDOG_S):
            await server.stop()

        assert not server.broker.connections
        with pytest.raises(ServiceBusError):
            await sender.send_messages(ServiceBusMessage("x"))


@pytest.mark.parametrize("junk", [b"\x00" * 64, b"AMQP\x09\x09\x09\x09", b"AMQP\x00\x01"])
async def test_a_client_that_does_not_speak_amqp_affects_no_other(
    server: ServiceBusServer, client: ServiceBusClient, junk: bytes
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(junk)
    writer.write_eof()
    await asyncio.wait_for(reader.read(), WATCHDOG_S)
    writer.close()

    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
