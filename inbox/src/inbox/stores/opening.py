"""Opens a store by its address, for the commands of operators."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from inbox.parking import Parking
from inbox.stores.database import SqliteConnection
from inbox.stores.sqlite import SqliteStore

FORMS = "the path of an SQLite file, or postgresql://…"

_SQLITE, _POSTGRESQL = "sqlite:///", ("postgresql://", "postgres://")


class StoreNotOpened(Exception):
    """There is no such store, or it cannot be reached."""


@asynccontextmanager
async def opened(address: str, consumer: str) -> AsyncIterator[Parking]:
    """Open the store of a consumer.

    Raises:
        StoreNotOpened: It cannot be opened. The text does not contain the address, which may contain a password.
    """
    opening = _postgresql if address.startswith(_POSTGRESQL) else _sqlite
    async with opening(address, consumer) as parking:
        yield parking


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
        raise StoreNotOpened(f"There is no file {path}. A store is {FORMS}.")
    return SqliteConnection(path)


@asynccontextmanager
async def _postgresql(address: str, consumer: str) -> AsyncIterator[Parking]:
    try:
        import psycopg

        from inbox.stores.postgres import PostgresStore
    except ImportError as error:
        raise StoreNotOpened("psycopg is missing: install servicebus-inbox[postgresql].") from error

    @asynccontextmanager
    async def connect() -> AsyncIterator[psycopg.AsyncConnection]:
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
            yield connection

    try:
        yield PostgresStore(connect, consumer=consumer)
    except psycopg.Error as error:
        # Not its text: it may quote values.
        raise StoreNotOpened(f"The store does not answer: {type(error).__name__}.") from error
