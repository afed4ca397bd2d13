"""A Service Bus namespace for tests of any kind: what these objects do blocks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import aiohttp
from azure.core.pipeline.transport import AioHttpTransport, RequestsTransport
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AsyncServiceBusAdministrationClient
from azure.servicebus.management import ServiceBusAdministrationClient

from outbox_relay.emulators.servicebus.edges import DEFAULT_SEED
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.listeners import Secured
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.emulators.testing.background import BackgroundLoop, background_loop
from outbox_relay.emulators.testing.faults import Fault, FaultClient

if TYPE_CHECKING:
    from azure.servicebus.aio.management import ServiceBusAdministrationClient as AsyncAdministrationClient
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


class ServiceBusNamespace:
    """A running namespace."""

    def __init__(self, loop: BackgroundLoop, server: ServiceBusServer, session: aiohttp.ClientSession) -> None:
        self._loop = loop
        self._server = server
        self._session = session
        self._faults = FaultClient(session, self.admin_endpoint)

    @property
    def connection_string(self) -> str:
        """For clients that send and receive."""
        return self._server.connection_string

    @property
    def administration_connection_string(self) -> str:
        """For administration clients, which a namespace on one machine serves on another port."""
        port, admin_port = self._server.port, self._server.admin_port
        return self.connection_string.replace(f":{port};", f":{admin_port};", 1)

    @property
    def secured(self) -> Secured | None:
        """The ports with TLS and the certificate to trust; None without TLS."""
        return self._server.secured

    @property
    def secure_connection_strings(self) -> tuple[str, str] | None:
        """With TLS: for clients that send and receive, and for administration clients; None without TLS."""
        return self._server.secure_connection_strings

    @property
    def admin_endpoint(self) -> str:
        """The emulator's own HTTP endpoint."""
        return self._server.admin_endpoint

    def administration_client(self, **options: Any) -> ServiceBusAdministrationClient:
        """Return a client that creates, changes and deletes entities; needs azure-servicebus."""
        from outbox_relay.emulators.testing.servicebus import administration_client

        return administration_client(self.administration_connection_string, **options)

    def async_administration_client(self, **options: Any) -> AsyncAdministrationClient:
        """Return an asynchronous client that creates, changes and deletes entities; needs azure-servicebus."""
        from outbox_relay.emulators.testing.servicebus import async_administration_client

        return async_administration_client(self.administration_connection_string, **options)

    def inject(self, kind: str, entity: str | None = None, **options: Any) -> Fault:
        """Inject a fault into what clients do next.

        Args:
            kind: Such as cut-after-transfer, server-busy or expire-locks: the README lists them.
            entity: The queue, topic or subscription (`topic/Subscriptions/name`).
            options: `count`, `for_ms`, and those of the kind.

        Raises:
            InvalidFault: There is no such fault.
        """
        plan = options if entity is None else {"entity": entity, **options}
        return Fault(self._loop.wait(self._faults.inject(kind, **plan)), self._faults, self._loop.wait)

    def remove_faults(self) -> None:
        """End all faults."""
        self._loop.wait(self._faults.remove_all())

    def counts(self, entity: str) -> dict[str, Any]:
        """Return the numbers of messages of an entity.

        They are those that a queue or topic has accepted, refused and dropped as duplicates, and those in a queue
        or subscription (`topic/Subscriptions/name`).
        """
        return dict(self._loop.wait(self._get("/admin/entities"))[entity])

    def edges(self) -> dict[str, int]:
        """Return the number of times each edge was met since the start."""
        return dict(self._loop.wait(self._get("/admin/edges"))["edges"])

    async def _get(self, path: str) -> Any:
        async with self._session.get(self.admin_endpoint + path) as response:
            return await response.json()


@contextmanager
def servicebus_namespace(
    entities: Entities | None = None,
    *,
    seed: int | None = DEFAULT_SEED,
    loop: BackgroundLoop | None = None,
    **options: Any,
) -> Iterator[ServiceBusNamespace]:
    """Serve a namespace, on a thread of this process, for as long as the block lasts.

    Args:
        entities: Its initial entities: `entities_of(…)`, or `Entities.from_file(…)`; nothing by default.
        seed: Where the behaviour that the service leaves open is drawn from; None for its usual behaviour.
        loop: Where to serve; its own loop by default.
        options: Those of `ServiceBusServer`: `tier`, `ack_delay_ms`, `idle_ms`, `tls`, `websockets`.
    """
    server = ServiceBusServer(entities or Entities(), edges=seed, **options)
    with background_loop() if loop is None else nullcontext(loop) as serving:
        session = serving.wait(_start(server))
        try:
            yield ServiceBusNamespace(serving, server, session)
        finally:
            serving.wait(_stop(server, session))


async def _start(server: ServiceBusServer) -> aiohttp.ClientSession:
    await server.start()
    return aiohttp.ClientSession()


async def _stop(server: ServiceBusServer, session: aiohttp.ClientSession) -> None:
    await session.close()
    await server.stop()
