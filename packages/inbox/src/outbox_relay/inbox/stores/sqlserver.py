"""A store in SQL Server or Azure SQL, through mssql-python."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from outbox_relay.inbox.stores.sql.dialects import Result, SqlServer, Statement
from outbox_relay.inbox.stores.sql.store import SqlStore

if TYPE_CHECKING:
    from mssql_python import Connection

_CONNECT_TIMEOUT_S = 15
_STATEMENT_TIMEOUT_S = 60

ResultT = TypeVar("ResultT")


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
