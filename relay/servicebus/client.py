"""The Service Bus clients, made from the settings."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import certifi
from azure.servicebus.aio import ServiceBusClient

from relay.connection_strings import ConnectionString
from relay.identity import by_identity
from relay.settings import Connection

if TYPE_CHECKING:
    from azure.core.pipeline.transport import AsyncHttpTransport
    from azure.servicebus.aio.management import ServiceBusAdministrationClient


def servicebus_client(connection: Connection, *, retry_total: int = 2) -> ServiceBusClient:
    """A client for the namespace that repeats what failed `retry_total` times. Nothing is connected yet."""
    # Left to itself, the SDK reads the certificates anew for each sender's connection: 25 ms of processor
    # time each. These are the ones it would read.
    options: dict[str, Any] = {
        "ssl_context": ssl.create_default_context(cafile=certifi.where()),
        "retry_total": retry_total,
        # By default the SDK would pause for 8 seconds and more.
        "retry_backoff_factor": 0.2,
    }
    if connection.connection_string is not None:
        return ServiceBusClient.from_connection_string(connection.connection_string, **options)
    address, credential = by_identity(connection)
    return ServiceBusClient(address, credential, **options)


def servicebus_administration_client(connection: Connection) -> ServiceBusAdministrationClient:
    """A client for the namespace's management endpoint. Nothing is connected yet."""
    from azure.servicebus.aio.management import ServiceBusAdministrationClient

    options: dict[str, Any] = {"retry_total": 1}
    if connection.connection_string is not None:
        if ConnectionString(connection.connection_string).uses_emulator:
            options["transport"] = _plain_http_transport()
        return ServiceBusAdministrationClient.from_connection_string(connection.connection_string, **options)
    address, credential = by_identity(connection)
    return ServiceBusAdministrationClient(address, credential, **options)


def _plain_http_transport() -> AsyncHttpTransport[Any, Any]:
    """What the administration client (7.15.0) needs for an emulator: it asks for https there too."""
    from azure.core.pipeline.transport import AioHttpTransport

    class PlainHttpTransport(AioHttpTransport):  # type: ignore[misc]  # azure-core exports it untyped
        async def send(self, request: Any, **config: Any) -> Any:
            request.url = request.url.replace("https://", "http://", 1)
            return await super().send(request, **config)

    return PlainHttpTransport()
