"""The statements of a feed in T-SQL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from outbox_relay.changefeed.errors import DatabaseError, SetupError
from outbox_relay.changefeed.sqlserver.backfill import Backfill
from outbox_relay.changefeed.statements import (
    BackfillPlan,
    Entry,
    Migration,
    Operation,
    Result,
    Statement,
    unapplied,
)

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

# The columns before the row in the result of read_events: ulid, missing, key_columns.
_LEADING_COLUMNS = 3


class SqlServerDialect:
    """See `statements.Dialect`."""

    name = "sqlserver"
    now = "sysutcdatetime()"

    def datable(self, column: str, /) -> str:
        return column

    def read(
        self, table: str, shard_id: int, cursor: bytes, page_size: int, max_bytes: int | None, unlimited: bool, /
    ) -> Operation[list[Entry]]:
        procedure = self._procedure("read_events", table)
        values = (shard_id, self.ulid(cursor), page_size, max_bytes)
        statement = Statement(f"exec {procedure} ?, ?, ?, ?", values, unlimited)
        result = yield from self._call(statement, procedure, table)
        return [_entry(result, row) for row in result.rows]

    def has_news(self, table: str, shard_id: int, cursor: bytes, /) -> Operation[bool]:
        procedure = self._procedure("has_news", table)
        result = yield from self._call(
            Statement(f"exec {procedure} ?, ?", (shard_id, self.ulid(cursor))), procedure, table
        )
        return bool(result.rows[0][0])

    def channel(self, table: str, /) -> Operation[str | None]:
        """Return None: commits notify nobody here. Raises SetupError if there is no such feed."""
        result = yield Statement("select object_id(?)", (self._procedure("has_news", table),))
        if result.rows[0][0] is None:
            raise SetupError(_no_feed(table))
        return None

    def install(self, migrations: Sequence[Migration], /) -> Operation[list[str]]:
        """Apply what is missing, in one transaction; returns the names of what was applied."""
        try:
            yield Statement(_BEGIN)
            result = yield Statement("select coalesce(max(version), 0) from changefeed.migration")
            missing = unapplied(migrations, result.rows[0][0])
            for migration in missing:
                for batch in _applying(migration):
                    yield Statement(batch)
            yield Statement(_COMMIT)
        except BaseException as error:
            if not isinstance(error, DatabaseError) or not error.lost:
                yield Statement(_ROLL_BACK)
            raise
        return [migration.name for migration in missing]

    def version(self) -> Operation[int]:
        result = yield Statement("select case when object_id(N'changefeed.migration') is null then 0 else 1 end")
        if not result.rows[0][0]:
            return 0
        result = yield Statement("select coalesce(max(version), 0) from changefeed.migration")
        return int(result.rows[0][0])

    def script(self, migrations: Sequence[Migration], further: Sequence[str], /) -> str:
        applied = [batch for each in migrations for batch in (f"-- {each.name}", *_applying(each))]
        schema = [_BEGIN, *applied, _COMMIT] if migrations else []
        return "\n".join(f"{each.strip()}\ngo\n" for each in (*schema, *further))

    def literal(self, value: str | bool | None, /) -> str:
        if value is None or isinstance(value, bool):
            return {None: "null", True: "1", False: "0"}[value]
        return "N'" + value.replace("'", "''") + "'"

    def setup_feed(self, table: str, notify: bool, roles: bool, keep: str | None, /) -> Operation[None]:
        """Call changefeed.setup_feed. Commits notify nobody, whatever `notify` is."""
        sql = "exec changefeed.setup_feed @table = ?, @outbox = 1, @roles = ?, @keep = ?"
        yield from self._administer(sql, table, roles, keep)

    def damage(self, table: str, /) -> Operation[list[str]]:
        procedures = [self._procedure(kind, table) for kind in ("read_feed", "read_events", "has_news", "retain")]
        result = yield Statement(
            f"select name from (values {', '.join(['(?)'] * len(procedures))}) as w (name) "
            "where object_id(name) is null",
            procedures,
        )
        granted = yield Statement(
            "select case when exists (select 1 from sys.database_permissions as p inner join "
            "sys.database_principals as r on r.principal_id = p.grantee_principal_id "
            "where r.name = ? and p.major_id = object_id(?) and p.type = 'SL') "
            "or not exists (select 1 from sys.database_principals where name = ?) then 1 else 0 end",
            (f"changefeed.readers:{table}", self._events(table), f"changefeed.readers:{table}"),
        )
        return [*(name for (name,) in result.rows), *([] if granted.rows[0][0] else [f"select on {table}"])]

    def repair(self, table: str, /) -> Operation[None]:
        # It drops those that exist, and grants the readers' role what it creates.
        yield from self._administer("exec changefeed.create_procedures @table = ?", table)
        readers = f"changefeed.readers:{table}"
        found = yield Statement("select 1 from sys.database_principals where name = ? and type = 'R'", (readers,))
        if found.rows:
            grant = f"grant select on {self._events(table)} to {self.quoted(readers)}"
            yield Statement(grant, administers=True)

    def set_keep(self, table: str, keep: str, /) -> Operation[None]:
        yield Statement("exec changefeed.set_keep ?, ?", (table, keep), administers=True)

    def retain(self, table: str, /) -> Operation[int]:
        procedure = self._procedure("retain", table)
        result = yield from self._call(Statement(f"exec {procedure}"), procedure, table)
        deleted: int = result.rows[0][0]
        return deleted

    def prune_shard(
        self, table: str, shard_id: int, before: bytes, rows: int, /
    ) -> Operation[tuple[int, str | None]]:
        result = yield Statement(
            "declare @deleted int, @held_by nvarchar(128); "
            "exec changefeed.prune_shard ?, ?, ?, ?, @deleted output, @held_by output; select @deleted, @held_by",
            (table, shard_id, self.ulid(before), rows),
        )
        deleted, held_by = result.rows[0]
        return deleted, held_by

    def drop_feed(self, table: str, /) -> Operation[None]:
        yield from self._administer("exec changefeed.drop_feed @table = ?", table)

    def begin_backfill(self, table: str, plan: BackfillPlan, anyway: bool, /) -> Operation[int | None]:
        return (yield from Backfill(self, table).begin(plan, anyway))

    def continue_backfill(self, table: str, rows: int, /) -> Operation[int | None]:
        return (yield from Backfill(self, table).move(rows))

    def size(self, table: str, /) -> Operation[tuple[int, int]]:
        """Return the number of rows, and the size of the pages they use, in bytes."""
        result = yield Statement(
            "select coalesce(sum(p.row_count), 0), coalesce(sum(p.used_page_count), 0) * 8192 "
            "from sys.dm_db_partition_stats as p where p.object_id = object_id(?) and p.index_id in (0, 1)",
            (f"changefeed.{self.quoted(f'feed:{table}')}",),
        )
        rows, size = result.rows[0]
        return int(rows), int(size)

    def ulid(self, ulid: bytes, /) -> Any:
        return ulid

    def quoted(self, name: str, /) -> str:
        return "[" + name.replace("]", "]]") + "]"

    def _events(self, table: str) -> str:
        schema, _, name = table.partition(".")
        return f"{self.quoted(schema)}.{self.quoted(name)}"

    def _procedure(self, kind: str, table: str) -> str:
        return f"changefeed.{self.quoted(f'{kind}:{table}')}"

    def _call(self, statement: Statement, procedure: str, table: str) -> Operation[Result]:
        """Call a procedure of a feed. Raises SetupError if there is none."""
        try:
            return (yield statement)
        except (DatabaseError, SetupError) as error:
            if isinstance(error, DatabaseError) and error.lost:
                raise
            # The text of the server's own error is in the server's language.
            found = yield Statement("select object_id(?)", (procedure,))
            if found.rows[0][0] is None:
                raise SetupError(_no_feed(table)) from error
            raise

    def _administer(self, sql: str, *parameters: object) -> Operation[None]:
        try:
            yield Statement(sql, parameters, administers=True)
        except (DatabaseError, SetupError) as error:
            if isinstance(error, DatabaseError) and error.lost:
                raise
            # A procedure that fails midway leaves its transaction open if XACT_ABORT does not cover the error.
            yield Statement("if @@trancount > 0 rollback transaction")
            found = yield Statement("select object_id('changefeed.setup_feed')")
            if found.rows[0][0] is None:
                message = (
                    "the schema changefeed is not installed. Install it: python -m outbox_relay.changefeed install"
                )
                raise SetupError(message) from error
            raise


def _applying(migration: Migration) -> list[str]:
    """Return the batches that apply a migration."""
    recorded = f"insert into changefeed.migration (version) values ({migration.version})"
    return [*batches(migration.text), recorded]


def batches(text: str) -> list[str]:
    """Return the batches of a migration, which are separated by lines with nothing but `go`."""
    return [batch.strip() for batch in re.split(r"(?mi)^go[ \t]*$", text) if batch.strip()]


def _entry(result: Result, row: Sequence[Any]) -> Entry:
    ulid, missing, keys = row[:_LEADING_COLUMNS]
    start = _LEADING_COLUMNS + keys
    if missing:
        key = zip(result.columns[_LEADING_COLUMNS:start], row[_LEADING_COLUMNS:start], strict=True)
        return Entry(ulid, None, dict(key))
    return Entry(ulid, dict(zip(result.columns[start:], row[start:], strict=True)), {})


def _no_feed(table: str) -> str:
    return (
        f"{table} has no feed, or this login may not use it. "
        f"Set it up: python -m outbox_relay.changefeed setup-feed {table} --keep 30d"
    )
