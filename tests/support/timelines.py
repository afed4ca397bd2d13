"""The stores of a timeline that its contract suite runs on."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from outbox_relay.changefeed.connections import connect_async
from outbox_relay.changefeed.statements import Statement
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.operator.backends.sql.install import install_rules
from relay.backends.cosmos.containers import Containers
from relay.backends.cosmos.timelines import CosmosTimelines
from relay.backends.sql.database import Database, connect
from relay.backends.sql.timelines import SqlTimelines
from relay.config.settings import Settings, SqlFeed
from relay.routes.rulebook import Timelines
from tests.support.in_memory_timelines import InMemoryTimelines
from tests.support.postgresql import PostgresServer
from tests.support.sql_outbox import sql_settings

SQLSERVER = "CHANGEFEED_TEST_SQLSERVER"


@dataclass(frozen=True, slots=True)
class TimelineStore:
    """A store as several processes see it.

    Attributes:
        timelines: The timeline of an outbox.
        others: The same timeline, by another connection.
        elsewhere: The timeline of another outbox, in the same container or database.
        break_down: From then on nothing can be read or written.
    """

    timelines: Timelines
    others: Timelines
    elsewhere: Timelines
    break_down: Callable[[], Awaitable[None]]


@asynccontextmanager
async def in_memory(_: pytest.FixtureRequest) -> AsyncIterator[TimelineStore]:
    """Variables of this process."""
    one, other = InMemoryTimelines(), InMemoryTimelines()

    async def break_down() -> None:
        one.is_down = True

    yield TimelineStore(one, one, other, break_down)


@asynccontextmanager
async def on_emulator(_: pytest.FixtureRequest) -> AsyncIterator[TimelineStore]:
    """The lease container of the Cosmos DB emulator, through the SDK."""
    server = CosmosServer()
    async with server:
        names = ("data:/partitionKey", "orders:/partitionKey", "leases:/id")
        provision(server.account, [ContainerSpec.parse(f"outbox/{each}") for each in names])
        settings = Settings.from_environment(
            {
                "COSMOS": server.connection_string,
                "SERVICEBUS": "Endpoint=sb://n/;SharedAccessKeyName=k;SharedAccessKey=YQ==",
            }
        )
        made = [
            CosmosTimelines(Containers(settings.in_cosmos), each, "leases") for each in ("data", "data", "orders")
        ]
        one, other, elsewhere = made

        async def break_down() -> None:
            await server.__aexit__(None, None, None)

        try:
            yield TimelineStore(one, other, elsewhere, break_down)
        finally:
            for each in made:
                await each.close()


@asynccontextmanager
async def on_postgresql(request: pytest.FixtureRequest) -> AsyncIterator[TimelineStore]:
    """A table in a fresh database of PostgreSQL."""
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = server.create_database()
    try:
        async with _in_database(sql_settings(server.url(name))) as store:

            async def break_down() -> None:
                owner = await connect_async(server.url("postgres"))
                await owner.execute(Statement(f"alter database {name} with allow_connections false"))
                await owner.execute(
                    Statement(
                        "select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = ?", (name,)
                    )
                )
                await owner.close()

            yield replace(store, break_down=break_down)
    finally:
        server.drop_database(name)


@asynccontextmanager
async def on_sqlserver(_: pytest.FixtureRequest) -> AsyncIterator[TimelineStore]:
    """A table in a database with T-SQL."""
    url = os.environ.get(SQLSERVER, "")
    if not url:
        pytest.skip(f"{SQLSERVER} holds no connection string of a server with T-SQL")
    session = await connect(sql_settings(url))
    await session.execute(Statement("drop table if exists relay.rules"))
    await session.close()
    async with _in_database(sql_settings(url)) as store:
        yield store


@asynccontextmanager
async def _in_database(feed: SqlFeed) -> AsyncIterator[TimelineStore]:
    session = await connect(feed)
    await install_rules(session)
    # To run it again changes nothing.
    await install_rules(session)
    await session.close()
    feeds = (feed, feed, replace(feed, feed="outbox.other_event"))
    made = [SqlTimelines(Database(each), each) for each in feeds]
    one, other, elsewhere = made

    async def break_down() -> None:
        owner = await connect(feed)
        await owner.execute(Statement("drop table relay.rules"))
        await owner.close()

    try:
        yield TimelineStore(one, other, elsewhere, break_down)
    finally:
        for each in made:
            await each.close()


OPEN: dict[str, Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[TimelineStore]]] = {
    "in memory": in_memory,
    "Cosmos DB emulator": on_emulator,
    "PostgreSQL": on_postgresql,
    "SQL Server": on_sqlserver,
}

STORES = [pytest.param(name, marks=pytest.mark.slow) if name == "SQL Server" else name for name in OPEN]
"""The names of the stores as parameters of tests. A server with T-SQL is seldom there."""
