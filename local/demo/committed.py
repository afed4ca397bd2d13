"""The documents committed and set aside, read from the store, independently of the service and the relay."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Protocol

from azure.cosmos.aio import ContainerProxy, CosmosClient

from local.demo.tally import Tally
from local.stack.environment import DATABASE, Source
from local.stack.supervisor import Stack

_PAGE = 1000

# By the events' own number within their key, which the service gives them: not by the feed.
_EVENTS = """
select id, partition_key as "partitionKey", type, data, sequence from outbox.domain_event
where type = 'domainEvent' order by partition_key, sequence
"""
_QUARANTINED = "select id from relay.item where type = 'quarantinedEvent'"
_COUNT_QUARANTINED = "SELECT VALUE COUNT(1) FROM c WHERE c.type = 'quarantinedEvent'"


class Store(Protocol):
    """Where the service stores its events, and the relay what it cannot publish."""

    async def read_committed(self, tally: Tally) -> None:
        """Record every event, in the order of the commits of its partition key.

        An event's time is `createdAt`, when the service raised it just before the commit.
        """

    async def quarantined(self) -> int:
        """Number of documents in quarantine."""


@asynccontextmanager
async def open_store(stack: Stack) -> AsyncIterator[Store]:
    """The store of a stack's source."""
    if stack.source is Source.SQL:
        yield SqlStore(stack.settings["SQL"])
        return
    async with CosmosClient.from_connection_string(stack.settings["COSMOS"]) as cosmos:
        database = cosmos.get_database_client(DATABASE)
        yield CosmosStore(database.get_container_client("data"), database.get_container_client("quarantine"))


class CosmosStore:
    """The outbox and the quarantine container."""

    def __init__(self, data: ContainerProxy, quarantine: ContainerProxy) -> None:
        self._data = data
        self._quarantine = quarantine

    async def read_committed(self, tally: Tally) -> None:
        """As Store.read_committed. Within a commit by `order`: the change feed does not order documents there."""
        feed = self._data.query_items_change_feed(start_time="Beginning", max_item_count=_PAGE)
        events = [document async for document in feed if document["type"] == "domainEvent"]
        for event in sorted(events, key=lambda event: (event["_lsn"], event["order"])):
            _record(event, tally)

    async def quarantined(self) -> int:
        """As Store.quarantined."""
        count: Any = [item async for item in self._quarantine.query_items(_COUNT_QUARANTINED)]
        return int(count[0])


class SqlStore:
    """The event table and the quarantine table."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def read_committed(self, tally: Tally) -> None:
        """As Store.read_committed."""
        for event in await self._rows(_EVENTS):
            _record(event, tally)

    async def quarantined(self) -> int:
        """As Store.quarantined."""
        return len(await self._rows(_QUARANTINED))

    async def _rows(self, query: str) -> list[dict[str, Any]]:
        # Only here does the demo need the driver.
        import psycopg
        from psycopg.rows import dict_row

        async with await psycopg.AsyncConnection.connect(self._url, row_factory=dict_row) as connection:
            found: list[dict[str, Any]] = await (await connection.execute(query)).fetchall()
            return found


def _record(event: dict[str, Any], tally: Tally) -> None:
    tally.wrote(event, datetime.fromisoformat(event["data"]["createdAt"]).timestamp())
