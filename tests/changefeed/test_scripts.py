"""`--sql`: the statements of a command, which the owner of the database runs."""

from __future__ import annotations

from typing import cast

import psycopg
import pytest
from sqlfluff.core import Linter

from outbox_relay.changefeed import statements
from outbox_relay.changefeed.install import migrations
from outbox_relay.changefeed.postgresql.dialect import PostgresDialect
from outbox_relay.changefeed.script import in_full, missing_migrations
from outbox_relay.changefeed.sqlserver.dialect import SqlServerDialect, batches
from outbox_relay.changefeed.statements import Dialect, Result, Session, Statement
from tests.changefeed.test_commands import answer, run

TABLE = "shop.o'Event"


def test_the_scripts_do_what_the_commands_do(postgres_database: str) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as owner:
        owner.execute("""create schema shop; create table shop."o'Event" (id text primary key)""")

        installing = answer(postgres_database, "install", "--sql")
        assert owner.execute("select to_regnamespace('changefeed')").fetchone() == (None,)
        owner.execute(installing["sql"])
        setting_up = answer(postgres_database, "setup-feed", TABLE, "--keep", "30d", "--sql")
        assert owner.execute("select from changefeed.outbox_feed").fetchall() == []
        owner.execute(setting_up["sql"])
        found = owner.execute("select table_name, channel, keep from changefeed.outbox_feed").fetchall()

        assert found == [(TABLE, None, "30d")]
        assert answer(postgres_database, "install") == {"code": 0, "applied": [], "repaired": []}
        assert run(postgres_database, "install", "--sql") == (0, "-- Everything is there already.\n", "")


def test_the_script_repairs_what_a_feed_lacks(postgres_database: str) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as owner:
        owner.execute("""create schema shop; create table shop."o'Event" (id text primary key)""")
        answer(postgres_database, "install")
        answer(postgres_database, "setup-feed", TABLE, "--keep", "30d")
        owner.execute("""drop table shop."o'Event" cascade; create table shop."o'Event" (id text primary key)""")

        sql = answer(postgres_database, "install", "--sql")["sql"]
        owner.execute(sql)

        assert answer(postgres_database, "install") == {"code": 0, "applied": [], "repaired": []}
        assert ("create_functions" in sql, "insert into changefeed.migration" in sql) == (True, False)


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        (PostgresDialect(), "call f('it''s', '\\', true, false, null) -- end"),
        (SqlServerDialect(), "call f(N'it''s', N'\\', 1, 0, null) -- end"),
    ],
)
def test_parameters_become_literals(dialect: Dialect, expected: str) -> None:
    statement = Statement("call f(?, ?, ?, ?, ?) -- end", ("it's", "\\", True, False, None))

    assert in_full(dialect, statement) == expected


def test_a_script_in_t_sql_is_one_transaction_in_batches() -> None:
    dialect, every = SqlServerDialect(), migrations("sqlserver")
    first = next(dialect.setup_feed(TABLE, False, True, "30d"))

    script = dialect.script(every, [in_full(dialect, first)])

    begins, *applied, commits, sets_up = batches(script)
    assert ("begin transaction" in begins, commits.startswith("commit transaction")) == (True, True)
    assert (
        sets_up == "exec changefeed.setup_feed @table = N'shop.o''Event', @outbox = 1, @roles = 1, @keep = N'30d'"
    )
    for each in every:
        assert f"-- {each.name}" in applied
        assert f"insert into changefeed.migration (version) values ({each.version})" in applied
        assert set(batches(each.text)) <= set(applied)
    assert Linter(dialect="tsql").parse_string(sets_up).violations == []
    assert batches(dialect.script([], ["select 1"])) == ["select 1"]


@pytest.mark.parametrize("dialect", [PostgresDialect(), SqlServerDialect()])
@pytest.mark.parametrize(("is_there", "version"), [(0, 0), (1, 2)])
def test_the_missing_migrations_are_those_after_the_version(dialect: Dialect, is_there: int, version: int) -> None:
    class Answering:
        def execute(self, statement: Statement) -> Result:
            return Result((), [(version if "max(version)" in statement.sql else is_there,)], 0)

    found, missing = statements.run(cast(Session, Answering()), missing_migrations(dialect))

    assert (found, missing[0].version) == (version, version + 1)
