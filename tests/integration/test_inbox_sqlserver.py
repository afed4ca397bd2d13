"""The connections of `SqlServerStore`, whose driver's interface PostgreSQL's driver has as well.

The store's statements run where there is a server with T-SQL. Which transactions there are, and who has which
connection when, is the same in every database.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import mssql_python
import psycopg
import pytest

from outbox_relay import inbox
from outbox_relay.inbox.errors import OutsideBlock
from outbox_relay.inbox.stores.servers import SqlServerConnection
from outbox_relay.inbox.stores.sql.dialects import Postgres, SqlServer
from outbox_relay.inbox.stores.sql.recording import Recording
from tests.support.inbox_stores import message
from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S


class Cursor(psycopg.Cursor[Any]):
    """A cursor with the parameters of the driver of SQL Server."""

    def execute(self, sql: Any, *parameters: Any, **options: Any) -> Cursor:  # type: ignore[override]
        return super().execute(sql.replace("?", "%s") if parameters else sql, parameters or None, **options)


class TransactionIds(Postgres):
    """The dialect of that database, with the marks of SQL Server."""

    mark = SqlServer.mark
    is_marked = SqlServer.is_marked


# As in SQL Server, where a SELECT without a table begins no transaction, and has one of its own:
# https://learn.microsoft.com/sql/t-sql/statements/set-implicit-transactions-transact-sql
TRANSACTION_ID = """
create sequence own_transactions;
create function current_transaction_id() returns bigint language sql as
    'select coalesce(txid_current_if_assigned(), -nextval(''own_transactions''))'
"""


class Server:
    """A database of PostgreSQL, and the connections that were opened to it by the driver of SQL Server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.opened: list[psycopg.Connection[Any]] = []
        self._own = psycopg.connect(url, autocommit=True)
        self._own.execute("create table effects (id text)")
        self._own.execute(TRANSACTION_ID)

    def connect(self, connection_string: str, *, timeout: int, autocommit: bool = True) -> psycopg.Connection[Any]:
        assert connection_string == "Server=.;Database=loans"
        connection = psycopg.connect(
            self.url, connect_timeout=timeout, autocommit=autocommit, cursor_factory=Cursor
        )
        self.opened.append(connection)
        return connection

    def effects(self) -> list[str]:
        return [row[0] for row in self._own.execute("select id from effects order by id")]

    def end_sessions(self) -> None:
        self._own.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )

    def close(self) -> None:
        for each in (self._own, *self.opened):
            each.close()


@pytest.fixture
def server(postgres_database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    made = Server(postgres_database)
    monkeypatch.setattr(mssql_python, "connect", made.connect)
    yield made
    made.close()


def store_of(connections: int) -> inbox.SqlServerStore:
    return inbox.SqlServerStore("Server=.;Database=loans", connections=connections)


def add(name: str) -> str:
    return f"insert into effects values ('{name}')"


async def closed(store: inbox.SqlServerStore) -> None:
    """Close a store, and wait until the threads of its connections have ended."""
    await store.close()
    async with asyncio.timeout(WATCHDOG_S):
        while any(each.name.startswith("inbox-sqlserver") for each in threading.enumerate()):
            await look_again()


async def test_a_block_is_one_transaction_and_the_next_one_has_its_connection(server: Server) -> None:
    store = store_of(1)

    async def fail() -> None:
        async with store._transaction() as connection:
            await connection.execute(add("c"))
            raise OSError("no")

    async with store._transaction() as connection:
        await connection.execute(add("a"))
        await connection.execute(add("b"))
        assert server.effects() == []
    with pytest.raises(OSError, match="no"):
        await fail()
    async with store._transaction() as connection:
        await connection.execute(add("d"))

    assert server.effects() == ["a", "b", "d"]
    await closed(store)
    assert [each.closed for each in server.opened] == [True]


async def test_the_last_result_with_rows_is_that_of_a_statement(server: Server) -> None:
    store = store_of(1)

    async with store._transaction() as connection:
        results = [
            await connection.execute(sql)
            for sql in ("select 1; select 2 union select 3 order by 1", f"select 4; {add('a')}", add("b"))
        ]

    assert [(list(each.rows), each.changed) for each in results] == [([(2,), (3,)], 2), ([(4,)], 1), ([], 1)]
    await closed(store)


@pytest.mark.parametrize("connections", [1, 2])
async def test_blocks_have_a_connection_each_and_the_others_wait(server: Server, connections: int) -> None:
    store = store_of(connections)
    inside = 0
    most = 0
    leave = asyncio.Event()

    async def block(name: str) -> None:
        nonlocal inside, most
        async with store._transaction() as connection:
            await connection.execute(add(name))
            inside += 1
            most = max(most, inside)
            if inside == connections:
                leave.set()
            await leave.wait()
            await asyncio.sleep(0)
            inside -= 1

    async with asyncio.timeout(WATCHDOG_S):
        await asyncio.gather(*(block(name) for name in "abcd"))

    assert most == connections == len(server.opened)
    assert server.effects() == ["a", "b", "c", "d"]
    await closed(store)


async def test_a_block_that_is_cancelled_within_a_statement_is_undone_behind_it(server: Server) -> None:
    store = store_of(1)
    begun = asyncio.Event()

    async def block() -> None:
        async with store._transaction() as connection:
            await connection.execute(add("a"))
            begun.set()
            await connection.execute("select pg_sleep(0.1)")

    task = asyncio.create_task(block())
    await begun.wait()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with store._transaction() as connection:
        await connection.execute(add("b"))

    assert server.effects() == ["b"]
    await closed(store)


async def test_a_connection_that_was_lost_is_closed_and_another_one_is_opened(server: Server) -> None:
    store = store_of(1)

    async def lose() -> None:
        async with store._transaction() as connection:
            await connection.execute(add("a"))
            server.end_sessions()
            await connection.execute(add("b"))

    with pytest.raises(psycopg.OperationalError):
        await lose()
    async with store._transaction() as connection:
        await connection.execute(add("c"))

    assert server.effects() == ["c"]
    await closed(store)


async def test_a_block_for_which_no_thread_could_be_started_leaves_its_place(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(1)

    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="new thread"):
            async with store._transaction():
                pass
    async with asyncio.timeout(WATCHDOG_S), store._transaction() as connection:
        await connection.execute(add("a"))

    assert server.effects() == ["a"]
    await closed(store)


async def test_a_block_that_ends_after_the_store_was_closed_closes_its_connection(server: Server) -> None:
    store = store_of(2)

    async with store._transaction() as connection:
        await connection.execute(add("a"))
        await store.close()
    await closed(store)

    assert server.effects() == ["a"]
    assert server.opened[0].closed


def marking_store() -> inbox.SqlServerStore:
    """A store that records in the dialect of the server, and marks its transactions as in SQL Server."""
    store = store_of(1)
    store._recording = Recording(TransactionIds(), "default")
    return store


async def test_the_transaction_of_a_block_is_that_of_its_record(server: Server) -> None:
    store = marking_store()

    for identifier in ("a", "a", "b"):
        async with store.once(message(identifier, 1)) as arrival:
            if arrival.first:
                await arrival.connection.execute(add(identifier))

    assert server.effects() == ["a", "b"]
    await closed(store)


@pytest.mark.parametrize(
    "end",
    [
        lambda connection: connection.execute("commit"),
        lambda connection: connection.execute("rollback"),
        lambda connection: connection.execute("commit and chain"),
        lambda connection: connection.execute("rollback and chain"),
        lambda connection: connection.run(lambda each: each.commit()),
        lambda connection: connection.run(lambda each: each.rollback()),
    ],
    ids=["commit", "rollback", "commit, another begun", "rollback, another begun", "by commit()", "by rollback()"],
)
@pytest.mark.parametrize("effect", [None, "behind"], ids=["no effect", "an effect"])
async def test_a_block_whose_transaction_is_ended_within_it_fails(
    server: Server, end: Callable[[SqlServerConnection], Awaitable[object]], effect: str | None
) -> None:
    store = marking_store()

    async def handle() -> None:
        async with store.once(message("a")) as arrival:
            await end(arrival.connection)
            if effect is not None:
                await arrival.connection.execute(add(effect))

    with pytest.raises(OutsideBlock):
        await handle()
    assert server.effects() == []
    async with store.once(message("b")) as arrival:
        await arrival.connection.execute(add("b"))
    assert server.effects() == ["b"]
    await closed(store)


def test_a_store_needs_a_connection() -> None:
    with pytest.raises(ValueError, match="connections is 0; it must be 1 or more"):
        store_of(0)
