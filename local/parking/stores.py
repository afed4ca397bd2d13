"""The working parts of a campaign's process.

They are a store, the effects, and the messages that the consumer can handle by now.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import psycopg

import inbox
from inbox.stores.sqlite import SqliteStore

QUEUE = "orders"
POSTGRESQL = "postgresql:"

_TABLES = """
create table if not exists effects (number {serial}, id text, key text, sequence integer);
create table if not exists mended (id text primary key)
"""
_EFFECT = "insert into effects (id, key, sequence) values ({0}, {0}, {0})"
_MEND = "insert into mended (id) values ({0}) on conflict do nothing"
_IS_MENDED = "select count(*) from mended where id = {0}"
_EFFECTS = "select key, sequence, id from effects order by number"
# How long a process waits for another one that writes to the file, in seconds.
_BUSY_S = 20.0


class EffectStore(Protocol):
    """The database of a campaign, in one process.

    Attributes:
        store: The consumer's.
    """

    store: Any

    async def effect(self, arrival: Any, message: inbox.Message) -> None:
        """Note an effect, within the block of `once`."""

    async def is_mended(self, identifier: str) -> bool:
        """Return True if the message with this id, which nobody could handle, can be handled now."""

    async def mend(self, identifier: str) -> None:
        """Let the message with this id be handled from now on."""

    async def effects(self) -> list[tuple[str, int, str]]:
        """Return the effects in their order: keys, numbers and ids."""


@asynccontextmanager
async def open_desk(address: str) -> AsyncIterator[EffectStore]:
    """Open the database at an address: `postgresql://…`, or the path of a file of SQLite."""
    if address.startswith(POSTGRESQL):
        yield await PostgresDesk.open(address)
        return
    connection = inbox.SqliteConnection(Path(address), timeout=_BUSY_S)
    try:
        yield SqliteDesk(connection)
    finally:
        connection.close()


class SqliteDesk:
    """A file of SQLite."""

    def __init__(self, connection: inbox.SqliteConnection) -> None:
        # Nothing here has to survive a crash of the machine, and readers do not wait for a writer.
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = off")
        for statement in _TABLES.format(serial="integer primary key").split(";"):
            connection.execute(statement)
        self._connection = connection
        self.store = SqliteStore(connection)

    async def effect(self, arrival: Any, message: inbox.Message) -> None:
        self._connection.execute(_EFFECT.format("?"), (message.id, message.key, message.sequence))

    async def is_mended(self, identifier: str) -> bool:
        async with self._connection.turn.take():
            return bool(self._connection.execute(_IS_MENDED.format("?"), (identifier,)).fetchone()[0])

    async def mend(self, identifier: str) -> None:
        async with self._connection.turn.take():
            self._connection.execute(_MEND.format("?"), (identifier,))

    async def effects(self) -> list[tuple[str, int, str]]:
        return [tuple(row) for row in self._connection.execute(_EFFECTS)]


class PostgresDesk:
    """A database of PostgreSQL; a connection for each block."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.store = inbox.PostgresStore(self._connection)

    @classmethod
    async def open(cls, address: str) -> PostgresDesk:
        """Open it, with its tables."""
        desk = cls(address)
        async with desk._connection() as connection:
            # Of two processes, one creates the tables.
            await connection.execute("select pg_advisory_lock(1)")
            for statement in _TABLES.format(serial="bigint generated always as identity").split(";"):
                await connection.execute(statement.encode())
        return desk

    async def effect(self, arrival: Any, message: inbox.Message) -> None:
        await arrival.connection.execute(_EFFECT.format("%s"), (message.id, message.key, message.sequence))

    async def is_mended(self, identifier: str) -> bool:
        async with self._connection() as connection:
            found = await (await connection.execute(_IS_MENDED.format("%s"), (identifier,))).fetchone()
            return bool(found and found[0])

    async def mend(self, identifier: str) -> None:
        async with self._connection() as connection:
            await connection.execute(_MEND.format("%s"), (identifier,))

    async def effects(self) -> list[tuple[str, int, str]]:
        async with self._connection() as connection:
            return await (await connection.execute(_EFFECTS)).fetchall()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        async with await psycopg.AsyncConnection.connect(self._address, autocommit=True) as connection:
            yield connection
