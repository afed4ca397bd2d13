"""The effect that consumers of a benchmark have for an event, in SQLite: count it for its key, once.

There are three handlers: as `docs/receiving-events.md` has it, the same by hand, and without a note.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from azure.servicebus import ServiceBusReceivedMessage

from local.stack.environment import TOPIC
from outbox_relay import inbox
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

    def __init__(self, expected: int) -> None:
        self._expected = expected
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
        if self._count == self._expected:
            self.at = time.monotonic()
            self.done.set()


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


class Sqlite:
    """A file of SQLite. All blocks run on one connection, one at a time."""

    def __init__(self, path: str) -> None:
        self._path = path

    def with_inbox(self, effects: Effects) -> WithInbox:
        """Return the handler with the store of `inbox`."""
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
        """Return a handler with the same effect and a note of it in one transaction, with the driver alone."""
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
        """Return a handler with the effect alone."""
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
