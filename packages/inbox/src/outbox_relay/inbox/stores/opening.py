"""Opens a store by its address, for the commands of operators. It creates and migrates nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from outbox_relay.inbox.parking import Parking
from outbox_relay.inbox.stores.sql.recording import WrongTables
from outbox_relay.inbox.stores.sqlite import SqliteConnection, SqliteStore

FORMS = (
    "the path of an SQLite file, postgresql://…, Server=…;Database=… for SQL Server, or "
    "AccountEndpoint=…;AccountKey=…;Database=…;Container=… for Cosmos DB (no AccountKey: DefaultAzureCredential)"
)

_SQLITE, _POSTGRESQL = "sqlite:///", ("postgresql://", "postgres://")

# Rows that a policy would hide are an error then: otherwise a parked key would look as if it were not there. It
# holds for one transaction, so that a connection pooler gives it to nobody else. No other setting of a session
# changes what the statements return: they name schemas, and read times as numbers.
# https://www.postgresql.org/docs/current/runtime-config-client.html#GUC-ROW-SECURITY
_SHOW_ALL_ROWS = "set local row_security = off"
_NO_RIGHT = (
    "This login may not see all rows of the store's tables, or may not change them: a right is missing, or "
    "a policy of row-level security hides rows. Use the login of the consumer's receivers, or one that has "
    "the attribute BYPASSRLS."
)


class OpenedStore(Parking, Protocol):
    """A store that was opened by its address."""

    async def has_records(self) -> bool:
        """Return True if the consumer has handled or parked anything that is recorded."""


class StoreNotOpened(Exception):
    """There is no such store, or it cannot be reached."""


@asynccontextmanager
async def opened(address: str, consumer: str, schema: str | None = None) -> AsyncIterator[OpenedStore]:
    """Open the store of a consumer, whose tables are there in this version.

    Args:
        address: One of `FORMS`.
        consumer: The consumer's name.
        schema: The schema of the tables in PostgreSQL and SQL Server; the store's default if it is None.

    Raises:
        StoreNotOpened: It cannot be opened. The text does not contain the address, which may contain a password.
    """
    options = {"consumer": consumer, **({} if schema is None else {"schema": schema})}
    if address.startswith(_POSTGRESQL):
        opening = _postgresql
    elif "accountendpoint=" in address.lower():
        opening = _cosmos
    elif "server=" in address.lower():
        opening = _sqlserver
    else:
        opening = _sqlite
    if schema is not None and opening in (_cosmos, _sqlite):
        raise StoreNotOpened("Only stores in PostgreSQL and SQL Server have a schema.")
    try:
        async with opening(address, options) as store:
            yield store
    except ImportError as error:
        raise StoreNotOpened(f"The package {error.name} is missing: install the extra of this store.") from error
    except WrongTables as error:
        where = "" if schema is None else f" (schema {schema})"
        raise StoreNotOpened(f"The store{where} cannot be used. {error}") from error


@contextmanager
def _named_right() -> Iterator[None]:
    """Turn a refused name of a consumer or a schema into a sentence."""
    try:
        yield
    except WrongTables:
        raise
    except ValueError as error:
        raise StoreNotOpened(str(error)) from error


@asynccontextmanager
async def _sqlite(address: str, options: dict[str, str]) -> AsyncIterator[OpenedStore]:
    connection = _existing(Path(address.removeprefix(_SQLITE)))
    try:
        with _named_right():
            store = SqliteStore(connection, **options, create=False)
        yield store
    except sqlite3.Error as error:
        raise StoreNotOpened(f"The store does not answer: {type(error).__name__}: {error}") from error
    finally:
        connection.close()


def _existing(path: Path) -> SqliteConnection:
    if not path.is_file():
        # An address that was mistaken for a path may contain a password.
        what = "such file" if {"@", "="} & set(str(path)) else f"file {path}"
        raise StoreNotOpened(f"There is no {what}. A store is {FORMS}.")
    return SqliteConnection(path)


@asynccontextmanager
async def _postgresql(address: str, options: dict[str, str]) -> AsyncIterator[OpenedStore]:
    import psycopg

    from outbox_relay.inbox.stores.servers import PostgresStore

    @asynccontextmanager
    async def connect() -> AsyncIterator[psycopg.AsyncConnection]:
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
            yield connection

    class OperatorsStore(PostgresStore):
        @asynccontextmanager
        async def _transaction(self, *, writes: bool = True) -> AsyncIterator[psycopg.AsyncConnection]:
            async with super()._transaction(writes=writes) as session:
                await session.execute(_SHOW_ALL_ROWS)
                yield session

    try:
        with _named_right():
            store = OperatorsStore(connect, **options)
        await store.check()
        yield store
    except psycopg.errors.InsufficientPrivilege as error:
        raise StoreNotOpened(_NO_RIGHT) from error
    except psycopg.Error as error:
        # Not its text: it may quote values.
        raise StoreNotOpened(f"The store does not answer: {type(error).__name__}.") from error


@asynccontextmanager
async def _sqlserver(address: str, options: dict[str, str]) -> AsyncIterator[OpenedStore]:
    import mssql_python

    from outbox_relay.inbox.stores.servers import SqlServerStore

    with _named_right():
        store = SqlServerStore(address, connections=1, **options)
    try:
        await store.check()
        yield store
    except mssql_python.Error as error:
        raise StoreNotOpened(f"The store does not answer: {type(error).__name__}.") from error
    finally:
        await store.close()


@asynccontextmanager
async def _cosmos(address: str, options: dict[str, str]) -> AsyncIterator[OpenedStore]:
    from azure.core.exceptions import AzureError, HttpResponseError

    from outbox_relay.inbox.stores.cosmos import CosmosStore

    parts = dict(part.split("=", 1) for part in address.split(";") if "=" in part)
    known = {name.strip().lower(): value for name, value in parts.items()}
    if not {"database", "container"} <= known.keys():
        raise StoreNotOpened(f"The address of Cosmos DB names no Database or no Container. A store is {FORMS}.")
    try:
        async with AsyncExitStack() as stack:
            container = await _container(known, stack)
            with _named_right():
                store = CosmosStore(container, consumer=options["consumer"])
            yield store
    except HttpResponseError as error:
        raise StoreNotOpened(f"Cosmos DB answers with the status {error.status_code}.") from error
    except AzureError as error:
        raise StoreNotOpened(f"Cosmos DB does not answer: {type(error).__name__}.") from error


async def _container(address: dict[str, str], stack: AsyncExitStack) -> Any:
    """Open a container that exists. Raises StoreNotOpened if the address cannot be one, or as the SDK."""
    from azure.cosmos.aio import CosmosClient

    credential: Any = address.get("accountkey")
    if credential is None:
        from azure.identity.aio import DefaultAzureCredential

        credential = await stack.enter_async_context(DefaultAzureCredential())
    try:
        client = CosmosClient(address["accountendpoint"], credential)
        # If entering it fails, the SDK (4.17.1) leaves its connections open.
        stack.push_async_callback(client.close)
        await client.__aenter__()
        container = client.get_database_client(address["database"]).get_container_client(address["container"])
        await container.read()
    except ValueError as error:
        raise StoreNotOpened("AccountEndpoint is no URL, or AccountKey no Base64.") from error
    return container
