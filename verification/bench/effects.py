"""The effect that consumers of a benchmark have for an event, in each kind of store: count it for its key, once.

Of each store there are three handlers: as `docs/receiving-events.md` has it, the same by hand, and without a note.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, TypeVar

from azure.servicebus import ServiceBusReceivedMessage
from psycopg_pool import AsyncConnectionPool

import inbox
from local.stack.environment import TOPIC
from verification.bench.baselines.receivers import Handle

ConnectionT = TypeVar("ConnectionT", bound=sqlite3.Connection)

WithInbox = Callable[[inbox.Message], Awaitable[None]]


class Effects:
    """Checks effects, and counts them: without their order, or a second time, the measurement is not valid.

    Attributes:
        done: Set when there were as many as expected, or one was wrong.
        at: When the last one was, in seconds of the monotonic clock.
        wrong: What was wrong, if anything.
    """

    def __init__(self, expected: int, *, every: int = 0, sample: Callable[[], None] = lambda: None) -> None:
        """`sample` is called after each `every` effects; never if that is 0."""
        self._expected = expected
        self._every = every
        self._sample = sample
        self._last: dict[str, int] = {}
        self._count = 0
        self.done = asyncio.Event()
        self.at = 0.0
        self.wrong = ""

    def add(self, key: str, number: int) -> None:
        """Note an effect that cannot be lost any more. The events of a key are numbered from 1."""
        before = self._last.get(key, 0)
        if number != before + 1:
            self.wrong = f"{key} has {number} after {before}"
            self.done.set()
        self._last[key] = number
        self._count += 1
        if self._every and self._count % self._every == 0:
            self._sample()
        if self._count == self._expected:
            self.at = time.monotonic()
            self.done.set()


class Store(Protocol):
    """A consumer's database, open."""

    def with_inbox(self, effects: Effects) -> WithInbox:
        """Return the handler with the store of `inbox`."""

    def by_hand(self, effects: Effects) -> Handle:
        """Return a handler with the same effect and a note of it in one transaction.

        It uses nothing but the driver.
        """

    def without_once(self, effects: Effects) -> Handle:
        """Return a handler with the effect alone."""


Open = Callable[[str, int], AbstractAsyncContextManager[Store]]
"""Opens a database, for a number of sessions at a time."""


def number_of(body: bytes) -> int:
    """Return the event's number within its key. Every handler reads the event, as a real one does."""
    return int(json.loads(body)["number"])


_SEEN = "CREATE TABLE IF NOT EXISTS seen (key TEXT PRIMARY KEY, times INTEGER NOT NULL)"
_COUNT = "INSERT INTO seen VALUES (?, 1) ON CONFLICT (key) DO UPDATE SET times = seen.times + 1"
# As in the table of `inbox`: found by the event's name, and by its age.
_HANDLED = (
    "CREATE TABLE IF NOT EXISTS handled (consumer TEXT NOT NULL, id TEXT NOT NULL, key TEXT NOT NULL,"
    " topic TEXT NOT NULL, at REAL NOT NULL)",
    "CREATE UNIQUE INDEX IF NOT EXISTS handled_id ON handled (consumer, id, key, topic)",
    "CREATE INDEX IF NOT EXISTS handled_at ON handled (consumer, at)",
)
_NOTE = "INSERT INTO handled VALUES ('default', ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_COUNT_PG, _NOTE_PG = (text.replace("?", "%s").encode() for text in (_COUNT, _NOTE))


class Sqlite:
    """A file of SQLite. All blocks run on one connection, one at a time."""

    def __init__(self, path: str) -> None:
        self._path = path

    @classmethod
    @asynccontextmanager
    async def open(cls, path: str, sessions: int) -> AsyncIterator[Sqlite]:
        """Open it; each handler then has a connection of its own."""
        yield cls(path)

    def with_inbox(self, effects: Effects) -> WithInbox:
        database = _prepared(inbox.SqliteConnection(self._path))
        store = inbox.SqliteStore(database)

        async def handle(message: inbox.Message) -> None:
            number = number_of(message.body)
            async with store.once(message) as arrival:
                if arrival.first:
                    database.execute(_COUNT, (message.key,))
            if arrival.first:
                effects.add(message.key, number)

        return handle

    def by_hand(self, effects: Effects) -> Handle:
        database = _prepared(sqlite3.connect(self._path, isolation_level=None))
        for statement in _HANDLED:
            database.execute(statement)

        async def handle(message: ServiceBusReceivedMessage) -> None:
            number, key = number_of(b"".join(message.body)), message.session_id or ""
            database.execute("BEGIN IMMEDIATE")
            try:
                noted = database.execute(_NOTE, (message.message_id, key, TOPIC, time.time())).rowcount
                if noted:
                    database.execute(_COUNT, (key,))
                database.execute("COMMIT")
            except BaseException:
                database.execute("ROLLBACK")
                raise
            if noted:
                effects.add(key, number)

        return handle

    def without_once(self, effects: Effects) -> Handle:
        database = _prepared(sqlite3.connect(self._path, isolation_level=None))

        async def handle(message: ServiceBusReceivedMessage) -> None:
            number, key = number_of(b"".join(message.body)), message.session_id or ""
            database.execute(_COUNT, (key,))
            effects.add(key, number)

        return handle


def _prepared(database: ConnectionT) -> ConnectionT:
    # With the default, SQLite waits for the disk twice at each commit, and nothing else would be measured.
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    database.execute(_SEEN)
    return database


class Memory:
    """Nothing but the receiver: what is kept ends with the process."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}

    @classmethod
    @asynccontextmanager
    async def open(cls, _: str, sessions: int) -> AsyncIterator[Memory]:
        """There is nothing to open."""
        yield cls()

    def _count(self, key: str) -> None:
        self._times[key] = self._times.get(key, 0) + 1

    def with_inbox(self, effects: Effects) -> WithInbox:
        store = inbox.MemoryStore()

        async def handle(message: inbox.Message) -> None:
            number = number_of(message.body)
            async with store.once(message) as arrival:
                if arrival.first:
                    self._count(message.key)
            if arrival.first:
                effects.add(message.key, number)

        return handle

    def by_hand(self, effects: Effects) -> Handle:
        handled: set[tuple[str, str | None]] = set()

        async def handle(message: ServiceBusReceivedMessage) -> None:
            number, key = number_of(b"".join(message.body)), message.session_id or ""
            if (key, message.message_id) not in handled:
                handled.add((key, message.message_id))
                self._count(key)
                effects.add(key, number)

        return handle

    def without_once(self, effects: Effects) -> Handle:
        async def handle(message: ServiceBusReceivedMessage) -> None:
            number, key = number_of(b"".join(message.body)), message.session_id or ""
            self._count(key)
            effects.add(key, number)

        return handle


class Postgres:
    """A database of PostgreSQL, and a pool with a connection for each session."""

    def __init__(self, pool: AsyncConnectionPool) -> None:
        self._pool = pool

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, sessions: int) -> AsyncIterator[Postgres]:
        """Connect, and make the tables."""
        async with AsyncConnectionPool(url, min_size=sessions, max_size=sessions, open=False) as pool:
            async with pool.connection() as connection:
                for statement in (_SEEN, *_HANDLED):
                    await connection.execute(statement.replace("REAL", "double precision").encode())
            yield cls(pool)

    def with_inbox(self, effects: Effects) -> WithInbox:
        store = inbox.PostgresStore(self._pool.connection)

        async def handle(message: inbox.Message) -> None:
            number = number_of(message.body)
            async with store.once(message) as arrival:
                if arrival.first:
                    await arrival.connection.execute(_COUNT_PG, (message.key,))
            if arrival.first:
                effects.add(message.key, number)

        return handle

    def by_hand(self, effects: Effects) -> Handle:
        async def handle(message: ServiceBusReceivedMessage) -> None:
            number, key = number_of(b"".join(message.body)), message.session_id or ""
            async with self._pool.connection() as connection, connection.transaction():
                note = await connection.execute(_NOTE_PG, (message.message_id, key, TOPIC, time.time()))
                if note.rowcount:
                    await connection.execute(_COUNT_PG, (key,))
            if note.rowcount:
                effects.add(key, number)

        return handle

    def without_once(self, effects: Effects) -> Handle:
        async def handle(message: ServiceBusReceivedMessage) -> None:
            number, key = number_of(b"".join(message.body)), message.session_id or ""
            async with self._pool.connection() as connection:
                await connection.execute(_COUNT_PG, (key,))
            effects.add(key, number)

        return handle
