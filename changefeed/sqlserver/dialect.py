"""What a feed is asked in T-SQL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from changefeed.errors import DatabaseError, SetupError
from changefeed.sqlserver.backfill import Backfill
from changefeed.statements import BackfillPlan, Change, Entry, Migration, Operation, Result, Statement

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
    now = "sysutcdatetime()"

    def read(
        self, table: str, shard_id: int, cursor: bytes, page_size: int, max_bytes: int | None, /
    ) -> Operation[list[Entry]]:
        """The page behind the cursor, in order: one round trip."""
        procedure = self._procedure("read_events", table)
        values = (shard_id, self.ulid(cursor), page_size, max_bytes)
        statement = Statement(f"exec {procedure} ?, ?, ?, ?", values)
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

    def setup_feed(self, table: str, notify: bool, roles: bool, keep: str | None, /) -> Operation[None]:
        """Call changefeed.setup_feed. Commits notify nobody, whatever `notify` is."""
        sql = "exec changefeed.setup_feed @table = ?, @outbox = 1, @roles = ?, @keep = ?"
        yield from self._administer(sql, table, roles, keep)

    def set_keep(self, table: str, keep: str, /) -> Operation[None]:
        """Call changefeed.set_keep."""
        yield Statement("exec changefeed.set_keep ?, ?", (table, keep))

    def retain(self, table: str, /) -> Operation[int]:
        """Call the feed's procedure `retain:…`."""
        procedure = self._procedure("retain", table)
        result = yield from self._call(Statement(f"exec {procedure}"), procedure, table)
        deleted: int = result.rows[0][0]
        return deleted

    def prune_shard(
        self, table: str, shard_id: int, before: bytes, rows: int, /
    ) -> Operation[tuple[int, str | None]]:
        """Call changefeed.prune_shard."""
        result = yield Statement(
            "declare @deleted int, @held_by nvarchar(128); "
            "exec changefeed.prune_shard ?, ?, ?, ?, @deleted output, @held_by output; select @deleted, @held_by",
            (table, shard_id, self.ulid(before), rows),
        )
        deleted, held_by = result.rows[0]
        return deleted, held_by

    def drop_feed(self, table: str, /) -> Operation[None]:
        """Call changefeed.drop_feed."""
        yield from self._administer("exec changefeed.drop_feed @table = ?", table)

    def begin_backfill(self, table: str, plan: BackfillPlan, anyway: bool, /) -> Operation[int | None]:
        """List the rows that are not on the feed; None where a backfill was begun and is not finished."""
        return (yield from Backfill(self, table).begin(plan, anyway))

    def continue_backfill(self, table: str, rows: int, /) -> Operation[int | None]:
        """Move that many listed rows to the outbox; None where there is no list."""
        return (yield from Backfill(self, table).move(rows))

    def sweep(self, sweep_group: int, /) -> Operation[tuple[int, int]]:
        """One pass; how many changes were numbered, and the age of the oldest in milliseconds."""
        result = yield Statement(
            "declare @changes int, @lag bigint; exec changefeed.sweep ?, @changes output, @lag output; "
            "select @changes, @lag",
            (sweep_group,),
        )
        count, lag_ms = result.rows[0]
        return count, lag_ms

    def size(self, table: str, /) -> Operation[tuple[int, int]]:
        """The number of rows, and the size of the pages they use."""
        result = yield Statement(
            "select coalesce(sum(p.row_count), 0), coalesce(sum(p.used_page_count), 0) * 8192 "
            "from sys.dm_db_partition_stats as p where p.object_id = object_id(?) and p.index_id in (0, 1)",
            (f"changefeed.{self.quoted(f'feed:{table}')}",),
        )
        rows, size = result.rows[0]
        return int(rows), int(size)

    def become_sweeper(self, sweep_group: int, wait_ms: int, /) -> Operation[bool]:
        """Take the application lock of a sweep group; False if another session kept it so long."""
        result = yield Statement(
            "declare @granted int; exec @granted = sp_getapplock @Resource = ?, @LockMode = 'Exclusive', "
            "@LockOwner = 'Session', @LockTimeout = ?; select @granted",
            (_sweeper(sweep_group), wait_ms),
        )
        return bool(result.rows[0][0] >= 0)

    def resign_sweeper(self, sweep_group: int, /) -> Operation[None]:
        """Give the application lock of a sweep group back."""
        yield Statement(
            "if applock_mode('public', ?, 'Session') = 'Exclusive' "
            "exec sp_releaseapplock @Resource = ?, @LockOwner = 'Session'",
            (_sweeper(sweep_group), _sweeper(sweep_group)),
        )

    def sweep_channel(self, sweep_group: int, /) -> Operation[str | None]:
        """None: commits notify nobody here."""
        yield from ()
        return None

    def read_changes(self, feed_id: int, shard: int, cursor: int, page_size: int, /) -> Operation[list[Change]]:
        """The changes behind the cursor, in order: one round trip."""
        result = yield Statement("exec changefeed.read_changes ?, ?, ?, ?", (feed_id, shard, cursor, page_size))
        return [Change(*row) for row in result.rows]

    def has_changes(self, feed_id: int, shard: int, cursor: int, /) -> Operation[bool]:
        """Whether `read_changes` will find something."""
        result = yield Statement("exec changefeed.has_changes ?, ?, ?", (feed_id, shard, cursor))
        return bool(result.rows[0][0])

    def change_channel(self, feed_id: int, shard: int, /) -> Operation[str | None]:
        """None: the sweeper notifies nobody here. Raises ArgumentError where there is no such shard."""
        yield Statement("exec changefeed.check_shard ?, ?", (feed_id, shard))
        return None

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
            yield Statement(sql, parameters)
        except (DatabaseError, SetupError) as error:
            if isinstance(error, DatabaseError) and error.lost:
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


def _sweeper(sweep_group: int) -> str:
    """The resource that changefeed.sweep_loop locks as well."""
    return f"changefeed.sweep_loop/{sweep_group}"


def _no_feed(table: str) -> str:
    return f"{table} has no feed, or this login may not use it. Set it up: python -m changefeed setup-feed {table}"
