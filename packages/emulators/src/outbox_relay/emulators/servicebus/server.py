"""The local Service Bus as one object to start and stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType

from outbox_relay.emulators.access import Access
from outbox_relay.emulators.addresses import LOOPBACK, is_local, reachable
from outbox_relay.emulators.recording import Recording
from outbox_relay.emulators.servicebus.admin import Admin
from outbox_relay.emulators.servicebus.attach import attach
from outbox_relay.emulators.servicebus.auth import DEFAULT_KEY, KEY_NAME, SharedAccess
from outbox_relay.emulators.servicebus.authorization import AuthorizationRule, Right
from outbox_relay.emulators.servicebus.broker import Broker, Tier
from outbox_relay.emulators.servicebus.connection import AmqpConnection
from outbox_relay.emulators.servicebus.edges import DEFAULT_SEED, Edges
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.errors import ConnectionForced
from outbox_relay.emulators.servicebus.idle_links import IdleLinks, default_idle_ms
from outbox_relay.emulators.servicebus.listeners import Listeners, Secured, Tls
from outbox_relay.emulators.servicebus.namespace import Namespace
from outbox_relay.emulators.servicebus.timers import Clock, TimerQueue, TimerRunner, system_clock
from outbox_relay.emulators.servicebus.websockets import WebSockets

LOG = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 1.0


class ServiceBusServer:
    """An AMQP 1.0 broker with Service Bus semantics, on the running asyncio loop.

    `host` is the address to listen on; `public_host` is the name that connection strings and the certificate have
    instead; `allowed_hosts` are further names by which clients reach the HTTP ports, where other names get 403.
    Port 0 takes any free port; `ack_delay_ms` is how long an accepted send waits for its acknowledgement;
    `edges` is the seed of the behaviour that varies, None for the usual one; `idle_ms` is how long a link may idle
    (see `idle_links`), by `idle_clock` in seconds, None for the loop's; `tls` adds ports with TLS; `websockets`
    serves AMQP over WebSockets on the HTTP ports.
    Messages are kept in memory and are gone when it stops. `recording` gets a line for each message that an entity
    accepts, or drops as a duplicate.
    """

    def __init__(
        self,
        entities: Entities,
        *,
        host: str = LOOPBACK,
        public_host: str | None = None,
        allowed_hosts: Sequence[str] = (),
        port: int = 0,
        admin_port: int = 0,
        key: str = DEFAULT_KEY,
        tier: Tier = "standard",
        ack_delay_ms: int = 0,
        edges: int | None = DEFAULT_SEED,
        idle_ms: int | None = None,
        tls: Tls | None = None,
        websockets: bool = False,
        clock: Clock = system_clock,
        idle_clock: Callable[[], float] | None = None,
        recording: Recording | None = None,
    ) -> None:
        self._host = host
        self._public_host = public_host
        self._port = port
        self._admin_port = admin_port
        self._key = key
        self._timers = TimerQueue(clock)
        self._runner = TimerRunner(self._timers)
        chosen = Edges(edges)
        namespace = Namespace(entities, self._timers, chosen, recording)
        namespace.authorization = (AuthorizationRule(KEY_NAME, Right.ANY, key, key), *entities.authorization)
        self.broker = Broker(
            namespace,
            SharedAccess(namespace.rules_of, lambda: clock() / 1000),
            chosen,
            tier=tier,
            ack_delay_ms=ack_delay_ms,
            idle_clock=idle_clock,
        )
        self.idle_links = IdleLinks(self.broker, default_idle_ms(edges) if idle_ms is None else idle_ms)
        self._tls = None if tls is None else replace(tls, names=(*tls.names, self._name))
        self._access = Access(host, public_host, *allowed_hosts, *(() if tls is None else tls.names))
        self._websockets = websockets
        self._listeners: Listeners | None = None
        self._secured: Secured | None = None

    async def start(self) -> None:
        """Listen. Raises OSError when a port is taken."""
        self._runner.start()
        self.idle_links.start()
        sockets = WebSockets(self._connection).routes() if self._websockets else []
        admin = Admin(self.broker, self._access).application(sockets)
        self._listeners = Listeners(self._host, self._connection, admin)
        try:
            opened = await self._listeners.open(self._port, self._admin_port, self._tls)
        except (OSError, ImportError):
            await self.stop()
            raise
        self._port, self._admin_port, self._secured = opened
        self.broker.namespace.endpoint = f"sb://{self._address}:{self._port}/"
        LOG.info("serving AMQP on %s:%s, admin on %s:%s", self._host, self._port, self._host, self._admin_port)

    def _connection(self) -> AmqpConnection:
        return AmqpConnection(self.broker, attach)

    async def stop(self) -> None:
        """Close the connections and the ports."""
        self._runner.stop()
        self.idle_links.stop()
        if self._listeners is not None:
            self._listeners.stop_accepting()
            await self._close_connections()
            await self._listeners.close()
            self._listeners = None

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
    def secured(self) -> Secured | None:
        """The ports with TLS and the certificate to trust, known once started; None without TLS."""
        return self._secured

    @property
    def connection_string(self) -> str:
        """The connection string of a ServiceBusClient for this broker."""
        return f"{self._endpoint(self._address, self._port)}UseDevelopmentEmulator=true;"

    @property
    def secure_connection_strings(self) -> tuple[str, str] | None:
        """The same with TLS, and what administration clients and those over WebSockets need; None without TLS."""
        if self._secured is None:
            return None
        host, ports = reachable(self._name), (self._secured.port, self._secured.https_port)
        return self._endpoint(host, ports[0]), self._endpoint(host, ports[1])

    @property
    def admin_endpoint(self) -> str:
        """The address of the administration API and of the emulator's own, known once started."""
        return f"http://{self._address}:{self._admin_port}"

    @property
    def _address(self) -> str:
        return reachable(self._public_host or self._host)

    @property
    def _name(self) -> str:
        """The name for TLS: no IP address where there is a name, as clients may not ask for one (RFC 6066, 3)."""
        return self._public_host or ("localhost" if is_local(self._host) else self._host)

    def _endpoint(self, host: str, port: int) -> str:
        return f"Endpoint=sb://{host}:{port};SharedAccessKeyName={KEY_NAME};SharedAccessKey={self._key};"
