"""Opens a store by its address, for the commands of operators."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from inbox.parking import Parking
from inbox.stores.database import SqliteConnection
from inbox.stores.sqlite import SqliteStore

FORMS = (
    "the path of an SQLite file, postgresql://…, Server=…;Database=… for SQL Server, or "
    "AccountEndpoint=…;AccountKey=…;Database=…;Container=… for Cosmos DB (no AccountKey: DefaultAzureCredential)"
)

_SQLITE, _POSTGRESQL = "sqlite:///", ("postgresql://", "postgres://")


class StoreNotOpened(Exception):
    """There is no such store, or it cannot be reached."""


@asynccontextmanager
async def opened(address: str, consumer: str) -> AsyncIterator[Parking]:
    """Open the store of a consumer.

    Raises:
        StoreNotOpened: It cannot be opened. The text does not contain the address, which may contain a password.
    """
    if address.startswith(_POSTGRESQL):
        opening = _postgresql
    elif "accountendpoint=" in address.lower():
        opening = _cosmos
    elif "server=" in address.lower():
        opening = _sqlserver
    else:
        opening = _sqlite
    try:
        async with opening(address, consumer) as parking:
            yield parking
    except ImportError as error:
        raise StoreNotOpened(f"The package {error.name} is missing: install the extra of this store.") from error


@asynccontextmanager
async def _sqlite(address: str, consumer: str) -> AsyncIterator[Parking]:
    connection = _existing(Path(address.removeprefix(_SQLITE)))
    try:
        yield SqliteStore(connection, consumer=consumer)
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
async def _postgresql(address: str, consumer: str) -> AsyncIterator[Parking]:
    import psycopg

    from inbox.stores.postgres import PostgresStore

    @asynccontextmanager
    async def connect() -> AsyncIterator[psycopg.AsyncConnection]:
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
            yield connection

    try:
        yield PostgresStore(connect, consumer=consumer)
    except psycopg.Error as error:
        # Not its text: it may quote values.
        raise StoreNotOpened(f"The store does not answer: {type(error).__name__}.") from error


@asynccontextmanager
async def _sqlserver(address: str, consumer: str) -> AsyncIterator[Parking]:
    import mssql_python

    from inbox.stores.sqlserver import SqlServerStore

    store = SqlServerStore(address, connections=1, consumer=consumer)
    try:
        yield store
    except mssql_python.Error as error:
        raise StoreNotOpened(f"The store does not answer: {type(error).__name__}.") from error
    finally:
        await store.close()


@asynccontextmanager
async def _cosmos(address: str, consumer: str) -> AsyncIterator[Parking]:
    from azure.cosmos.aio import CosmosClient
    from azure.cosmos.exceptions import CosmosHttpResponseError

    from inbox.stores.cosmos import CosmosStore

    parts = dict(part.split("=", 1) for part in address.split(";") if "=" in part)
    known = {name.strip().lower(): value for name, value in parts.items()}
    if not {"database", "container"} <= known.keys():
        raise StoreNotOpened(f"The address of Cosmos DB names no Database or no Container. A store is {FORMS}.")
    async with AsyncExitStack() as stack:
        credential: Any = known.get("accountkey")
        if credential is None:
            from azure.identity.aio import DefaultAzureCredential

            credential = await stack.enter_async_context(DefaultAzureCredential())
        client = await stack.enter_async_context(CosmosClient(known["accountendpoint"], credential))
        container = client.get_database_client(known["database"]).get_container_client(known["container"])
        try:
            yield CosmosStore(container, consumer=consumer)
        except CosmosHttpResponseError as error:
            raise StoreNotOpened(f"Cosmos DB answers with the status {error.status_code}.") from error
