"""Settings that a session inherits from its role, database or server change nothing that is read from a feed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from psycopg import sql

from outbox_relay import changefeed
from outbox_relay.changefeed import Feed
from outbox_relay.changefeed.statements import Statement
from tests.integration.test_sql_types import TYPES, VALUES, judge, relayed
from tests.support.postgresql import PostgresServer
from tests.support.sql_outbox import TABLE

_EVENTS = "app.event"

# Of the settings that are text, those that give a value another form, or name what is used.
_TEXTS = {
    "TimeZone": ("'Pacific/Kiritimati'", "'America/New_York'", "'Asia/Kathmandu'", "'<-12:34>+12:34'"),
    "DateStyle": ("'German, DMY'", "'SQL, MDY'", "'Postgres, YMD'"),
    "search_path": ("''", "nowhere", "app, public, pg_catalog", "pg_temp"),
    "timezone_abbreviations": ("'India'",),
}

# An operator who sets it keeps the database as it is: reading gives positions, so it is refused.
_KEPT = {"default_transaction_read_only"}


@dataclass(frozen=True, slots=True)
class Filled:
    """A database whose feed has one event with a value of every type."""

    url: str
    owner: psycopg.Connection

    def inherit(self, name: str, value: str) -> None:
        """Let every new session of the database have this setting, and no other one."""
        database = sql.Identifier(self.owner.info.dbname)
        self.owner.execute(sql.SQL("alter database {} reset all").format(database))
        change = sql.SQL("alter database {} set {} = ").format(database, sql.Identifier(name))
        self.owner.execute(change + sql.SQL(value))

    def read(self) -> list[Any]:
        """The rows that a new session reads from the feed."""
        session = changefeed.connect(self.url)
        try:
            return [entry.row for entry in Feed(session, _EVENTS).read(0).entries]
        finally:
            session.close()


@pytest.fixture
def filled(changefeed_database: str) -> Iterator[Filled]:
    with psycopg.connect(changefeed_database, autocommit=True, options="-c timezone=UTC") as owner:
        owner.execute(TYPES.encode())
        # A record without a type of its own is no column's.
        values = [each for each in VALUES if not re.match(r"row\(.*[^r]$", each)]
        columns = ", ".join(f"{value} as value_{number}" for number, value in enumerate(values))
        owner.execute("create schema app")
        owner.execute(f"create table {_EVENTS} as select 'e'::text as id, {columns}".encode())
        owner.execute(f"alter table {_EVENTS} add primary key (id)".encode())
        session = changefeed.connect(changefeed_database)
        changefeed.setup_feed(session, _EVENTS, roles=False)
        owner.execute(f"insert into changefeed.\"outbox:{_EVENTS}\" (shard_id, id) values (0, 'e')".encode())
        session.close()
        yield Filled(changefeed_database, owner)


def inherited(owner: psycopg.Connection) -> Iterator[tuple[str, str]]:
    """The settings that a role or database can give its sessions, each with its other or extreme values."""
    settings = owner.execute(
        "select name, vartype, enumvals, min_val, max_val, setting from pg_settings "
        "where context in ('user', 'superuser') order by name"
    ).fetchall()
    for name, kind, choices, lowest, highest, present in settings:
        if name in _KEPT:
            continue
        if kind == "string":
            yield from ((name, value) for value in _TEXTS.get(name, ()))
            continue
        values = {"bool": ["on", "off"], "enum": choices or []}.get(kind, [lowest, highest])
        yield from ((name, f"'{value}'") for value in values if value != present)


def test_no_setting_of_a_database_changes_or_ends_a_page(filled: Filled) -> None:
    (expected,) = filled.read()
    judge({"id": "e", "partition_key": "k", "type": "domainEvent", **expected})
    tried, failed = 0, []

    for name, value in inherited(filled.owner):
        try:
            filled.inherit(name, value)
        except (psycopg.errors.InvalidParameterValue, psycopg.errors.ActiveSqlTransaction):
            continue
        tried += 1
        try:
            read = filled.read()
        except changefeed.ChangefeedError as error:
            failed.append(f"{name} = {value}: {error}")
        else:
            # By their representation: NaN is not equal to itself.
            of_columns = {column: [repr(row[column]) for row in read] for column in expected}
            differ = [column for column, read in of_columns.items() if read != [repr(expected[column])]]
            failed += [f"{name} = {value}: {column} differs" for column in differ]

    assert failed == []
    assert tried > 250


# What a role or database may have been given, and what a session has.
_OWN = {
    "timezone": ("Asia/Tokyo", "UTC"),
    "datestyle": ("SQL, DMY", "ISO, MDY"),
    "row_security": ("on", "off"),
    "search_path": ("app", "pg_catalog, public, pg_temp"),
    "default_transaction_isolation": ("serializable", "read committed"),
    "lock_timeout": ("1h", "0"),
    "idle_in_transaction_session_timeout": ("1h", "0"),
    "idle_session_timeout": ("1h", "0"),
    "transaction_timeout": ("1h", "0"),
    "statement_timeout": ("1h", "1min"),
}


@pytest.mark.parametrize("of", ["role", "database"])
def test_a_session_has_settings_of_its_own(
    postgres_server: PostgresServer, postgres_database: str, of: str
) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as owner:
        owner.execute("create role reader login")
        name = sql.Identifier("reader" if of == "role" else owner.info.dbname)
        for setting, (inherits, _) in _OWN.items():
            change = sql.SQL("alter {} {} set {} = {}")
            owner.execute(change.format(sql.SQL(of), name, sql.Identifier(setting), sql.Literal(inherits)))
        url = postgres_server.url(owner.info.dbname, "reader")

    session = changefeed.connect(url)
    shown = {name: session.execute(Statement(f"show {name}")).rows[0][0] for name in _OWN}
    session.close()

    assert shown == {name: own for name, (_, own) in _OWN.items()}


async def test_the_environment_of_the_process_gives_a_session_no_time_zone(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGTZ", "America/New_York")
    monkeypatch.setenv("PGDATESTYLE", "German")

    session = await changefeed.connect_async(postgres_database)
    shown = await session.execute(Statement("select timestamptz '0044-03-15 12:00+00 BC'"))
    await session.close()

    assert shown.rows == [("0044-03-15 12:00:00+00 BC",)]


@pytest.mark.parametrize(
    ("zone", "time"), [("America/New_York", "9999-12-31 23:59:59"), ("Asia/Tokyo", "0001-01-01 00:00:00")]
)
async def test_a_time_at_the_end_of_the_calendar_stops_no_shard(
    outbox_database: str, zone: str, time: str
) -> None:
    with psycopg.connect(outbox_database, autocommit=True) as owner:
        database = sql.Identifier(owner.info.dbname)
        owner.execute(sql.SQL("alter database {} set timezone = {}").format(database, sql.Literal(zone)))
    with psycopg.connect(outbox_database) as writer:
        for number, created_at in enumerate(("2026-01-01 00:00Z", time, "2026-01-02 00:00Z")):
            writer.execute(
                f"insert into {TABLE} (id, partition_key, data, created_at) "
                "values (%s, 'k', '{\"action\": \"A\"}', %s::timestamptz)",
                (f"e{number}", created_at),
            )
            writer.execute(
                f'insert into changefeed."outbox:{TABLE}" (shard_id, id) values (0, %s)', (f"e{number}",)
            )

    topic, quarantine = await relayed(outbox_database, "e2")

    assert topic.accepted == {"k": ["e0", "e1", "e2"]}
    assert quarantine.records == []
