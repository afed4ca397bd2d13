"""The events of a range of time, in commit order.

The change feed has the order of commits within a physical partition, and so within a partition key. A query does
not: `_ts` has whole seconds, so `ORDER BY c._ts` does not order the commits of one second. A query only counts.

Within one commit, whose documents share an `_lsn`, the order of the feed is not specified. There the documents'
own `order` decides, if all of them have it."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from relay.cosmos.containers import explaining
from relay.cosmos.documents import in_commit_order
from relay.events import Document
from relay.outbox import Gone, Range

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy

_PAGE_ITEMS = 500

# The feed is started this much before the range, so that the filter here decides, not the rounding of the service.
_START_MARGIN_S = 5

# Nothing is committed any more to a range that ended this long ago, even if clocks differ.
_SETTLED_S = 300


def feed_start(since: int) -> datetime:
    """Where to start the change feed for what was committed at `since`, in seconds since 1970, or later."""
    return datetime.fromtimestamp(max(0, since - _START_MARGIN_S), UTC)


class CosmosReading:
    """See `outbox.Reading`. It has every event: none is `gone`."""

    def __init__(self, container: ContainerProxy, event_type: str, chosen: Range) -> None:
        """Nothing is read yet of the outbox container, of whose documents `event_type` are events."""
        self.unread = 0
        self.gone: list[Gone] = []
        self._container = container
        self._event_type = event_type
        self._range = chosen
        self._counts: list[tuple[dict[str, Any], int]] = []

    async def count(self) -> int | None:
        """By a query for each physical partition, or for that of the partition key."""
        with explaining(self._container.id):
            if self._range.partition_key is not None:
                feed_ranges = [await self._container.feed_range_from_partition_key(self._range.partition_key)]
            else:
                feed_ranges = [feed_range async for feed_range in self._container.read_feed_ranges()]
            self._counts = [(each, await self._count(each)) for each in feed_ranges]
        return sum(count for _, count in self._counts)

    async def pages(self) -> AsyncGenerator[list[Document], None]:
        """Of each physical partition, one after another."""
        for feed_range, count in self._counts:
            found = 0
            async with aclosing(self.pages_of(feed_range, count)) as pages:
                async for documents in pages:
                    found += len(documents)
                    yield documents
            # Documents may expire after they were counted; those that still exist should have been read.
            if found < count:
                self.unread += max(0, min(count, await self._count(feed_range)) - found)

    async def pages_of(self, feed_range: dict[str, Any], count: int) -> AsyncGenerator[list[Document], None]:
        """The documents of one feed range in commit order, page by page.

        Reading ends when all `count` documents were read, or at the end of the feed. It does not end at the first
        document that is too young: after a merge of physical partitions, older documents may follow. A range that
        ended recently, or has not ended, is read to the end of the feed, as an updated document moves there.
        """
        settled = self._range.until < time.time() - _SETTLED_S
        found = 0
        # A page may end within a commit, so its last commit waits for the next page.
        commit: list[Document] = []
        if settled and count == 0:
            return
        with explaining(self._container.id):
            pages = self._container.query_items_change_feed(
                feed_range=feed_range, start_time=feed_start(self._range.since), max_item_count=_PAGE_ITEMS
            ).by_page()
            async for page in pages:
                documents = commit + [document async for document in page if self._holds(document)]
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

    def _holds(self, document: Document) -> bool:
        return (
            document.get("type") == self._event_type
            and self._range.since <= document["_ts"] < self._range.until
            and self._range.holds(document)
        )

    async def _count(self, feed_range: dict[str, Any]) -> int:
        """The current number of documents of the range."""
        conditions = ["c.type = @type", "c._ts >= @since", "c._ts < @until"]
        chosen = self._range
        values: dict[str, Any] = {"@type": self._event_type, "@since": chosen.since, "@until": chosen.until}
        if chosen.partition_key is not None:
            conditions.append("c.partitionKey = @partitionKey")
            values["@partitionKey"] = chosen.partition_key
        if chosen.action is not None:
            conditions.append("c.data.action = @action")
            values["@action"] = chosen.action
        with explaining(self._container.id):
            counts = self._container.query_items(
                "SELECT VALUE COUNT(1) FROM c WHERE " + " AND ".join(conditions),
                parameters=[{"name": name, "value": value} for name, value in values.items()],
                feed_range=feed_range,
            )
            return sum([int(str(count)) async for count in counts])


def _split_last_commit(documents: list[Document]) -> tuple[list[Document], list[Document]]:
    """The documents of all commits but the last, and those of the last, which may be incomplete."""
    last = documents[-1].get("_lsn") if documents else None
    start = len(documents)
    while last is not None and start and documents[start - 1].get("_lsn") == last:
        start -= 1
    return documents[:start], documents[start:]
