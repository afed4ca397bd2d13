"""The databases on which the contract of a feed is tested: PostgreSQL, and the model of it that is simulated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

import psycopg
import pytest

from outbox_relay.changefeed import AsyncSession, set_keep_async
from outbox_relay.changefeed.connections import connect_async
from outbox_relay.changefeed.statements import Statement
from tests.support.sql_outbox import TABLE
from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S
from verification.simulation import determinism
from verification.simulation.channel import RpcChannel
from verification.simulation.sql.server import Server
from verification.simulation.sql.sessions import SimulatedSession, connect
from verification.simulation.sql.tables import Transaction
from verification.simulation.world import World


class Writer(Protocol):
    """A service's connection, with explicit transactions."""

    async def begin(self) -> None: ...

    async def append(self, identifier: str, shard: int = 0, *, data: str = "{}", age_s: float = 0) -> None:
        """Insert an event and its row of the outbox, whose time is so many seconds ago."""

    async def commit(self) -> None: ...

    async def rollback(self) -> None: ...


class FeedDatabase(Protocol):
    """A fresh database with the feed of `outbox.domain_event`."""

    async def session(self) -> AsyncSession: ...

    async def writer(self) -> Writer: ...

    async def kill(self, session: AsyncSession) -> None:
        """End a session at the server's side."""

    async def until_waiting(self, session: AsyncSession) -> None:
        """Until a session waits for a lock."""

    def holding(self, table: str, shard: int = 0) -> Any:
        """Hold the lock of a shard's rows of `state` or `outbox`, while the block runs."""

    async def set_lock_timeout(self, seconds: float) -> None: ...

    async def set_keep(self, hours: int) -> None: ...

    async def set_notify(self) -> None:
        """From now on commits notify readers."""

    async def delete(self, identifier: str) -> None:
        """Delete a row of the event table."""


Scenario = Callable[[FeedDatabase], Awaitable[None]]


class _ModelWriter:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._transaction = Transaction(server.tables)

    async def begin(self) -> None:
        self._transaction = Transaction(self._server.tables)

    async def append(self, identifier: str, shard: int = 0, *, data: str = "{}", age_s: float = 0) -> None:
        row = {"id": identifier, "partition_key": "k", "type": "domainEvent", "data": data}
        self._transaction.insert(row, shard, self._server.tables.now_ms() - int(age_s * 1000))

    async def commit(self) -> None:
        self._server.commit(self._transaction)

    async def rollback(self) -> None:
        pass


class ModelDatabase:
    """See `FeedDatabase`; it exists within a world."""

    def __init__(self, world: World) -> None:
        self.server = Server(world)
        self._line = RpcChannel(world, "database")
        self._process = world.process("test")

    async def session(self) -> AsyncSession:
        return await connect(self._process, self._line, self.server)

    async def writer(self) -> Writer:
        return _ModelWriter(self.server)

    async def kill(self, session: AsyncSession) -> None:
        assert isinstance(session, SimulatedSession)
        session.backend.end()

    async def until_waiting(self, session: AsyncSession) -> None:
        assert isinstance(session, SimulatedSession)
        lock = None
        async with asyncio.timeout(WATCHDOG_S):
            while lock is None or lock.holder is session.backend:
                await look_again()
                lock = session.backend.waits_for

    @asynccontextmanager
    async def holding(self, table: str, shard: int = 0) -> AsyncIterator[None]:
        lock = self.server.lock_of(table, shard)
        lock.acquire(self, lambda: None)
        try:
            yield
        finally:
            lock.release(self)

    async def set_lock_timeout(self, seconds: float) -> None:
        self.server.lock_timeout_s = seconds

    async def set_keep(self, hours: int) -> None:
        self.server.tables.keep_h = hours

    async def set_notify(self) -> None:
        self.server.statements.channel = "changefeed:test"

    async def delete(self, identifier: str) -> None:
        del self.server.tables.events[identifier]

    def run(self, scenario: Scenario) -> None:
        """Play a scenario in this database's world."""
        world = self._process.world
        with determinism.replaced(), determinism.of(world):
            try:
                world.run_task(self._process, scenario(self), WATCHDOG_S)  # type: ignore[arg-type]
            finally:
                world.close()


class _PostgresWriter:
    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    async def begin(self) -> None:
        await self._connection.execute("begin")

    async def append(self, identifier: str, shard: int = 0, *, data: str = "{}", age_s: float = 0) -> None:
        await self._connection.execute(
            "insert into outbox.domain_event (id, partition_key, data) values (%s, 'k', %s)", (identifier, data)
        )
        await self._connection.execute(
            'insert into changefeed."outbox:outbox.domain_event" (shard_id, id, time_hint) '
            "values (%s, %s, clock_timestamp() - %s * interval '1 second')",
            (shard, identifier, age_s),
        )

    async def commit(self) -> None:
        await self._connection.execute("commit")

    async def rollback(self) -> None:
        await self._connection.execute("rollback")


class PostgresDatabase:
    """See `FeedDatabase`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._open = AsyncExitStack()

    async def session(self) -> AsyncSession:
        session = await connect_async(self._url)
        self._open.push_async_callback(session.close)
        return session

    async def writer(self) -> Writer:
        return _PostgresWriter(await self._connection())

    async def _connection(self) -> psycopg.AsyncConnection[Any]:
        options = f"-c statement_timeout={WATCHDOG_S}s"
        made = await psycopg.AsyncConnection.connect(self._url, autocommit=True, options=options)
        self._open.push_async_callback(made.close)
        return made

    async def _owner(self, sql: str, *values: Any) -> Any:
        async with await psycopg.AsyncConnection.connect(self._url, autocommit=True) as owner:
            cursor = await owner.execute(sql.encode(), values or None)
            return await cursor.fetchall() if cursor.description is not None else None

    async def kill(self, session: AsyncSession) -> None:
        await self._owner("select pg_terminate_backend(%s, 10000)", _pid(session))

    async def until_waiting(self, session: AsyncSession) -> None:
        async with asyncio.timeout(WATCHDOG_S):
            # Nothing tells when it does, so ask again.
            while not (await self._owner("select cardinality(pg_blocking_pids(%s))", _pid(session)))[0][0]:
                await look_again()

    @asynccontextmanager
    async def holding(self, table: str, shard: int = 0) -> AsyncIterator[None]:
        holder = await self._connection()
        await holder.execute("begin")
        await holder.execute(
            f'select from changefeed."{table}:outbox.domain_event" where shard_id = %s for update'.encode(),
            (shard,),
        )
        try:
            yield
        finally:
            await holder.execute("rollback")

    async def set_lock_timeout(self, seconds: float) -> None:
        read = 'changefeed."read_feed:outbox.domain_event"(int, uuid, int)'
        await self._owner(f"alter function {read} set lock_timeout = '{int(seconds * 1000)}ms'")

    async def set_keep(self, hours: int) -> None:
        session = await self.session()
        await set_keep_async(session, TABLE, f"{hours}h")

    async def set_notify(self) -> None:
        await self._owner(f"select changefeed.set_notify('{TABLE}', true)")

    async def delete(self, identifier: str) -> None:
        session = await self.session()
        await session.execute(Statement("delete from outbox.domain_event where id = ?", (identifier,)))

    def run(self, scenario: Scenario) -> None:
        """Play a scenario in an event loop of its own."""

        async def play() -> None:
            async with self._open:
                await scenario(self)

        asyncio.run(play())


def _pid(session: Any) -> int:
    return int(session._connection.info.backend_pid)


@pytest.fixture(params=["model", "PostgreSQL"])
def play(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    """Plays a scenario on a fresh database of each kind."""
    if request.param == "model":
        return ModelDatabase(World("a feed's contract")).run
    return PostgresDatabase(request.getfixturevalue("outbox_database")).run


def on_each(scenario: Scenario) -> Callable[[Callable[[Scenario], None]], None]:
    """A test that plays a scenario on each kind of database."""

    def test(play: Callable[[Scenario], None]) -> None:
        play(scenario)

    test.__doc__ = scenario.__doc__
    return test
