"""A store in PostgreSQL, through psycopg."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from outbox_relay.inbox.errors import OutsideBlock
from outbox_relay.inbox.stores.port import Identity
from outbox_relay.inbox.stores.sql.dialects import Postgres, Result, Statement
from outbox_relay.inbox.stores.sql.store import ENDED, SqlStore

if TYPE_CHECKING:
    from psycopg import AsyncConnection

_IN_TRANSACTION = 2
_IDLE = 0
_SHARED = "Somebody else uses the connection at the same time."

_in_use: WeakSet[AsyncConnection[Any]] = WeakSet()
"""Connections that a block uses. Its transaction begins later, by a statement that has to be awaited."""


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
            raise OutsideBlock(ENDED)
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
