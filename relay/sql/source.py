"""An SQL feed as the pipeline's source: pages of one shard, and the stored cursors as its checkpoint."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from changefeed.feed import Page
from changefeed.ulid import from_text
from relay.events import Event, Received, Rejected
from relay.sql.ownership import Ownership
from relay.sql.rows import select


@dataclass(frozen=True, slots=True)
class SqlBatch:
    """One page of a shard, and the claim under which it was read."""

    shard_id: int
    page: Page
    ownership: Ownership


class SqlSource:
    """Reads pages; `ports.Source` says what of it is promised."""

    def __init__(self, event_type: str, cursor: Callable[[int], Awaitable[bytes]]) -> None:
        """`event_type` is the type of the events to relay; `cursor` reads the stored cursor of a shard."""
        self._event_type = event_type
        self._cursor = cursor

    def read(self, batch: SqlBatch, /) -> Received:
        """The events of a page, in the order of the feed."""
        received = select(batch.page.entries, batch.shard_id, self._event_type)
        received.owned = batch.ownership.holds
        return received

    async def settled(self, items: Sequence[Event | Rejected], /) -> frozenset[int]:
        """The positions of the items up to the stored cursor of their shard. Raises FeedError."""
        cursors = {shard_id: await self._cursor(shard_id) for shard_id in {_shard_of(item) for item in items}}
        return frozenset(
            item.position for item in items if from_text(item.document["_ulid"]) <= cursors[_shard_of(item)]
        )


def _shard_of(item: Event | Rejected) -> int:
    shard_id: int = item.document["_shard"]
    return shard_id
