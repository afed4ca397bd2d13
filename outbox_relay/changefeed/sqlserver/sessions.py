"""SQL Server through mssql-python: sessions, and its errors in changefeed's terms."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from outbox_relay.changefeed.errors import (
    ArgumentError,
    ChangefeedError,
    ConsumerRoleError,
    CursorError,
    CursorPrunedError,
    DatabaseError,
    FeedBusyError,
    IsolationError,
    SetupError,
)
from outbox_relay.changefeed.sqlserver.dialect import SqlServerDialect
from outbox_relay.changefeed.statements import Result, Statement

if TYPE_CHECKING:
    from mssql_python import Connection, Cursor

_CONNECT_TIMEOUT_S = 15
_STATEMENT_TIMEOUT_S = 60

# Settings that a session would inherit from its login's language, its database or the server's `user options`, and
# that change what statements read, compare, say or wait for.
# https://learn.microsoft.com/sql/t-sql/statements/set-statements-transact-sql
_SETTINGS = (
    "set nocount off; set implicit_transactions off; set xact_abort off; set ansi_nulls on; set ansi_padding on; "
    "set ansi_warnings on; set arithabort on; set concat_null_yields_null on; set quoted_identifier on; "
    "set numeric_roundabort off; set rowcount 0; set textsize 2147483647; set language us_english; "
    "set lock_timeout -1; set deadlock_priority normal; set transaction isolation level read committed;"
)

# The numbers of the migrations; they are in the messages, since the driver does not show an error's number.
EXCEPTIONS: dict[str, type[ChangefeedError]] = {
    "77101": ArgumentError,
    "77102": CursorError,
    "77103": IsolationError,
    "77104": SetupError,
    "77105": SetupError,
    "77106": FeedBusyError,
    "77107": SetupError,
    "77108": ArgumentError,
    "77109": ArgumentError,
    "77110": SetupError,
    "77111": CursorPrunedError,
    "77112": ConsumerRoleError,
}
_SET_UP = (
    "Run python -m outbox_relay.changefeed install, which also makes again what a feed lacks. "
    "If the table has no feed: python -m outbox_relay.changefeed setup-feed schema.Table --keep 30d."
)
_NUMBERED = re.compile(r"changefeed (771\d\d): (.*)", re.DOTALL)

# The driver's name of SQLSTATE 40001.
_DEADLOCK = "Serialization failure"
# Babelfish raises this instead of error 1222, and past the procedure's CATCH.
_LOCK_TIMEOUT = "canceling statement due to lock timeout"
# SQLSTATE 42S02, error 2812, and what Babelfish says of both.
_MISSING = re.compile(r"Could not find stored procedure|^(relation|procedure) .* does not exist")
_NO_TABLE = "Base table or view not found"
_NO_LIBRARY = "Failed to load the driver"


def connect(url: str, **options: Any) -> SqlServerSession:
    """Open a sync session.

    Args:
        url: `Server=…;Database=…;…`. With `Authentication=ActiveDirectoryMSI` or `ActiveDirectoryDefault`, the
            driver fetches a token of Microsoft Entra ID, and the string holds no password.
        options: Further parameters of mssql-python's `connect`, such as `token_provider`.

    Raises:
        SetupError: mssql-python or a library that it needs is not installed, or the string is malformed.
        DatabaseError: The server cannot be reached, or refuses.
    """
    return SqlServerSession(_connect(url, options))


async def connect_async(url: str, **options: Any) -> AsyncSqlServerSession:
    """Open an async session in a thread of its own, because the driver is a sync one.

    See `connect` for the arguments and errors.
    """
    thread = ThreadPoolExecutor(1, thread_name_prefix="changefeed-sqlserver")
    opening = thread.submit(_connect, url, options)
    try:
        connection = await asyncio.wrap_future(opening)
    except BaseException:
        # Cancelled while it connects: the connection is closed as soon as it is there.
        thread.submit(_discard, opening)
        thread.shutdown(wait=False)
        raise
    return AsyncSqlServerSession(SqlServerSession(connection), thread)


class SqlServerSession:
    """A connection of mssql-python."""

    dialect: SqlServerDialect = SqlServerDialect()

    def __init__(self, connection: Connection) -> None:
        """Create a session on `connection`, which is in autocommit mode."""
        self._connection = connection

    def execute(self, statement: Statement, /) -> Result:
        """Carry out one statement. Raises ChangefeedError."""
        with explained(), self._cursor(statement.unlimited) as cursor:
            cursor.execute(statement.sql, *statement.parameters)
            result = Result((), (), cursor.rowcount)
            while True:
                if cursor.description is not None:
                    names = tuple(column[0] for column in cursor.description)
                    result = Result(names, cursor.fetchall(), cursor.rowcount)
                # An error behind a message or another result is raised here, and not by execute().
                if not cursor.nextset():
                    return result

    def _cursor(self, unlimited: bool) -> Cursor:
        """Return a cursor, which takes over the connection's timeout when it is made."""
        if not unlimited:
            return self._connection.cursor()
        self._connection.timeout = 0
        try:
            return self._connection.cursor()
        finally:
            self._connection.timeout = _STATEMENT_TIMEOUT_S

    def listen(self, channel: str, /) -> None:
        """Do nothing: this database notifies nobody."""

    def notified(self, timeout_s: float, payload: str | None = None, /) -> bool:
        """Wait that long; False."""
        time.sleep(timeout_s)
        return False

    def close(self) -> None:
        """Close the connection."""
        with explained():
            self._connection.close()


class AsyncSqlServerSession:
    """A connection of mssql-python in its own thread."""

    dialect: SqlServerDialect = SqlServerDialect()

    def __init__(self, session: SqlServerSession, thread: ThreadPoolExecutor) -> None:
        """Create a session on a connection. `thread` has one worker, and serves nothing else."""
        self._session = session
        self._thread = thread

    async def execute(self, statement: Statement, /) -> Result:
        """Carry out one statement; when this is cancelled, the statement still ends. Raises ChangefeedError."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._session.execute, statement)

    async def listen(self, channel: str, /) -> None:
        """Do nothing: this database notifies nobody."""

    async def notified(self, timeout_s: float, payload: str | None = None, /) -> bool:
        """Wait that long; False."""
        await asyncio.sleep(timeout_s)
        return False

    async def close(self) -> None:
        """Close the connection, after the statement that it executes."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._session.close)
        finally:
            self._thread.shutdown(wait=False)


@contextmanager
def explained() -> Iterator[None]:
    """Raise the driver's errors in changefeed's terms. None of them shows a parameter's value."""
    import mssql_python

    try:
        yield
    except mssql_python.ConnectionStringParseError:
        # The driver's message may contain a part of the password: a traceback must not show it either.
        raise SetupError("the connection string is malformed: write Server=…;Database=…;…") from None
    except mssql_python.Error as error:
        said = error.ddbc_error.removeprefix("[Microsoft][SQL Server]").strip() or error.driver_error
        numbered = _NUMBERED.search(said)
        if numbered:
            raise EXCEPTIONS.get(numbered[1], DatabaseError)(numbered[2]) from error
        if error.driver_error == _NO_TABLE or _MISSING.search(said):
            raise SetupError(f"{said}. {_SET_UP}") from error
        if said.startswith(_LOCK_TIMEOUT):
            raise FeedBusyError("another session holds a lock of the feed. Try again.") from error
        if error.driver_error == _DEADLOCK:
            raise FeedBusyError("the server ended a deadlock by this session. Try again.") from error
        if _NO_LIBRARY in said:
            raise SetupError(
                "the ODBC driver within mssql-python cannot be loaded. Install the libraries that it needs; "
                "on Debian and Ubuntu: apt-get install libltdl7 libkrb5-3 libgssapi-krb5-2"
            ) from error
        # A statement that took too long counts as well: its session may still hold a lock of the whole session.
        lost = isinstance(error, (mssql_python.OperationalError, mssql_python.InterfaceError))
        raise DatabaseError(f"{said} ({error.driver_error})", lost=lost) from error


def _connect(url: str, options: dict[str, Any]) -> Connection:
    try:
        import mssql_python
    except ImportError as error:
        message = "mssql-python is not installed. Install it: pip install 'outbox-relay-changefeed[sqlserver]'"
        raise SetupError(message) from error
    with explained():
        connection = mssql_python.connect(url, **{"timeout": _CONNECT_TIMEOUT_S, **options, "autocommit": True})
        connection.timeout = _STATEMENT_TIMEOUT_S
        connection.execute(_SETTINGS).close()
        for kind in _FIXED_LENGTH:
            connection.add_output_converter(kind, _unpadded)
    return connection


# SQL_CHAR and SQL_WCHAR of ODBC: char(n) and nchar(n). A column of any other type of text has others.
_FIXED_LENGTH = (1, -8)


def _unpadded(text: bytes) -> str:
    """Return text of a fixed length without its padding; the driver gives converters UTF-16."""
    return text.decode("utf-16-le").rstrip(" ")


def _discard(opening: Future[Connection]) -> None:
    if opening.exception() is None:
        opening.result().close()
