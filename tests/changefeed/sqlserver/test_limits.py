"""Which statements end after the driver's timeout, with a connection and a session that only record."""

from __future__ import annotations

from typing import Any

import pytest

from outbox_relay.changefeed import BackfillPlan
from outbox_relay.changefeed.sqlserver import sessions
from outbox_relay.changefeed.sqlserver.dialect import SqlServerDialect
from outbox_relay.changefeed.sqlserver.sessions import SqlServerSession
from outbox_relay.changefeed.statements import Result, Statement, run


class Connection:
    """A connection whose cursors remember the timeout that they were made with, as mssql-python's do."""

    def __init__(self) -> None:
        self.timeout = sessions._STATEMENT_TIMEOUT_S
        self.executed: list[tuple[str, int]] = []

    def cursor(self) -> Cursor:
        return Cursor(self, self.timeout)


class Cursor:
    description = None
    rowcount = 0

    def __init__(self, connection: Connection, timeout: int) -> None:
        self._connection, self._timeout = connection, timeout

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *exception: object) -> None:
        return

    def execute(self, sql: str, *parameters: object) -> None:
        self._connection.executed.append((sql, self._timeout))

    def nextset(self) -> bool:
        return False


def test_a_statement_is_limited_unless_it_says_otherwise() -> None:
    pytest.importorskip("mssql_python")
    connection = Connection()
    session = SqlServerSession(connection)  # type: ignore[arg-type]

    session.execute(Statement("a"))
    session.execute(Statement("b", unlimited=True))
    session.execute(Statement("c"))

    limit_s = sessions._STATEMENT_TIMEOUT_S
    assert limit_s > 0
    assert connection.executed == [("a", limit_s), ("b", 0), ("c", limit_s)]


class Recording:
    """A session of a table with the key `id`, of which a backfill has to list one row."""

    dialect = SqlServerDialect()

    def __init__(self) -> None:
        self.statements: list[Statement] = []
        self._keys = [[("k",)], []]

    def execute(self, statement: Statement, /) -> Result:
        self.statements.append(statement)
        return Result(("column",), self._rows(statement.sql), 0)

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        if "object_id(?)" in sql and "from" not in sql:
            return [(None,)]
        if "sys.columns where object_id" in sql:
            return [("id",), ("key",)]
        if "written_type" in sql:
            return [("id", "int")]
        if "select distinct top" in sql:
            return self._keys.pop(0)
        if "select count(*)" in sql:
            return [(0,)]
        return [(1,)] if "outbox_feed" in sql else []


def test_what_reads_the_whole_table_or_the_list_of_a_backfill_has_no_limit() -> None:
    session = Recording()
    plan = BackfillPlan(["id"], shard_column="key", shards=4)

    run(session, session.dialect.begin_backfill("app.event", plan, False))  # type: ignore[arg-type]

    of_list = [one for one in session.statements if "[backfill:app.event]" in one.sql and one.parameters == ()]
    long = [one for one in session.statements if one.unlimited]
    assert {one.sql.split()[0] for one in long} == {"insert", "select", "update"}
    assert [one.sql.split()[:2] for one in of_list if not one.unlimited] == [["create", "table"]]
