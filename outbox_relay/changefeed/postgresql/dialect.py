"""The statements of a feed in PostgreSQL's SQL."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from outbox_relay.changefeed.errors import SetupError
from outbox_relay.changefeed.statements import BackfillPlan, Entry, Migration, Operation, Statement, unapplied

# The key of the advisory lock that one installer at a time holds: the bytes of "changefe".
_INSTALLING = 0x6368616E67656665

# A function of somebody else would be called with the installer's rights.
_OWN_NAMES = "set local search_path = pg_catalog, pg_temp;\n"

_MIGRATION_TABLE = f"""{_OWN_NAMES}
create schema if not exists changefeed;
create table if not exists changefeed.migration (
    version int primary key, applied_at timestamptz not null default now());
"""


# The names of what a feed lacks; the parameters are the table, its schema and its name. Every role may ask.
_DAMAGE = """
with named as (select ?::text as feed, ?::text as schema, ?::text as name),
events as (
    select c.oid, c.reltype, n.oid as schema from named join pg_namespace n on n.nspname = named.schema
    join pg_class c on c.relnamespace = n.oid and c.relname = named.name
), readers as (
    select r.oid from named join pg_roles r on r.rolname = 'changefeed.readers:' || feed
    join pg_namespace n on n.nspname = 'changefeed'
    join pg_class c on c.relnamespace = n.oid and c.relname = 'feed:' || feed
    where has_table_privilege(r.oid, c.oid, 'select')
)
select distinct w.kind || ':' || feed
from named, (values ('read_feed', 3), ('read_events', 3), ('read_events', 4), ('has_news', 2), ('retain', 0))
    as w (kind, arguments)
where not exists (
    select from pg_proc p join pg_namespace n on n.oid = p.pronamespace
    where n.nspname = 'changefeed' and p.proname = w.kind || ':' || feed and p.pronargs = w.arguments
    and (w.kind <> 'read_events' or exists (select from events where events.reltype = any (p.proallargtypes)))
)
union all
select 'select on ' || feed from named, events, readers
where not has_table_privilege(readers.oid, events.oid, 'select')
union all
select 'usage on ' || named.schema from named, events, readers
where not has_schema_privilege(readers.oid, events.schema, 'usage')
order by 1
"""

# The columns of the primary key of the event table, and those that its feed has for it.
_KEYS = """
select (select string_agg(k.name || ' ' || k.written_type, ', ' order by k.name)
        from changefeed.key_column(to_regclass(?)) k),
       (select string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' order by a.attname)
        from pg_attribute a where a.attrelid = to_regclass(?) and a.attnum > 0 and not a.attisdropped
        and a.attname not in ('shard_id', 'ulid'))
"""

# Roles belong to the whole server: that of another database's feed has no rights on this one.
_GRANTED = "select from pg_roles r where r.rolname = ? and has_table_privilege(r.oid, to_regclass(?), 'select')"


def _applying(migration: Migration) -> str:
    """Return the statements that apply a migration, all in one transaction."""
    recorded = f"insert into changefeed.migration (version) values ({migration.version});\n"
    return _OWN_NAMES + recorded + migration.text


class PostgresDialect:
    """See `statements.Dialect`."""

    name = "postgresql"
    now = "clock_timestamp()"

    def datable(self, column: str, /) -> str:
        return (
            f"case when {column} >= '0001-01-01 00:00+00' and {column} < '9999-12-31 00:00+00' then {column} end"
        )

    def read(
        self, table: str, shard_id: int, cursor: bytes, page_size: int, max_bytes: int | None, unlimited: bool, /
    ) -> Operation[list[Entry]]:
        result = yield Statement(
            f"select ulid, missing, (event).* from changefeed.{self.quoted(f'read_events:{table}')}(?, ?, ?, ?)",
            (shard_id, self.ulid(cursor), page_size, max_bytes),
            unlimited=unlimited,
        )
        names = result.columns[2:]
        return [
            Entry(row[0], dict(zip(names, row[2:], strict=True)), {})
            if row[1] is None
            else Entry(row[0], None, json.loads(row[1]))
            for row in result.rows
        ]

    def has_news(self, table: str, shard_id: int, cursor: bytes, /) -> Operation[bool]:
        result = yield Statement(
            f"select changefeed.{self.quoted(f'has_news:{table}')}(?, ?)",
            (shard_id, self.ulid(cursor)),
            prepared=True,
        )
        return bool(result.rows[0][0])

    def channel(self, table: str, /) -> Operation[str | None]:
        """Return the channel on which commits notify readers, or None.

        Raises SetupError if there is no such feed.
        """
        result = yield Statement("select channel from changefeed.outbox_feed where table_name = ?", (table,))
        if not result.rows:
            raise SetupError(
                f"{table} has no feed. Set it up: python -m outbox_relay.changefeed setup-feed {table} --keep 30d"
            )
        channel: str | None = result.rows[0][0]
        return channel

    def install(self, migrations: Sequence[Migration], /) -> Operation[list[str]]:
        """Apply what is missing, each migration as a whole; returns the names of what was applied."""
        yield Statement(f"select pg_advisory_lock({_INSTALLING})")
        try:
            yield Statement(_MIGRATION_TABLE)
            result = yield Statement("select coalesce(max(version), 0) from changefeed.migration")
            missing = unapplied(migrations, result.rows[0][0])
            for migration in missing:
                # Several statements without parameters are one transaction.
                yield Statement(_applying(migration))
        finally:
            yield Statement(f"select pg_advisory_unlock({_INSTALLING})")
        return [migration.name for migration in missing]

    def version(self) -> Operation[int]:
        ((is_there,),) = (yield Statement("select to_regclass('changefeed.migration') is not null")).rows
        if not is_there:
            return 0
        ((version,),) = (yield Statement("select coalesce(max(version), 0) from changefeed.migration")).rows
        return int(version)

    def script(self, migrations: Sequence[Migration], further: Sequence[str], /) -> str:
        applied = [f"-- {each.name}\n{_applying(each)}" for each in migrations]
        schema = [_MIGRATION_TABLE] if migrations else []
        parts = [f"select pg_advisory_xact_lock({_INSTALLING})", *schema, *applied, *further]
        # One transaction: where one statement fails, nothing of it stays.
        return "\n".join(f"{each.strip().removesuffix(';')};\n" for each in ("begin", *parts, "commit"))

    def literal(self, value: str | bool | None, /) -> str:
        if value is None or isinstance(value, bool):
            return {None: "null", True: "true", False: "false"}[value]
        return "'" + value.replace("'", "''") + "'"

    def setup_feed(self, table: str, notify: bool, roles: bool, keep: str | None, /) -> Operation[None]:
        yield Statement(
            "select changefeed.setup_feed(?, outbox => true, notify => ?, roles => ?, keep => ?)",
            (table, notify, roles, keep),
            administers=True,
        )

    def damage(self, table: str, /) -> Operation[list[str]]:
        schema, _, name = table.partition(".")
        result = yield Statement(_DAMAGE, (table, schema, name))
        return [each for (each,) in result.rows]

    def repair(self, table: str, /) -> Operation[None]:
        schema, _, name = table.partition(".")
        events, feed = f"{self.quoted(schema)}.{self.quoted(name)}", self.quoted(f"feed:{table}")
        ((has, had),) = (yield Statement(_KEYS, (events, f"changefeed.{feed}"))).rows
        if has != had:
            raise SetupError(
                f"the primary key of {table} is ({has}), and its feed has ({had}). Give the table the key that "
                "the feed has. Or remove the feed with what waits on it "
                f"(python -m outbox_relay.changefeed drop-feed {table} --yes), and set it up again"
            )
        functions, readers = self.quoted(f"read_events:{table}"), self.quoted(f"changefeed.readers:{table}")
        granted = yield Statement(_GRANTED, (f"changefeed.readers:{table}", f"changefeed.{feed}"))
        literal = self.literal(table)
        steps = [
            f"select pg_advisory_xact_lock({_INSTALLING})",
            # The type that they return is that of the table which is gone.
            f"drop function if exists changefeed.{functions}(int, uuid, int), "
            f"changefeed.{functions}(int, uuid, int, bigint)",
            f"select changefeed.create_functions({literal})",
        ]
        if granted.rows:
            steps += [
                f"select changefeed.grant_functions({literal})",
                f"grant select on {events} to {readers}",
                f"grant usage on schema {self.quoted(schema)} to {readers}",
            ]
        # Several statements without parameters are one transaction.
        yield Statement(";\n".join(steps), administers=True)

    def set_keep(self, table: str, keep: str, /) -> Operation[None]:
        yield Statement("select changefeed.set_keep(?, ?)", (table, keep), administers=True)

    def retain(self, table: str, /) -> Operation[int]:
        result = yield Statement(f"select changefeed.{self.quoted(f'retain:{table}')}()")
        deleted: int = result.rows[0][0]
        return deleted

    def prune_shard(
        self, table: str, shard_id: int, before: bytes, rows: int, /
    ) -> Operation[tuple[int, str | None]]:
        result = yield Statement(
            "select deleted, held_by from changefeed.prune_shard(?, ?, ?, ?)",
            (table, shard_id, self.ulid(before), rows),
        )
        deleted, held_by = result.rows[0]
        return deleted, held_by

    def drop_feed(self, table: str, /) -> Operation[None]:
        yield Statement("select changefeed.drop_feed(?)", (table,))

    def begin_backfill(self, table: str, plan: BackfillPlan, anyway: bool, /) -> Operation[int | None]:
        by_column = plan.shard_column is not None
        shard = (None, plan.shard_column, plan.shards) if by_column else (plan.shard_id, None, None)
        # However large the table is, this is one statement.
        result = yield Statement(
            "select changefeed.begin_backfill(?, ?, ?, ?, ?::text[], ?, ?)",
            (table, *shard, list(plan.order_by), plan.time_column, anyway),
            unlimited=True,
        )
        listed: int | None = result.rows[0][0]
        return listed

    def continue_backfill(self, table: str, rows: int, /) -> Operation[int | None]:
        result = yield Statement("select changefeed.continue_backfill(?, ?)", (table, rows))
        moved: int | None = result.rows[0][0]
        return moved

    def size(self, table: str, /) -> Operation[tuple[int, int]]:
        """Return the number of rows at the last ANALYZE or VACUUM, and the present size in bytes."""
        result = yield Statement(
            "select greatest(c.reltuples, 0)::bigint, pg_catalog.pg_total_relation_size(c.oid) from pg_class c "
            "where c.oid = to_regclass(?)",
            (f"changefeed.{self.quoted(f'feed:{table}')}",),
        )
        rows, size = result.rows[0]
        return rows, size

    def ulid(self, ulid: bytes, /) -> Any:
        return UUID(bytes=ulid)

    def quoted(self, name: str, /) -> str:
        return '"' + name.replace('"', '""') + '"'
