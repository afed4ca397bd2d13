"""Administration clients of a Service Bus namespace that is served without TLS.

Even with `UseDevelopmentEmulator=true` azure-servicebus (7.15.0) sends administration requests over https.
"""

from __future__ import annotations

from typing import Any

from azure.core.pipeline.transport import AioHttpTransport, RequestsTransport
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AsyncServiceBusAdministrationClient
from azure.servicebus.management import ServiceBusAdministrationClient


class PlainAioHttpTransport(AioHttpTransport):  # type: ignore[misc]  # azure-core exports it untyped
    """Sends requests for https over http, in asynchronous clients."""

    async def send(self, request: Any, **config: Any) -> Any:
        request.url = request.url.replace("https://", "http://", 1)
        return await super().send(request, **config)


class PlainRequestsTransport(RequestsTransport):  # type: ignore[misc]  # azure-core exports it untyped
    """Sends requests for https over http, in synchronous clients."""

    def send(self, request: Any, **config: Any) -> Any:
        request.url = request.url.replace("https://", "http://", 1)
        return super().send(request, **config)


def administration_client(connection_string: str, **options: Any) -> ServiceBusAdministrationClient:
    """Return a client of a namespace's management API. The connection string has its admin port."""
    return ServiceBusAdministrationClient.from_connection_string(
        connection_string, transport=PlainRequestsTransport(), **options
    )


def async_administration_client(connection_string: str, **options: Any) -> AsyncServiceBusAdministrationClient:
    """Return an asynchronous client of a namespace's management API. The connection string has its admin port."""
    return AsyncServiceBusAdministrationClient.from_connection_string(
        connection_string, transport=PlainAioHttpTransport(), **options
    )
