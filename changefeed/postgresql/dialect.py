"""What a feed is asked in PostgreSQL's SQL."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from changefeed.errors import SetupError
from changefeed.statements import Entry, Migration, Operation, Statement

# The key of the advisory lock that one installer at a time holds: the bytes of "changefe".
_INSTALLING = 0x6368616E67656665

_MIGRATION_TABLE = """
create schema if not exists changefeed;
create table if not exists changefeed.migration (
    version int primary key, applied_at timestamptz not null default now());
"""


class PostgresDialect:
    """See `statements.Dialect`."""

    name = "postgresql"

    def read(self, table: str, shard_id: int, cursor: bytes, page_size: int, /) -> Operation[list[Entry]]:
        """The page behind the cursor, in order: one round trip."""
        result = yield Statement(
            f"select ulid, missing, (event).* from changefeed.{self.quoted(f'read_events:{table}')}(?, ?, ?)",
            (shard_id, self.ulid(cursor), page_size),
        )
        names = result.columns[2:]
        return [
            Entry(row[0], dict(zip(names, row[2:], strict=True)), {})
            if row[1] is None
            else Entry(row[0], None, json.loads(row[1]))
            for row in result.rows
        ]

    def has_news(self, table: str, shard_id: int, cursor: bytes, /) -> Operation[bool]:
        """Whether `read` may find something; it takes no lock."""
        result = yield Statement(
            f"select changefeed.{self.quoted(f'has_news:{table}')}(?, ?)", (shard_id, self.ulid(cursor))
        )
        return bool(result.rows[0][0])

    def channel(self, table: str, /) -> Operation[str | None]:
        """Where commits notify readers; None where they do not. Raises SetupError where there is no such feed."""
        result = yield Statement("select channel from changefeed.outbox_feed where table_name = ?", (table,))
        if not result.rows:
            raise SetupError(f"{table} has no feed. Set it up: python -m changefeed setup-feed {table}")
        channel: str | None = result.rows[0][0]
        return channel

    def install(self, migrations: Sequence[Migration], /) -> Operation[list[str]]:
        """Apply what is missing, each migration as a whole; returns the names of what was applied.

        Raises SetupError where a later version of the library has installed the schema.
        """
        yield Statement(f"select pg_advisory_lock({_INSTALLING})")
        try:
            yield Statement(_MIGRATION_TABLE)
            result = yield Statement("select coalesce(max(version), 0) from changefeed.migration")
            newest = result.rows[0][0]
            if newest > len(migrations):
                raise SetupError(
                    f"the schema changefeed has version {newest}, and this library knows {len(migrations)}: "
                    "install the version of the library that the schema was installed with, or a later one"
                )
            missing = migrations[newest:]
            for migration in missing:
                # Several statements without parameters are one transaction.
                recorded = f"insert into changefeed.migration (version) values ({migration.version});\n"
                yield Statement(recorded + migration.text)
        finally:
            yield Statement(f"select pg_advisory_unlock({_INSTALLING})")
        return [migration.name for migration in missing]

    def setup_feed(self, table: str, notify: bool, roles: bool, /) -> Operation[None]:
        """Call changefeed.setup_feed."""
        yield Statement(
            "select changefeed.setup_feed(?, outbox => true, notify => ?, roles => ?)", (table, notify, roles)
        )

    def drop_feed(self, table: str, /) -> Operation[None]:
        """Call changefeed.drop_feed."""
        yield Statement("select changefeed.drop_feed(?)", (table,))

    def ulid(self, ulid: bytes, /) -> Any:
        """A ULID as a parameter."""
        return UUID(bytes=ulid)

    def quoted(self, name: str, /) -> str:
        """A quoted identifier."""
        return '"' + name.replace('"', '""') + '"'
