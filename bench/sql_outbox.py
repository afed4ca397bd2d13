"""Writes to an SQL outbox for a measurement."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from types import TracebackType
from typing import Any, Self

import psycopg

from bench.outbox import contact, event, partition_of

_CONNECTIONS = 16

_TABLE = (
    "create table if not exists bench_contact (id text primary key, version bigint not null, data json not null)"
)
_EVENT_COLUMNS = "outbox.domain_event (id, partition_key, type, data)"
_PLACE_COLUMNS = 'changefeed."outbox:outbox.domain_event" (shard_id, id)'
# Each insert needs what the one before returns. So the contact's row is locked before the event takes its place,
# and the events of a contact take theirs in the order of its commits.
_COMMIT = f"""
with contact as (
    insert into bench_contact as c (id, version, data) values (%(partition_key)s, %(version)s, %(contact)s)
    on conflict (id) do update set version = excluded.version, data = excluded.data returning c.id
), event as (
    insert into {_EVENT_COLUMNS} select %(id)s, contact.id, 'domainEvent', %(event)s from contact returning id
)
insert into {_PLACE_COLUMNS} select %(shard_id)s, event.id from event
"""

Connection = psycopg.AsyncConnection[Any]


class SqlOutbox:
    """The event table and the outbox of its feed; see outbox.Outbox.

    A key's shard has the number of the physical partition that the key has in Cosmos DB, so that both sources
    share the same load in the same way.
    """

    def __init__(self, url: str, shards: int) -> None:
        self._url = url
        self._shard_of = cache(lambda key: partition_of(key, shards))
        self._free: asyncio.Queue[Connection] = asyncio.Queue()
        self._all: list[Connection] = []

    async def __aenter__(self) -> Self:
        for _ in range(_CONNECTIONS):
            connection = await psycopg.AsyncConnection.connect(self._url, autocommit=True)
            self._all.append(connection)
            self._free.put_nowait(connection)
        await self._all[0].execute(_TABLE)
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for connection in self._all:
            await connection.close()

    async def commit(self, partition_key: str, identifier: str, version: int) -> None:
        """Commit one transaction in one round trip: a row of the business, its event, and the event's place."""
        parameters = {
            "partition_key": partition_key,
            "version": version,
            "contact": json.dumps(contact(partition_key, version)["data"]),
            "id": identifier,
            "event": json.dumps(event(identifier, partition_key)["data"]),
            "shard_id": self._shard_of(partition_key),
        }
        async with self._connection() as connection:
            await connection.execute(_COMMIT, parameters)

    async def fill(self, documents: Sequence[dict[str, Any]]) -> None:
        """Write documents in their order, all in one transaction: readers see all of them at once."""
        async with self._connection() as connection, connection.transaction(), connection.cursor() as cursor:
            async with cursor.copy(f"copy {_EVENT_COLUMNS} from stdin") as copy:
                for document in documents:
                    await copy.write_row(_event_row(document))
            async with cursor.copy(f"copy {_PLACE_COLUMNS} from stdin") as copy:
                for document in documents:
                    await copy.write_row((self._shard_of(document["partitionKey"]), document["id"]))

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        connection = await self._free.get()
        try:
            yield connection
        finally:
            self._free.put_nowait(connection)


def _event_row(document: dict[str, Any]) -> tuple[str, ...]:
    return document["id"], document["partitionKey"], document["type"], json.dumps(document["data"])
