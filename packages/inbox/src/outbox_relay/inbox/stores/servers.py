"""Stores that give each block of `once` a connection of its own.

They are in PostgreSQL, through psycopg, and in SQL Server or Azure SQL, through mssql-python.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakSet

from outbox_relay.inbox.errors import DeadLetter, OutsideBlock
from outbox_relay.inbox.messages import Message
from outbox_relay.inbox.stores.port import Arrival, ArrivalIn, Blocks, ConnectionT, Gap, Identity, entity_of
from outbox_relay.inbox.stores.sql.dialects import (
    Dialect,
    Operation,
    Postgres,
    Result,
    SqlServer,
    Statement,
    run_async,
)
from outbox_relay.inbox.stores.sql.parking import SqlParking
from outbox_relay.inbox.stores.sql.recording import ROWS, Recording, check, install

if TYPE_CHECKING:
    from mssql_python import Connection
    from psycopg import AsyncConnection

_IN_TRANSACTION = 2
_IDLE = 0
_SHARED = "Somebody else uses the connection at the same time."
_ENDED = (
    "The transaction of this block of `once` was ended inside the block, or one of its statements failed and the "
    "handler went on. What followed is not committed. Let the error pass, or use a savepoint; leave commit and "
    "rollback to the block."
)

_in_use: WeakSet[AsyncConnection[Any]] = WeakSet()
"""Connections that a block uses. Its transaction begins later, by a statement that has to be awaited."""

_CONNECT_TIMEOUT_S = 15
_STATEMENT_TIMEOUT_S = 60

ResultT = TypeVar("ResultT")


class SqlStore(SqlParking, Generic[ConnectionT]):
    """A store whose blocks are transactions. Blocks of different messages run concurrently.

    A delivery of a message waits for a block that handles the same message, in any process, and an event that has
    a number for a block that handles another event of its entity.

    The tables are created, or migrated, when they are needed first.
    """

    def __init__(self, dialect: Dialect, consumer: str) -> None:
        self._recording = Recording(dialect, consumer)
        self._blocks = Blocks()
        self._preparing = asyncio.Lock()
        self._is_prepared = False

    @asynccontextmanager
    async def once(self, message: Message, *, entity: str | None = None) -> AsyncIterator[ArrivalIn[ConnectionT]]:
        """See `Store.once`.

        The block is a transaction: what is written through `arrival.connection` is committed with the message, or
        not at all.

        Raises:
            OutsideBlock: The handler has ended the transaction itself, by whatever statement, or a statement in it
                has failed, and the handler went on. Nothing is committed since.
        """
        with self._blocks.enter() as block:
            await self.prepare()
            async with self._transaction() as connection:
                block.connection = connection
                arrival = await self.record(connection, message, entity=entity)
                # It has written. In SQL Server, a transaction begins with the first statement about a table.
                mark = await run_async(partial(self._execute, connection), self._recording.dialect.mark())
                yield ArrivalIn.of(arrival, connection)
                if arrival.first:
                    await self._check(connection, Identity.of(message), mark)

    async def record(self, connection: ConnectionT, message: Message, *, entity: str | None = None) -> Arrival:
        """Record a message in a transaction of the caller, who commits it with the effect.

        For a handler with its own transaction. The tables must exist: call `prepare` when the service starts.
        If anything raises, roll the transaction back.

        Args:
            connection: In a transaction.
            message: The message.
            entity: As for `once`.

        Raises:
            DeadLetter: The message cannot be recorded, as for `once`.
        """
        operation = self._recording.record(Identity.of(message), entity_of(message, entity), message.sequence)
        try:
            return await run_async(partial(self._execute, connection), operation)
        except self._unstorable as error:
            # Not the error's text: it may quote the value.
            raise DeadLetter("invalid-identity", "The database's encoding lacks a character of it.") from error

    async def gaps(self) -> list[Gap]:
        """See `Store.gaps`. Inside a block, it reads through the block's connection."""
        block = self._blocks.mine
        if block is not None and block.connection is not None:
            return await run_async(partial(self._execute, block.connection), self._recording.gaps())
        await self.prepare()
        return await self._run(self._recording.gaps(), writes=False)

    async def forget(self, older_than: timedelta) -> int:
        """See `Store.forget`."""
        forgotten = 0
        while True:
            some = await self.transact(self._recording.forget(older_than))
            forgotten += some
            if some < ROWS:
                return forgotten

    async def prepare(self) -> None:
        """Create or migrate the tables, if that was not done yet.

        The first block does it too. Call it in a deployment whose service may not create tables.

        Raises:
            ValueError: A later version of this library has made the tables, or one before 0.1.0.
        """
        if not self._is_prepared:
            async with self._preparing:
                if not self._is_prepared:
                    await self._run(install(self._recording.dialect))
                    self._is_prepared = True

    async def check(self) -> None:
        """Return if the tables are there in this version; nothing is created or migrated, now or later.

        Raises:
            WrongTables: They are not.
        """
        await self._run(check(self._recording.dialect), writes=False)
        self._is_prepared = True

    async def transact(self, operation: Operation[ResultT]) -> ResultT:
        """Run an operation in a transaction of its own.

        Raises:
            RuntimeError: The current task is inside a block, and would wait for a second connection.
        """
        self._blocks.check()
        await self.prepare()
        return await self._run(operation)

    async def _run(self, operation: Operation[ResultT], *, writes: bool = True) -> ResultT:
        async with self._transaction(writes=writes) as connection:
            return await run_async(partial(self._execute, connection), operation)

    _unmarked: tuple[type[Exception], ...] = ()
    """Exceptions of the driver if the mark of a transaction is not there."""

    @abstractmethod
    def _transaction(self, *, writes: bool = True) -> AbstractAsyncContextManager[ConnectionT]:
        """Return a connection in a transaction, which is committed unless the block raises."""

    @abstractmethod
    async def _execute(self, connection: ConnectionT, statement: Statement, /) -> Result: ...

    async def _check(self, connection: ConnectionT, event: Identity, mark: object) -> None:
        """Raise unless the transaction is still the one that has recorded the message."""
        try:
            checking = self._recording.is_unbroken(event, mark)
            is_unbroken = await run_async(partial(self._execute, connection), checking)
        except self._unmarked as error:
            raise OutsideBlock(_ENDED) from error
        if not is_unbroken:
            raise OutsideBlock(_ENDED)


class PostgresStore(SqlStore["AsyncConnection[Any]"]):
    """Writes through `arrival.connection` in the block of `once` are committed with the message, or not at all.

    Each block has a connection of its own, so blocks run concurrently: as many as the pool has connections.

    Args:
        connect: Opens a connection, with `async with`: the method `connection` of an `AsyncConnectionPool`. The
            connection is not in a transaction. Its isolation level may be any; above READ COMMITTED more blocks
            fail, with a serialization failure, and their messages are delivered again.
        consumer: The consumer's name, if several share a database.
        schema: The schema of the tables `inbox_handled`, `inbox_progress`, `inbox_gaps` and `inbox_schema`.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[AsyncConnection[Any]]],
        *,
        consumer: str = "default",
        schema: str = "public",
    ) -> None:
        import psycopg

        super().__init__(Postgres(schema), consumer)
        self._connect = connect
        self._unstorable = (psycopg.DataError, UnicodeEncodeError)

    @asynccontextmanager
    async def _transaction(self, *, writes: bool = True) -> AsyncIterator[AsyncConnection[Any]]:
        async with self._connect() as connection:
            if connection.info.transaction_status != _IDLE:
                raise RuntimeError("The connection is in a transaction already: use `record` in it.")
            with _used(connection):
                async with _without_autocommit(connection), connection.transaction() as transaction:
                    if transaction.savepoint_name:
                        raise RuntimeError(_SHARED)
                    yield connection

    async def _execute(self, connection: AsyncConnection[Any], statement: Statement, /) -> Result:
        from psycopg import AsyncCursor
        from psycopg.rows import tuple_row

        # The factories of the caller's connection may make other cursors, and other rows.
        async with AsyncCursor(connection, row_factory=tuple_row) as cursor:
            await cursor.execute(statement.sql.replace("?", "%s").encode(), statement.parameters)
            rows = await cursor.fetchall() if cursor.description is not None else ()
            return Result(rows, cursor.rowcount)

    async def _check(self, connection: AsyncConnection[Any], event: Identity, mark: object) -> None:
        # After an error the server would answer COMMIT with a rollback.
        if connection.info.transaction_status != _IN_TRANSACTION:
            raise OutsideBlock(_ENDED)
        await super()._check(connection, event, mark)


@contextmanager
def _used(connection: AsyncConnection[Any]) -> Iterator[None]:
    """Refuse a connection that another block uses. Raises RuntimeError."""
    if connection in _in_use:
        raise RuntimeError(_SHARED)
    _in_use.add(connection)
    try:
        yield
    finally:
        _in_use.discard(connection)


@asynccontextmanager
async def _without_autocommit(connection: AsyncConnection[Any]) -> AsyncIterator[None]:
    """Have a statement begin a transaction if a handler has ended that of its block: it is rolled back then."""
    if not connection.autocommit:
        yield
        return
    await connection.set_autocommit(False)
    try:
        yield
    finally:
        if connection.info.transaction_status == _IDLE:
            await connection.set_autocommit(True)


class SqlServerConnection:
    """A connection of mssql-python, which blocks, in its own thread."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="inbox-sqlserver")
        self._opening = self._thread.submit(connect)

    async def execute(self, sql: str, *parameters: Any) -> Result:
        """Execute a statement, with a `?` for each parameter. When this is cancelled, the statement still ends."""
        return await self.run(lambda connection: _execute(connection, sql, parameters))

    async def run(self, work: Callable[[Connection], ResultT]) -> ResultT:
        """Call a function with the connection, in its thread, after what runs there."""
        return await asyncio.wrap_future(self.start(work))

    def start(self, work: Callable[[Connection], ResultT]) -> Future[ResultT]:
        """Start work on the connection's thread without waiting for it, and return its future."""
        return self._thread.submit(lambda: work(self._opening.result()))

    def close(self) -> None:
        """Close the connection after what runs in its thread. An open transaction is rolled back."""
        self.start(lambda connection: connection.close())
        self._thread.shutdown(wait=False)


class SqlServerStore(SqlStore[SqlServerConnection]):
    """Writes through `arrival.connection` in the block of `once` are committed with the message, or not at all.

    Each block has a connection of its own, so blocks run concurrently; further blocks wait for a free connection.

    Args:
        connection_string: `Server=…;Database=…;…`.
        connections: Maximum number of connections. Each has a thread.
        consumer: The consumer's name, if several share a database.
        schema: The schema of the tables `inbox_handled`, `inbox_progress`, `inbox_gaps` and `inbox_schema`.
        options: Further parameters of mssql-python's `connect`, such as `token_provider`.
    """

    def __init__(
        self,
        connection_string: str,
        *,
        connections: int = 8,
        consumer: str = "default",
        schema: str = "dbo",
        **options: Any,
    ) -> None:
        if connections < 1:
            raise ValueError(f"connections is {connections}; it must be 1 or more.")
        super().__init__(SqlServer(schema), consumer)
        self._connection_string = connection_string
        self._options = options
        self._free = asyncio.Semaphore(connections)
        self._idle: list[SqlServerConnection] = []
        self._is_closed = False

    async def close(self) -> None:
        """Close the connections that no block uses; the others are closed when their blocks end."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    @asynccontextmanager
    async def _transaction(self, *, writes: bool = True) -> AsyncIterator[SqlServerConnection]:
        connection = await self._take()
        try:
            yield connection
            await connection.run(lambda each: each.commit())
        except BaseException:
            # Not awaited: if this task was cancelled, a statement may still run. The rollback comes after it, and
            # the next block may have the connection, and its place among `connections`, after that.
            loop = asyncio.get_running_loop()
            ending = connection.start(lambda each: each.rollback())
            ending.add_done_callback(
                lambda ended: loop.call_soon_threadsafe(self._give_back, connection, ended.exception() is None)
            )
            raise
        self._give_back(connection, is_clean=True)

    async def _execute(self, connection: SqlServerConnection, statement: Statement, /) -> Result:
        return await connection.execute(statement.sql, *statement.parameters)

    async def _take(self) -> SqlServerConnection:
        await self._free.acquire()
        try:
            return self._idle.pop() if self._idle else SqlServerConnection(self._connect)
        except BaseException:  # no thread could be started
            self._free.release()
            raise

    def _give_back(self, connection: SqlServerConnection, is_clean: bool) -> None:
        if is_clean and not self._is_closed:
            self._idle.append(connection)
        else:
            connection.close()
        self._free.release()

    def _connect(self) -> Connection:
        import mssql_python

        # Without autocommit, a transaction begins with the first statement.
        options = {"timeout": _CONNECT_TIMEOUT_S, **self._options, "autocommit": False}
        connection = mssql_python.connect(self._connection_string, **options)
        connection.timeout = _STATEMENT_TIMEOUT_S
        return connection


def _execute(connection: Connection, sql: str, parameters: tuple[Any, ...]) -> Result:
    with connection.cursor() as cursor:
        cursor.execute(sql, *parameters)
        result = Result((), cursor.rowcount)
        while True:
            if cursor.description is not None:
                result = Result(cursor.fetchall(), cursor.rowcount)
            # An error behind a message or another result is raised here, and not by execute().
            if not cursor.nextset():
                return result
