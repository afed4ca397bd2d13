"""The documents committed and set aside, read from the store, independently of the service and the relay."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from azure.cosmos.aio import ContainerProxy, CosmosClient

from local.stack.environment import DATABASE, Source
from local.stack.supervisor import Stack
from relay.config.settings import QUARANTINE_TABLE

_PAGE = 1000

# By the events' own number within their key, which the service gives them: not by the feed.
_EVENTS = """
select id, partition_key as "partitionKey", type, data, sequence from outbox.domain_event
where type = 'domainEvent' order by partition_key, sequence
"""
_QUARANTINED = f"select id from {QUARANTINE_TABLE} where type = 'quarantinedEvent'"
_COUNT_QUARANTINED = "SELECT VALUE COUNT(1) FROM c WHERE c.type = 'quarantinedEvent'"


class Store(Protocol):
    """Where the service stores its events, and the relay what it cannot publish."""

    async def events(self) -> Sequence[dict[str, Any]]:
        """Return every event, in the order of the commits of its partition key."""

    async def quarantined(self) -> list[int]:
        """Return the number of documents in the quarantine of each stream, in the order of the streams."""


@asynccontextmanager
async def open_store(stack: Stack) -> AsyncIterator[Store]:
    """The store of a stack's source."""
    if stack.source is Source.SQL:
        yield SqlStore(stack.settings["SQL"], [each.sql.quarantine_table for each in stack.streams if each.sql])
        return
    async with CosmosClient.from_connection_string(stack.settings["COSMOS"]) as cosmos:
        database = cosmos.get_database_client(DATABASE)
        names = [each.in_cosmos.quarantine_container for each in stack.streams]
        quarantines = [database.get_container_client(name) for name in names]
        yield CosmosStore(database.get_container_client("data"), quarantines)


class CosmosStore:
    """The outbox and the quarantine container of each stream."""

    def __init__(self, data: ContainerProxy, quarantines: Sequence[ContainerProxy]) -> None:
        self._data = data
        self._quarantines = quarantines

    async def events(self) -> Sequence[dict[str, Any]]:
        """Return every event, in the order of the commits of its partition key.

        Within a commit it goes by `order`: the change feed does not order documents there.
        """
        feed = self._data.query_items_change_feed(start_time="Beginning", max_item_count=_PAGE)
        events = [document async for document in feed if document["type"] == "domainEvent"]
        return sorted(events, key=lambda event: (event["_lsn"], event["order"]))

    async def quarantined(self) -> list[int]:
        """Return the number of documents in the quarantine of each stream, in the order of the streams."""
        counts: list[Any] = [
            item for each in self._quarantines async for item in each.query_items(_COUNT_QUARANTINED)
        ]
        return counts


class SqlStore:
    """The event table and the quarantine table of each stream."""

    def __init__(self, url: str, quarantines: Sequence[str]) -> None:
        self._url = url
        self._quarantines = quarantines

    async def events(self) -> Sequence[dict[str, Any]]:
        """Return every event, in the order of the commits of its partition key."""
        return await self._rows(_EVENTS)

    async def quarantined(self) -> list[int]:
        """Return the number of documents in the quarantine of each stream, in the order of the streams."""
        queries = [_QUARANTINED.replace(QUARANTINE_TABLE, each) for each in self._quarantines]
        return [len(await self._rows(query)) for query in queries]

    async def _rows(self, query: str) -> list[dict[str, Any]]:
        # Only here does the demo need the driver.
        import psycopg
        from psycopg.rows import dict_row

        async with await psycopg.AsyncConnection.connect(self._url, row_factory=dict_row) as connection:
            found: list[dict[str, Any]] = await (await connection.execute(query)).fetchall()
            return found
