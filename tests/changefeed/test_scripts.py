"""`--sql`: the statements of a command, which the owner of the database runs."""

from __future__ import annotations

from typing import cast

import psycopg
import pytest
from sqlfluff.core import Linter

from outbox_relay.changefeed import SetupError, statements
from outbox_relay.changefeed.install import migrations
from outbox_relay.changefeed.postgresql.dialect import PostgresDialect
from outbox_relay.changefeed.script import in_full, missing_migrations
from outbox_relay.changefeed.sqlserver.dialect import SqlServerDialect, batches
from outbox_relay.changefeed.statements import Dialect, Migration, Result, Session, Statement
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
    dialect, known = SqlServerDialect(), migrations("sqlserver")
    every = [*known, Migration(known[-1].version + 1, "another.sql", "select 1\ngo\nselect 2\n")]
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


def found_and_missing(dialect: Dialect, version: int) -> tuple[int, list[int]]:
    """Return the version that is found in a schema of this version, and those that it lacks of 3 to 5."""

    class Answering:
        def execute(self, statement: Statement) -> Result:
            return Result((), [(version if "max(version)" in statement.sql else bool(version),)], 0)

    found, missing = statements.run(cast(Session, Answering()), missing_migrations(dialect))
    return found, [migration.version for migration in missing]


@pytest.fixture
def versions_3_to_5(monkeypatch: pytest.MonkeyPatch) -> None:
    known = [Migration(version, f"{version:04}.sql", "select 1") for version in (3, 4, 5)]
    monkeypatch.setattr("outbox_relay.changefeed.script.migrations", lambda _: known)


@pytest.mark.usefixtures("versions_3_to_5")
@pytest.mark.parametrize("dialect", [PostgresDialect(), SqlServerDialect()])
@pytest.mark.parametrize(("version", "missing"), [(0, [3, 4, 5]), (3, [4, 5]), (4, [5]), (5, [])])
def test_the_missing_migrations_are_those_after_the_version(
    dialect: Dialect, version: int, missing: list[int]
) -> None:
    assert found_and_missing(dialect, version) == (version, missing)


@pytest.mark.usefixtures("versions_3_to_5")
@pytest.mark.parametrize("dialect", [PostgresDialect(), SqlServerDialect()])
@pytest.mark.parametrize(
    ("version", "remedy"),
    [(1, "upgrade it with app-v0"), (2, "upgrade it with app-v0"), (6, "knows 5: install .* a later one")],
)
def test_there_is_no_script_for_a_schema_of_another_library(dialect: Dialect, version: int, remedy: str) -> None:
    with pytest.raises(SetupError, match=f"has version {version}, .*{remedy}"):
        found_and_missing(dialect, version)
