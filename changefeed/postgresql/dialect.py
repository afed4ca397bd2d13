"""The statements of a feed in PostgreSQL's SQL."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from changefeed.errors import SetupError
from changefeed.statements import BackfillPlan, Entry, Migration, Operation, Statement, unapplied

# The key of the advisory lock that one installer at a time holds: the bytes of "changefe".
_INSTALLING = 0x6368616E67656665

_MIGRATION_TABLE = """
create schema if not exists changefeed;
create table if not exists changefeed.migration (
    version int primary key, applied_at timestamptz not null default now());
"""

# A function of somebody else would be called with the installer's rights.
_OWN_NAMES = "set local search_path = pg_catalog, pg_temp;\n"


class PostgresDialect:
    """See `statements.Dialect`."""

    name = "postgresql"
    now = "clock_timestamp()"

    def read(
        self, table: str, shard_id: int, cursor: bytes, page_size: int, max_bytes: int | None, /
    ) -> Operation[list[Entry]]:
        result = yield Statement(
            f"select ulid, missing, (event).* from changefeed.{self.quoted(f'read_events:{table}')}(?, ?, ?, ?)",
            (shard_id, self.ulid(cursor), page_size, max_bytes),
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
        """Where commits notify readers; None if they do not. Raises SetupError if there is no such feed."""
        result = yield Statement("select channel from changefeed.outbox_feed where table_name = ?", (table,))
        if not result.rows:
            raise SetupError(f"{table} has no feed. Set it up: python -m changefeed setup-feed {table} --keep 30d")
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
                recorded = f"insert into changefeed.migration (version) values ({migration.version});\n"
                yield Statement(_OWN_NAMES + recorded + migration.text)
        finally:
            yield Statement(f"select pg_advisory_unlock({_INSTALLING})")
        return [migration.name for migration in missing]

    def setup_feed(self, table: str, notify: bool, roles: bool, keep: str | None, /) -> Operation[None]:
        yield Statement(
            "select changefeed.setup_feed(?, outbox => true, notify => ?, roles => ?, keep => ?)",
            (table, notify, roles, keep),
        )

    def set_keep(self, table: str, keep: str, /) -> Operation[None]:
        yield Statement("select changefeed.set_keep(?, ?)", (table, keep))

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
        yield Statement("set statement_timeout = 0")
        try:
            result = yield Statement(
                "select changefeed.begin_backfill(?, ?, ?, ?, ?::text[], ?, ?)",
                (table, *shard, list(plan.order_by), plan.time_column, anyway),
            )
        finally:
            yield Statement("reset statement_timeout")
        listed: int | None = result.rows[0][0]
        return listed

    def continue_backfill(self, table: str, rows: int, /) -> Operation[int | None]:
        result = yield Statement("select changefeed.continue_backfill(?, ?)", (table, rows))
        moved: int | None = result.rows[0][0]
        return moved

    def size(self, table: str, /) -> Operation[tuple[int, int]]:
        """The number of rows as of the last ANALYZE or VACUUM, and the present size."""
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
