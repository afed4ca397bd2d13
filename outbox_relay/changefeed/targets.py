"""Carries out an INSERT on the service's own connection: a DB-API connection or cursor, or SQLAlchemy.

No driver is imported: the object's own classes tell which one it belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outbox_relay.changefeed.errors import ArgumentError

# Table values constructors of SQL Server have 1000 rows at most, and statements 2100 parameters.
# https://learn.microsoft.com/sql/t-sql/queries/table-value-constructor-transact-sql#limitations-and-restrictions
MAX_ROWS = 1000
MAX_PARAMETERS = 2000

# The drivers whose connections are known, each with its placeholder.
_PLACEHOLDERS = {"psycopg": "%s", "psycopg2": "%s", "mssql_python": "?", "pyodbc": "?"}
# psycopg's TransactionStatus.IDLE: no transaction is open.
_IDLE = 0


@dataclass(frozen=True, slots=True)
class Insert:
    """Rows for a table of the schema changefeed.

    Attributes:
        table: Its name.
        columns: The columns that are given.
        rows: Their values, in the order in which they are to be inserted.
    """

    table: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


def execute(target: Any, insert: Insert) -> None:
    """Carry out the INSERT as one statement. Raises ArgumentError, and what the driver raises."""
    _check_size(insert)
    library = _library(target)
    if library == "sqlalchemy":
        _check_pooled(target.connection() if callable(target.connection) else target)
        target.execute(_construct(insert))
        return
    _check_transaction(target)
    sql = _sql(insert, _PLACEHOLDERS[library])
    values = [value for row in insert.rows for value in row]
    if hasattr(target, "cursor"):
        cursor = target.cursor()
        try:
            cursor.execute(sql, values)
        finally:
            cursor.close()
    else:
        target.execute(sql, values)


async def execute_async(target: Any, insert: Insert) -> None:
    """Carry out the INSERT as one statement.

    Raises ArgumentError, and what the driver raises. Takes a connection, cursor or session for asyncio.
    """
    _check_size(insert)
    library = _library(target)
    if library == "sqlalchemy":
        connection = target if hasattr(target, "sync_connection") else await target.connection()
        _check_pooled(connection.sync_connection)
        await target.execute(_construct(insert))
        return
    _check_transaction(target)
    await target.execute(_sql(insert, _PLACEHOLDERS[library]), [value for row in insert.rows for value in row])


def _library(target: Any) -> str:
    """Return the name of the library that the object is of."""
    for base in type(target).__mro__:
        root = base.__module__.partition(".")[0]
        if root == "sqlalchemy" or root in _PLACEHOLDERS:
            return root
    raise ArgumentError(
        f"{type(target).__module__}.{type(target).__qualname__} is not known. Pass a connection or cursor of "
        f"{', '.join(_PLACEHOLDERS)}, a connection or session of SQLAlchemy, or write the INSERT yourself."
    )


def _check_size(insert: Insert) -> None:
    at_most = min(MAX_ROWS, MAX_PARAMETERS // len(insert.columns))
    if len(insert.rows) > at_most:
        raise ArgumentError(
            f"{len(insert.rows)} keys are too many for one statement, which takes {at_most} of them: "
            "call it several times in the same transaction"
        )


def _check_transaction(target: Any) -> None:
    """Raise if a connection or cursor is in autocommit mode, and no transaction is known to be open."""
    connection = getattr(target, "connection", target)
    _check(connection, connection)


def _check_pooled(connection: Any) -> None:
    """Raise as `_check_transaction` for a connection of SQLAlchemy."""
    pooled = connection.connection
    _check(pooled.dbapi_connection, pooled.driver_connection)


def _check(connection: Any, driver: Any) -> None:
    # Only psycopg and psycopg2 say whether a transaction is open; with the others, BEGIN is no way around this.
    status = getattr(getattr(driver, "info", None), "transaction_status", _IDLE)
    if getattr(connection, "autocommit", False) is True and status == _IDLE:
        raise ArgumentError(
            "the connection is in autocommit mode and no transaction is open, so the event and its row in the "
            "outbox are not committed together. Insert both within one: turn autocommit off, or with psycopg, "
            "with connection.transaction(): …"
        )


def _sql(insert: Insert, placeholder: str) -> str:
    # Both kinds of database take identifiers in double quotes. If %s is a placeholder, any % is doubled.
    table = _quoted(insert.table, placeholder)
    columns = ", ".join(_quoted(column, placeholder) for column in insert.columns)
    row = f"({', '.join([placeholder] * len(insert.columns))})"
    return f"insert into changefeed.{table} ({columns}) values {', '.join([row] * len(insert.rows))}"


def _quoted(name: str, placeholder: str) -> str:
    quoted = '"' + name.replace('"', '""') + '"'
    return quoted.replace("%", "%%") if placeholder == "%s" else quoted


def _construct(insert: Insert) -> Any:
    """Return the INSERT for SQLAlchemy. Columns without a type let the database decide how to take the values."""
    import sqlalchemy

    columns: list[Any] = [sqlalchemy.column(name) for name in insert.columns]
    table = sqlalchemy.table(insert.table, *columns, schema="changefeed")
    rows = [dict(zip(insert.columns, row, strict=True)) for row in insert.rows]
    return sqlalchemy.insert(table).values(rows)
