"""A store in the database of an engine of SQLAlchemy: PostgreSQL, SQLite or SQL Server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, overload
from weakref import WeakKeyDictionary

from outbox_relay.inbox.stores.port import Turn
from outbox_relay.inbox.stores.servers import SqlStore
from outbox_relay.inbox.stores.sql.dialects import Dialect, Postgres, Result, Sqlite, SqlServer, Statement

if TYPE_CHECKING:
    from sqlalchemy import TextClause
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_sessionmaker

SessionT = TypeVar("SessionT", "AsyncConnection", "AsyncSession")

_DIALECTS: dict[str, Callable[..., Dialect]] = {"postgresql": Postgres, "sqlite": Sqlite, "mssql": SqlServer}


_IDLE = 0
# By pool: stores of one engine take turns.
_turns: WeakKeyDictionary[Any, Turn] = WeakKeyDictionary()


class SqlAlchemyStore(SqlStore[SessionT]):
    """Writes through `arrival.connection` in the block of `once` are committed with the message, or not at all.

    Each block has a connection of its own, so blocks run concurrently: as many as the engine's pool has. In SQLite
    one of them writes at a time. With a `StaticPool`, the default for `:memory:`, there is one connection: blocks
    run one after another, and one that finds it in a transaction of somebody else is refused.

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
        from sqlalchemy.exc import DataError, OperationalError
        from sqlalchemy.ext.asyncio import async_sessionmaker
        from sqlalchemy.pool import StaticPool

        bind = engine.kw.get("bind") if isinstance(engine, async_sessionmaker) else engine
        if bind is None:
            raise ValueError("The sessionmaker has no engine: write async_sessionmaker(engine).")
        dialect = _DIALECTS.get(bind.dialect.name)
        if dialect is None:
            raise ValueError(f"The engine is of {bind.dialect.name}; there are stores in {', '.join(_DIALECTS)}.")
        super().__init__(dialect() if schema is None else dialect(schema), consumer)
        self._engine: AsyncEngine = bind
        self._sessions = engine if isinstance(engine, async_sessionmaker) else None
        self._unstorable = (DataError, UnicodeEncodeError)
        if isinstance(self._recording.dialect, Sqlite):
            self._unmarked = (OperationalError,)
        # A pool that gives one connection to all.
        self._turn = _turns.setdefault(bind.pool, Turn()) if isinstance(bind.pool, StaticPool) else None

    @asynccontextmanager
    async def _transaction(self, *, writes: bool = True) -> AsyncIterator[SessionT]:
        async with AsyncExitStack() as stack:
            if self._turn is not None:
                await stack.enter_async_context(self._turn.take())
                _check_is_idle(_driver_of(self._engine.pool), self._engine.pool)
            connection = await stack.enter_async_context(self._engine.connect())
            raw: Any = (await connection.get_raw_connection()).dbapi_connection
            _check_is_idle(raw.driver_connection, self._engine.pool)
            session: Any = await stack.enter_async_context(self._begun(connection))
            if isinstance(self._recording.dialect, Sqlite):
                # Left to sqlite3, a transaction begins before the first INSERT, and not before CREATE TABLE.
                if writes and not raw.driver_connection.in_transaction:
                    await connection.exec_driver_sql("BEGIN IMMEDIATE")
            elif getattr(raw, "autocommit", False) is True:
                raise RuntimeError(
                    "The engine has the isolation level AUTOCOMMIT: effect and record would be two commits."
                )
            yield session

    @asynccontextmanager
    async def _begun(self, connection: AsyncConnection) -> AsyncIterator[AsyncConnection | AsyncSession]:
        """A transaction of a connection, as what the store was given has it."""
        if self._sessions is None:
            async with connection.begin():
                yield connection
        else:
            async with self._sessions(bind=connection) as session, session.begin():
                await session.connection()
                yield session

    async def _execute(self, connection: SessionT, statement: Statement, /) -> Result:
        values = {f"p{index}": value for index, value in enumerate(statement.parameters)}
        result = await (await _connection(connection)).execute(_text(statement.sql), values)
        return Result(result.fetchall() if result.returns_rows else (), result.rowcount)


def _check_is_idle(driver: Any, pool: object) -> None:
    """Refuse a connection that is in a transaction, before one is begun.

    Each driver says it in its own way: sqlite3, asyncpg, psycopg.
    """
    if hasattr(driver, "in_transaction"):
        is_busy = driver.in_transaction
    elif hasattr(driver, "is_in_transaction"):
        is_busy = driver.is_in_transaction()
    elif hasattr(driver, "info"):
        is_busy = driver.info.transaction_status != _IDLE
    else:
        is_busy = False
    if is_busy:
        raise RuntimeError(
            "The connection is in a transaction of somebody else, whose commit would be that of the block, too: "
            f"give the store an engine of its own (this one has a {type(pool).__name__})."
        )


def _driver_of(pool: object) -> Any:
    """Return the open connection of a `StaticPool`, if there is one.

    To get it from the pool and to give it back would roll back whatever transaction it is in (SQLAlchemy 2.1.9).
    """
    return getattr(vars(pool).get("connection"), "driver_connection", None)


async def _connection(session: AsyncConnection | AsyncSession) -> AsyncConnection:
    from sqlalchemy.ext.asyncio import AsyncSession

    return await session.connection() if isinstance(session, AsyncSession) else session


@lru_cache(maxsize=256)
def _text(sql: str) -> TextClause:
    from sqlalchemy import text

    first, *others = sql.split("?")
    return text(first + "".join(f":p{index}{other}" for index, other in enumerate(others)))
