"""The relay's processes: `python -m relay run`, or the function that runs a worker for one tick after another."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from outbox_relay.changefeed.statements import AsyncSession
from relay.backends.sql import database
from relay.backends.sql.database import Database
from relay.backends.sql.source import SqlBatch, SqlSource
from relay.backends.sql.worker import Worker, read_until_next_tick
from relay.config.clients import Identity
from relay.config.settings import SqlFeed
from relay.core.evidence import AcceptedLedger
from relay.core.pipeline import Relay
from relay.quarantine.quarantine import StoredQuarantine
from relay.routes.selection import BY_DEFAULT
from relay.servicebus import messages
from relay.servicebus.publisher import ServiceBusPublisher
from verification.simulation.senders import SimulatedSenders
from verification.simulation.sql.services import Services
from verification.simulation.sql.sessions import connect
from verification.simulation.sql.writers import TABLE
from verification.simulation.store import SimulatedItems

# Seconds of a tick, and between two.
_TICK_S, _BETWEEN_S = 27.0, 3.0

_PAGE = 20


@contextlib.contextmanager
def connected(services: Services) -> Iterator[None]:
    """Let the relay's sessions lead to this world's server until the block ends."""

    async def connect_async(url: str, **options: Any) -> AsyncSession:
        return await connect(services.world.running, services.to_database, services.server)

    with patch.object(database, "connect_async", connect_async):
        yield


def feed(shards: int, claim_s: float) -> SqlFeed:
    """Return the settings of the source."""
    identity = Identity(managed=False, client_id=None)
    return SqlFeed("postgresql://relay@database/outbox", identity, TABLE, shards, claim_s, max_bytes=200_000)


class RelayProcess:
    """A process that publishes from the feed until it is stopped or killed."""

    def __init__(self, services: Services, name: str, settings: SqlFeed, *, ticks: bool) -> None:
        """`ticks`: whether it is an app on Azure Functions, whose timer runs the worker."""
        self.process = services.world.process(name)
        self._services = services
        self._settings = settings
        self._ticks = ticks
        self._stopping: asyncio.Event | None = None
        self.process.start(self._run())

    @property
    def works(self) -> bool:
        """Neither killed nor frozen, nor asked to stop."""
        is_stopping = self._stopping is not None and self._stopping.is_set()
        return self.process.is_alive and not self.process.is_frozen and not is_stopping

    def stop(self) -> None:
        """Send it SIGTERM."""
        if self._stopping is not None:
            self.process.loop.call_soon(self._stopping.set)

    async def _run(self) -> None:
        self._stopping = asyncio.Event()
        data = Database(self._settings)
        relay = self._assemble(data)
        worker = Worker(relay, self._settings, data.connect, page_size=_PAGE, poll_delay_s=1.0)
        self._services.names[worker.name] = self.process.name
        if self._ticks:
            while not self._stopping.is_set():
                await read_until_next_tick(worker, _TICK_S)
                await asyncio.sleep(_BETWEEN_S)
        else:
            await worker.run(self._stopping)
        await relay.close()
        self.process.kill()

    def _assemble(self, data: Database) -> Relay[SqlBatch]:
        services = self._services
        window_s = services.topic.window_s
        publisher = ServiceBusPublisher(
            SimulatedSenders(self.process, services.to_topic, services.topic),
            messages.plain,
            AcceptedLedger(),
            send_timeout_s=10.0,
            attempt_timeout_s=60.0,
            duplicate_window_s=window_s,
        )
        return Relay(
            SqlSource(BY_DEFAULT, data.claim),
            publisher,
            StoredQuarantine(SimulatedItems(services.to_store, services.store)),
            duplicate_window_s=window_s,
            on_poison=services.policy,
            attempt_timeout_s=60.0,
        )
