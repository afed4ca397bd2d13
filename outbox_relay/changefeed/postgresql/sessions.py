"""PostgreSQL through psycopg 3: sessions, and its errors in changefeed's terms."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
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
from outbox_relay.changefeed.postgresql.dialect import PostgresDialect
from outbox_relay.changefeed.statements import Result, Statement

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection
    from psycopg.abc import AdaptContext
    from psycopg.abc import Loader as AbstractLoader
    from psycopg.adapt import Loader

_CONNECT_TIMEOUT_S = 15
# A partner that has gone without a word is noticed after about half a minute, instead of after two hours.
_KEEPALIVE: dict[str, Any] = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 4}
_STATEMENT_TIMEOUT_S = 60
_NO_LIMIT, _LIMIT = Statement("set statement_timeout = 0"), Statement("reset statement_timeout")

# SQLSTATEs raised by the migrations, and those of PostgreSQL that say "again" or "not set up".
# https://www.postgresql.org/docs/current/errcodes-appendix.html
_ERRORS: dict[str, type[ChangefeedError]] = {
    "CF001": ArgumentError,
    "CF002": CursorError,
    "CF003": IsolationError,
    "CF004": SetupError,
    "CF005": CursorPrunedError,
    "CF006": ConsumerRoleError,
    "55P03": FeedBusyError,
    "42P01": SetupError,
    "42883": SetupError,
    "3F000": SetupError,
}
_NOT_SET_UP = ("42P01", "42883", "3F000")
_SET_UP = (
    "Run python -m outbox_relay.changefeed install, which also makes again what a feed lacks. "
    "If the table has no feed: python -m outbox_relay.changefeed setup-feed schema.Table --keep 30d."
)


def connect(url: str, **options: Any) -> PostgresSession:
    """Open a sync session.

    Args:
        url: `postgresql://user@host/database`, or a connection string of libpq.
        options: Further parameters of libpq, such as `password`.

    Raises:
        SetupError: psycopg is not installed, or a connection pooler refuses the session's parameters.
        DatabaseError: The server cannot be reached, or refuses.
    """
    psycopg = _driver()
    parameters = _parameters(url, options)
    with explained():
        connection = psycopg.connect(autocommit=True, **parameters)
    _configure(connection)
    session = PostgresSession(connection)
    try:
        _check_settings(session.execute(_FIX_SETTINGS))
    except BaseException:
        session.close()
        raise
    return session


async def connect_async(url: str, **options: Any) -> AsyncPostgresSession:
    """Open an async session. See `connect` for the arguments and errors."""
    psycopg = _driver()
    parameters = _parameters(url, options)
    with explained():
        connection = await psycopg.AsyncConnection.connect(autocommit=True, **parameters)
    _configure(connection)
    session = AsyncPostgresSession(connection)
    try:
        _check_settings(await session.execute(_FIX_SETTINGS))
    except BaseException:
        await session.close()
        raise
    return session


class PostgresSession:
    """A connection of psycopg."""

    dialect: PostgresDialect = PostgresDialect()

    def __init__(self, connection: Connection[Any]) -> None:
        """Create a session on `connection`, which is in autocommit mode."""
        self._connection = connection

    def execute(self, statement: Statement, /) -> Result:
        """Carry out one statement. Raises ChangefeedError."""
        if statement.unlimited:
            self.execute(_NO_LIMIT)
            try:
                return self.execute(replace(statement, unlimited=False))
            finally:
                with suppress(ChangefeedError):
                    self.execute(_LIMIT)
        with explained(), self._connection.cursor() as cursor:
            cursor.execute(_text(statement), tuple(statement.parameters) or None, prepare=statement.prepared)
            if cursor.description is None:
                return Result((), (), cursor.rowcount)
            names = tuple(column.name for column in cursor.description)
            return Result(names, cursor.fetchall(), cursor.rowcount)

    def listen(self, channel: str, /) -> None:
        """Receive the notifications of this channel."""
        self.execute(Statement(f'listen "{channel}"'))

    def notified(self, timeout_s: float, payload: str | None = None, /) -> bool:
        """Wait for a notification, of that payload if one is given; False when there was none in that time."""
        ends = time.monotonic() + timeout_s
        left_s = timeout_s
        while True:
            with explained():
                came = [one.payload for one in self._connection.notifies(timeout=left_s, stop_after=1)]
            left_s = max(ends - time.monotonic(), 0.0)
            if payload is None or payload in came or not came:
                return bool(came)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class AsyncPostgresSession:
    """An async connection of psycopg."""

    dialect: PostgresDialect = PostgresDialect()

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        """Create a session on `connection`, which is in autocommit mode."""
        self._connection = connection

    async def execute(self, statement: Statement, /) -> Result:
        """Carry out one statement. Raises ChangefeedError."""
        if statement.unlimited:
            await self.execute(_NO_LIMIT)
            try:
                return await self.execute(replace(statement, unlimited=False))
            finally:
                with suppress(ChangefeedError):
                    await self.execute(_LIMIT)
        with explained():
            async with self._connection.cursor() as cursor:
                await cursor.execute(
                    _text(statement), tuple(statement.parameters) or None, prepare=statement.prepared
                )
                if cursor.description is None:
                    return Result((), (), cursor.rowcount)
                names = tuple(column.name for column in cursor.description)
                return Result(names, await cursor.fetchall(), cursor.rowcount)

    async def listen(self, channel: str, /) -> None:
        """Receive the notifications of this channel."""
        await self.execute(Statement(f'listen "{channel}"'))

    async def notified(self, timeout_s: float, payload: str | None = None, /) -> bool:
        """Wait for a notification, of that payload if one is given; False when there was none in that time."""
        ends = time.monotonic() + timeout_s
        left_s = timeout_s
        while True:
            with explained():
                came = [one.payload async for one in self._connection.notifies(timeout=left_s, stop_after=1)]
            left_s = max(ends - time.monotonic(), 0.0)
            if payload is None or payload in came or not came:
                return bool(came)

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()


@contextmanager
def explained() -> Iterator[None]:
    """Raise the driver's errors in changefeed's terms. None of them shows a parameter's value."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        diagnostic = error.diag
        said = diagnostic.message_primary or str(error).strip().partition("\n")[0] or type(error).__name__
        hint = diagnostic.message_hint or ""
        if error.sqlstate == "55P03":
            said, hint = "another reader holds the lock of this shard", "Try again."
        kind = _ERRORS.get(error.sqlstate or "")
        if error.sqlstate == "42804" and "read_events:" in (diagnostic.context or ""):
            # It returns rows of a table that was renamed.
            kind, hint = SetupError, _SET_UP
        if "unsupported startup parameter" in str(error):
            raise SetupError(f"{said}. {_POOLER}") from error
        if kind is SetupError and error.sqlstate in _NOT_SET_UP:
            # The server's own hint is to add type casts.
            hint = _SET_UP
        message = f"{said}. {hint}".strip()
        if kind is not None:
            raise kind(message) from error
        lost = isinstance(error, psycopg.OperationalError) and not _repeatable(error.sqlstate)
        raise DatabaseError(f"{message} (SQLSTATE {error.sqlstate or 'none'})", lost=lost) from error


_POOLER = (
    "That is a connection pooler such as PgBouncer in transaction mode. Connect to the server directly: the "
    "sessions set parameters and listen, which a pooler in transaction mode does not support"
)


def _check_settings(fixed: Result) -> None:
    """Raise SetupError if the session was not given its own settings."""
    if fixed.rows[0][0] is None:
        raise SetupError(f"the session's parameters were dropped on the way to the server. {_POOLER}")


def _repeatable(sqlstate: str | None) -> bool:
    """Return True for deadlocks, timeouts and lack of resources, which end a statement, not the connection."""
    return sqlstate is not None and sqlstate[:2] in ("40", "53", "55", "57") and sqlstate not in _SHUTDOWN


# admin_shutdown, crash_shutdown, cannot_connect_now, database_dropped, idle_session_timeout
_SHUTDOWN = ("57P01", "57P02", "57P03", "57P04", "57P05")


def _text(statement: Statement) -> str:
    return statement.sql.replace("%", "%%").replace("?", "%s") if statement.parameters else statement.sql


def _parameters(url: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the connection string and the options, over the defaults.

    Raises SetupError, without any part of the string: what libpq says of one that it cannot read, or takes for
    the name of a host or a port, may be a part of the password.
    """
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        parsed: dict[str, Any] = conninfo_to_dict(url)
    except ProgrammingError:
        raise SetupError(_MALFORMED) from None
    named = str(parsed.get("host") or "") + str(parsed.get("hostaddr") or "")
    ports = str(parsed.get("port") or "").split(",")
    if "@" in named or not all(port == "" or port.isdecimal() for port in ports):
        raise SetupError(_MALFORMED)
    # A server of another encoding converts. Statements are prepared if they ask for it: one that reads events
    # would keep the columns of the event table, so that new ones would be missing, dropped ones NULL.
    defaults = {
        "connect_timeout": _CONNECT_TIMEOUT_S,
        "client_encoding": "UTF8",
        "prepare_threshold": 0,
        **_KEEPALIVE,
    }
    parameters = {**defaults, **parsed, **options}
    # The last setting of a name counts.
    given = parameters.get("options") or ""
    parameters["options"] = f"-c statement_timeout={_STATEMENT_TIMEOUT_S}s {given} -c row_security=off"
    return parameters


# Settings that a session would inherit from its role, its database, the server or the environment (PGTZ), and that
# change what it reads: times, intervals and names in other forms, floating-point numbers of fewer digits. Others
# end or refuse statements: they are back at PostgreSQL's defaults; earlier versions lack the last two. A session
# that is read-only by default stays so, since operators use that to keep a database as it is. So does lc_monetary,
# which says the currency of the type money.
# https://www.postgresql.org/docs/current/runtime-config-client.html
_SETTINGS = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "quote_all_identifiers": "off",
    "standard_conforming_strings": "on",
    "search_path": "pg_catalog, public, pg_temp",
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "transaction_timeout": "0",
}

# With row_security off, rows that a policy would hide are an error: a row that is not seen counts as deleted. NULL
# if this option did not reach the server: then a pooler may give the next statement to another session.
_FIX_SETTINGS = Statement(f"""
select case when pg_catalog.current_setting('row_security') operator(pg_catalog.=) 'off' then (
    select pg_catalog.count(pg_catalog.set_config(s.name, fixed.value, false))
    from (values {", ".join(f"('{name}', '{value}')" for name, value in _SETTINGS.items())}) as fixed (name, value)
    join pg_catalog.pg_settings s on s.name operator(pg_catalog.=) fixed.name
) end
""")

_MALFORMED = (
    "the connection string cannot be read. Write postgresql://user:password@host:5432/database, and write special "
    "characters of the password, such as @, %, / and spaces, percent-encoded: %40, %25, %2F and %20"
)


def _driver() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise SetupError(
            "psycopg is not installed. Install it: pip install 'outbox-relay-changefeed[postgresql]'"
        ) from error
    return psycopg


def _configure(connection: Connection[Any] | AsyncConnection[Any]) -> None:
    """Take JSON as the text it is, UUIDs as bytes, and every value that Python does not have as text.

    Text of a fixed length comes without its padding, which is no part of it for the server either
    (https://www.postgresql.org/docs/current/datatype-character.html).

    An error in a loader would fail the whole page, for one row.
    """
    from psycopg.adapt import Loader
    from psycopg.pq import Format

    class AsText(Loader):
        def load(self, data: Any) -> str:
            return bytes(data).decode()

    class Unpadded(Loader):
        def load(self, data: Any) -> str:
            return bytes(data).decode().rstrip(" ")

    class AsBytes(Loader):
        def load(self, data: Any) -> bytes:
            return bytes.fromhex(bytes(data).replace(b"-", b"").decode())

    adapters = connection.adapters
    for name in _MAY_FAIL:
        wrapped = adapters.get_loader(adapters.types[name].oid, Format.TEXT)
        assert wrapped is not None
        adapters.register_loader(name, _or_text(wrapped, _INEXACT if name == "interval" else None))
    adapters.register_loader("json", AsText)
    adapters.register_loader("jsonb", AsText)
    adapters.register_loader("bpchar", Unpadded)
    adapters.register_loader("uuid", AsBytes)


# Python has no time 24:00, no infinite date, no year 10000 and none before Christ, and psycopg reads no interval
# or time with a time zone in some of the server's styles.
_MAY_FAIL = ("date", "time", "timetz", "timestamp", "timestamptz", "interval")

# psycopg takes a year for 365 days, a month for 30, and infinity for 0.
_INEXACT = re.compile(rb"infinity|year|mon", re.IGNORECASE)


@cache
def _or_text(wrapped: type[AbstractLoader], inexact: re.Pattern[bytes] | None) -> type[Loader]:
    """Return a loader that gives the text of a value which the wrapped loader cannot read, or not exactly."""
    from psycopg.adapt import Loader

    class OrText(Loader):
        def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
            super().__init__(oid, context)
            self._wrapped = wrapped(oid, context)

        def load(self, data: Any) -> Any:
            text = bytes(data)
            if inexact is None or inexact.search(text) is None:
                # A driver may raise anything here, NotImplementedError too.
                with suppress(Exception):
                    return self._wrapped.load(text)
            return text.decode()

    return OrText
