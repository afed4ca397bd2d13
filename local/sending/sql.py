"""Commits events to PostgreSQL: the event and its place in the feed, in one transaction."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from local.sending.event import Commit, Event, NotCommittedError, Writer
from local.sending.routed import Outbox
from outbox_relay.changefeed import append_async, shard_of
from outbox_relay.operator.backends.sql.canary import open_canary
from relay.config.settings import SqlFeed
from relay.core.errors import ServiceError, UsageError

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
async def open_sql(outbox: Outbox) -> AsyncIterator[Writer]:
    """A writer for the event table of an outbox."""
    feed = outbox.settings.feed
    assert feed is not None
    if feed.feed != _TABLE or feed.selection.fields.names_fields:
        yield TableWriter(outbox, feed)
        return
    try:
        connection = await psycopg.AsyncConnection.connect(
            feed.connection_string, autocommit=True, connect_timeout=_CONNECT_TIMEOUT_S
        )
    except psycopg.OperationalError as error:
        raise NotCommittedError(f"PostgreSQL does not answer: {' '.join(str(error).split())}") from error
    async with connection:
        yield SqlWriter(connection, outbox, feed.shards)


class TableWriter:
    """See `writer.Writer`. It writes the columns that an event table of any layout has, without a number."""

    def __init__(self, outbox: Outbox, feed: SqlFeed) -> None:
        self._outbox = outbox
        self._feed = feed

    async def commit(self, event: Event, /) -> Commit:
        made = self._outbox.made(event, None)
        try:
            async with open_canary(self._feed, shard_of(event.partition_key, self._feed.shards)) as table:
                await table.write(made.stored)
        except (ServiceError, UsageError) as error:
            raise NotCommittedError(str(error)) from error
        return Commit(made.document)


class SqlWriter:
    """See `writer.Writer`. All events of a key have one shard, which is that of the contact service too."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], outbox: Outbox, shards: int) -> None:
        self._connection = connection
        self._outbox = outbox
        self._shards = shards

    async def commit(self, event: Event, /) -> Commit:
        try:
            async with self._connection.transaction():
                return await self._insert(event)
        except psycopg.errors.UniqueViolation as error:
            raise NotCommittedError(f"There is an event '{event.id}' already: give another --id.") from error
        except psycopg.Error as error:
            raise NotCommittedError(f"PostgreSQL refused the event: {error}") from error

    async def _insert(self, event: Event) -> Commit:
        connection = self._connection
        await connection.execute(_LOCK, (event.partition_key,))
        row = await (await connection.execute(_NEXT, (event.partition_key,))).fetchone()
        assert row is not None
        sequence = int(row[0])
        made = self._outbox.made(event, sequence)
        data = json.dumps(made.document.fields["data"])
        own = {"data": data, "action": event.action, "createdAt": event.created_at}
        await connection.execute(_EVENT, {**made.stored, **own})
        await append_async(connection, _TABLE, shard_of(event.partition_key, self._shards), {"id": event.id})
        return Commit(made.document, sequence)
