"""The namespace behind mapped ports or under another name."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import ssl
import sys
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient

from emulators.tests.forwarder import forwarded
from outbox_emulators.servicebus.entities import Entities
from outbox_emulators.servicebus.listeners import Tls
from outbox_emulators.servicebus.server import ServiceBusServer

PAGE = Path(__file__).parents[2] / "docs" / "connecting.md"


async def test_messages_pass_through_mapped_ports(entities: Entities) -> None:
    async with ServiceBusServer(entities, edges=None, tls=Tls()) as server:
        assert server.secured is not None
        assert server.secure_connection_strings is not None
        async with forwarded(server.port) as port, forwarded(server.secured.port) as secure_port:
            mapped = server.connection_string.replace(f":{server.port};", f":{port};")
            plain = ServiceBusClient.from_connection_string(mapped, retry_total=0)
            secure = ServiceBusClient.from_connection_string(
                server.secure_connection_strings[0],
                transport_type=TransportType.Amqp,
                connection_verify=str(server.secured.ca_file),
                custom_endpoint_address=f"sb://localhost:{secure_port}",
                retry_total=0,
            )
            for client in (plain, secure):
                async with client, client.get_topic_sender("events") as sender:
                    messages = [ServiceBusMessage(str(n), session_id="ada") for n in range(3)]
                    await sender.send_messages(messages)
                    async with client.get_subscription_receiver("events", "all", session_id="ada") as receiver:
                        received = await receiver.receive_messages(max_message_count=3, max_wait_time=5)
                        for message in received:
                            await receiver.complete_message(message)
                    assert [str(message) for message in received] == ["0", "1", "2"]


async def test_a_public_host_is_in_the_connection_strings_and_the_certificate(tmp_path: Path) -> None:
    [line] = re.findall(r"^outbox-emulators (servicebus .*--public-host .*)$", PAGE.read_text(), re.MULTILINE)
    ports = ("--port", "0", "--admin-port", "0", "--tls-port", "0", "--https-port", "0")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "outbox_emulators", *shlex.split(line), *ports),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        ready = json.loads((await asyncio.wait_for(process.stdout.readline(), 20)).removeprefix(b"READY "))
        trusted = ssl.create_default_context(cafile=tmp_path / "servicebus-ca.pem")
        async with forwarded(ready["tls_port"]) as port:
            for name in ("servicebus.test", "localhost"):
                _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted, server_hostname=name)
                writer.close()
            with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
                await asyncio.open_connection("127.0.0.1", port, ssl=trusted, server_hostname="other.test")
    finally:
        process.terminate()
        _, explained = await process.communicate()

    for kind, key in (("", "port"), ("tls_", "tls_port"), ("https_", "https_port")):
        endpoint = f"Endpoint=sb://servicebus.test:{ready[key]};"
        assert ready[f"{kind}connection_string"].startswith(endpoint)
        assert endpoint in explained.decode()
    assert f"http://servicebus.test:{ready['admin_port']}\n" in explained.decode()
    assert "From elsewhere" in explained.decode()


@pytest.mark.parametrize(
    ("host", "plain", "secure"),
    [
        ("0.0.0.0", "127.0.0.1", "localhost"),
        ("127.0.0.1", "127.0.0.1", "localhost"),
        ("::1", "[::1]", "localhost"),
    ],
)
async def test_the_connection_strings_are_ones_that_this_machine_reaches(
    entities: Entities, host: str, plain: str, secure: str
) -> None:
    server = ServiceBusServer(entities, host=host, edges=None, tls=Tls())
    try:
        await server.start()
    except OSError as error:
        pytest.skip(f"this machine has no {host}: {error}")
    try:
        assert server.secure_connection_strings is not None
        assert server.connection_string.startswith(f"Endpoint=sb://{plain}:{server.port};")
        assert all(text.startswith(f"Endpoint=sb://{secure}:") for text in server.secure_connection_strings)
        _, writer = await asyncio.open_connection(plain.strip("[]"), server.port)
        writer.close()
    finally:
        await server.stop()
