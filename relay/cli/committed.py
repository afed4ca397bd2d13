"""The outbox documents of a time range, in commit order.

The change feed has the order of commits within a physical partition, and so within a partition key. A query does
not: `_ts` has whole seconds, so `ORDER BY c._ts` does not order the commits of one second. A query only counts.

Within one commit, whose documents share an `_lsn`, the order of the feed is not specified. There the documents'
own `order` decides, if all of them have it."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from relay.cli.containers import open_database
from relay.cosmos.containers import explaining
from relay.cosmos.documents import in_commit_order
from relay.cosmos.leases import Positions, read_positions
from relay.events import Document
from relay.settings import Settings

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy

_PAGE_ITEMS = 500

# The feed is started this much before the range, so that the filter here decides, not the rounding of the service.
_START_MARGIN_S = 5

# Nothing is committed any more to a range that ended this long ago, even if clocks differ.
_SETTLED_S = 300


@dataclass(frozen=True, slots=True)
class Range:
    """The documents of a type with `since <= _ts < until` (whole seconds since 1970), a key, and an action."""

    event_type: str
    since: int
    until: int
    partition_key: str | None = None
    action: str | None = None

    def holds(self, document: Document) -> bool:
        """Whether the document is in the range."""
        data = document.get("data")
        return (
            document.get("type") == self.event_type
            and self.since <= document["_ts"] < self.until
            and (self.partition_key is None or document.get("partitionKey") == self.partition_key)
            and (self.action is None or (isinstance(data, dict) and data.get("action") == self.action))
        )

    def query(self) -> tuple[str, list[dict[str, Any]]]:
        """The query that counts the documents of the range, and its parameters."""
        conditions = ["c.type = @type", "c._ts >= @since", "c._ts < @until"]
        values: dict[str, Any] = {"@type": self.event_type, "@since": self.since, "@until": self.until}
        if self.partition_key is not None:
            conditions.append("c.partitionKey = @partitionKey")
            values["@partitionKey"] = self.partition_key
        if self.action is not None:
            conditions.append("c.data.action = @action")
            values["@action"] = self.action
        text = "SELECT VALUE COUNT(1) FROM c WHERE " + " AND ".join(conditions)
        return text, [{"name": name, "value": value} for name, value in values.items()]


@dataclass(frozen=True, slots=True)
class Stored:
    """A document as it is now: its type, and its `_lsn` if the change feed has it."""

    type: object
    lsn: int | None


class Outbox:
    """Reads the outbox container."""

    def __init__(self, container: ContainerProxy, leases: ContainerProxy) -> None:
        self._container = container
        self._leases = leases

    async def positions(self) -> Positions:
        """The positions of the relay's leases."""
        with explaining(self._leases.id):
            return await read_positions(self._leases, self._container)

    async def resource_id(self) -> str:
        """The container's `_rid`, which another container of the same name does not have."""
        with explaining(self._container.id):
            return str((await self._container.read())["_rid"])

    async def feed_ranges(self, chosen: Range) -> list[dict[str, Any]]:
        """The feed ranges to read one after another; only one if the range has a partition key."""
        with explaining(self._container.id):
            if chosen.partition_key is not None:
                return [await self._container.feed_range_from_partition_key(chosen.partition_key)]
            return [feed_range async for feed_range in self._container.read_feed_ranges()]

    async def count(self, chosen: Range, feed_range: dict[str, Any]) -> int:
        """The current number of documents of the range."""
        text, parameters = chosen.query()
        with explaining(self._container.id):
            counts = self._container.query_items(text, parameters=parameters, feed_range=feed_range)
            return sum([int(str(count)) async for count in counts])

    async def find(self, partition_key: str, identifier: str) -> Stored | None:
        """A document by its id, which may have `/`, `?` or `#`; None if there is none.

        Raises:
            ServiceError: The container cannot be read.
        """
        with explaining(self._container.id):
            rows = self._container.query_items(
                "SELECT c.type, c._ts FROM c WHERE c.id = @id",
                parameters=[{"name": "@id", "value": identifier}],
                partition_key=partition_key,
            )
            found = [row async for row in rows]
            if not found:
                return None
            # Only the change feed has the _lsn.
            start = datetime.fromtimestamp(max(0, found[0]["_ts"] - _START_MARGIN_S), UTC)
            feed_range = await self._container.feed_range_from_partition_key(partition_key)
            feed = self._container.query_items_change_feed(feed_range=feed_range, start_time=start)
            async for document in feed:
                if document["id"] == identifier:
                    return Stored(document.get("type"), document.get("_lsn"))
        return Stored(found[0].get("type"), None)

    async def pages(
        self, chosen: Range, feed_range: dict[str, Any], count: int
    ) -> AsyncGenerator[list[Document], None]:
        """The documents of the range in commit order, page by page.

        Reading ends when all `count` documents were read, or at the end of the feed. It does not end at the first
        document that is too young: after a merge of physical partitions, older documents may follow. A range that
        ended recently, or has not ended, is read to the end of the feed, as an updated document moves there.
        """
        settled = chosen.until < time.time() - _SETTLED_S
        start = datetime.fromtimestamp(max(0, chosen.since - _START_MARGIN_S), UTC)
        found = 0
        # A page may end within a commit, so its last commit waits for the next page.
        commit: list[Document] = []
        if settled and count == 0:
            return
        with explaining(self._container.id):
            pages = self._container.query_items_change_feed(
                feed_range=feed_range, start_time=start, max_item_count=_PAGE_ITEMS
            ).by_page()
            async for page in pages:
                documents = commit + [document async for document in page if chosen.holds(document)]
                found += len(documents) - len(commit)
                whole, commit = _split_last_commit(documents)
                if settled and found >= count:
                    break
                if whole:
                    yield list(in_commit_order(whole))
            else:
                whole = []
        if whole or commit:
            yield list(in_commit_order(whole + commit))


def _split_last_commit(documents: list[Document]) -> tuple[list[Document], list[Document]]:
    """The documents of all commits but the last, and those of the last, which may be incomplete."""
    last = documents[-1].get("_lsn") if documents else None
    start = len(documents)
    while last is not None and start and documents[start - 1].get("_lsn") == last:
        start -= 1
    return documents[:start], documents[start:]


@asynccontextmanager
async def open_outbox(settings: Settings) -> AsyncIterator[Outbox]:
    """Connect to the outbox container.

    Raises:
        ServiceError: The account cannot be reached, or refuses.
    """
    async with open_database(settings) as database:
        yield Outbox(
            database.get_container_client(settings.cosmos_container),
            database.get_container_client(settings.cosmos_lease_container),
        )
