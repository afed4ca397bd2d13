"""A store in SQLite, in the transaction of the handler's own changes, and its connection, which handlers share."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Literal, TypeVar

from outbox_relay.inbox.errors import OutsideBlock
from outbox_relay.inbox.messages import Message
from outbox_relay.inbox.stores.port import Arrival, Gap, Identity, Turn, entity_of
from outbox_relay.inbox.stores.sql.dialects import Operation, Result, Sqlite, Statement, run
from outbox_relay.inbox.stores.sql.parking import SqlParking
from outbox_relay.inbox.stores.sql.recording import ROWS, Recording, check, install

# Nobody else uses these texts: `sqlite3` keeps statements by their text, and SQLite asks only once about each.
_BEGIN = "BEGIN IMMEDIATE -- inbox"
_COMMIT = "COMMIT -- inbox"
_ROLLBACK = "ROLLBACK -- inbox"


class _Cursor(sqlite3.Cursor):
    connection: SqliteConnection

    def execute(self, *args: Any) -> _Cursor:
        self.connection.check()
        super().execute(*args)
        return self

    def executemany(self, *args: Any) -> _Cursor:
        self.connection.check()
        super().executemany(*args)
        return self

    def executescript(self, *args: Any) -> _Cursor:
        self.connection.check_no_block()
        super().executescript(*args)
        return self


class SqliteConnection(sqlite3.Connection):
    """A connection for `SqliteStore` and the handlers that write through it.

    SQLite has one transaction per connection. While one handler is inside a block of `once`, a statement of
    another would become a part of that transaction, and be lost if the block fails. It is refused here.

    Args:
        database: The path of the file.
        options: As for `sqlite3.connect`, such as `timeout`. The mode is always autocommit.

    Raises:
        OutsideBlock: By each method that executes: another handler is inside a block. By `commit`, `rollback`,
            `executescript` (which commits) and `with connection`: also inside the handler's own block.
    """

    def __init__(self, database: str | os.PathLike[str], **options: Any) -> None:
        super().__init__(database, **{**options, "isolation_level": None})
        self._turn = Turn()
        self._in_transaction = False
        self._is_own = False
        self._others_may_be_prepared = True

    @property
    def turn(self) -> Turn:
        """Which task may execute."""
        return self._turn

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Open a block of the current task: a transaction, committed unless it raises.

        Raises:
            OutsideBlock: The transaction has ended inside the block.
            RuntimeError: The current task is inside a block already.
        """
        async with self._turn.take():
            if self._others_may_be_prepared:
                # This discards all prepared statements, so that SQLite asks about each of them again.
                self.set_authorizer(self._authorize)
                self._others_may_be_prepared = False
            self._execute_own(_BEGIN)
            self._in_transaction = True
            try:
                yield
                self.check()
                self._execute_own(_COMMIT)
            except sqlite3.DatabaseError as error:
                if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_AUTH:
                    raise
                raise OutsideBlock("This would have ended the transaction of its block of `once`.") from error
            finally:
                self._in_transaction = False
                if self.in_transaction:
                    self._execute_own(_ROLLBACK)

    def _execute_own(self, text: str) -> None:
        self._is_own = True
        try:
            self.execute(text)
        finally:
            self._is_own = False

    def _authorize(self, action: int, *_: str | None) -> int:
        """Let nothing else end the transaction of a block, not even what `sqlite3` executes without a cursor.

        SQLite asks when it prepares a statement, and keeps it prepared.
        """
        if action != sqlite3.SQLITE_TRANSACTION or self._is_own:
            return sqlite3.SQLITE_OK
        if self._in_transaction:
            return sqlite3.SQLITE_DENY
        self._others_may_be_prepared = True
        return sqlite3.SQLITE_OK

    def check(self) -> None:
        """Refuse a statement that would not be in the transaction of the task that executes it."""
        if self._turn.is_taken and not self._turn.is_mine:
            raise OutsideBlock(
                "Another handler is inside a block of `once`, and this statement would become a part of its "
                "transaction. Execute it inside a block too, or through a separate connection."
            )
        if self._in_transaction and not self.in_transaction:
            # By SQLite, after an error such as a full disk.
            raise OutsideBlock("The transaction of this block of `once` has ended inside the block.")

    def check_no_block(self) -> None:
        """Refuse what would end the transaction of a block, one's own or another's."""
        self.check()
        if self._turn.is_taken:
            raise OutsideBlock("This would end the transaction of a block of `once`, which commits at its end.")

    def cursor(self, factory: None = None) -> sqlite3.Cursor:  # type: ignore[override]
        """See `sqlite3.Connection.cursor`. Without a factory: its cursors would execute without being checked."""
        if factory is not None:
            raise TypeError("An SqliteConnection has cursors of its own, which check each statement.")
        return super().cursor(_Cursor)

    # In CPython these three create a cursor without calling `cursor`.
    def execute(self, *args: Any) -> sqlite3.Cursor:
        """See `sqlite3.Connection.execute`."""
        return self.cursor().execute(*args)

    def executemany(self, *args: Any) -> sqlite3.Cursor:
        """See `sqlite3.Connection.executemany`."""
        return self.cursor().executemany(*args)

    def executescript(self, *args: Any) -> sqlite3.Cursor:
        """See `sqlite3.Connection.executescript`, which commits first; refused while a block is open."""
        return self.cursor().executescript(*args)

    def commit(self) -> None:
        """Do nothing in autocommit mode; refuse while a block is open."""
        self.check_no_block()
        super().commit()

    def rollback(self) -> None:
        """Do nothing in autocommit mode; refuse while a block is open."""
        self.check_no_block()
        super().rollback()

    def blobopen(self, *args: Any, **options: Any) -> Any:
        """See `sqlite3.Connection.blobopen`."""
        self.check()
        return super().blobopen(*args, **options)

    def __enter__(self) -> SqliteConnection:
        self.check_no_block()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> Literal[False]:
        # A block that has been opened meanwhile is another handler's, and what was executed here is committed.
        return False if self._turn.is_taken else super().__exit__(*error)


ResultT = TypeVar("ResultT")


class SqliteStore(SqlParking):
    """Writes through the connection in the block of `once` are committed with the message, or not at all.

    Each call runs on the event loop's thread, and other processes that write to the file make it wait.

    Args:
        connection: The handlers write through it, inside the block. Tables whose names begin with `inbox_` are
            created in it, or migrated. What was recorded without a key is handled under every key.
        consumer: The consumer's name, if several share a database.
        create: Whether to create and migrate the tables. Otherwise they have to be there in this version.

    Raises:
        TypeError: The connection is not an `inbox.SqliteConnection`, so a statement of one handler could become a
            part of another's transaction.
        WrongTables: A later version of this library has made the tables, or one before 0.1.0, or they are not
            there and not to be created. It is a ValueError.
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
