"""A store in SQLite, in the transaction of the handler's own changes."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from inbox.messages import Message
from inbox.sequences import Arrival, Progress, advance
from inbox.stores.port import Gap, identity

# gaps: JSON, a list of [first, last].
_SCHEMA = """
CREATE TABLE IF NOT EXISTS inbox_handled (
    consumer TEXT NOT NULL,
    id TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (consumer, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS inbox_handled_at ON inbox_handled (consumer, at);
CREATE TABLE IF NOT EXISTS inbox_progress (
    consumer TEXT NOT NULL,
    entity TEXT NOT NULL,
    last INTEGER NOT NULL,
    gaps TEXT NOT NULL,
    PRIMARY KEY (consumer, entity)
) WITHOUT ROWID;
"""
_HANDLED = "INSERT INTO inbox_handled VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_PROGRESS = "SELECT last, gaps FROM inbox_progress WHERE consumer = ? AND entity = ?"
_ADVANCE = (
    "INSERT INTO inbox_progress VALUES (?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET last = excluded.last, gaps = excluded.gaps"
)
_GAPS = "SELECT entity, gaps FROM inbox_progress WHERE consumer = ? AND gaps <> '[]' ORDER BY entity"
_FORGET = "DELETE FROM inbox_handled WHERE consumer = ? AND at < ?"


class SqliteStore:
    """What the block of `once` writes through the connection is committed with the message's id, or not at all.

    Each call runs on the event loop's thread, and other processes that write to the file make it wait.

    Args:
        connection: In autocommit mode: `sqlite3.connect(path, isolation_level=None)`. The handler writes through
            it, inside the block. Its tables `inbox_handled` and `inbox_progress` are created.
        consumer: The consumer's name, where several share a database.

    Raises:
        ValueError: The connection is not in autocommit mode, so it would begin transactions of its own.
    """

    def __init__(self, connection: sqlite3.Connection, *, consumer: str = "default") -> None:
        # From Python 3.12, the attribute `autocommit` decides, where it is set.
        if connection.isolation_level is not None and getattr(connection, "autocommit", None) is not True:
            raise ValueError("Open the connection with sqlite3.connect(path, isolation_level=None).")
        self._connection = connection
        self._consumer = consumer
        self._turn = asyncio.Lock()
        connection.executescript(_SCHEMA)

    @asynccontextmanager
    async def once(self, message: Message, *, entity: str | None = None) -> AsyncIterator[Arrival]:
        """See `Store.once`. Begins a transaction, and ends it: a commit in the block is an error."""
        handled_id = identity(message)
        async with self._turn:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._record(handled_id, message.key if entity is None else entity, message.sequence)
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    async def gaps(self) -> list[Gap]:
        """See `Store.gaps`."""
        rows = self._connection.execute(_GAPS, (self._consumer,)).fetchall()
        return [Gap(entity, first, last) for entity, gaps in rows for first, last in json.loads(gaps)]

    async def forget(self, older_than: timedelta) -> int:
        """See `Store.forget`."""
        async with self._turn:
            limit = time.time() - older_than.total_seconds()
            return self._connection.execute(_FORGET, (self._consumer, limit)).rowcount

    def _record(self, handled_id: str, entity: str, sequence: int | None) -> Arrival:
        if not self._connection.execute(_HANDLED, (self._consumer, handled_id, time.time())).rowcount:
            return Arrival(first=False)
        if sequence is None:
            return Arrival(first=True)
        row = self._connection.execute(_PROGRESS, (self._consumer, entity)).fetchone()
        progress, arrival = advance(None if row is None else _progress(*row), sequence)
        gaps = json.dumps([[gap.start, gap.stop - 1] for gap in progress.gaps])
        self._connection.execute(_ADVANCE, (self._consumer, entity, progress.last, gaps))
        return arrival


def _progress(last: int, gaps: str) -> Progress:
    return Progress(last, tuple(range(first, final + 1) for first, final in json.loads(gaps)))
