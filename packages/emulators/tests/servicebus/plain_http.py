"""The management client without TLS: for an emulator too the SDK (7.15.0) asks for https."""

from __future__ import annotations

import time
from typing import Any

import aiohttp
from azure.servicebus._pyamqp.utils import generate_sas_token
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import ServiceBusAdministrationClient as BlockingAdministrationClient

from outbox_relay.emulators.servicebus.auth import DEFAULT_KEY, KEY_NAME
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.emulators.testing.servicebus import administration_client, async_administration_client


def management_connection_string(server: ServiceBusServer, key: str | None = None) -> str:
    """The connection string of a server with its management port for the port."""
    found = server.connection_string.replace(f":{server.port};", f":{server.admin_port};")
    return found if key is None else found.replace("SharedAccessKey=", f"SharedAccessKey={key}")


def management_client(server: ServiceBusServer, **options: Any) -> ServiceBusAdministrationClient:
    """A client of a server's management API."""
    text = options.pop("connection_string", None) or management_connection_string(server)
    return async_administration_client(text, retry_total=0, **options)


def blocking_management_client(server: ServiceBusServer) -> BlockingAdministrationClient:
    """The same for separate threads."""
    return administration_client(management_connection_string(server), retry_total=0)


async def requested(
    server: ServiceBusServer,
    method: str,
    path: str,
    *,
    body: str | None = None,
    status: int = 200,
    name: str = KEY_NAME,
    key: str = DEFAULT_KEY,
) -> str:
    """The management API's answer to a request as other clients than the SDK send it."""
    expiry = int(time.time()) + 60
    token = generate_sas_token(f"http://127.0.0.1/{path}", name, key, expiry)  # type: ignore[no-untyped-call]
    address = f"http://127.0.0.1:{server.admin_port}/{path}?api-version=2021-05"
    headers = {"Authorization": token}
    async with (
        aiohttp.ClientSession() as http,
        http.request(method, address, headers=headers, data=body) as answer,
    ):
        assert answer.status == status, await answer.text()
        return await answer.text()
