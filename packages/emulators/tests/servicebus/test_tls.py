"""TLS and WebSockets with the real SDK, which trusts the emulator's certificate, and mapped ports."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientConnectorCertificateError, WSMsgType, WSServerHandshakeError
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient as BlockingAdministrationClient

from outbox_relay.emulators.servicebus.certificates import issue
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.listeners import Secured
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.emulators.testing import Tls, servicebus_namespace
from packages.emulators.tests.forwarder import forwarded
from tests.support.watchdog import WATCHDOG_S

KINDS = [TransportType.Amqp, TransportType.AmqpOverWebsocket]
WEBSOCKET = "/$servicebus/websocket"


@pytest.fixture
async def secure(entities: Entities, tmp_path: Path) -> AsyncIterator[ServiceBusServer]:
    tls = Tls(ca_file=tmp_path / "ca.pem")
    async with ServiceBusServer(entities, edges=None, tls=tls, websockets=True) as running:
        yield running


def secured(server: ServiceBusServer) -> Secured:
    assert server.secured is not None
    return server.secured


def client_of(server: ServiceBusServer, kind: TransportType, **options: Any) -> ServiceBusClient:
    """A client with TLS: this SDK takes a port other than the service's as a custom endpoint only."""
    found, strings = secured(server), server.secure_connection_strings
    assert strings is not None
    port = found.port if kind is TransportType.Amqp else found.https_port
    settings: dict[str, Any] = {"connection_verify": str(found.ca_file), "retry_total": 0, **options}
    return ServiceBusClient.from_connection_string(
        strings[0], transport_type=kind, custom_endpoint_address=f"sb://127.0.0.1:{port}", **settings
    )


@asynccontextmanager
async def released(socket: object) -> AsyncIterator[None]:
    """Release the connection of a client's WebSocket at the end.

    `ClientWebSocketResponse.receive` of aiohttp (3.14) does not, if it finds that the connection is lost, and
    its `close` does nothing after that.
    """
    try:
        yield
    finally:
        if isinstance(socket, aiohttp.ClientWebSocketResponse):
            socket._response.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_messages_of_every_size_pass(secure: ServiceBusServer, kind: TransportType) -> None:
    # Together they are more than what is kept for a client that has yet to read.
    bodies = [b"small", *([bytes(200_000)] * 8)]
    received: list[bytes] = []
    async with (
        client_of(secure, kind, socket_timeout=2) as client,
        client.get_queue_sender("orders") as sender,
        client.get_queue_receiver("orders", prefetch_count=20) as receiver,
    ):
        for total in (len(bodies), 2 * len(bodies)):
            for body in bodies:
                await sender.send_messages(ServiceBusMessage(body))
            while len(received) < total:
                for message in await receiver.receive_messages(max_message_count=20, max_wait_time=WATCHDOG_S):
                    await receiver.complete_message(message)
                    received.append(b"".join(message.body))

    assert received == bodies * 2
    assert secure.broker.namespace.outlet("orders").messages.counts().active == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_a_client_that_does_not_trust_the_certificate_is_not_served(
    secure: ServiceBusServer, kind: TransportType, tmp_path: Path
) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(issue().authority)

    async with client_of(secure, kind, connection_verify=str(other)) as client:
        with pytest.raises(ServiceBusError, match=r"(?i)certificate"):
            await client.get_queue_sender("orders").__aenter__()


async def test_the_administration_api_is_served_over_https(secure: ServiceBusServer) -> None:
    strings = secure.secure_connection_strings
    assert strings is not None
    ca_file = str(secured(secure).ca_file)
    async with ServiceBusAdministrationClient.from_connection_string(
        strings[1], connection_verify=ca_file
    ) as administration:
        await administration.create_queue("made")
        assert "made" in [queue.name async for queue in administration.list_queues()]


async def test_websockets_are_served_without_tls_too(secure: ServiceBusServer) -> None:
    async with (
        ServiceBusClient.from_connection_string(
            secure.connection_string,
            transport_type=TransportType.AmqpOverWebsocket,
            custom_endpoint_address=f"sb://127.0.0.1:{secure.admin_port}",
        ) as client,
        client.get_queue_sender("orders") as sender,
    ):
        await sender.send_messages(ServiceBusMessage("x"))

    assert secure.broker.namespace.outlet("orders").messages.counts().active == 1


async def test_a_websocket_is_cut_and_its_client_comes_back(secure: ServiceBusServer) -> None:
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{secure.admin_port}") as admin,
        client_of(secure, TransportType.AmqpOverWebsocket, retry_total=3, retry_backoff_factor=0.01) as client,
        client.get_queue_sender("orders") as sender,
    ):
        await sender.send_messages(ServiceBusMessage("before"))
        fault = {"kind": "cut-before-transfer", "entity": "orders"}
        async with admin.post("/admin/faults", json=fault) as answer:
            assert answer.status == 200
        await sender.send_messages(ServiceBusMessage("after"))
        async with admin.get("/admin/faults") as answer:
            assert (await answer.json())["applied"] == {"cut-before-transfer": 1}

    assert secure.broker.namespace.outlet("orders").messages.counts().active == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_stopping_ends_the_connections(entities: Entities, kind: TransportType) -> None:
    server = ServiceBusServer(entities, edges=None, tls=Tls(), websockets=True)
    await server.start()
    ca_file = secured(server).ca_file
    async with client_of(server, kind) as client, client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
        connection = sender._handler._connection
        async with released(getattr(getattr(connection, "_transport", None), "sock", None)):
            async with asyncio.timeout(WATCHDOG_S):
                await server.stop()
            assert not server.broker.connections
            await sender.close()
    assert not ca_file.exists()


async def test_a_client_without_the_subprotocol_or_with_text_is_refused(secure: ServiceBusServer) -> None:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{secure.admin_port}") as session:
        async with session.get(WEBSOCKET) as answer:
            assert answer.status == 400
        async with session.ws_connect(WEBSOCKET) as socket:
            closed = await socket.receive(5)
            assert (closed.data, "AMQPWSB10" in str(closed.extra)) == (1002, True)
        async with session.ws_connect(WEBSOCKET, protocols=["AMQPWSB10"]) as socket:
            assert socket.protocol == "AMQPWSB10"
            await socket.send_str("AMQP")
            assert (await socket.receive(5)).data == 1003
            for connection in secure.broker.connections:
                await asyncio.wait_for(connection.gone.wait(), WATCHDOG_S)
    assert not secure.broker.connections


@pytest.mark.parametrize("path", [WEBSOCKET, f"{WEBSOCKET}/"], ids=["3.4", "7.21"])
async def test_the_path_and_the_subprotocol_of_dotnet_clients_are_served(
    secure: ServiceBusServer, path: str
) -> None:
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{secure.admin_port}") as session,
        session.ws_connect(path, protocols=["amqp"]) as socket,
    ):
        assert socket.protocol == "amqp"
        await socket.send_bytes(b"AMQP\x03\x01\x00\x00")
        assert (await socket.receive_bytes(timeout=WATCHDOG_S))[:8] == b"AMQP\x03\x01\x00\x00"


@pytest.mark.parametrize(("ends", "code"), [("close", 1000), ("abort", 1006)])
async def test_a_websocket_that_is_cut_ends_without_a_close_frame(
    secure: ServiceBusServer, ends: str, code: int
) -> None:
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{secure.admin_port}") as session,
        session.ws_connect(WEBSOCKET, protocols=["AMQPWSB10"]) as socket,
        released(socket),
    ):
        [connection] = secure.broker.connections
        if ends == "abort":
            connection.abort()
        else:
            connection.close(None)
        while (await socket.receive(5)).type is WSMsgType.BINARY:
            pass
        assert socket.close_code == code
        await asyncio.wait_for(connection.gone.wait(), WATCHDOG_S)


async def test_neither_is_served_unless_it_is_asked_for(server: ServiceBusServer) -> None:
    assert (server.secured, server.secure_connection_strings) == (None, None)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{server.admin_port}") as session:
        with pytest.raises(WSServerHandshakeError):
            await session.ws_connect(WEBSOCKET, protocols=["AMQPWSB10"])


def test_a_namespace_for_tests_has_tls_on_request() -> None:
    with servicebus_namespace(tls=Tls()) as namespace:
        assert namespace.secured is not None
        assert namespace.secure_connection_strings is not None
        with BlockingAdministrationClient.from_connection_string(
            namespace.secure_connection_strings[1], connection_verify=str(namespace.secured.ca_file)
        ) as administration:
            assert administration.get_namespace_properties().messaging_sku == "Standard"


async def test_a_certificate_is_valid_for_its_names_alone(tmp_path: Path, entities: Entities) -> None:
    tls = Tls(ca_file=tmp_path / "ca.pem", names=("servicebus",))
    async with ServiceBusServer(entities, tls=tls) as server:
        found = secured(server)
        strict = ssl.create_default_context(cafile=str(found.ca_file))
        strict.verify_flags |= ssl.VERIFY_X509_STRICT

        async def health(name: str) -> int:
            options: dict[str, Any] = {"ssl": strict, "server_hostname": name}
            async with session.get(f"https://127.0.0.1:{found.https_port}/health", **options) as answer:
                return answer.status

        async with aiohttp.ClientSession() as session:
            assert [await health(name) for name in ("servicebus", "localhost", "127.0.0.1")] == [200] * 3
            with pytest.raises(ClientConnectorCertificateError):
                await health("example.com")
    # It holds no key.
    assert "PRIVATE" not in found.ca_file.read_text()


# The namespace behind mapped ports or under another name


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
                        received = await receiver.receive_messages(max_message_count=3, max_wait_time=WATCHDOG_S)
                        for message in received:
                            await receiver.complete_message(message)
                    assert [str(message) for message in received] == ["0", "1", "2"]


async def test_a_public_host_is_in_the_connection_strings_and_the_certificate(tmp_path: Path) -> None:
    [line] = re.findall(
        r"^outbox-relay-emulators (servicebus .*--public-host .*)$", PAGE.read_text(), re.MULTILINE
    )
    ports = ("--port", "0", "--admin-port", "0", "--tls-port", "0", "--https-port", "0")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "outbox_relay.emulators", *shlex.split(line), *ports),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        ready = json.loads((await asyncio.wait_for(process.stdout.readline(), WATCHDOG_S)).removeprefix(b"READY "))
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
