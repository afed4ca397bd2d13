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

_SQLITE = "sqlite:///"


class StoreNotOpened(Exception):
    """There is no such store, or it cannot be reached."""


@asynccontextmanager
async def opened(address: str, consumer: str) -> AsyncIterator[Parking]:
    """Open the store of a consumer.

    Raises:
        StoreNotOpened: It cannot be opened. The text does not contain the address, which may contain a password.
    """
    connection = _sqlite(Path(address.removeprefix(_SQLITE)))
    try:
        yield SqliteStore(connection, consumer=consumer)
    except sqlite3.Error as error:
        raise StoreNotOpened(f"The store does not answer: {type(error).__name__}: {error}") from error
    finally:
        connection.close()


def _sqlite(path: Path) -> SqliteConnection:
    if not path.is_file():
        raise StoreNotOpened(f"There is no file {path}. A store is {FORMS}.")
    return SqliteConnection(path)
