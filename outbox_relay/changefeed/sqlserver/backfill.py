"""Backfill in T-SQL: lists the rows of an event table that are not on its feed, and moves them to the outbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outbox_relay.changefeed.errors import ArgumentError, ChangefeedError, DatabaseError
from outbox_relay.changefeed.statements import BackfillPlan, Dialect, Operation, Statement
from outbox_relay.changefeed.writing import shard_of

# One process at a time: the order of the rows is theirs in the list.
_BEGIN = "set xact_abort on; begin transaction;"
# A statement with parameters must not begin the transaction: SQL Server takes it for a procedure, which has to end
# with as many transactions as it began with.
_LOCK = """
declare @granted int;
exec @granted = sp_getapplock @Resource = ?, @LockMode = 'Exclusive', @LockOwner = 'Transaction',
    @LockTimeout = 10000;
if @granted < 0
    throw 77106, 'changefeed 77106: another process backfills this feed. Try again.', 1;
"""
_COMMIT = "commit transaction; set xact_abort off;"
_ROLL_BACK = "if @@trancount > 0 rollback transaction; set xact_abort off;"
# Two parameters for each key: SQL Server takes 2100 in a statement.
_KEYS_AT_ONCE = 500


class Backfill:
    """The backfill of one table, each step in a transaction."""

    def __init__(self, dialect: Dialect, table: str) -> None:
        schema, _, name = table.partition(".")
        self._dialect = dialect
        self._table = table
        self._events = f"{dialect.quoted(schema)}.{dialect.quoted(name)}"
        self._outbox, self._feed, self._state, self._list = (
            f"changefeed.{dialect.quoted(f'{kind}:{table}')}" for kind in ("outbox", "feed", "state", "backfill")
        )

    def begin(self, plan: BackfillPlan, anyway: bool) -> Operation[int | None]:
        """Create the list of rows in a transaction: the SQL Server part of Dialect.begin_backfill."""
        return (yield from self._in_transaction(self._begin(plan, anyway)))

    def move(self, rows: int) -> Operation[int | None]:
        """Move that many rows in a transaction: the SQL Server part of Dialect.continue_backfill."""
        return (yield from self._in_transaction(self._move(rows)))

    def _in_transaction(self, steps: Operation[int | None]) -> Operation[int | None]:
        try:
            yield Statement(_BEGIN)
            yield Statement(_LOCK, (f"changefeed.backfill:{self._table}",))
            value = yield from steps
            yield Statement(_COMMIT)
        except ChangefeedError as error:
            if not isinstance(error, DatabaseError) or not error.lost:
                yield Statement(_ROLL_BACK)
            raise
        return value

    def _begin(self, plan: BackfillPlan, anyway: bool) -> Operation[int | None]:
        if not (yield from self._rows("select 1 from changefeed.outbox_feed where table_name = ?", self._table)):
            raise ArgumentError(
                f"{self._table} has no feed. "
                "Set it up: python -m outbox_relay.changefeed setup-feed schema.Table --keep 30d."
            )
        if (yield from self._is_begun()):
            return None
        yield from self._check_columns(plan)
        keys = yield from self._rows(
            "select name, written_type from changefeed.key_column(object_id(?)) order by place", self._events
        )
        yield from self._list_rows(plan, keys)
        yield from self._set_shards(plan)
        yield from self._check_not_pruned()
        if not anyway:
            yield from self._check_unused()
        counted = yield from self._all_rows(f"select count(*) from {self._list}")
        count: int = counted[0][0]
        return count

    def _check_columns(self, plan: BackfillPlan) -> Operation[None]:
        found = yield from self._rows("select name from sys.columns where object_id = object_id(?)", self._events)
        known = {row[0].casefold() for row in found}
        for name in (*plan.order_by, plan.time_column, plan.shard_column):
            if name is not None and name.casefold() not in known:
                raise ArgumentError(f"{self._table} has no column {name}. Name columns without quotes.")

    def _list_rows(self, plan: BackfillPlan, keys: Sequence[Sequence[Any]]) -> Operation[None]:
        quoted = self._dialect.quoted
        names = [quoted(name) for name, _ in keys]
        definitions = ", ".join(f"{quoted(name)} {written_type} not null" for name, written_type in keys)
        yield Statement(
            f"create table {self._list} (changefeed_position bigint not null primary key, shard_id int null, "
            f"shard_key nvarchar(max) null, time_hint datetime2(3) not null, {definitions})"
        )
        time_hint = "sysutcdatetime()"
        if plan.time_column is not None:
            # A time without a zone is UTC.
            column = f"cast(e.{quoted(plan.time_column)} as datetimeoffset(3))"
            time_hint = f"coalesce(cast(switchoffset({column}, '+00:00') as datetime2(3)), sysutcdatetime())"
        by_column = plan.shard_column is not None
        shard_key = "null"
        if plan.shard_column is not None:
            shard_key = f"cast(e.{quoted(plan.shard_column)} as nvarchar(4000))"
            found = yield from self._rows(
                "select 1 from sys.columns as c inner join sys.types as t on t.system_type_id = c.system_type_id "
                "where c.object_id = object_id(?) and c.name = ? and t.name = 'uniqueidentifier'",
                self._events,
                plan.shard_column,
            )
            if found:
                # SQL Server writes it in upper case, and writers' languages, such as Python and .NET, do not.
                shard_key = f"lower({shard_key})"
        order = ", ".join(f"e.{name}" for name in dict.fromkeys([*map(quoted, plan.order_by), *names]))
        of_events = ", ".join(f"e.{name}" for name in names)
        same = " and ".join(f"x.{name} = e.{name}" for name in names)
        # One snapshot: a row that a writer has put on the feed itself is in the outbox or in the feed.
        yield Statement(
            f"insert into {self._list} (changefeed_position, shard_id, shard_key, time_hint, {', '.join(names)}) "
            f"select row_number() over (order by {order}), {'null' if by_column else int(plan.shard_id)}, "
            f"{shard_key}, {time_hint}, {of_events} from {self._events} as e "
            f"where not exists (select 1 from {self._outbox} as x where {same}) "
            f"and not exists (select 1 from {self._feed} as x where {same})",
            unlimited=True,
        )

    def _set_shards(self, plan: BackfillPlan) -> Operation[None]:
        if plan.shard_column is None:
            return
        # A comparison by bytes: two keys that a collation holds for one may have different shards.
        exact = "collate Latin1_General_BIN2"
        while True:
            found = yield from self._all_rows(
                f"select distinct top ({_KEYS_AT_ONCE}) shard_key {exact} from {self._list} where shard_id is null"
            )
            if not found:
                return
            if any(row[0] is None for row in found):
                raise ArgumentError(
                    f"{self._table} has rows without a shard. Fill the column {plan.shard_column}, "
                    "which is NULL there."
                )
            cases = " ".join("when ? then ?" for _ in found)
            marks = ", ".join("?" for _ in found)
            keys = [row[0] for row in found]
            shards = [value for key in keys for value in (key, shard_of(key, plan.shards))]
            yield Statement(
                f"update {self._list} set shard_id = case shard_key {exact} {cases} end "
                f"where shard_key {exact} in ({marks})",
                (*shards, *keys),
                unlimited=True,
            )

    def _check_not_pruned(self) -> Operation[None]:
        """Refuse rows after a prune: what was deleted has no trace but the low-water mark."""
        counted = yield from self._all_rows(
            f"select count(*) from {self._list} "
            "where exists (select 1 from changefeed.low_water where table_name = ?)",
            self._table,
        )
        rows = counted[0][0]
        if rows:
            raise ArgumentError(
                f"positions of {self._table} have been deleted, and {rows} rows cannot be proved never to have "
                "been on the feed. They would be published a second time, so --anyway does not change this. "
                "Insert those that you know to be new into the outbox yourself."
            )

    def _check_unused(self) -> Operation[None]:
        used = yield from self._all_rows(
            f"select distinct w.shard_id from {self._list} as w "
            f"where exists (select 1 from {self._state} as s where s.shard_id = w.shard_id) "
            f"or exists (select 1 from {self._outbox} as o where o.shard_id = w.shard_id) order by w.shard_id"
        )
        if used:
            shards = ", ".join(str(row[0]) for row in used)
            raise ArgumentError(
                f"these shards of {self._table} have been read or written to: {shards}. Rows that are put on the "
                "feed now come after what is there, older ones too. If that is all right, say so: --anyway."
            )

    def _move(self, rows: int) -> Operation[int | None]:
        if not (yield from self._is_begun()):
            return None
        keys = yield from self._rows(
            "select name from changefeed.key_column(object_id(?)) order by place", self._events
        )
        columns = ", ".join(["shard_id", "time_hint", *(self._dialect.quoted(row[0]) for row in keys)])
        moved = yield from self._rows(
            "declare @last bigint, @moved int; "
            f"set @last = (select max(p.changefeed_position) from (select top ({int(rows)}) changefeed_position "
            f"from {self._list} order by changefeed_position) as p); "
            f"insert into {self._outbox} ({columns}) select {columns} from {self._list} "
            "where changefeed_position <= @last order by changefeed_position; set @moved = @@rowcount; "
            f"delete from {self._list} where changefeed_position <= @last; select @moved"
        )
        count: int = moved[0][0]
        if not count:
            yield Statement(f"drop table {self._list}")
        return count

    def _is_begun(self) -> Operation[bool]:
        found = yield from self._rows("select object_id(?)", self._list)
        return found[0][0] is not None

    def _rows(self, sql: str, *parameters: object) -> Operation[Sequence[Sequence[Any]]]:
        return (yield Statement(sql, parameters)).rows

    def _all_rows(self, sql: str, *parameters: object) -> Operation[Sequence[Sequence[Any]]]:
        """Return the rows of a statement that reads the whole list.

        It has no limit of time: it grows with the table.
        """
        return (yield Statement(sql, parameters, unlimited=True)).rows
