"""The stores of a consumer that their contract suite runs on, each with a place for effects."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from azure.cosmos.aio import ContainerProxy, CosmosClient
from psycopg_pool import AsyncConnectionPool
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine

from outbox_relay import inbox
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.inbox.stores.sql import recording
from outbox_relay.inbox.stores.sql.dialects import Dialect

SQLSERVER = "CHANGEFEED_TEST_SQLSERVER"
_numbers = count()
_EFFECTS = "create table if not exists effects (number {serial}, id text)"
_ADD = "insert into effects (id) values ({})"
_ALL = "select id from effects order by number"


def add_migration(patch: pytest.MonkeyPatch, *statements: str) -> None:
    """Let the library know one migration more, with these statements."""
    known = recording.migrations

    def every(dialect: Dialect) -> list[recording.Migration]:
        released = known(dialect)
        return [*released, recording.Migration(released[-1].version + 1, statements)]

    patch.setattr(recording, "migrations", every)


class Harness(ABC):
    """A store, with a place for effects.

    Attributes:
        store: The store.
        locks: Whether a delivery waits for a block that handles the same message; otherwise it ends in `Conflict`.
        max_sequence: The largest number that the store can record.
    """

    locks = True
    max_sequence = 2**63 - 1
    store: inbox.Store

    @abstractmethod
    async def effect(self, arrival: Any, identifier: str) -> None:
        """Have an effect, inside the block."""

    @abstractmethod
    async def effects(self) -> list[str]:
        """All effects, in their order."""

    @abstractmethod
    def another(self) -> Harness:
        """The same store, as another process opens it."""


class InMemory(Harness):
    """Effects and records in memory; of no other process."""

    def __init__(self) -> None:
        self.store = inbox.MemoryStore()
        self._effects: list[str] = []

    async def effect(self, arrival: Any, identifier: str) -> None:
        self._effects.append(identifier)

    async def effects(self) -> list[str]:
        return self._effects

    def another(self) -> Harness:
        return self


class InSqlite(Harness):
    """A file of SQLite, through one connection that all handlers share."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._others: list[InSqlite] = []
        self.connection = inbox.SqliteConnection(path)
        # Nothing here has to survive a crash of the machine.
        self.connection.execute("pragma synchronous = off")
        self.connection.execute(_EFFECTS.format(serial="integer primary key"))
        self.store = inbox.SqliteStore(self.connection)

    async def effect(self, arrival: Any, identifier: str) -> None:
        self.connection.execute(_ADD.format("?"), (identifier,))

    async def effects(self) -> list[str]:
        return [row[0] for row in self.connection.execute(_ALL)]

    def another(self) -> Harness:
        self._others.append(InSqlite(self._path))
        return self._others[-1]

    def close(self) -> None:
        """Close its connection, and those of the others."""
        for each in self._others:
            each.close()
        self.connection.close()


class InPostgres(Harness):
    """A database of PostgreSQL, through a pool of psycopg."""

    def __init__(self, pool: AsyncConnectionPool[Any]) -> None:
        self.pool = pool
        self.store: inbox.PostgresStore = inbox.PostgresStore(pool.connection)

    async def effect(self, arrival: Any, identifier: str) -> None:
        await arrival.connection.execute(_ADD.format("%s"), (identifier,))

    async def effects(self) -> list[str]:
        async with self.pool.connection() as connection:
            return [row[0] for row in await (await connection.execute(_ALL)).fetchall()]

    def another(self) -> Harness:
        return InPostgres(self.pool)


class InSqlAlchemy(Harness):
    """A database of an engine of SQLAlchemy."""

    def __init__(self, engine: AsyncEngine, *, sessions: bool = False) -> None:
        self._engine = engine
        self._sessions = sessions
        self.store = (
            inbox.SqlAlchemyStore(async_sessionmaker(engine)) if sessions else inbox.SqlAlchemyStore(engine)
        )

    async def effect(self, arrival: Any, identifier: str) -> None:
        await arrival.connection.execute(text(_ADD.format(":id")), {"id": identifier})

    async def effects(self) -> list[str]:
        async with self._engine.connect() as connection:
            return list((await connection.execute(text(_ALL))).scalars())

    def another(self) -> Harness:
        return InSqlAlchemy(self._engine, sessions=self._sessions)


def message(identifier: str, sequence: int | None = None, key: str = "k", topic: str = "events") -> inbox.Message:
    """A message, as far as a store looks at it."""
    return inbox.Message(id=identifier, key=key, body=b"{}", sequence=sequence, topic=topic)


def gap(entity: str, first: int, last: int, *, key: str | None = None, topic: str = "events") -> inbox.Gap:
    """Missing numbers of an entity; its key is the entity, if none is given."""
    return inbox.Gap(entity, first, last, key or entity, topic)


async def handle(
    harness: Harness,
    identifier: str,
    sequence: int | None = None,
    *,
    key: str = "k",
    entity: str | None = None,
    topic: str = "events",
) -> inbox.Arrival:
    """Handle a message, with an effect if it is the first delivery."""
    async with harness.store.once(message(identifier, sequence, key, topic), entity=entity) as arrival:
        if arrival.first:
            await harness.effect(arrival, identifier)
    return arrival


class InSqlServer(Harness):
    """A schema of a database in SQL Server."""

    def __init__(self, url: str, schema: str) -> None:
        self._place = url, schema
        self.store: inbox.SqlServerStore = inbox.SqlServerStore(url, schema=schema)

    async def effect(self, arrival: Any, identifier: str) -> None:
        connection: inbox.SqlServerConnection = arrival.connection
        await connection.execute(f"insert into {self._place[1]}.effects (id) values (?)", identifier)

    async def effects(self) -> list[str]:
        async with self.store._transaction() as connection:
            found = await connection.execute(f"select id from {self._place[1]}.effects order by number")
        return [row[0] for row in found.rows]

    def another(self) -> Harness:
        return InSqlServer(*self._place)


class InCosmos(Harness):
    """A container of Cosmos DB."""

    locks = False
    max_sequence = 2**53 - 1

    def __init__(self, container: ContainerProxy) -> None:
        self.container = container
        self.store: inbox.CosmosStore = inbox.CosmosStore(container)

    async def effect(self, arrival: Any, identifier: str) -> None:
        batch: inbox.CosmosBatch = arrival.connection
        batch.create(
            {
                "id": uuid4().hex,
                "partitionKey": batch.partition,
                "type": "effect",
                "of": identifier,
                "number": next(_numbers),
            }
        )

    async def effects(self) -> list[str]:
        found = self.container.query_items("SELECT c.of, c.number FROM c WHERE c.type = 'effect'")
        return [each["of"] for each in sorted([each async for each in found], key=lambda each: each["number"])]

    def another(self) -> Harness:
        return InCosmos(self.container)


@asynccontextmanager
async def in_memory(_: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    yield InMemory()


@asynccontextmanager
async def in_sqlite(request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    with closing(InSqlite(request.getfixturevalue("tmp_path") / "store.sqlite")) as harness:
        yield harness


@asynccontextmanager
async def in_postgres(request: pytest.FixtureRequest) -> AsyncIterator[InPostgres]:
    url = request.getfixturevalue("postgres_database")
    async with pool_of(url) as pool:
        yield InPostgres(pool)


@asynccontextmanager
async def in_sqlalchemy_postgres(request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    url = request.getfixturevalue("postgres_database")
    async with engine_of(url.replace("postgresql://", "postgresql+psycopg://")) as engine:
        yield InSqlAlchemy(engine)


@asynccontextmanager
async def in_sqlalchemy_sqlite(request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    async with engine_of(f"sqlite+aiosqlite:///{request.getfixturevalue('tmp_path') / 'store.sqlite'}") as engine:
        yield InSqlAlchemy(engine, sessions=True)


@asynccontextmanager
async def in_sqlserver(_: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    url = os.environ.get(SQLSERVER, "")
    if not url:
        pytest.skip(f"{SQLSERVER} holds no connection string of a server with T-SQL")
    schema = f"inbox_{uuid4().hex}"
    harness = InSqlServer(url, schema)
    tables = ("effects", *(f"inbox_{name}" for name in ("gaps", "progress", "handled", "schema")))
    await _run(url, f"create schema {schema}")
    await _run(url, f"create table {schema}.effects (number bigint identity, id nvarchar(100))")
    try:
        yield harness
    finally:
        await harness.store.close()
        for table in (*tables, "inbox_parked_messages", "inbox_parked_keys"):
            await _run(url, f"drop table if exists {schema}.{table}")
        await _run(url, f"drop schema {schema}")


async def _run(url: str, sql: str) -> None:
    store = inbox.SqlServerStore(url, connections=1)
    async with store._transaction() as connection:
        await connection.execute(sql)
    await store.close()


@asynccontextmanager
async def in_cosmos(_: pytest.FixtureRequest) -> AsyncIterator[InCosmos]:
    async with cosmos_container() as (container, _server):
        yield InCosmos(container)


@asynccontextmanager
async def cosmos_container(**options: Any) -> AsyncIterator[tuple[ContainerProxy, CosmosServer]]:
    """A container of a Cosmos DB emulator, through the SDK."""
    async with CosmosServer() as server:
        provision(server.account, [ContainerSpec.parse("consumer/state:/partitionKey:-1")])
        async with CosmosClient(server.endpoint, server.key, **options) as client:
            yield client.get_database_client("consumer").get_container_client("state"), server


@asynccontextmanager
async def pool_of(url: str, **options: Any) -> AsyncIterator[AsyncConnectionPool[Any]]:
    """A pool in a database that has the table of effects."""
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(_EFFECTS.format(serial="bigint generated always as identity"))
    async with AsyncConnectionPool(url, **{"min_size": 1, "max_size": 4, "timeout": 10, **options}) as pool:
        yield pool


@asynccontextmanager
async def engine_of(url: str) -> AsyncIterator[AsyncEngine]:
    """An engine on a database that has the table of effects."""
    engine = create_async_engine(url)
    try:
        serial = "integer primary key" if "sqlite" in url else "bigint generated always as identity"
        async with engine.begin() as connection:
            await connection.execute(text(_EFFECTS.format(serial=serial)))
        yield engine
    finally:
        await engine.dispose()


OPEN: dict[str, Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[Harness]]] = {
    "memory": in_memory,
    "SQLite": in_sqlite,
    "PostgreSQL": in_postgres,
    "SQL Server": in_sqlserver,
    "Cosmos DB": in_cosmos,
    "SQLAlchemy on PostgreSQL": in_sqlalchemy_postgres,
    "SQLAlchemy on SQLite": in_sqlalchemy_sqlite,
}

STORES = [pytest.param(name, marks=pytest.mark.slow) if name == "SQL Server" else name for name in OPEN]
"""The names of the stores as parameters of tests. A server with T-SQL is seldom there."""
