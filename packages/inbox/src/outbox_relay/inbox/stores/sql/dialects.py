"""Operations, which are written once for all databases, and the SQL that differs between these."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from outbox_relay.inbox.errors import DeadLetter

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement.

    Attributes:
        sql: The text, with a `?` for each parameter. A literal `?`, `%` or `:` cannot be written.
        parameters: Their values.
    """

    sql: str
    parameters: Sequence[Any] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a statement.

    Attributes:
        rows: The rows, if it returns any.
        changed: Number of rows changed, if it changes any.
    """

    rows: Sequence[Sequence[Any]] = ()
    changed: int = 0


Operation = Generator[Statement, Result, ResultT]


def run(execute: Callable[[Statement], Result], operation: Operation[ResultT]) -> ResultT:
    """Run an operation with a function that executes one statement."""
    try:
        statement = next(operation)
        while True:
            statement = operation.send(execute(statement))
    except StopIteration as done:
        value: ResultT = done.value
        return value
    finally:
        operation.close()


async def run_async(execute: Callable[[Statement], Awaitable[Result]], operation: Operation[ResultT]) -> ResultT:
    """Run an operation with a coroutine function that executes its statements, and return its result."""
    try:
        statement = next(operation)
        while True:
            statement = operation.send(await execute(statement))
    except StopIteration as done:
        value: ResultT = done.value
        return value
    finally:
        operation.close()


MAX_BYTES = 512
"""Maximum bytes of an indexed text in PostgreSQL and SQL Server, as UTF-8. Service Bus allows 128 characters in
ids and session ids. Three of these texts and a consumer's name fit into an index of SQL Server, of 1,700 bytes.
https://learn.microsoft.com/sql/sql-server/maximum-capacity-specifications-for-sql-server
"""
MAX_CONSUMER_BYTES = 128

_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_LONGEST_S = 60 * 365 * 86_400


@dataclass(frozen=True, slots=True)
class Expression:
    """A part of a statement, with the values of its `?`."""

    sql: str
    parameters: Sequence[Any] = ()


def value(parameter: Any) -> Expression:
    """Return a parameter as an expression."""
    return Expression("?", (parameter,))


class Dialect(ABC):
    """How one database is addressed.

    Attributes:
        name: Of the folder of its migrations.
        hint: What follows the table's name in a `SELECT` that locks its rows.
        for_update: What ends such a `SELECT`.
        unknown_keys: Whether there may be rows whose key and topic are NULL because they are not known.
        lock_tables: Makes a second process that migrates the tables wait for the first; None if it does anyway.
    """

    name: str
    hint = ""
    for_update = ""
    unknown_keys = False
    lock_tables: Statement | None = None

    @abstractmethod
    def table(self, name: str) -> str:
        """Return the name of a table, such as `handled`, as a statement contains it."""

    @abstractmethod
    def text(self, text: str, what: str) -> Any:
        """Return the parameter for a text that is compared or indexed.

        Raises:
            DeadLetter: The database cannot hold it: `invalid-identity`. `what` says in the description what it is.
        """

    def string(self, column: Any) -> str | None:
        """Return the text in a column that was written with `text`."""
        found: str | None = column
        return found

    @abstractmethod
    def after(self, seconds: float) -> Expression:
        """Return the time that many seconds from now, by the clock of the database."""

    def read_time(self, column: str) -> str:
        """The expression that reads a time: seconds since 1970, or a time in UTC without a zone."""
        return column

    @abstractmethod
    def insert_new(
        self, table: str, values: Mapping[str, Expression], unless: Expression | None = None
    ) -> Operation[bool]:
        """Insert a row, and return False if a row with one of its unique keys exists, or `unless` holds.

        A row that another transaction has inserted and not yet committed is waited for.
        """

    @abstractmethod
    def at_most(self, rows: int) -> str:
        """Return the end of a `SELECT` with an `ORDER BY` that limits it to that many rows."""

    @abstractmethod
    def delete_some(self, table: str, condition: Expression, rows: int) -> Statement:
        """Return a statement that deletes at most that many rows."""

    @abstractmethod
    def has_table(self, name: str) -> Statement:
        """Return a statement that returns a row if there is such a table."""

    @abstractmethod
    def mark(self) -> Operation[object]:
        """Mark a transaction that has inserted a row of `handled`."""

    @abstractmethod
    def is_marked(self, mark: object, record: Expression) -> Operation[bool]:
        """Return True if the transaction was marked, and not ended since, by whatever statement.

        Args:
            mark: As `mark` returned it.
            record: A condition on the row of `handled` that the transaction has inserted.
        """


class Sqlite(Dialect):
    """SQLite. Its clock is this process's."""

    name = "sqlite"
    unknown_keys = True

    def table(self, name: str) -> str:
        return f"inbox_{name}"

    def text(self, text: str, what: str) -> Any:
        return text

    def after(self, seconds: float) -> Expression:
        return value(time.time() + seconds)

    def insert_new(
        self, table: str, values: Mapping[str, Expression], unless: Expression | None = None
    ) -> Operation[bool]:
        # Without WHERE, the parser takes ON for a join: https://www.sqlite.org/lang_upsert.html
        return _insert_unless_conflict(self.table(table), values, unless or Expression("1 = 0"))

    def at_most(self, rows: int) -> str:
        return f" limit {rows:d}"

    def delete_some(self, table: str, condition: Expression, rows: int) -> Statement:
        name = self.table(table)
        return Statement(
            f"delete from {name} where rowid in (select rowid from {name} where {condition.sql} limit {rows:d})",
            condition.parameters,
        )

    def has_table(self, name: str) -> Statement:
        return Statement("select 1 from sqlite_master where name = ?", (self.table(name),))

    def mark(self) -> Operation[object]:
        # It ends with the transaction.
        return (yield Statement("savepoint inbox_block"))

    def is_marked(self, mark: object, record: Expression) -> Operation[bool]:
        # An error, if the savepoint is not there.
        yield Statement("release savepoint inbox_block")
        return True


class Postgres(Dialect):
    """PostgreSQL 12 or later.

    Args:
        schema: The schema of the tables. It is not left to the search path: two processes with different ones
            would have different tables, and each would have every effect.

    Raises:
        ValueError: The name is not made of letters, digits and underscores.
    """

    name = "postgresql"
    for_update = " for update"
    # The bytes of "inbox". It ends with the transaction.
    lock_tables: Statement | None = Statement(f"select pg_advisory_xact_lock({0x696E626F78})")

    def __init__(self, schema: str = "public") -> None:
        self.schema: str = _checked(schema)

    def table(self, name: str) -> str:
        return f'"{self.schema}".inbox_{name}'

    def text(self, text: str, what: str) -> Any:
        return _fitting(text, what)[0]

    def after(self, seconds: float) -> Expression:
        return Expression(
            "(clock_timestamp() + cast(? as double precision) * interval '1 second')", (_near(seconds),)
        )

    def read_time(self, column: str) -> str:
        # A driver converts a timestamptz into the session's time zone, and fails where Python has no such year.
        return f"cast(extract(epoch from {column}) as double precision)"

    def insert_new(
        self, table: str, values: Mapping[str, Expression], unless: Expression | None = None
    ) -> Operation[bool]:
        return _insert_unless_conflict(self.table(table), values, unless)

    def at_most(self, rows: int) -> str:
        return f" limit {rows:d}"

    def delete_some(self, table: str, condition: Expression, rows: int) -> Statement:
        name = self.table(table)
        return Statement(
            f"delete from {name} where ctid = any (array(select ctid from {name} where {condition.sql}"
            f" limit {rows:d} for update skip locked))",
            condition.parameters,
        )

    def has_table(self, name: str) -> Statement:
        return Statement(
            "select 1 from pg_catalog.pg_tables where schemaname = ? and tablename = ?",
            (self.schema, f"inbox_{name}"),
        )

    def mark(self) -> Operation[object]:
        # Each row has the number of the transaction that has inserted it, without the bits of the epoch:
        # https://www.postgresql.org/docs/current/ddl-system-columns.html
        yield from ()
        return None

    def is_marked(self, mark: object, record: Expression) -> Operation[bool]:
        found = yield Statement(
            f"select count(*) from {self.table('handled')} where {record.sql}"
            " and cast(xmin as text) = cast(txid_current() & 4294967295 as text)",
            record.parameters,
        )
        return bool(found.rows[0][0])


class SqlServer(Dialect):
    """SQL Server 2016 or later, and Azure SQL.

    Texts that are compared are columns of the type `varbinary`, in UTF-8: in `nvarchar`, `a` equals `a` with a
    space behind it, and by the usual collations `A` too.

    Args:
        schema: The schema of the tables.

    Raises:
        ValueError: The name is not made of letters, digits and underscores.
    """

    name = "sqlserver"
    hint = " with (updlock, rowlock)"
    # A lock that is not granted is a return code: https://learn.microsoft.com/sql/relational-databases/
    # system-stored-procedures/sp-getapplock-transact-sql
    lock_tables: Statement | None = Statement(
        "declare @got int; exec @got = sp_getapplock @Resource = N'inbox', @LockMode = N'Exclusive',"
        " @LockOwner = N'Transaction', @LockTimeout = 60000;"
        " if @got < 0 throw 77301, 'inbox: another process migrates the tables', 1;"
    )

    def __init__(self, schema: str = "dbo") -> None:
        self.schema: str = _checked(schema)

    def table(self, name: str) -> str:
        return f"[{self.schema}].inbox_{name}"

    def text(self, text: str, what: str) -> Any:
        return _fitting(text, what)[1]

    def string(self, column: Any) -> str | None:
        return None if column is None else bytes(column).decode()

    def after(self, seconds: float) -> Expression:
        whole, thousandths = divmod(round(_near(seconds) * 1000), 1000)
        return Expression(
            "dateadd(millisecond, ?, dateadd(second, ?, sysutcdatetime()))",
            (thousandths, whole),
        )

    def insert_new(
        self, table: str, values: Mapping[str, Expression], unless: Expression | None = None
    ) -> Operation[bool]:
        insert = _insert(self.table(table), values, unless)
        # XACT_ABORT would doom the transaction. In a statement with parameters both settings end with it:
        # https://learn.microsoft.com/sql/t-sql/statements/set-statements-transact-sql
        # 2601 and 2627 say that a unique index, or a key, has the row already.
        result = yield Statement(
            f"set nocount on; set xact_abort off; declare @new int = 0;"
            f" begin try {insert.sql}; set @new = @@rowcount; end try"
            f" begin catch if error_number() not in (2601, 2627) throw; end catch; select @new",
            insert.parameters,
        )
        return bool(result.rows[0][0])

    def at_most(self, rows: int) -> str:
        return f" offset 0 rows fetch next {rows:d} rows only"

    def delete_some(self, table: str, condition: Expression, rows: int) -> Statement:
        return Statement(
            f"delete top ({rows:d}) from {self.table(table)} where {condition.sql}", condition.parameters
        )

    def has_table(self, name: str) -> Statement:
        return Statement(
            "select 1 from information_schema.tables where table_schema = ? and table_name = ?",
            (self.schema, f"inbox_{name}"),
        )

    def mark(self) -> Operation[object]:
        # https://learn.microsoft.com/sql/t-sql/functions/current-transaction-id-transact-sql
        # Before a transaction has begun, this is the id of the SELECT alone, which begins none:
        # https://learn.microsoft.com/sql/t-sql/statements/set-implicit-transactions-transact-sql
        return (yield Statement("select current_transaction_id()")).rows[0][0]

    def is_marked(self, mark: object, record: Expression) -> Operation[bool]:
        current = yield Statement("select current_transaction_id()")
        return bool(current.rows[0][0] == mark)


def _insert(table: str, values: Mapping[str, Expression], unless: Expression | None) -> Statement:
    columns = ", ".join(f'"{name}"' for name in values)
    row = ", ".join(each.sql for each in values.values())
    parameters = [parameter for each in values.values() for parameter in each.parameters]
    if unless is None:
        return Statement(f"insert into {table} ({columns}) values ({row})", parameters)
    return Statement(
        f"insert into {table} ({columns}) select {row} where not ({unless.sql})",
        [*parameters, *unless.parameters],
    )


def _insert_unless_conflict(
    table: str, values: Mapping[str, Expression], unless: Expression | None
) -> Operation[bool]:
    insert = _insert(table, values, unless)
    result = yield Statement(f"{insert.sql} on conflict do nothing", insert.parameters)
    return result.changed == 1


def _checked(schema: str) -> str:
    if not _SCHEMA.fullmatch(schema):
        raise ValueError(f"schema is {schema!r}: write a name of letters, digits and underscores.")
    return schema


def _fitting(text: str, what: str) -> tuple[str, bytes]:
    encoded = text.encode()
    if b"\0" in encoded:
        raise DeadLetter("invalid-identity", f"The {what} contains U+0000, which the database cannot hold.")
    if len(encoded) > MAX_BYTES:
        raise DeadLetter("invalid-identity", f"The {what} has {len(encoded)} bytes; the limit is {MAX_BYTES}.")
    return text, encoded


def _near(seconds: float) -> float:
    """Return the seconds, limited to the range of every database's functions."""
    return min(max(seconds, -_LONGEST_S), _LONGEST_S)
