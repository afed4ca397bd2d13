"""The stores of the quarantine that its contract suites run on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from azure.cosmos.aio import ContainerProxy

from outbox_relay.changefeed.connections import connect_async
from outbox_relay.changefeed.statements import Statement
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from relay.backends.cosmos.containers import Call, Containers
from relay.backends.cosmos.quarantine import CosmosItems
from relay.backends.sql.database import Database
from relay.backends.sql.quarantine import SqlItems
from relay.config.settings import Settings
from relay.core.errors import StoreError
from relay.quarantine.items import Items
from tests.support.in_memory_items import InMemoryItems
from tests.support.postgresql import PostgresServer
from tests.support.sql_outbox import provision as provision_outbox
from tests.support.sql_outbox import sql_settings


@dataclass(frozen=True, slots=True)
class Store:
    """A store as two processes see it.

    Attributes:
        items: The store.
        others: The same store, by another connection.
        break_down: From then on nothing can be read or written.
    """

    items: Items
    others: Items
    break_down: Callable[[], Awaitable[None]]


def record(identifier: str, key: str = "k", at: str = "1", **more: Any) -> dict[str, Any]:
    """A record of the quarantine."""
    return {
        "id": identifier,
        "partitionKey": key,
        "type": "quarantinedEvent",
        "reason": "message-refused",
        "detail": "said",
        "quarantinedAt": at,
        "position": 0,
        "invocationId": "i1",
        "document": {"id": f"document of {identifier}"},
        **more,
    }


class OneContainer(Containers):
    """The database's containers if one is open already; who opened it closes it."""

    def __init__(self, container: ContainerProxy) -> None:
        self._container = container
        self.quarantine_name = container.id

    @asynccontextmanager
    async def call(self) -> AsyncIterator[Call]:
        yield Call(lambda _: self._container, lambda: None)

    async def close(self) -> None:
        pass


def items_in(container: ContainerProxy) -> CosmosItems:
    """The items of a container that is open."""
    return CosmosItems(OneContainer(container))


@asynccontextmanager
async def in_memory(_: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """A dictionary."""
    items = InMemoryItems()

    async def break_down() -> None:
        items.answers = [StoreError("no route to the store")] * 10

    yield Store(items, items, break_down)


@asynccontextmanager
async def on_emulator(_: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """A container of the Cosmos DB emulator, through the SDK."""
    server = CosmosServer()
    async with server:
        provision(server.account, [ContainerSpec.parse("outbox/quarantine:/partitionKey")])
        settings = Settings.from_environment(
            {
                "COSMOS": server.connection_string,
                "SERVICEBUS": "Endpoint=sb://n/;SharedAccessKeyName=k;SharedAccessKey=YQ==",
            }
        )
        items, others = CosmosItems(Containers(settings.in_cosmos)), CosmosItems(Containers(settings.in_cosmos))

        async def break_down() -> None:
            await server.__aexit__(None, None, None)

        try:
            yield Store(items, others, break_down)
        finally:
            await items.close()
            await others.close()


@asynccontextmanager
async def on_postgresql(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """A table in a fresh database of PostgreSQL."""
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = server.create_database(server.template("template_outbox", provision_outbox))
    feed = sql_settings(server.url(name))
    items, others = SqlItems(Database(feed)), SqlItems(Database(feed))

    async def break_down() -> None:
        owner = await connect_async(server.url("postgres"))
        await owner.execute(Statement(f"alter database {name} with allow_connections false"))
        await owner.execute(
            Statement("select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = ?", (name,))
        )
        await owner.close()

    try:
        yield Store(items, others, break_down)
    finally:
        await items.close()
        await others.close()
        server.drop_database(name)


OPEN: dict[str, Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[Store]]] = {
    "in memory": in_memory,
    "Cosmos DB emulator": on_emulator,
    "PostgreSQL": on_postgresql,
}
