"""What `check` finds in the facts that it has read of an SQL outbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from changefeed import START
from changefeed.sqlserver.dialect import SqlServerDialect
from changefeed.statements import Statement
from changefeed.tables import Tables, Waiting
from relay.clients import Identity
from relay.findings import Finding, Gap, Level, Why
from relay.settings import SqlFeed
from relay.sql.catalog import SQLSERVER
from relay.sql.check import check_sql
from relay.sql.facts import (
    Engine,
    MaintenanceFacts,
    ObjectFacts,
    Owner,
    SchemaFacts,
    ServerFacts,
    ShardFacts,
    SqlFacts,
)
from relay.sql.inspection import objects_of

TABLE = "outbox.domain_event"
TABLES = Tables(SqlServerDialect(), TABLE)
FEED = SqlFeed("postgresql://h/d", Identity(managed=False, client_id=None), TABLE, 2, 10.0)
EVERYTHING = ObjectFacts(True, frozenset({"select", "insert", "update", "delete", "execute"}))
COLUMNS = {"id": "text", "partition_key": "character varying", "data": "jsonb"}
SCHEMA = SchemaFacts(3, 3, dict.fromkeys((*objects_of(TABLE), "quarantine"), EVERYTHING), COLUMNS, ("id",))
SOUND = SqlFacts(
    Engine.POSTGRESQL,
    ServerFacts("read committed", None, True, 0),
    SCHEMA,
    MaintenanceFacts(1, True),
    {},
    (ShardFacts(0, Owner.ALIVE), ShardFacts(1, Owner.ALIVE)),
)
ON_SQL_SERVER = replace(
    SOUND,
    engine=Engine.SQL_SERVER,
    server=ServerFacts(None, True, None, 0),
    schema=replace(SCHEMA, columns={"id": "uniqueidentifier", "partition_key": "nvarchar", "data": "nvarchar"}),
    maintenance=MaintenanceFacts(),
)


def trouble(facts: SqlFacts) -> list[Finding]:
    return [finding for finding in check_sql(facts, FEED) if finding.level is not Level.OK]


def with_schema(facts: SqlFacts, **changes: Any) -> SqlFacts:
    assert facts.schema is not None
    return replace(facts, schema=replace(facts.schema, **changes))


def without(facts: SqlFacts, purpose: str, right: str) -> SqlFacts:
    assert facts.schema is not None
    left = ObjectFacts(True, EVERYTHING.rights - {right})
    return with_schema(facts, objects={**facts.schema.objects, purpose: left})


@pytest.mark.parametrize("facts", [SOUND, ON_SQL_SERVER])
def test_a_sound_outbox_gives_nothing_but_ok(facts: SqlFacts) -> None:
    assert trouble(facts) == []


@pytest.mark.parametrize(("why", "says"), [(Why.REFUSED, "refuses: said"), (Why.UNREACHABLE, "cannot be reached")])
def test_a_server_that_does_not_answer_is_all_that_is_reported(why: Why, says: str) -> None:
    (finding,) = check_sql(SqlFacts(Engine.SQL_SERVER, Gap(why, "said")), FEED)

    assert (finding.level, finding.unavailable, says in finding.what) == (Level.ERROR, True, True)
    assert finding.what.startswith("the SQL Server server")


@pytest.mark.parametrize(
    ("facts", "level", "says"),
    [
        (
            replace(ON_SQL_SERVER, server=ServerFacts(None, False, None, 0)),
            Level.ERROR,
            "READ_COMMITTED_SNAPSHOT is off",
        ),
        (replace(SOUND, server=ServerFacts("serializable", None, True, 0)), Level.ERROR, "isolation level serial"),
        (
            replace(SOUND, server=ServerFacts("read committed", None, False, 0)),
            Level.WARNING,
            "autovacuum is off for",
        ),
        (with_schema(SOUND, version=2), Level.ERROR, "has version 2, and this relay works with version 3"),
        (with_schema(SOUND, version=4), Level.ERROR, "has version 4, and this relay knows version 3 at most"),
        (with_schema(SOUND, version=None), Level.UNKNOWN, "version of the schema changefeed cannot be read"),
        (with_schema(SOUND, primary_key=()), Level.ERROR, "has the primary key (), not (id)"),
        (with_schema(SOUND, primary_key=("id", "at")), Level.ERROR, "has the primary key (id, at), not (id)"),
        (with_schema(SOUND, columns=COLUMNS | {"id": "bytea"}), Level.ERROR, "the column id of SQL_FEED"),
        (with_schema(SOUND, columns=COLUMNS | {"partition_key": "json"}), Level.ERROR, "column partition_key of"),
        (with_schema(SOUND, columns=COLUMNS | {"data": "xml"}), Level.ERROR, "has the type xml"),
        (with_schema(SOUND, columns={"id": "text", "data": "json"}), Level.ERROR, "has no column partition_key:"),
        (with_schema(SOUND, columns={"id": "text"}), Level.ERROR, "no column partition_key and no column data"),
        (
            with_schema(ON_SQL_SERVER, columns={"id": "varchar", "partition_key": "char", "data": "nvarchar"}),
            Level.WARNING,
            "stores id, partition_key as varchar",
        ),
        (without(SOUND, "feed", "select"), Level.ERROR, f"needs: select on feed:{TABLE}"),
        (without(SOUND, "claim", "update"), Level.ERROR, f"needs: update on claim:{TABLE}"),
        (without(SOUND, "read_feed", "execute"), Level.ERROR, f"needs: execute on read_feed:{TABLE}"),
        (without(SOUND, "events", "select"), Level.ERROR, f"needs: select on {TABLE}"),
        (without(SOUND, "quarantine", "insert"), Level.ERROR, "lacks insert on relay.item"),
        (replace(SOUND, maintenance=MaintenanceFacts(2, True)), Level.ERROR, "has a cache of 2"),
        (
            replace(SOUND, maintenance=MaintenanceFacts(1, True, ("outbox:x",))),
            Level.WARNING,
            "is off for outbox:x",
        ),
        (
            replace(SOUND, maintenance=MaintenanceFacts(1, True, (), 3601.0)),
            Level.WARNING,
            "a transaction of this database has been open for 1.0 hours",
        ),
        (replace(SOUND, waiting=None), Level.UNKNOWN, "the rows in the outbox table"),
        (
            replace(SOUND, waiting={-1: Waiting(1, 0.0), 1: Waiting(9, 0.0), 2: Waiting(3, 400.0)}),
            Level.ERROR,
            "has 4 row(s) in shards that nobody reads (1 in shard -1, 3 in shard 2): SQL_SHARDS is 2",
        ),
        (
            replace(SOUND, waiting={shard_id: Waiting(1, 0.0) for shard_id in range(2, 14)}),
            Level.ERROR,
            "1 in shard 11 and 2 more)",
        ),
        (
            replace(SOUND, given_up=(2, 3)),
            Level.ERROR,
            "not published in shard 2, 3, which a relay has read before: SQL_SHARDS is 2",
        ),
        (
            replace(SOUND, shards=(ShardFacts(0, Owner.ALIVE), ShardFacts(1, Owner.ALIVE, ahead=True))),
            Level.ERROR,
            "cursor is ahead of the last position of SQL_FEED 'outbox.domain_event' in shard 1",
        ),
        (
            replace(SOUND, shards=(ShardFacts(0, Owner.NOBODY), ShardFacts(1, Owner.ALIVE))),
            Level.ERROR,
            "no process reads shard 0",
        ),
        (
            replace(SOUND, shards=(ShardFacts(0, Owner.ALIVE), ShardFacts(1, Owner.SILENT))),
            Level.ERROR,
            "the process that reads shard 1",
        ),
        (
            replace(SOUND, waiting={1: Waiting(2, 301.0)}),
            Level.WARNING,
            "the oldest for PT5M1S, in shard 1",
        ),
        (
            replace(SOUND, shards=(ShardFacts(0, Owner.ALIVE, oldest_s=400.0), ShardFacts(1, Owner.ALIVE))),
            Level.WARNING,
            "the oldest for PT6M40S, in shard 0",
        ),
    ],
)
def test_one_thing_that_is_wrong_is_one_finding_with_a_remedy(facts: SqlFacts, level: Level, says: str) -> None:
    (finding,) = trouble(facts)

    assert (finding.level, finding.unavailable) == (level, False)
    assert says in finding.what
    assert finding.remedy


@pytest.mark.parametrize(
    "facts",
    [
        replace(SOUND, waiting={0: Waiting(2, 300.0)}),
        replace(SOUND, shards=(ShardFacts(0, Owner.ALIVE, oldest_s=300.0), ShardFacts(1, Owner.ALIVE, None))),
        replace(SOUND, maintenance=MaintenanceFacts(1, True, (), 3600.0)),
        without(ON_SQL_SERVER, "feed", "select"),
        with_schema(SOUND, columns=COLUMNS | {"id": "uuid", "partition_key": "bigint", "data": "text"}),
    ],
)
def test_what_is_within_its_bounds_is_ok(facts: SqlFacts) -> None:
    assert trouble(facts) == []


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        (("migration", "outbox_feed", "has_news"), "the schema changefeed is not installed"),
        (("has_news",), "is not set up, or this login may not see it"),
    ],
)
def test_without_a_feed_nothing_else_is_looked_at(missing: tuple[str, ...], says: str) -> None:
    gone: Mapping[str, ObjectFacts] = {**SCHEMA.objects, **dict.fromkeys(missing, ObjectFacts(False))}
    facts = replace(with_schema(SOUND, objects=gone), maintenance=None, waiting=None, shards=())

    (finding,) = trouble(facts)

    assert says in finding.what
    assert finding.remedy is not None
    assert "python -m relay install" in finding.remedy


def test_an_event_table_that_is_gone_hides_its_columns() -> None:
    gone = {**SCHEMA.objects, "events": ObjectFacts(False)}

    findings = trouble(with_schema(SOUND, objects=gone, columns={}, primary_key=()))

    assert ["there is no such table" in finding.what for finding in findings] == [True, False]


def test_commits_that_notify_nobody_are_mentioned() -> None:
    facts = replace(SOUND, maintenance=MaintenanceFacts(1, False))

    assert trouble(facts) == []
    assert [each for each in check_sql(facts, FEED) if "notifies nobody of commits" in each.what]


@pytest.mark.parametrize(
    "statement",
    [
        SQLSERVER.server(),
        SQLSERVER.objects({"events": ("outbox", "a]b"), "quarantine": ("relay", "item")}),
        SQLSERVER.version(),
        SQLSERVER.columns(TABLE),
        SQLSERVER.primary_key(TABLE),
        SQLSERVER.maintenance(TABLE),
        next(TABLES.waiting()),
        next(TABLES.last_position(0)),
        next(TABLES.last_positions()),
        next(TABLES.first_position(0, START)),
        next(TABLES.positions("a")),
        next(TABLES.position(0, START, "a")),
        next(TABLES.numbered(0, START, 500)),
        next(TABLES.unnumbered(0, 0, 500)),
        next(TABLES.numbered_of_key("k", 500)),
        next(TABLES.unnumbered_of_key("k", 500)),
        next(TABLES.ids_between(0, START, bytes(16), "k")),
        next(TABLES.rows("k", ["a", "b"])),
        next(TABLES.append(0, "a")),
    ],
)
def test_what_is_asked_of_sql_server_is_t_sql(statement: Statement) -> None:
    from sqlfluff import parse

    assert statement.sql.count("?") == len(statement.parameters)
    # Raises where a part of it cannot be parsed.
    parse(statement.sql.replace("?", "@p"), dialect="tsql")


def test_a_feed_of_sql_server_about_which_nobody_has_decided_is_named() -> None:
    facts = replace(ON_SQL_SERVER, maintenance=MaintenanceFacts(undecided=True))

    assert trouble(ON_SQL_SERVER) == []
    assert ["nobody has decided how long positions" in each.what for each in trouble(facts)] == [True]
