"""Commits events to PostgreSQL: the event and its place in the feed, in one transaction."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from changefeed import append_async, shard_of
from local.sending.event import Event
from local.sending.writer import NotCommittedError

_TABLE = "outbox.domain_event"
_CONNECT_TIMEOUT_S = 10

# One writer of a key at a time, so that the numbers follow the order of the commits.
_LOCK = "select pg_advisory_xact_lock(hashtextextended(%s, 0))"
_NEXT = f"select coalesce(max(sequence), 0) + 1 from {_TABLE} where partition_key = %s"
_EVENT = f"""
insert into {_TABLE} (id, partition_key, type, action, data, created_at, sequence)
values (%(id)s, %(partitionKey)s, %(type)s, %(action)s, %(data)s, %(createdAt)s, %(sequence)s)
"""


@asynccontextmanager
async def open_sql(settings: Mapping[str, str]) -> AsyncIterator[SqlWriter]:
    """A writer for the database that the settings name."""
    try:
        connection = await psycopg.AsyncConnection.connect(
            settings["SQL"], autocommit=True, connect_timeout=_CONNECT_TIMEOUT_S
        )
    except psycopg.OperationalError as error:
        raise NotCommittedError(f"PostgreSQL does not answer: {' '.join(str(error).split())}") from error
    async with connection:
        yield SqlWriter(connection, int(settings.get("SQL_SHARDS") or 1))


class SqlWriter:
    """See `writer.Writer`. All events of a key have one shard, which is that of the contact service too."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], shards: int) -> None:
        self._connection = connection
        self._shards = shards

    async def commit(self, event: Event, /) -> int:
        """Commit an event in its own transaction, and return its number within its partition key."""
        try:
            async with self._connection.transaction():
                return await self._insert(event)
        except psycopg.errors.UniqueViolation as error:
            raise NotCommittedError(f"There is an event '{event.id}' already: give another --id.") from error
        except psycopg.Error as error:
            raise NotCommittedError(f"PostgreSQL refused the event: {error}") from error

    async def _insert(self, event: Event) -> int:
        connection = self._connection
        await connection.execute(_LOCK, (event.partition_key,))
        row = await (await connection.execute(_NEXT, (event.partition_key,))).fetchone()
        assert row is not None
        sequence = int(row[0])
        own = {"data": json.dumps(event.data), "action": event.action, "createdAt": event.created_at}
        await connection.execute(_EVENT, {**event.document(sequence), **own})
        await append_async(connection, _TABLE, shard_of(event.partition_key, self._shards), {"id": event.id})
        return sequence
