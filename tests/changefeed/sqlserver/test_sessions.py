"""Sessions through mssql-python: its errors, and its use from asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import mssql_python
import pytest
from mssql_python.cursor import Cursor
from mssql_python.row import Row

from outbox_relay.changefeed import (
    DatabaseError,
    FeedBusyError,
    SetupError,
    connect,
    connect_async,
)
from outbox_relay.changefeed.connections import is_sqlserver
from outbox_relay.changefeed.statements import Statement
from tests.changefeed.sqlserver.backend import TsqlDatabase
from tests.changefeed.sqlserver.conftest import Events


@pytest.mark.parametrize(
    "url",
    [
        "Server=tcp:x.database.windows.net;Database=d",
        "server = x,1433; Database=d",
        "Database=d;Addr=x",
        "ADDRESS=x",
    ],
)
def test_a_connection_string_of_sql_server_is_recognized(url: str) -> None:
    assert is_sqlserver(url)


@pytest.mark.parametrize("url", ["postgresql://x/server=", "Database=d", "host=x dbname=server", ""])
def test_other_strings_are_not_taken_for_sql_server(url: str) -> None:
    assert not is_sqlserver(url)


def test_a_malformed_connection_string_is_refused_without_showing_it() -> None:
    with pytest.raises(SetupError, match="malformed") as caught:
        connect("Server=localhost;PWD=sec;ret;Database=d")
    assert "ret;" not in str(caught.value)


def test_an_error_behind_a_message_is_raised(database: TsqlDatabase) -> None:
    with pytest.raises(DatabaseError, match="behind the message"):
        database.session().execute(Statement("print 'a message'; throw 50001, 'behind the message', 1"))


def test_an_error_behind_a_result_is_raised(database: TsqlDatabase) -> None:
    with pytest.raises(DatabaseError, match="behind the result"):
        database.session().execute(Statement("select 1; throw 50001, 'behind the result', 1"))


def test_a_statement_says_how_many_rows_it_changed(events: Events, database: TsqlDatabase) -> None:
    events.insert(1, 2)
    update = Statement(f"update {events.table} set data = ? where id >= ?", ("new", 2))

    assert connect(database.url).execute(update).changed == 1
    assert events.session.execute(Statement(f"update {events.table} set data = null where id > 2")).changed == 0


def test_a_session_has_settings_of_its_own(database: TsqlDatabase) -> None:
    shown = connect(database.url).execute(Statement("select @@language, @@datefirst, @@lock_timeout, @@textsize"))

    assert [tuple(row) for row in shown.rows] == [("us_english", 7, -1, 2147483647)]


class Offline(mssql_python.Connection):
    """Connection of the driver to no server. It records the converters of columns that it is given."""

    timeout = 0

    def __init__(self) -> None:
        self._output_converters: dict[Any, Any] = {}
        self._converters_lock = threading.Lock()
        self._converters_generation = 0
        self._conn = None

    def execute(self, sql: str, *parameters: object) -> Any:
        return SimpleNamespace(close=lambda: None)

    def close(self) -> None:
        """Nothing is open."""

    def read(self, *columns: tuple[int, object]) -> list[object]:
        """Return a row as the driver does; each column has its type in ODBC."""
        cursor: Any = SimpleNamespace(
            _connection=self,
            connection=self,
            description=[(None, type(value)) for _, value in columns],
            _column_sql_types=[kind for kind, _ in columns],
        )
        driver_cursor: Any = Cursor
        driver_row: Any = Row
        converters = driver_cursor._build_converter_map(cursor)
        return list(driver_row([value for _, value in columns], {}, converter_map=converters))


def test_text_of_a_fixed_length_comes_without_its_padding_and_any_other_text_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = Offline()
    monkeypatch.setattr(mssql_python, "connect", lambda *_, **__: driver)
    connect("Server=.;Database=d")
    char, nchar, varchar, nvarchar, integer = 1, -8, 12, -9, 4

    row = driver.read(
        (char, "Paid      "),
        (nchar, " 美 é 😀\t  "),
        (char, "    "),
        (varchar, "Paid  "),
        (nvarchar, "Paid  "),
        (integer, 7),
        (char, None),
    )

    assert row == ["Paid", " 美 é 😀\t", "", "Paid  ", "Paid  ", 7, None]


def test_a_closed_session_is_lost(database: TsqlDatabase) -> None:
    session = connect(database.url)
    session.close()

    with pytest.raises(DatabaseError) as caught:
        session.execute(Statement("select 1"))
    assert caught.value.lost


def test_a_server_that_cannot_be_reached_is_lost(database: TsqlDatabase) -> None:
    with pytest.raises(DatabaseError) as caught:
        connect("Server=127.0.0.1,1;Database=d;UID=u;PWD=secret;Encrypt=no")
    assert caught.value.lost
    assert "secret" not in str(caught.value)


def test_the_session_that_a_deadlock_ends_is_told_to_try_again(database: TsqlDatabase) -> None:
    first, second = database.session(), database.session()
    first.execute(Statement("create table app.deadlock (id int not null primary key, n int not null)"))
    first.execute(Statement("insert into app.deadlock values (1, 0), (2, 0)"))
    for session, row in ((first, 1), (second, 2)):
        session.execute(Statement("begin transaction"))
        session.execute(Statement("update app.deadlock set n = 1 where id = ?", (row,)))
    with ThreadPoolExecutor(2) as pool:
        crossing = [
            pool.submit(session.execute, Statement("update app.deadlock set n = 2 where id = ?", (row,)))
            for session, row in ((first, 2), (second, 1))
        ]
        ends = [future.exception(60) for future in crossing]
    for session in (first, second):
        session.execute(Statement("if @@trancount > 0 rollback transaction"))
    first.execute(Statement("drop table app.deadlock"))

    assert [type(end) for end in ends if end] == [FeedBusyError]


async def test_the_event_loop_is_free_while_a_statement_runs(database: TsqlDatabase) -> None:
    session = await connect_async(database.url)
    try:
        running = asyncio.create_task(session.execute(Statement("exec changefeed.sleep 1000")))
        turns = 0
        while not running.done():
            await asyncio.sleep(0.01)
            turns += 1
        await running
        assert turns > 10
    finally:
        await session.close()


async def test_a_cancelled_statement_ends_before_the_next_one_begins(
    events: Events, database: TsqlDatabase
) -> None:
    session = await connect_async(database.url)
    try:
        await session.execute(Statement("select 1"))
        slow = Statement(f"exec changefeed.sleep 500; insert into {events.table} (id) values (1)")
        running = asyncio.create_task(session.execute(slow))
        await asyncio.sleep(0.1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        result = await session.execute(Statement(f"select id from {events.table}"))
        assert [row[0] for row in result.rows] == [1]
    finally:
        await session.close()


def test_a_binary_key_is_read_as_bytes(make_events: Callable[..., Events]) -> None:
    events = make_events("id varbinary(10) not null, n float not null, primary key (n, id)")
    events.run(
        "insert into {events} (id, n) values (0x0A, 1.5); "
        "insert into {outbox} (shard_id, id, n) values (0, 0x0A, 1.5)"
    )
    (entry,) = events.feed.read(0).entries

    assert entry.row == {"id": b"\x0a", "n": 1.5, "data": None}
