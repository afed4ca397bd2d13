"""PostgreSQL for the contract suite."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from outbox_relay import changefeed
from outbox_relay.changefeed import AsyncSession, DatabaseError, Session
from outbox_relay.changefeed.statements import Statement
from tests.changefeed.backends import TABLE
from tests.changefeed.history import Event
from tests.support.waiting import look_again_blocking
from tests.support.watchdog import WATCHDOG_S

_SERVICE = """
create schema app;
create table app.aggregate (id text primary key, version int not null default 0);
create table app.event (
    aggregate text not null, version int not null, data jsonb not null default '{}',
    primary key (aggregate, version));
"""
_READ = 'changefeed."read_feed:app.event"(int, uuid, int)'


def set_up(url: str, *, roles: bool = False) -> None:
    """Make the tables of a service, and set up the feed of one, in a database that has changefeed's schema."""
    with psycopg.connect(url) as owner:
        owner.execute(_SERVICE)
    session = changefeed.connect(url)
    changefeed.setup_feed(session, TABLE, notify=True, roles=roles)
    session.close()


class PostgresWriter:
    """See `backends.Writer`."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True, options=f"-c statement_timeout={WATCHDOG_S}s")
        self.id = self._connection.info.backend_pid

    def begin(self) -> None:
        """Begin a transaction, whose first snapshot is taken here."""
        self._connection.execute("begin")
        self._connection.execute("select 1")

    def append(
        self, shard: int, aggregate: str, write: int = 0, *, time_hint: datetime | str | None = None
    ) -> Event:
        """Lock the aggregate's row, and insert the event and its row of the outbox."""
        counted = self._connection.execute(
            "insert into app.aggregate (id, version) values (%s, 1) on conflict (id) "
            "do update set version = aggregate.version + 1 returning version",
            (aggregate,),
        ).fetchone()
        assert counted is not None
        key = (aggregate, counted[0])
        self._connection.execute(
            "insert into app.event (aggregate, version, data) values (%s, %s, %s)", (*key, f'{{"write": {write}}}')
        )
        if time_hint is None:
            outbox = 'insert into changefeed."outbox:app.event" (shard_id, aggregate, version) values (%s, %s, %s)'
            self._connection.execute(outbox, (shard, *key))
        else:
            self._connection.execute(
                'insert into changefeed."outbox:app.event" (shard_id, aggregate, version, time_hint) '
                "values (%s, %s, %s, %s)",
                (shard, *key, time_hint),
            )
        return Event(shard, *key, write)

    def commit(self) -> None:
        """Commit."""
        self._connection.execute("commit")

    def rollback(self) -> None:
        """Roll back."""
        self._connection.execute("rollback")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class PostgresBackend:
    """See `backends.Backend`."""

    session_id_query = "select pg_backend_pid()"

    def __init__(self, url: str) -> None:
        self.url = url
        self._open: list[Session | PostgresWriter] = []
        self.owner = self.session()

    def session(self, **options: Any) -> Session:
        """A further session."""
        session = changefeed.connect(self.url, **options)
        self._open.append(session)
        return session

    async def session_async(self, **options: Any) -> AsyncSession:
        """A further async session."""
        return await changefeed.connect_async(self.url, **options)

    def writer(self) -> PostgresWriter:
        """A further writer."""
        writer = PostgresWriter(self.url)
        self._open.append(writer)
        return writer

    def execute(self, text: str, *values: Any) -> None:
        """Carry out a statement of the owner, or several without values."""
        self.owner.execute(Statement(text, values))

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of the owner's query."""
        return [tuple(row) for row in self.owner.execute(Statement(query, values)).rows]

    def id_of(self, session: Session) -> int:
        """The process id of its backend."""
        return int(session.execute(Statement(self.session_id_query)).rows[0][0])

    def kill(self, session_id: int) -> None:
        """End a session."""
        self.execute("select pg_terminate_backend(?)", session_id)
        self._until("select not exists (select from pg_stat_activity where pid = ?)", session_id)

    def blocked(self, session_id: int) -> bool:
        """Return True if a session waits for a lock."""
        return bool(self.rows("select cardinality(pg_blocking_pids(?)) > 0", session_id)[0][0])

    @contextmanager
    def outbox_held(self) -> Iterator[None]:
        """Hold the lock of every row of the outbox."""
        with self.locking('select from changefeed."outbox:app.event" for update'):
            yield

    @contextmanager
    def shard_held(self, shard: int) -> Iterator[None]:
        """Hold the lock of the shard's row of state; the shard has been read before."""
        with self.locking('select from changefeed."state:app.event" where shard_id = %s for update', shard):
            yield

    @contextmanager
    def locking(self, statement: str, *values: Any) -> Iterator[psycopg.Connection]:
        """A transaction that has carried out a statement, and is committed at the end."""
        with psycopg.connect(self.url) as holder:
            holder.execute(statement.encode(), values or None)
            yield holder

    def set_last_position(self, shard: int, position: bytes) -> None:
        """Change the shard's row of state."""
        self.execute(
            'insert into changefeed."state:app.event" (shard_id, ulid) values (?, ?) '
            "on conflict (shard_id) do update set ulid = excluded.ulid",
            shard,
            UUID(bytes=position),
        )

    def cache_sequence(self) -> None:
        """Change the identity column."""
        self.execute('alter table changefeed."outbox:app.event" alter column order_sequence set cache 10')

    def set_lock_timeout(self, milliseconds: int) -> None:
        """Change the function's own setting."""
        self.execute(f"alter function {_READ} set lock_timeout = '{milliseconds}ms'")

    def change_read(self, *changes: tuple[str, str]) -> None:
        """Replace pieces of the text of read_feed; each occurs in it."""
        ((text,),) = self.rows("select pg_get_functiondef(?::regprocedure)", _READ)
        for old, new in changes:
            assert old in text, f"{old!r} is not in {text}"
            text = text.replace(old, new)
        self.execute(text)

    def close(self) -> None:
        """Close all sessions."""
        for session in self._open:
            with suppress(DatabaseError, psycopg.Error):
                session.close()

    def _until(self, condition: str, *values: Any) -> None:
        """Wait until a condition of the server holds: nothing tells when it does, so ask again."""
        ends = time.monotonic() + WATCHDOG_S
        while not self.rows(condition, *values)[0][0]:
            assert time.monotonic() < ends, f"{condition} {values} did not become true in {WATCHDOG_S} s"
            look_again_blocking()
