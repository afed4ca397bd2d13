"""A Cosmos DB account, and a database of it, for tests of any kind: what these objects do blocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp

from outbox_relay.emulators.cosmos.edges import DEFAULT_SEED
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.testing.background import BackgroundLoop, background_loop
from outbox_relay.emulators.testing.faults import Fault, FaultClient

T = TypeVar("T")


class CosmosAccount:
    """A running account. It has the endpoint, the key and the connection string that clients need."""

    def __init__(self, loop: BackgroundLoop, server: CosmosServer, faults: FaultClient) -> None:
        self._loop = loop
        self._server = server
        self._faults = faults

    @property
    def endpoint(self) -> str:
        """The URL for clients."""
        return self._server.endpoint

    @property
    def key(self) -> str:
        """The key for clients."""
        return self._server.key

    @property
    def connection_string(self) -> str:
        """The endpoint and the key."""
        return self._server.connection_string

    def inject(self, kind: str, *, operation: str = "any", container: str | None = None, **options: Any) -> Fault:
        """Inject a fault into the next request that matches, or into more with `count` or `for_ms`.

        Args:
            kind: throttle, unavailable, gone, timeout, drop, drop-after, silent or silent-midway.
            operation: any, metadata, read-feed, query, read, write, batch, create, upsert, replace, patch or
                delete.
            container: The container of the requests; any by default.
            options: `count`, `for_ms`; `retry_after_ms` of throttle; `hang_ms` and `applies` of timeout.

        Raises:
            InvalidFault: There is no such fault.
        """
        fault_id = self._loop.wait(self._faults.add(kind, operation, container, **options))
        return Fault(fault_id, self._faults, self._loop.wait)

    def remove_faults(self) -> None:
        """End all faults."""
        self._loop.wait(self._faults.remove_all())

    def split(self, database: str, container: str, partition: str = "0") -> list[str]:
        """Split a physical partition, named by its partition key range id; returns the ids of its children."""
        account = self._server.account
        return list(self._run(lambda: account.split(database, container, partition))["into"])

    def edges(self) -> dict[str, int]:
        """Return the number of times each edge was met since the start, or since `restart_edges`."""
        return dict(self._run(self._server.account.edges.as_json)["edges"])

    def restart_edges(self) -> None:
        """Draw what the service leaves open from the start of the seed again."""
        self._run(self._server.account.edges.restart)

    def create_database(self, name: str, containers: Iterable[str] = ()) -> CosmosDatabase:
        """Create a database and its containers, each as `NAME:/partitionKeyPath[:TTL]`. Raises ValueError."""
        specs = [ContainerSpec.parse(f"{name}/{container}") for container in containers]
        account = self._server.account
        self._run(lambda: account.catalog.create_database(name))
        self._run(lambda: provision(account, specs))
        return CosmosDatabase(self, name)

    def drop_database(self, name: str) -> None:
        """Delete a database and all it contains; nothing happens where a test has deleted it already."""
        account = self._server.account

        def drop() -> None:
            if database := account.catalog.databases.get(name):
                account.delete_database(database)

        self._run(drop)

    def _run(self, work: Callable[[], T]) -> T:
        """Run on the account's own thread, which alone may use it."""

        async def run() -> T:
            return work()

        return self._loop.wait(run())


@dataclass(frozen=True, slots=True)
class CosmosDatabase:
    """A database in a running account.

    Attributes:
        account: The account.
        name: The database's id.
    """

    account: CosmosAccount
    name: str

    @property
    def connection_string(self) -> str:
        """The account's connection string."""
        return self.account.connection_string

    def inject(self, kind: str, *, operation: str = "any", container: str | None = None, **options: Any) -> Fault:
        """Inject a fault, as `CosmosAccount.inject` does."""
        return self.account.inject(kind, operation=operation, container=container, **options)

    def split(self, container: str, partition: str = "0") -> list[str]:
        """Split a physical partition of a container; returns the partition key range ids of its children."""
        return self.account.split(self.name, container, partition)


@contextmanager
def cosmos_account(
    *,
    seed: int | None = DEFAULT_SEED,
    physical_partitions: int = 4,
    clock: Callable[[], float] = time.time,
    loop: BackgroundLoop | None = None,
) -> Iterator[CosmosAccount]:
    """Serve an account, on a thread of this process, for as long as the block lasts.

    Args:
        seed: Where the behaviour that the service leaves open is drawn from; None for the kindest.
        physical_partitions: Number of physical partitions of each new container.
        clock: Gives seconds since 1970, such as a `ManualClock`; the system's by default.
        loop: Where to serve; its own loop by default.
    """
    server = CosmosServer(edges=seed, physical_partitions=physical_partitions, clock=clock)
    with background_loop() if loop is None else nullcontext(loop) as serving:
        session = serving.wait(_start(server))
        try:
            yield CosmosAccount(serving, server, FaultClient(session, server.endpoint))
        finally:
            serving.wait(_stop(server, session))


async def _start(server: CosmosServer) -> aiohttp.ClientSession:
    await server.start()
    return aiohttp.ClientSession()


async def _stop(server: CosmosServer, session: aiohttp.ClientSession) -> None:
    await session.close()
    await server.stop()
