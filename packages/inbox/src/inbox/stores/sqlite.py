"""A store in SQLite, in the transaction of the handler's own changes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypeVar

from inbox.messages import Message
from inbox.sequences import Arrival
from inbox.stores.database import SqliteConnection
from inbox.stores.port import Gap, Identity, entity_of
from inbox.stores.sql.dialects import Sqlite
from inbox.stores.sql.parking import SqlParking
from inbox.stores.sql.recording import ROWS, Recording
from inbox.stores.sql.schema import check, install
from inbox.stores.sql.statements import Operation, Result, Statement, run

ResultT = TypeVar("ResultT")


class SqliteStore(SqlParking):
    """Writes through the connection in the block of `once` are committed with the message, or not at all.

    Each call runs on the event loop's thread, and other processes that write to the file make it wait.

    Args:
        connection: The handlers write through it, inside the block. Tables whose names begin with `inbox_` are
            created in it. Those of an earlier version are migrated: what it
            has handled, whose key it did not record, stays handled under every key.
        consumer: The consumer's name, if several share a database.
        create: Whether to create and migrate the tables. Otherwise they have to be there in this version.

    Raises:
        TypeError: The connection is not an `inbox.SqliteConnection`, so a statement of one handler could become a
            part of another's transaction.
        WrongTables: A later version of this library has made the tables, or they are not there and not to be
            created. It is a ValueError.
    """

    def __init__(self, connection: SqliteConnection, *, consumer: str = "default", create: bool = True) -> None:
        if not isinstance(connection, SqliteConnection):
            raise TypeError("Open the connection with inbox.SqliteConnection(path), not with sqlite3.connect().")
        self._connection = connection
        self._recording = Recording(Sqlite(), consumer)
        if not create:
            self._run(check(self._recording.dialect))
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            self._run(install(self._recording.dialect))
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    @asynccontextmanager
    async def once(self, message: Message, *, entity: str | None = None) -> AsyncIterator[Arrival]:
        """See `Store.once`. The block is a transaction: to commit or roll back inside it is an error."""
        identity = Identity.of(message)
        async with self._connection.transaction():
            yield self._record(identity, entity_of(message, entity), message.sequence)

    async def gaps(self) -> list[Gap]:
        """See `Store.gaps`."""
        if self._connection.turn.is_mine:
            return self._run(self._recording.gaps())
        async with self._connection.turn.take():
            return self._run(self._recording.gaps())

    async def forget(self, older_than: timedelta) -> int:
        """See `Store.forget`."""
        forgotten = 0
        while True:
            some = await self.transact(self._recording.forget(older_than))
            forgotten += some
            if some < ROWS:
                return forgotten

    async def transact(self, operation: Operation[ResultT]) -> ResultT:
        """Run an operation in a transaction of its own."""
        async with self._connection.transaction():
            return self._run(operation)

    def _record(self, event: Identity, entity: str, sequence: int | None) -> Arrival:
        return self._run(self._recording.record(event, entity, sequence))

    def _run(self, operation: Operation[ResultT]) -> ResultT:
        return run(self._execute, operation)

    def _execute(self, statement: Statement) -> Result:
        cursor = self._connection.execute(statement.sql, statement.parameters)
        return Result(cursor.fetchall(), cursor.rowcount)
