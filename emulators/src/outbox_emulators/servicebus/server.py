"""The local Service Bus as one object to start and stop."""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType

from aiohttp import web

from outbox_emulators.servicebus.admin import Admin
from outbox_emulators.servicebus.attach import attach
from outbox_emulators.servicebus.auth import DEFAULT_KEY, KEY_NAME, SharedAccess
from outbox_emulators.servicebus.authorization import AuthorizationRule, Right
from outbox_emulators.servicebus.broker import Broker
from outbox_emulators.servicebus.connection import AmqpConnection
from outbox_emulators.servicebus.edges import DEFAULT_SEED, Edges
from outbox_emulators.servicebus.entities import Entities
from outbox_emulators.servicebus.errors import ConnectionForced
from outbox_emulators.servicebus.idle_links import IdleLinks, default_idle_ms
from outbox_emulators.servicebus.limits import Tier
from outbox_emulators.servicebus.namespace import Namespace
from outbox_emulators.servicebus.timers import Clock, TimerQueue, TimerRunner, system_clock

LOG = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 1.0


class ServiceBusServer:
    """An AMQP 1.0 broker with Service Bus semantics, on the running asyncio loop.

    Port 0 takes any free port; `ack_delay_ms` is how long an accepted send waits for its acknowledgement;
    `edges` is the seed of the behaviour that varies, None for the usual one; `idle_ms` is how long a link may idle
    (see `idle_links`). Messages are kept in memory and are gone when it stops.
    """

    def __init__(
        self,
        entities: Entities,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        admin_port: int = 0,
        key: str = DEFAULT_KEY,
        tier: Tier = "standard",
        ack_delay_ms: int = 0,
        edges: int | None = DEFAULT_SEED,
        idle_ms: int | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self._host = host
        self._port = port
        self._admin_port = admin_port
        self._key = key
        self._timers = TimerQueue(clock)
        self._runner = TimerRunner(self._timers)
        chosen = Edges(edges)
        namespace = Namespace(entities, self._timers, chosen)
        namespace.authorization = (AuthorizationRule(KEY_NAME, Right.ANY, key, key), *entities.authorization)
        self.broker = Broker(
            namespace,
            SharedAccess(namespace.rules_of, lambda: clock() / 1000),
            chosen,
            tier=tier,
            ack_delay_ms=ack_delay_ms,
        )
        self._idle = IdleLinks(self.broker, default_idle_ms(edges) if idle_ms is None else idle_ms)
        self._server: asyncio.Server | None = None
        self._web: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen. Raises OSError when a port is taken."""
        loop = asyncio.get_running_loop()
        self._runner.start()
        self._idle.start()
        self._server = await loop.create_server(
            lambda: AmqpConnection(self.broker, attach), self._host, self._port
        )
        self._port = self._server.sockets[0].getsockname()[1]
        self.broker.namespace.endpoint = f"sb://{self._host}:{self._port}/"
        self._web = web.AppRunner(Admin(self.broker).application(), access_log=None)
        await self._web.setup()
        site = web.TCPSite(self._web, self._host, self._admin_port)
        try:
            await site.start()
        except OSError:
            await self.stop()
            raise
        self._admin_port = self._web.addresses[0][1]
        LOG.info("serving AMQP on %s:%s, admin on %s:%s", self._host, self._port, self._host, self._admin_port)

    async def stop(self) -> None:
        """Close the connections and the ports."""
        self._runner.stop()
        self._idle.stop()
        if self._server is not None:
            self._server.close()
            await self._close_connections()
            await self._server.wait_closed()
            self._server = None
        if self._web is not None:
            await self._web.cleanup()
            self._web = None

    async def _close_connections(self) -> None:
        connections = list(self.broker.connections)
        for connection in connections:
            connection.close(ConnectionForced("The broker is shutting down."))
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                for connection in connections:
                    await connection.gone.wait()
        except TimeoutError:
            # A client that does not read would keep its connection, and the port, forever.
            self.broker.connections.cut_all()

    async def __aenter__(self) -> ServiceBusServer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def port(self) -> int:
        """The AMQP port, known once started."""
        return self._port

    @property
    def admin_port(self) -> int:
        """The HTTP port, known once started."""
        return self._admin_port

    @property
    def connection_string(self) -> str:
        """What a ServiceBusClient needs to reach this broker."""
        return (
            f"Endpoint=sb://{self._host}:{self._port};SharedAccessKeyName={KEY_NAME};"
            f"SharedAccessKey={self._key};UseDevelopmentEmulator=true;"
        )
