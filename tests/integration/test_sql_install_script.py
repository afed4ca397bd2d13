"""`install --sql`: a script that does what `install` does, and that changes nothing until it is run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from local.database.server import POSTGRES
from outbox_relay.changefeed.install import migrations
from outbox_relay.changefeed.statements import Migration
from tests.support.operators import Run, relay_command
from tests.support.postgresql import PostgresServer
from tests.support.watchdog import WATCHDOG_S

SERVICEBUS = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=YQ==;UseDevelopmentEmulator=true"
TABLE = "shop.Event"
OWN_TABLE = (
    "create schema shop",
    'create table shop."Event" (event_id uuid primary key, customer text not null, payload json not null)',
)

# Everything in a database that an installation may change.
STATE = """
with mine as (select oid, nspname from pg_namespace where nspname in ('changefeed', 'relay', 'shop'))
select 'relation', nspname, relname, relacl::text, pg_get_userbyid(relowner)::text
from pg_class join mine on mine.oid = relnamespace
union all
select 'column', relname, attname, format_type(atttypid, atttypmod), attnotnull::text
from pg_attribute join pg_class c on c.oid = attrelid join mine on mine.oid = relnamespace where attnum > 0
union all
select 'function', p.oid::regprocedure::text, md5(pg_get_functiondef(p.oid)), proacl::text, null
from pg_proc p join mine on mine.oid = pronamespace where prokind in ('f', 'p')
union all
select 'schema', n.nspname, nspacl::text, null, null from pg_namespace n join mine using (oid)
order by 1, 2, 3, 4, 5
"""
FEEDS = "select table_name, channel, to_jsonb(f) ->> 'keep' from changefeed.outbox_feed f order by 1"
VERSIONS = "select version from changefeed.migration order by 1"


@contextmanager
def database(server: PostgresServer, *statements: str) -> Iterator[tuple[str, psycopg.Connection[Any]]]:
    """The URL of a fresh database, after these statements, and a connection to it; one exists at a time."""
    name = server.create_database()
    try:
        with psycopg.connect(server.url(name), autocommit=True) as connection:
            for each in statements:
                connection.execute(each.encode())
            yield server.url(name), connection
    finally:
        server.drop_database(name)


def state_of(connection: psycopg.Connection[Any]) -> list[Any]:
    found = connection.execute(STATE).fetchall()
    if connection.execute("select to_regclass('changefeed.outbox_feed')").fetchone() != (None,):
        found += connection.execute(FEEDS).fetchall() + connection.execute(VERSIONS).fetchall()
    return found


def psql(url: str, script: str, folder: Path, fails: str = "") -> None:
    """Run a script as the page says; `fails` is a part of the error that is expected."""
    (file := folder / "install.sql").write_text(script, encoding="utf-8")
    command = [str(POSTGRES.with_name("psql")), url, "-v", "ON_ERROR_STOP=1", "-q", "-f", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WATCHDOG_S, check=False)
    said = [line for line in done.stderr.splitlines() if "NOTICE" not in line]
    assert done.returncode == (3 if fails else 0), said
    assert fails in done.stderr if fails else said == []


async def install(url: str, *words: str, **environment: str) -> Run:
    settings = {"SERVICEBUS": SERVICEBUS, "SQL": url, "SQL_FEED": TABLE, **environment}
    run = await relay_command(settings, "install", "--keep", "30d", *words)
    assert run.code == 0, run.err
    return run


@pytest.mark.parametrize("options", ["", "--create-table", "--no-roles --notify", "--create-table --notify"])
async def test_the_script_leaves_the_database_as_install_does(
    postgres_server: PostgresServer, tmp_path: Path, options: str
) -> None:
    words = options.split()
    made = () if "--create-table" in words else OWN_TABLE
    with database(postgres_server, *made) as (url, connection):
        await install(url, *words)
        expected = state_of(connection)

    with database(postgres_server, *made) as (url, connection):
        before = state_of(connection)
        script = (await install(url, *words, "--sql")).out
        untouched = state_of(connection)
        psql(url, script, tmp_path)
        found = state_of(connection)
        again = await install(url, *words)

    assert untouched == before
    assert found == expected
    assert again.out == "Everything is there already.\n"


async def test_what_is_there_already_is_no_part_of_the_script(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    with database(postgres_server, *OWN_TABLE) as (url, connection):
        await install(url)
        connection.execute(f'drop function changefeed."has_news:{TABLE}"(int, uuid)')
        script = (await install(url, "--sql", "--keep", "90d")).out
        psql(url, script, tmp_path)
        again = await install(url, "--keep", "90d")

    # The table of the quarantine is created only if it is missing.
    assert script.count("create table if not exists") == 1
    assert (script.count("set_keep("), "setup_feed(" in script, "_baseline.sql" in script) == (1, False, False)
    assert again.out == "Everything is there already.\n"


async def test_an_older_schema_is_brought_up_to_date_by_the_script(
    postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = migrations("postgresql")
    another = Migration(known[-1].version + 1, "another.sql", "create table changefeed.another (id int)")
    with database(postgres_server, *OWN_TABLE) as (url, connection):
        await install(url)
        for module in ("install", "script"):
            patched = sys.modules[f"outbox_relay.changefeed.{module}"]
            monkeypatch.setattr(patched, "migrations", lambda _: [*known, another])
        script = (await install(url, "--sql")).out
        psql(url, script, tmp_path)
        version = connection.execute("select max(version) from changefeed.migration").fetchone()
        again = await install(url)

    assert (another.name in script, known[-1].name in script) == (True, False)
    assert f"-- Then run `install --sql` again: it looks at the feed of {TABLE}." in script
    assert (version, again.out) == ((another.version,), "Everything is there already.\n")


async def test_streams_of_one_table_share_a_script(postgres_server: PostgresServer, tmp_path: Path) -> None:
    (file := tmp_path / "relay.toml").write_text(
        f'changed_rules = "later"\noutboxes.default.feed = "{TABLE}"\n'
        '[destinations.audit]\nqueue = "audit"\n[[routes]]\nto = ["default", "audit"]'
    )
    with database(postgres_server) as (url, connection):
        script = (await install(url, "--create-table", "--sql", RELAY_FILE=str(file))).out
        psql(url, script, tmp_path)
        tables = connection.execute(
            "select tablename from pg_tables where schemaname = 'relay' order by 1"
        ).fetchall()
        again = await install(url, "--create-table", RELAY_FILE=str(file))

    assert [name for (name,) in tables] == ["item", "item_audit", "rules"]
    assert again.out == "Everything is there already.\n"


async def test_a_table_that_is_not_there_is_named(postgres_server: PostgresServer) -> None:
    with database(postgres_server) as (url, _):
        settings = {"SERVICEBUS": SERVICEBUS, "SQL": url, "SQL_FEED": TABLE}
        run = await relay_command(settings, "install", "--keep", "30d", "--sql", "--json")

    assert run.code == 2
    assert f"there is no table {TABLE}, or this login has no right on it" in run.json["error"]


async def test_a_script_that_fails_leaves_nothing_behind(postgres_server: PostgresServer, tmp_path: Path) -> None:
    with database(postgres_server, *OWN_TABLE) as (url, connection):
        script: str = (await install(url, "--sql", "--json")).json["sql"]
        connection.execute('alter table shop."Event" drop constraint "Event_pkey"')
        before = state_of(connection)
        psql(url, script, tmp_path, fails="has no primary key")

        assert state_of(connection) == before
