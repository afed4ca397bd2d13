"""A server with T-SQL for the contract suite: one database for a process, and its feed afresh for each test."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

import mssql_python
import pytest

from outbox_relay import changefeed
from outbox_relay.changefeed import AsyncSession, DatabaseError, Session
from outbox_relay.changefeed.statements import Statement
from tests.changefeed.backends import TABLE
from tests.changefeed.history import Event
from tests.support.watchdog import WATCHDOG_S

SERVICE = (
    "create schema app",
    "create table app.aggregate (id nvarchar(50) not null primary key, version int not null default (0))",
    "create table app.event (aggregate nvarchar(50) not null, version int not null, data nvarchar(max) not null, "
    "primary key (aggregate, version))",
)
_TABLES = ("[outbox:app.event]", "[feed:app.event]", "[state:app.event]", "[claim:app.event]")
RESET = (
    "if @@trancount > 0 rollback transaction; set implicit_transactions off; set xact_abort off; "
    "set transaction isolation level read committed; "
)


class TsqlWriter:
    """See `backends.Writer`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.id = session_id(session)

    def begin(self) -> None:
        """Begin a transaction."""
        self._run("begin transaction")

    def append(
        self, shard: int, aggregate: str, write: int = 0, *, time_hint: datetime | str | None = None
    ) -> Event:
        """Lock the aggregate's row, and insert the event and its row of the outbox."""
        while not (changed := self._count_up(aggregate)):
            try:
                self._run("insert into app.aggregate (id) values (?)", aggregate)
            except DatabaseError as error:
                # Another writer has inserted it at the same time.
                if error.lost:
                    raise
        key = (aggregate, changed)
        self._run(
            "insert into app.event (aggregate, version, data) values (?, ?, ?)", *key, f'{{"write": {write}}}'
        )
        outbox = "insert into changefeed.[outbox:app.event] (shard_id, aggregate, version"
        if time_hint is None:
            self._run(f"{outbox}) values (?, ?, ?)", shard, *key)
        else:
            self._run(f"{outbox}, time_hint) values (?, ?, ?, ?)", shard, *key, _utc(time_hint))
        return Event(shard, *key, write)

    def commit(self) -> None:
        """Commit."""
        self._run("commit transaction")

    def rollback(self) -> None:
        """Roll back."""
        self._run("rollback transaction")

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def _count_up(self, aggregate: str) -> int | None:
        if not self._run("update app.aggregate set version = version + 1 where id = ?", aggregate).changed:
            return None
        version: int = self._run("select version from app.aggregate where id = ?", aggregate).rows[0][0]
        return version

    def _run(self, text: str, *values: Any) -> changefeed.statements.Result:
        return self._session.execute(Statement(text, values))


class TsqlDatabase:
    """A database with the schema changefeed.

    Sessions are kept for the tests that follow: the first calls in a session of Babelfish take seconds.

    Attributes:
        url: Its connection string.
        owner: A session for what is set up.
        babelfish: Whether the server is Babelfish for PostgreSQL.
    """

    def __init__(self, connection_string: str, service: Sequence[str], *, sessions: int = 0) -> None:
        """`service` is executed in it; `sessions` are opened at once."""
        # A pooled connection would keep its database open.
        mssql_python.pooling(enabled=False)
        self._server = changefeed.connect(connection_string)
        self._name = f"changefeed_test_{uuid.uuid4().hex[:12]}"
        self._server.execute(Statement(f"create database {self._name}"))
        found = self._server.execute(Statement("select serverproperty('Babelfish')")).rows[0][0]
        self.babelfish = found == 1
        if not self.babelfish:
            self._server.execute(Statement(f"alter database {self._name} set read_committed_snapshot on"))
        rest = re.sub(r"(?i)(^|;)\s*database\s*=[^;]*", "", connection_string).strip("; ")
        self.url = f"{rest};Database={self._name}"
        self.owner = changefeed.connect(self.url)
        self._used: list[Session] = []
        changefeed.install(self.owner)
        for text in service:
            self.owner.execute(Statement(text))
        self._idle: list[Session] = []
        for _ in range(sessions):
            self._idle.append(changefeed.connect(self.url))
            self._idle[-1].execute(Statement("select @@spid"))

    def session(self, **options: Any) -> Session:
        """A session for this test alone."""
        session = self._idle.pop() if self._idle and not options else changefeed.connect(self.url, **options)
        self._used.append(session)
        return session

    def take_back(self) -> None:
        """End what the test has left in its sessions, and keep those that it has not closed."""
        while self._used:
            session = self._used.pop()
            with suppress(DatabaseError):
                session.execute(Statement(RESET))
                self._idle.append(session)

    def drop(self) -> None:
        """Close all sessions and remove the database, as soon as the server has ended the sessions in it."""
        self.take_back()
        for session in [self.owner, *self._idle]:
            session.close()
        ends = time.monotonic() + WATCHDOG_S
        while True:
            try:
                self._server.execute(Statement(f"drop database {self._name}"))
            except DatabaseError:
                if time.monotonic() > ends:
                    raise
                time.sleep(0.2)
            else:
                break
        self._server.close()


class TsqlBackend:
    """See `backends.Backend`."""

    session_id_query = "select @@spid"

    def __init__(self, database: TsqlDatabase) -> None:
        self._database = database
        self.owner = database.owner
        self.url = database.url
        self._changed = False
        found = self.rows("select count(*) from changefeed.outbox_feed where table_name = ?", TABLE)
        if found == [(0,)]:
            changefeed.setup_feed(self.owner, TABLE)

    def session(self, **options: Any) -> Session:
        """A further session."""
        return self._database.session(**options)

    async def session_async(self, **options: Any) -> AsyncSession:
        """A further async session."""
        return await changefeed.connect_async(self.url, **options)

    def writer(self) -> TsqlWriter:
        """A further writer."""
        return TsqlWriter(self.session())

    def execute(self, text: str, *values: Any) -> None:
        """Carry out a statement of the owner."""
        self.owner.execute(Statement(text, values))

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of the owner's query."""
        return [tuple(row) for row in self.owner.execute(Statement(query, values)).rows]

    def id_of(self, session: Session) -> int:
        """Its @@spid."""
        return session_id(session)

    def kill(self, session_id: int) -> None:
        """End a session."""
        with suppress(DatabaseError):
            # It may have gone already.
            self.execute(f"kill {session_id}")
        if self._database.babelfish:
            self._until("select count(*) from pg_catalog.pg_stat_activity where pid = ?", session_id)
        else:
            self._until("select count(*) from sys.dm_exec_sessions where session_id = ?", session_id)

    def blocked(self, session_id: int) -> bool:
        """Return True if a session waits for a lock."""
        if self._database.babelfish:
            query = "select cardinality(pg_catalog.pg_blocking_pids(?))"
        else:
            query = (
                "select count(*) from sys.dm_exec_requests where session_id = ? "
                "and (blocking_session_id <> 0 or wait_type like 'LCK%')"
            )
        return bool(self.rows(query, session_id)[0][0] > 0)

    @contextmanager
    def outbox_held(self) -> Iterator[None]:
        """Hold the lock of every row of the outbox."""
        with self._transaction("update changefeed.[outbox:app.event] set time_hint = time_hint"):
            yield

    @contextmanager
    def shard_held(self, shard: int) -> Iterator[None]:
        """Hold the application lock of the shard."""
        lock = "exec sp_getapplock @Resource = ?, @LockMode = 'Exclusive', @LockOwner = 'Transaction'"
        with self._transaction(lock, f"changefeed.feed:{TABLE}/{shard}"):
            yield

    def set_last_position(self, shard: int, position: bytes) -> None:
        """Change the shard's row of state."""
        self.execute("delete from changefeed.[state:app.event] where shard_id = ?", shard)
        self.execute("insert into changefeed.[state:app.event] (shard_id, ulid) values (?, ?)", shard, position)

    def cache_sequence(self) -> None:
        """An identity is cached by the server, for all sessions."""
        pytest.skip("in T-SQL, no session has an identity's numbers of its own")

    def set_lock_timeout(self, milliseconds: int) -> None:
        """Change the text of the procedures."""
        self.change_procedures(("10000", str(milliseconds)))

    def change_procedures(self, *changes: tuple[str, str]) -> None:
        """Replace pieces of the text of read_feed and of what it calls; each occurs in one of them."""
        self._changed = True
        texts = {}
        for kind in ("number", "read_feed"):
            name = f"changefeed.[{kind}:{TABLE}]"
            ((texts[name],),) = self.rows(
                "select definition from sys.sql_modules where object_id = object_id(?)", name
            )
        for old, new in changes:
            assert any(old in text for text in texts.values()), f"{old!r} is in none of {list(texts)}"
            texts = {name: text.replace(old, new) for name, text in texts.items()}
        for name, text in texts.items():
            self.execute(f"drop procedure {name}")
            self.execute(text)

    def close(self) -> None:
        """Give back all sessions, and empty the tables."""
        self._database.take_back()
        self.execute(RESET)
        if self.rows("select count(*) from changefeed.outbox_feed where table_name = ?", TABLE) == [(0,)]:
            pass
        elif self._changed:
            changefeed.drop_feed(self.owner, TABLE)
        else:
            for table in _TABLES:
                self.execute(f"delete from changefeed.{table}")
        self.execute("delete from app.event; delete from app.aggregate")

    @contextmanager
    def _transaction(self, text: str, *values: Any) -> Iterator[None]:
        session = self.session()
        session.execute(Statement("begin transaction"))
        session.execute(Statement(text, values))
        try:
            yield
        finally:
            session.execute(Statement("commit transaction"))

    def _until(self, count: str, *values: Any) -> None:
        """Wait until a count is 0: nothing tells when it is, so ask again."""
        ends = time.monotonic() + WATCHDOG_S
        while self.rows(count, *values)[0][0]:
            assert time.monotonic() < ends, f"{count} {values} did not become 0 in {WATCHDOG_S} s"
            time.sleep(0.02)


def session_id(session: Session) -> int:
    """The value of @@spid in a session."""
    return int(session.execute(Statement("select @@spid")).rows[0][0])


def _utc(time_hint: datetime | str) -> datetime | str:
    """Return a time without a time zone, the form of the column time_hint."""
    if isinstance(time_hint, datetime) and time_hint.tzinfo is not None:
        return (time_hint - time_hint.utcoffset()).replace(tzinfo=None)  # type: ignore[operator]
    return time_hint
