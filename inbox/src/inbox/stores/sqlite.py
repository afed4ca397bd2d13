"""A store in SQLite, in the transaction of the handler's own changes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from inbox.messages import Message
from inbox.sequences import Arrival, advance
from inbox.stores.database import SqliteConnection
from inbox.stores.port import Gap, Identity
from inbox.stores.schema import prepare

_IS_HANDLED = (
    "SELECT 1 FROM inbox_handled WHERE consumer = ? AND id = ? AND (key = ? AND topic = ? OR key IS NULL) LIMIT 1"
)
_HANDLED = "INSERT INTO inbox_handled (consumer, id, key, topic, at) VALUES (?, ?, ?, ?, ?)"
_PROGRESS = (
    "SELECT progress, last, key IS NULL FROM inbox_progress"
    " WHERE consumer = ? AND entity = ? AND (key = ? AND topic = ? OR key IS NULL) ORDER BY key IS NULL LIMIT 1"
)
_ADOPT = "UPDATE inbox_progress SET key = ?, topic = ? WHERE progress = ?"
_BEGIN = "INSERT INTO inbox_progress (consumer, entity, key, topic, last) VALUES (?, ?, ?, ?, ?)"
_ADVANCE = "UPDATE inbox_progress SET last = ? WHERE progress = ? AND last <> ?"
_GAP = "SELECT first, last FROM inbox_gaps WHERE progress = ? AND first <= ? ORDER BY first DESC LIMIT 1"
_CLOSE = "DELETE FROM inbox_gaps WHERE progress = ? AND first = ?"
_OPEN = "INSERT INTO inbox_gaps VALUES (?, ?, ?)"
_GAPS = (
    "SELECT entity, gap.first, gap.last, key, topic FROM inbox_progress JOIN inbox_gaps AS gap USING (progress)"
    " WHERE consumer = ? ORDER BY entity, key, topic, gap.first"
)
_FORGET = "DELETE FROM inbox_handled WHERE consumer = ? AND at < ?"


class SqliteStore:
    """Writes through the connection in the block of `once` are committed with the message, or not at all.

    Each call runs on the event loop's thread, and other processes that write to the file make it wait.

    Args:
        connection: The handlers write through it, inside the block. The tables `inbox_handled`, `inbox_progress`,
            `inbox_gaps` and `inbox_schema` are created in it. Those of an earlier version are migrated: what it
            has handled, whose key it did not record, stays handled under every key.
        consumer: The consumer's name, if several share a database.

    Raises:
        TypeError: The connection is not an `inbox.SqliteConnection`, so a statement of one handler could become a
            part of another's transaction.
        ValueError: A later version of this library has made the tables.
    """

    def __init__(self, connection: SqliteConnection, *, consumer: str = "default") -> None:
        if not isinstance(connection, SqliteConnection):
            raise TypeError("Open the connection with inbox.SqliteConnection(path), not with sqlite3.connect().")
        self._connection = connection
        self._consumer = consumer
        prepare(connection)

    @asynccontextmanager
    async def once(self, message: Message, *, entity: str | None = None) -> AsyncIterator[Arrival]:
        """See `Store.once`. The block is a transaction: to commit or roll back inside it is an error."""
        identity = Identity.of(message)
        async with self._connection.transaction():
            yield self._record(identity, message.key if entity is None else entity, message.sequence)

    async def gaps(self) -> list[Gap]:
        """See `Store.gaps`."""
        if self._connection.turn.is_mine:
            return self._gaps()
        async with self._connection.turn.take():
            return self._gaps()

    async def forget(self, older_than: timedelta) -> int:
        """See `Store.forget`."""
        async with self._connection.turn.take():
            limit = time.time() - older_than.total_seconds()
            return self._connection.execute(_FORGET, (self._consumer, limit)).rowcount

    def _gaps(self) -> list[Gap]:
        return [Gap(*row) for row in self._connection.execute(_GAPS, (self._consumer,)).fetchall()]

    def _record(self, event: Identity, entity: str, sequence: int | None) -> Arrival:
        row = (self._consumer, event.id, event.key, event.topic)
        if self._connection.execute(_IS_HANDLED, row).fetchone():
            return Arrival(first=False)
        self._connection.execute(_HANDLED, (*row, time.time()))
        if sequence is None:
            return Arrival(first=True)
        return self._advance((self._consumer, entity, event.key, event.topic), sequence)

    def _advance(self, place: tuple[str, str, str, str], sequence: int) -> Arrival:
        execute = self._connection.execute
        found = execute(_PROGRESS, place).fetchone()
        if found is None:
            step = advance(None, None, sequence)
            execute(_BEGIN, (*place, step.last))
            return step.arrival
        progress, last, is_unknown = found
        if is_unknown:
            execute(_ADOPT, (*place[2:], progress))
        step = advance(last, self._gap(progress, sequence), sequence)
        execute(_ADVANCE, (step.last, progress, step.last))
        if step.closed is not None:
            execute(_CLOSE, (progress, step.closed.start))
        for gap in step.opened:
            execute(_OPEN, (progress, gap.start, gap.stop - 1))
        return step.arrival

    def _gap(self, progress: int, sequence: int) -> range | None:
        row = self._connection.execute(_GAP, (progress, sequence)).fetchone()
        return range(row[0], row[1] + 1) if row is not None and sequence <= row[1] else None
