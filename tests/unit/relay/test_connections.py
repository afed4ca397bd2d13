"""The SDK clients: whom they talk to, as whom, how often, and connection strings, whose secrets nobody shows."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from azure.core.exceptions import HttpResponseError
from azure.identity.aio import DefaultAzureCredential, ManagedIdentityCredential
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from relay.config.clients import (
    Connection,
    ConnectionString,
    Identity,
    blob_container_client,
    cosmos_client,
    servicebus_administration_client,
    servicebus_client,
)

KEY = "SharedAccessKeyName=k;SharedAccessKey=YQ=="
COSMOS = Connection("AccountEndpoint=https://a.documents.azure.com:443/;AccountKey=c2VjcmV0;")
NAMESPACE = Connection(f"Endpoint=sb://n.servicebus.windows.net/;{KEY}")


class Closing:
    """A server that resets every connection at once, and counts them.

    The SDK (7.15.0) would forget its socket of a connection that is closed in order while it is opened.
    """

    def __init__(self) -> None:
        self.connections = 0

    def _end(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        at_once = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        writer.close()

    async def __aenter__(self) -> Connection:
        self._server = await asyncio.start_server(self._end, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return Connection(f"Endpoint=sb://127.0.0.1:{port};{KEY};UseDevelopmentEmulator=true")

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()


async def send(connection: Connection, **options: int) -> float:
    """Try to send; returns the seconds that it took until it failed."""
    began = time.monotonic()
    async with servicebus_client(connection, **options) as client:
        with pytest.raises(ServiceBusError):
            await client.get_topic_sender("t").send_messages(ServiceBusMessage("x"))
    return time.monotonic() - began


async def test_a_failed_send_is_repeated_twice_after_pauses() -> None:
    server = Closing()
    async with server as connection:
        took_s = await send(connection)

    assert server.connections == 3
    assert took_s > 0.3


async def test_the_pauses_between_the_sends_are_below_a_second() -> None:
    async with Closing() as connection, servicebus_client(connection) as client:
        # As azure.servicebus (7.15.0) doubles them: _base_handler._get_backoff_time.
        assert client._config.retry_backoff_factor * 2**client._config.retry_total < 1


async def test_a_failed_send_is_repeated_as_often_as_it_is_asked_for() -> None:
    server = Closing()
    async with server as connection:
        await send(connection, retry_total=0)

    assert server.connections == 1


@pytest.fixture
async def requests() -> AsyncIterator[tuple[int, list[str]]]:
    """A management endpoint that always fails: its port, and the addresses that were asked for."""
    asked: list[str] = []

    async def fail(request: web.Request) -> web.Response:
        asked.append(str(request.url))
        return web.Response(status=500)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fail)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield runner.addresses[0][1], asked
    await runner.cleanup()


async def test_an_emulator_is_administered_without_tls_and_asked_twice(requests: tuple[int, list[str]]) -> None:
    port, asked = requests
    connection = Connection(f"Endpoint=sb://127.0.0.1:{port};{KEY};UseDevelopmentEmulator=true")

    async with servicebus_administration_client(connection) as client:
        with pytest.raises(HttpResponseError):
            await client.get_topic("t")

    assert len(asked) == 2
    assert asked[0].startswith(f"http://127.0.0.1:{port}/t?")


async def test_a_namespace_is_administered_with_tls(requests: tuple[int, list[str]]) -> None:
    port, asked = requests

    async with servicebus_administration_client(Connection(f"Endpoint=sb://127.0.0.1:{port};{KEY}")) as client:
        with pytest.raises(Exception, match=r"(?i)ssl"):
            await client.get_topic("t")

    assert asked == []


MAKERS = [servicebus_client, servicebus_administration_client, cosmos_client]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("identity", "credential"),
    [
        (Identity(managed=True, client_id="c"), ManagedIdentityCredential),
        (Identity(managed=False, client_id=None), DefaultAzureCredential),
    ],
)
async def test_an_address_is_met_with_the_identity_that_is_chosen(
    make: Any, identity: Identity, credential: type
) -> None:
    address = "https://a.documents.azure.com:443/" if make is cosmos_client else "n.servicebus.windows.net"

    client = make(Connection(address=address, identity=identity))

    holder, name = (
        (client.client_connection, "aad_credentials") if make is cosmos_client else (client, "_credential")
    )
    assert isinstance(getattr(holder, name), credential)
    await client.close()


async def test_a_container_of_blobs_is_met_with_the_identity_too() -> None:
    address, identity = "https://a.blob.core.windows.net", Identity(managed=True, client_id="c")

    client = blob_container_client(Connection(address=f"{address}/", identity=identity), "large-events")

    assert client.url == f"{address}/large-events"
    assert isinstance(client.credential, ManagedIdentityCredential)
    await client.close()


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    "connection", [Connection(), Connection(address="a"), Connection(identity=Identity(True, None))]
)
def test_half_a_connection_is_a_mistake(make: Any, connection: Connection) -> None:
    with pytest.raises(ValueError, match="either a connection string, or an address and an identity"):
        make(connection)


async def test_a_connection_string_needs_no_identity() -> None:
    cosmos, servicebus = cosmos_client(COSMOS), servicebus_client(NAMESPACE)

    assert cosmos.client_connection.url_connection == "https://a.documents.azure.com:443/"
    assert servicebus.fully_qualified_namespace == "n.servicebus.windows.net"
    await cosmos.close()
    await servicebus.close()


# Connection strings: their parts by name, and their secrets nowhere else


OF_A_TOPIC = ConnectionString(
    "Endpoint=sb://n.test/;SharedAccessKeyName=k;SharedAccessKey=c2Vj+/cmV0==;EntityPath=t"
)


@pytest.mark.parametrize("name", ["Endpoint", "endpoint", "ENDPOINT"])
def test_a_part_is_found_by_its_name_in_any_case(name: str) -> None:
    assert OF_A_TOPIC.get(name) == "sb://n.test/"


def test_a_value_may_contain_equals_signs() -> None:
    assert OF_A_TOPIC.get("SharedAccessKey") == "c2Vj+/cmV0=="


def test_spaces_around_names_and_values_do_not_count() -> None:
    assert ConnectionString(" Endpoint = sb://n ; ").parts == {"Endpoint": "sb://n"}


@pytest.mark.parametrize("text", ["", ";;", "Endpoint", "Endpoint=", "Endpoint= ;", "EndpointAddress=sb://n"])
def test_a_part_without_a_value_is_missing(text: str) -> None:
    assert ConnectionString(text).get("Endpoint") is None


def test_of_a_repeated_part_the_last_one_counts() -> None:
    assert ConnectionString("Endpoint=a;endpoint=b").get("Endpoint") == "b"


@pytest.mark.parametrize(
    ("text", "emulator"),
    [
        ("Endpoint=sb://n;UseDevelopmentEmulator=true", True),
        ("Endpoint=sb://n;usedevelopmentemulator = true;", True),
        ("Endpoint=sb://n;UseDevelopmentEmulator=false", False),
        ("Endpoint=sb://n;UseDevelopmentEmulator", False),
        ("Endpoint=sb://UseDevelopmentEmulator=true", False),
        ("", False),
    ],
)
def test_only_its_own_part_makes_it_an_emulators(text: str, emulator: bool) -> None:
    assert ConnectionString(text).uses_emulator is emulator


def test_no_value_is_shown() -> None:
    for shown in (repr(OF_A_TOPIC), str(OF_A_TOPIC), f"{OF_A_TOPIC}"):
        assert shown == "ConnectionString(Endpoint, SharedAccessKeyName, SharedAccessKey, EntityPath)"
