"""What a feed is asked in T-SQL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from changefeed.errors import DatabaseError, SetupError
from changefeed.statements import Entry, Migration, Operation, Result, Statement

# A transaction of one installer at a time. Every session setting is reset at its end.
_BEGIN = """
set xact_abort on;
begin transaction;
declare @granted int;
exec @granted = sp_getapplock @Resource = N'changefeed.install', @LockMode = 'Exclusive',
    @LockOwner = 'Transaction', @LockTimeout = 30000;
if @granted < 0
    throw 77106, 'changefeed 77106: another process installs the schema at the moment. Try again.', 1;
if schema_id(N'changefeed') is null
    exec (N'create schema changefeed');
if object_id(N'changefeed.migration') is null
    create table changefeed.migration (
        version int not null primary key, applied_at datetime2(3) not null default (sysutcdatetime()));
"""
_ROLL_BACK = "if @@trancount > 0 rollback transaction; set xact_abort off;"
_COMMIT = "commit transaction; set xact_abort off;"

# What is before ulid's row in the result of read_events: ulid, missing, key_columns.
_LEADING_COLUMNS = 3


class SqlServerDialect:
    """See `statements.Dialect`."""

    name = "sqlserver"

    def read(self, table: str, shard_id: int, cursor: bytes, page_size: int, /) -> Operation[list[Entry]]:
        """The page behind the cursor, in order: one round trip."""
        procedure = self._procedure("read_events", table)
        statement = Statement(f"exec {procedure} ?, ?, ?", (shard_id, self.ulid(cursor), page_size))
        result = yield from self._call(statement, procedure, table)
        return [_entry(result, row) for row in result.rows]

    def has_news(self, table: str, shard_id: int, cursor: bytes, /) -> Operation[bool]:
        """Whether `read` may find something; it takes no lock."""
        procedure = self._procedure("has_news", table)
        result = yield from self._call(
            Statement(f"exec {procedure} ?, ?", (shard_id, self.ulid(cursor))), procedure, table
        )
        return bool(result.rows[0][0])

    def channel(self, table: str, /) -> Operation[str | None]:
        """None: commits notify nobody here. Raises SetupError where there is no such feed."""
        result = yield Statement("select object_id(?)", (self._procedure("has_news", table),))
        if result.rows[0][0] is None:
            raise SetupError(_no_feed(table))
        return None

    def install(self, migrations: Sequence[Migration], /) -> Operation[list[str]]:
        """Apply what is missing, in one transaction; returns the names of what was applied.

        Raises SetupError where a later version of the library has installed the schema.
        """
        try:
            yield Statement(_BEGIN)
            result = yield Statement("select coalesce(max(version), 0) from changefeed.migration")
            newest = result.rows[0][0]
            if newest > len(migrations):
                raise SetupError(
                    f"the schema changefeed has version {newest}, and this library knows {len(migrations)}: "
                    "install the version of the library that the schema was installed with, or a later one"
                )
            missing = migrations[newest:]
            for migration in missing:
                for batch in batches(migration.text):
                    yield Statement(batch)
                yield Statement(f"insert into changefeed.migration (version) values ({migration.version})")
            yield Statement(_COMMIT)
        except BaseException as error:
            if not isinstance(error, DatabaseError) or not error.lost:
                yield Statement(_ROLL_BACK)
            raise
        return [migration.name for migration in missing]

    def setup_feed(self, table: str, notify: bool, roles: bool, /) -> Operation[None]:
        """Call changefeed.setup_feed. Commits notify nobody, whatever `notify` is."""
        yield from self._administer("exec changefeed.setup_feed @table = ?, @outbox = 1, @roles = ?", table, roles)

    def drop_feed(self, table: str, /) -> Operation[None]:
        """Call changefeed.drop_feed."""
        yield from self._administer("exec changefeed.drop_feed @table = ?", table)

    def ulid(self, ulid: bytes, /) -> Any:
        """A ULID as a parameter."""
        return ulid

    def quoted(self, name: str, /) -> str:
        """A quoted identifier."""
        return "[" + name.replace("]", "]]") + "]"

    def _procedure(self, kind: str, table: str) -> str:
        return f"changefeed.{self.quoted(f'{kind}:{table}')}"

    def _call(self, statement: Statement, procedure: str, table: str) -> Operation[Result]:
        """Call a procedure of a feed. Raises SetupError where there is none."""
        try:
            return (yield statement)
        except DatabaseError as error:
            if error.lost:
                raise
            # The text of the server's own error is in the server's language.
            found = yield Statement("select object_id(?)", (procedure,))
            if found.rows[0][0] is None:
                raise SetupError(_no_feed(table)) from error
            raise

    def _administer(self, sql: str, *parameters: object) -> Operation[None]:
        try:
            yield Statement(sql, parameters)
        except DatabaseError as error:
            if error.lost:
                raise
            # What failed in the middle has left its transaction open where XACT_ABORT does not cover the error.
            yield Statement("if @@trancount > 0 rollback transaction")
            found = yield Statement("select object_id('changefeed.setup_feed')")
            if found.rows[0][0] is None:
                message = "the schema changefeed is not installed. Install it: python -m changefeed install"
                raise SetupError(message) from error
            raise


def batches(text: str) -> list[str]:
    """The batches of a migration, which lines with nothing but `go` separate."""
    return [batch.strip() for batch in re.split(r"(?mi)^go[ \t]*$", text) if batch.strip()]


def _entry(result: Result, row: Sequence[Any]) -> Entry:
    ulid, missing, keys = row[:_LEADING_COLUMNS]
    start = _LEADING_COLUMNS + keys
    if missing:
        key = zip(result.columns[_LEADING_COLUMNS:start], row[_LEADING_COLUMNS:start], strict=True)
        return Entry(ulid, None, dict(key))
    return Entry(ulid, dict(zip(result.columns[start:], row[start:], strict=True)), {})


def _no_feed(table: str) -> str:
    return f"{table} has no feed, or this login may not use it. Set it up: python -m changefeed setup-feed {table}"
