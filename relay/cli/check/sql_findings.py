"""Checks an SQL outbox against what the relay's guarantees require: the server, the schema and the event table."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from relay.cli.check.facts import Gap, Why
from relay.cli.check.findings import Finding, Level
from relay.cli.check.shard_findings import check_shards
from relay.cli.check.sql_facts import Engine, MaintenanceFacts, SchemaFacts, ServerFacts, SizeFacts, SqlFacts
from relay.cli.times import format_duration
from relay.settings import SqlFeed
from relay.sql.rows import REQUIRED_COLUMNS

# Types that reach the relay as text.
_TEXT = {
    *("text", "character varying", "character", "citext", "name"),
    *("nvarchar", "nchar", "varchar", "char", "ntext", "sysname"),
}
_IDENTIFIERS = _TEXT | {"uuid", "uniqueidentifier", "bigint", "integer", "int", "smallint"}
_DATA = _TEXT | {"json", "jsonb"}
_TYPES = {"id": _IDENTIFIERS, "partition_key": _IDENTIFIERS, "data": _DATA}

# On SQL Server, without a UTF-8 collation, these turn letters that the collation lacks into question marks.
_NARROW = ("varchar", "char", "text")

# What reading a feed takes. PostgreSQL's functions read the feed with the rights of the caller.
_NEEDED = {
    "read_events": ("execute",),
    "read_feed": ("execute",),
    "has_news": ("execute",),
    "events": ("select",),
    "claim": ("select", "insert", "update"),
}
_NEEDED_IN = {
    Engine.POSTGRESQL: {**_NEEDED, "feed": ("select",), "outbox_feed": ("select",)},
    Engine.SQL_SERVER: _NEEDED,
}

_LONG_TRANSACTION_S = 3600.0

# A feed that is younger says little about how it grows.
_GROWTH_FROM_S = 3600.0
_DAY_S = 86400.0
_MIB = 2**20


def check_sql(facts: SqlFacts, feed: SqlFeed) -> Iterator[Finding]:
    """The findings about the database, the feed and its shards.

    Args:
        facts: What was read.
        feed: The settings.
    """
    if isinstance(facts.server, Gap):
        yield _gap(facts.engine, facts.server)
        return
    yield Finding(Level.OK, f"SQL is a database of {facts.engine} that can be reached")
    yield from _server(facts.server)
    schema = facts.schema
    assert schema is not None
    if not _installed(schema):
        yield Finding(
            Level.ERROR,
            "the schema changefeed is not installed in this database, or this login may not see it",
            "Install it: python -m relay install. Or correct the database in SQL.",
        )
        return
    yield _version(schema.version, schema.newest)
    subject = f"SQL_FEED '{feed.feed}'"
    if not schema.objects["has_news"].exists:
        yield Finding(
            Level.ERROR,
            f"{subject} is not set up, or this login may not see it",
            "Set it up: python -m relay install. Or correct SQL_FEED: schema.Table, with the capital letters of "
            "the catalog.",
        )
        return
    yield Finding(Level.OK, f"{subject} is set up")
    yield from _events(subject, schema, facts.engine)
    yield _rights(subject, schema, feed.feed, facts.engine)
    yield _quarantine(schema)
    if facts.maintenance is not None:
        yield from _maintenance(subject, facts.server, facts.maintenance)
    if facts.size is not None:
        yield _size(subject, facts.size)
    yield from check_shards(facts, feed)


def _gap(engine: Engine, gap: Gap) -> Finding:
    if gap.why is Why.REFUSED:
        return Finding(
            Level.ERROR,
            f"the {engine} server refuses: {gap.said}",
            "Check the database and the login in SQL, or SQL__credential and SQL__clientId.",
            unavailable=True,
        )
    return Finding(
        Level.ERROR,
        f"the {engine} server cannot be reached, or ended the connection: {gap.said}",
        "Check the server in SQL, and the network between here and there.",
        unavailable=True,
    )


def _server(server: ServerFacts) -> Iterator[Finding]:
    if server.snapshots is False:
        yield Finding(
            Level.ERROR,
            "READ_COMMITTED_SNAPSHOT is off in this database: a scan would miss events, so every read is refused",
            "Turn it on: ALTER DATABASE CURRENT SET READ_COMMITTED_SNAPSHOT ON WITH ROLLBACK IMMEDIATE.",
        )
    if server.isolation not in (None, "read committed"):
        yield Finding(
            Level.ERROR,
            f"transactions of this login begin with the isolation level {server.isolation}: every read is refused",
            "Reset default_transaction_isolation of the login and of the database to 'read committed'.",
        )


def _installed(schema: SchemaFacts) -> bool:
    return any(schema.objects[purpose].exists for purpose in ("migration", "outbox_feed", "has_news"))


def _version(version: int | None, newest: int) -> Finding:
    if version is None:
        return Finding(
            Level.UNKNOWN,
            "the version of the schema changefeed cannot be read with these rights",
            "Run check with a login that may select from changefeed.migration. The app itself need not.",
        )
    if version < newest:
        return Finding(
            Level.ERROR,
            f"the schema changefeed has version {version}, and this relay works with version {newest}",
            "Upgrade it: python -m relay install.",
        )
    if version > newest:
        return Finding(
            Level.ERROR,
            f"the schema changefeed has version {version}, and this relay knows version {newest} at most",
            "Deploy the relay with the version of changefeed that installed the schema.",
        )
    return Finding(Level.OK, f"the schema changefeed has version {version}")


def _events(subject: str, schema: SchemaFacts, engine: Engine) -> Iterator[Finding]:
    if not schema.objects["events"].exists:
        yield Finding(
            Level.ERROR,
            f"{subject} has a feed, but there is no such table, or this login may not see it",
            "Create the table again, or grant the right to select from it.",
        )
        return
    missing = [name for name in REQUIRED_COLUMNS if name not in schema.columns]
    if missing:
        yield Finding(
            Level.ERROR,
            f"{subject} has no column {' and no column '.join(missing)}: no event of it can become a message",
            "Add the columns id, partition_key and data, or let SQL_FEED name the table that has them.",
        )
    wrong = {name: kind for name, kind in schema.columns.items() if kind not in _TYPES.get(name, {kind})}
    for name, kind in wrong.items():
        yield Finding(
            Level.ERROR,
            f"the column {name} of {subject} has the type {kind}: its events would all be quarantined",
            "Use a text type (nvarchar on SQL Server), json or jsonb for data, and for id and partition_key also "
            "a UUID or an integer.",
        )
    narrow = [name for name in REQUIRED_COLUMNS if schema.columns.get(name) in _NARROW]
    if narrow and engine is Engine.SQL_SERVER:
        yield Finding(
            Level.WARNING,
            f"{subject} stores {', '.join(narrow)} as varchar: unless the collation is a UTF-8 one, letters that "
            "it does not have become question marks, and two keys may become one",
            "Use nvarchar.",
        )
    if schema.primary_key != ("id",):
        yield Finding(
            Level.ERROR,
            f"{subject} has the primary key ({', '.join(schema.primary_key)}), not (id): two events with one id "
            "can be written, and the second is dropped as a duplicate",
            "Make id the primary key, then set the feed up again.",
        )
    elif not missing and not wrong:
        yield Finding(Level.OK, f"{subject} has the columns {', '.join(REQUIRED_COLUMNS)} and the primary key id")


def _rights(subject: str, schema: SchemaFacts, table: str, engine: Engine) -> Finding:
    lacking = [
        f"{right} on {table if purpose == 'events' else f'{purpose}:{table}'}"
        for purpose, rights in _NEEDED_IN[engine].items()
        for right in rights
        if right not in schema.objects[purpose].rights
    ]
    if lacking:
        return Finding(
            Level.ERROR,
            f"this login lacks what reading {subject} needs: {', '.join(lacking)}",
            f'Grant it the role "changefeed.readers:{table}".',
        )
    return Finding(Level.OK, f"this login may read {subject} and store how far it has come")


def _quarantine(schema: SchemaFacts) -> Finding:
    table = schema.objects["quarantine"]
    if not table.exists:
        return Finding(
            Level.ERROR,
            "the table relay.item of the quarantine does not exist, or this login may not see it: an event that "
            "can never be sent blocks its shard",
            "Create it: python -m relay install. Then grant the rights on it.",
        )
    lacking = [right for right in ("select", "insert", "update", "delete") if right not in table.rights]
    if lacking:
        return Finding(
            Level.ERROR,
            f"this login lacks {', '.join(lacking)} on relay.item, the table of the quarantine: an event that can "
            "never be sent blocks its shard",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON relay.item, and on PostgreSQL USAGE ON SCHEMA relay.",
        )
    return Finding(Level.OK, "this login may read and write the quarantine, relay.item")


def _maintenance(subject: str, server: ServerFacts, facts: MaintenanceFacts) -> Iterator[Finding]:
    if facts.sequence_cache not in (None, 1):
        yield Finding(
            Level.ERROR,
            f"the sequence of the outbox of {subject} has a cache of {facts.sequence_cache}: its numbers do not "
            "follow the order of commits, so every read is refused",
            'Remove it: ALTER TABLE changefeed."outbox:…" ALTER COLUMN order_sequence SET CACHE 1.',
        )
    if facts.notifies is False:
        yield Finding(Level.OK, f"{subject} notifies nobody of commits: an idle relay looks for them every 150 ms")
    if facts.undecided:
        yield Finding(
            Level.WARNING,
            f"nobody has decided how long positions of {subject} are kept: all are, and the feed grows for ever",
            "Decide it: python -m changefeed keep schema.Table 30d, or forever.",
        )
    if server.autovacuum is False or facts.without_autovacuum:
        where = ", ".join(facts.without_autovacuum) or "this server"
        yield Finding(
            Level.WARNING,
            f"autovacuum is off for {where}: the rows that the relay has taken stay in the outbox table, and "
            "every read gets slower",
            "Turn it on: autovacuum = on for the server, autovacuum_enabled = true for each table.",
        )
    if facts.oldest_transaction_s > _LONG_TRANSACTION_S:
        yield Finding(
            Level.WARNING,
            f"a transaction of this database has been open for {facts.oldest_transaction_s / 3600:.1f} hours: "
            "nothing that was deleted since can be vacuumed, and every read of the outbox gets slower",
            "Find it in pg_stat_activity (xact_start) or pg_prepared_xacts, and end it.",
        )


def _size(subject: str, size: SizeFacts) -> Finding:
    oldest = format_duration(timedelta(seconds=round(size.since_s)))
    growth = ""
    if size.since_s >= _GROWTH_FROM_S:
        growth = f", which is {size.bytes / _MIB * _DAY_S / size.since_s:.1f} MiB a day"
    return Finding(
        Level.OK,
        f"the feed of {subject} has about {size.rows} positions of the last {oldest} in "
        f"{size.bytes / _MIB:.1f} MiB{growth}",
    )
