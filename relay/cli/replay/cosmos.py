"""A replay of events of Cosmos DB, which it reads from the change feed."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from relay.cli.committed import Outbox, Range
from relay.cli.replay.state import Invalid
from relay.cosmos.documents import event_of
from relay.cosmos.leases import Positions
from relay.events import Document, Event, Rejected


class CosmosReading:
    """See `reading.Reading`."""

    def __init__(self, outbox: Outbox, chosen: Range, positions: Positions | None) -> None:
        """`positions` are those of the relay's leases; None where nobody asks for them."""
        self.unread = 0
        self.gone: list[Invalid] = []
        self._outbox = outbox
        self._range = chosen
        self._positions = positions
        self._counts: list[tuple[dict[str, Any], int]] = []

    async def count(self) -> int | None:
        """By a query."""
        feed_ranges = await self._outbox.feed_ranges(self._range)
        self._counts = [(each, await self._outbox.count(self._range, each)) for each in feed_ranges]
        return sum(count for _, count in self._counts)

    async def pages(self) -> AsyncGenerator[list[Document], None]:
        """Of each physical partition, one after another."""
        for feed_range, count in self._counts:
            found = 0
            async with aclosing(self._outbox.pages(self._range, feed_range, count)) as pages:
                async for documents in pages:
                    found += len(documents)
                    yield documents
            await self._compare(feed_range, count, found)

    async def _compare(self, feed_range: dict[str, Any], count: int, found: int) -> None:
        """Documents may expire after they were counted; those that still exist should have been read."""
        if found < count:
            still_there = await self._outbox.count(self._range, feed_range)
            self.unread += max(0, min(count, still_there) - found)

    async def passed(self, document: Document, /) -> bool:
        """By the positions of the leases."""
        key, lsn = document.get("partitionKey"), document.get("_lsn")
        if self._positions is None or not isinstance(key, str) or not isinstance(lsn, int):
            return False
        return await self._positions.passed(key, lsn) is True

    def event_of(self, document: Document, /) -> Event | Rejected:
        """As the function app reads it."""
        return event_of(document)
