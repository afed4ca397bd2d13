"""A store in the database of an engine of SQLAlchemy: PostgreSQL, SQLite or SQL Server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, overload

from inbox.stores.sql.dialects import Dialect, Postgres, Sqlite, SqlServer
from inbox.stores.sql.statements import Result, Statement
from inbox.stores.sql.store import SqlStore

if TYPE_CHECKING:
    from sqlalchemy import TextClause
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_sessionmaker

SessionT = TypeVar("SessionT", "AsyncConnection", "AsyncSession")

_DIALECTS: dict[str, Callable[..., Dialect]] = {"postgresql": Postgres, "sqlite": Sqlite, "mssql": SqlServer}


class SqlAlchemyStore(SqlStore[SessionT]):
    """Writes through `arrival.connection` in the block of `once` are committed with the message, or not at all.

    Each block has a connection of its own, so blocks run concurrently: as many as the engine's pool has. In SQLite
    one of them writes at a time.

    Args:
        engine: An `AsyncEngine`, with which `arrival.connection` is an `AsyncConnection`; or an
            `async_sessionmaker` of one, with which it is an `AsyncSession`. Not in the isolation level AUTOCOMMIT.
        consumer: The consumer's name, if several share a database.
        schema: The schema of the tables; by default `public` in PostgreSQL and `dbo` in SQL Server.

    Raises:
        ValueError: The engine is of another database, or the sessionmaker has none.
    """

    @overload
    def __init__(
        self: SqlAlchemyStore[AsyncConnection],
        engine: AsyncEngine,
        *,
        consumer: str = ...,
        schema: str | None = ...,
    ) -> None: ...

    @overload
    def __init__(
        self: SqlAlchemyStore[AsyncSession],
        engine: async_sessionmaker[AsyncSession],
        *,
        consumer: str = ...,
        schema: str | None = ...,
    ) -> None: ...

    def __init__(self, engine: Any, *, consumer: str = "default", schema: str | None = None) -> None:
        from sqlalchemy.exc import DataError
        from sqlalchemy.ext.asyncio import async_sessionmaker

        bind = engine.kw.get("bind") if isinstance(engine, async_sessionmaker) else engine
        if bind is None:
            raise ValueError("The sessionmaker has no engine: write async_sessionmaker(engine).")
        dialect = _DIALECTS.get(bind.dialect.name)
        if dialect is None:
            raise ValueError(f"The engine is of {bind.dialect.name}; there are stores in {', '.join(_DIALECTS)}.")
        super().__init__(dialect() if schema is None else dialect(schema), consumer)
        self._begin: Callable[[], AbstractAsyncContextManager[SessionT]] = engine.begin
        self._unstorable = (DataError, UnicodeEncodeError)

    @asynccontextmanager
    async def _transaction(self, *, writes: bool = True) -> AsyncIterator[SessionT]:
        async with self._begin() as session:
            connection = await _connection(session)
            raw = (await connection.get_raw_connection()).dbapi_connection
            if isinstance(self._recording.dialect, Sqlite):
                # Left to sqlite3, a transaction begins before the first INSERT, and not before CREATE TABLE.
                if writes and not raw.driver_connection.in_transaction:  # type: ignore[union-attr]
                    await connection.exec_driver_sql("BEGIN IMMEDIATE")
            elif getattr(raw, "autocommit", False) is True:
                raise RuntimeError(
                    "The engine has the isolation level AUTOCOMMIT: effect and record would be two commits."
                )
            yield session

    async def _execute(self, connection: SessionT, statement: Statement, /) -> Result:
        values = {f"p{index}": value for index, value in enumerate(statement.parameters)}
        result = await (await _connection(connection)).execute(_text(statement.sql), values)
        return Result(result.fetchall() if result.returns_rows else (), result.rowcount)


async def _connection(session: AsyncConnection | AsyncSession) -> AsyncConnection:
    from sqlalchemy.ext.asyncio import AsyncSession

    return await session.connection() if isinstance(session, AsyncSession) else session


@lru_cache(maxsize=256)
def _text(sql: str) -> TextClause:
    from sqlalchemy import text

    first, *others = sql.split("?")
    return text(first + "".join(f":p{index}{other}" for index, other in enumerate(others)))
