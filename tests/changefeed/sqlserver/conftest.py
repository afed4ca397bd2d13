"""A database on a server with T-SQL, for tests where CHANGEFEED_TEST_SQLSERVER names one; else they are skipped.

The value is a connection string for mssql-python of a login that may create databases and roles.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from outbox_relay.changefeed import Feed, Session, setup_feed
from outbox_relay.changefeed.statements import Result, Statement
from tests.changefeed.sqlserver.backend import TsqlDatabase

VARIABLE = "CHANGEFEED_TEST_SQLSERVER"
_numbers = itertools.count()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark every test of this folder as slow: most need a server, the others parse much SQL."""
    item.add_marker(pytest.mark.slow)


class Events:
    """An event table with a feed, and a session that writes to it."""

    def __init__(self, session: Session, table: str) -> None:
        self.session = session
        self.table = table
        self.feed = Feed(session, table)

    def run(self, sql: str, *parameters: object) -> Result:
        """Execute a statement in which {outbox}, {feed}, {state}, {events} and others are the table's."""
        text = re.sub(r"\{(\w+)\}", lambda token: self.named(token[1]), sql)
        return self.session.execute(Statement(text, parameters))

    def named(self, kind: str) -> str:
        """The quoted name of the event table (`events`), or of a table or procedure of its feed."""
        return self.table if kind == "events" else f"changefeed.[{kind}:{self.table}]"

    def insert(self, *ids: int, shard_id: int = 0, time_hint: str | None = None) -> None:
        """Insert events, in one transaction or in the session's open one."""
        rows = ", ".join(f"({number}, N'event {number}')" for number in ids)
        columns, hint = "shard_id, id", ""
        if time_hint is not None:
            columns, hint = "shard_id, time_hint, id", f"'{time_hint}', "
        outbox = ", ".join(f"({shard_id}, {hint}{number})" for number in ids)
        self.run(
            "declare @own bit = case when @@trancount = 0 then 1 else 0 end; "
            "if @own = 1 begin transaction; "
            f"insert into {{events}} (id, data) values {rows}; "
            f"insert into {{outbox}} ({columns}) values {outbox}; "
            "if @own = 1 commit transaction;"
        )

    def read(self, cursor: bytes = bytes(16), *, shard_id: int = 0, page_size: int = 100) -> list[int]:
        """The ids of one page."""
        return [entry.row["id"] for entry in self.feed.read(shard_id, cursor, page_size).entries if entry.row]

    def on(self, session: Session) -> Events:
        """The same events through another session."""
        return Events(session, self.table)


@pytest.fixture(scope="session")
def _database() -> Iterator[TsqlDatabase]:
    url = os.environ.get(VARIABLE, "")
    if not url:
        pytest.skip(f"{VARIABLE} holds no connection string of a server with T-SQL")
    database = TsqlDatabase(url, ["create schema app"])
    yield database
    database.drop()


@pytest.fixture
def database(_database: TsqlDatabase) -> Iterator[TsqlDatabase]:
    """The database of this process, with the schema app."""
    yield _database
    _database.take_back()


@pytest.fixture
def make_events(database: TsqlDatabase) -> Callable[..., Events]:
    """Makes an event table with a feed, whose primary key is of the type given."""

    def make(key: str = "id bigint not null primary key", **options: Any) -> Events:
        table = f"app.event_{next(_numbers)}"
        database.owner.execute(Statement(f"create table {table} ({key}, data nvarchar(max) null)"))
        setup_feed(database.owner, table, **{"roles": False, **options})
        return Events(database.session(), table)

    return make


@pytest.fixture
def events(make_events: Callable[..., Events]) -> Events:
    """An event table with the primary key `id`, and its feed."""
    return make_events()
