"""Idle links are detached, and connections without links are closed, as the service does.

A link is detached after ten minutes without a message (azure-sdk-for-python issue 10127: keep-alive frames do not
help), a connection without links is closed after five (AMQP troubleshooting guide, learn.microsoft.com).
"""

from __future__ import annotations

import asyncio

from proton import Link

from outbox_relay.emulators.servicebus.broker import Broker
from outbox_relay.emulators.servicebus.connections import Connection
from outbox_relay.emulators.servicebus.edges import Edge
from outbox_relay.emulators.servicebus.errors import ConnectionForced, IdleTimerExpired, ServiceBusError
from outbox_relay.emulators.servicebus.links import LinkEndpoint

SERVICE_IDLE_MS = 600_000
EDGES_IDLE_MS = 60_000
"""A tenth of the service's time where behaviour is drawn from a seed, so that an hour's run meets every edge."""

_LOOKS = 4
"""Number of checks of all links within the time that one may idle."""


def default_idle_ms(seed: int | None) -> int:
    """Return how long a link may idle by default: the service's ten minutes, or one minute with a seed."""
    return SERVICE_IDLE_MS if seed is None else EDGES_IDLE_MS


class IdleLinks:
    """Watches the links of one broker, on the asyncio loop."""

    def __init__(self, broker: Broker, idle_ms: int) -> None:
        """`idle_ms` is how long a link may carry nothing; a connection may be without links half as long.

        It is measured by the broker's `idle_clock`.
        """
        self._broker = broker
        self._idle_s = idle_ms / 1000
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._idle_s / _LOOKS, self._look_on)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look_on(self) -> None:
        self.look()
        self.start()

    def look(self) -> None:
        """End what has idled for too long."""
        for connection in self._broker.connections:
            # A peer that is silent does not say that it closes, either.
            if not connection.is_silent:
                self._look_at(connection)

    def _look_at(self, connection: Connection) -> None:
        now = connection.links.clock()
        links = [each for each in connection.links.items() if each[1].role is not None]
        if not links and now - connection.links.active_s >= self._idle_s / 2:
            self._end(connection, None, self._broker.edges.idle_connection())
        for link, endpoint in links:
            if not endpoint.is_busy and now - endpoint.active_s >= self._idle_s:
                others = (other for other in connection.links.endpoints() if other is not endpoint)
                alone = all(not other.is_busy and now - other.active_s >= self._idle_s / 2 for other in others)
                self._end(connection, (link, endpoint), self._broker.edges.idle_link(alone=alone))
                if not connection.is_open:
                    return

    def _end(self, connection: Connection, idle: tuple[Link, LinkEndpoint] | None, edge: Edge) -> None:
        self._broker.edges.meet(edge)
        error: ServiceBusError | None
        if idle is not None and edge in (Edge.IDLE_LINK_DETACHED, Edge.IDLE_LINK_DETACHED_WITH_ERROR):
            error = IdleTimerExpired(idle[0].name, idle[1].role, self._idle_s)
            connection.links.detach(idle[0], error if edge is Edge.IDLE_LINK_DETACHED_WITH_ERROR else None)
        else:
            error = ConnectionForced(
                f"The connection was inactive for more than the allowed {self._idle_s * 500:.0f} milliseconds and "
                "is closed by container 'LinkTracker'."
            )
            connection.close(error if edge is Edge.IDLE_CONNECTION_CLOSED_WITH_ERROR else None)
