"""The management client without TLS: for an emulator too the SDK (7.15.0) asks for https."""

from __future__ import annotations

from typing import Any

from azure.core.pipeline.transport import AioHttpTransport, RequestsTransport
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import ServiceBusAdministrationClient as BlockingAdministrationClient

from outbox_emulators.servicebus.server import ServiceBusServer


class _PlainAioHttp(AioHttpTransport):  # type: ignore[misc]  # azure-core exports it untyped
    async def send(self, request: Any, **config: Any) -> Any:
        request.url = request.url.replace("https://", "http://", 1)
        return await super().send(request, **config)


class _PlainRequests(RequestsTransport):  # type: ignore[misc]  # azure-core exports it untyped
    def send(self, request: Any, **config: Any) -> Any:
        request.url = request.url.replace("https://", "http://", 1)
        return super().send(request, **config)


def management_connection_string(server: ServiceBusServer, key: str | None = None) -> str:
    """The connection string of a server with its management port for the port."""
    found = server.connection_string.replace(f":{server.port};", f":{server.admin_port};")
    return found if key is None else found.replace("SharedAccessKey=", f"SharedAccessKey={key}")


def management_client(server: ServiceBusServer, **options: Any) -> ServiceBusAdministrationClient:
    """A client of a server's management API."""
    text = options.pop("connection_string", None) or management_connection_string(server)
    return ServiceBusAdministrationClient.from_connection_string(
        text, transport=_PlainAioHttp(), retry_total=0, **options
    )


def blocking_management_client(server: ServiceBusServer) -> BlockingAdministrationClient:
    """The same for threads of their own."""
    return BlockingAdministrationClient.from_connection_string(
        management_connection_string(server), transport=_PlainRequests(), retry_total=0
    )
