"""The change feed in latest-version mode: every item once, at the place of its last change.

Pages end only between commits, since the position handed to the reader is an LSN: a page cut within a commit
would lose the rest of it. So a page may hold more than was asked for, as the service's does for batches.
"""

from __future__ import annotations

from dataclasses import dataclass

from local.cosmos.catalog import Partition
from local.cosmos.clock import Clock
from local.cosmos.documents import Item
from local.cosmos.items import ITEM_COLUMNS
from local.cosmos.partitioning import KeyRange
from local.cosmos.storage import NOT_EXPIRED, Storage

MAX_PAGE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """Where a reader stands: everything up to this LSN has been read, and nothing up to this second matters.

    The time is exclusive
    (https://learn.microsoft.com/dotnet/api/microsoft.azure.documents.client.changefeedoptions.starttime).
    """

    lsn: int = 0
    since: int = -1


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Items in the order of their commits, and the LSN up to which the reader has now seen everything."""

    items: list[Item]
    lsn: int


class ChangeFeed:
    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock

    def read(
        self, partition: Partition, key_range: KeyRange | None, position: FeedPosition, max_items: int
    ) -> FeedPage:
        """The next page of a physical partition, or of the part of it that lies within `key_range`."""
        if position.lsn >= partition.lsn:
            return FeedPage([], max(position.lsn, partition.lsn))
        bounds = key_range or partition.key_range
        rows = self._storage.execute(
            f"SELECT {ITEM_COLUMNS} FROM items WHERE partition=:partition AND lsn>:lsn AND ts>:since "
            f"AND epk>=:minimum AND epk<:maximum AND {NOT_EXPIRED} ORDER BY lsn, position",
            {
                "partition": partition.number,
                "lsn": position.lsn,
                "since": position.since,
                "minimum": bounds.minimum,
                "maximum": bounds.maximum,
                "now": self._clock.seconds(),
            },
        )
        items: list[Item] = []
        size = 0
        for row in rows:
            item = Item(*row)
            if items and item.lsn != items[-1].lsn and (len(items) >= max_items or size >= MAX_PAGE_BYTES):
                return FeedPage(items, items[-1].lsn)
            items.append(item)
            size += len(item.text)
        return FeedPage(items, partition.lsn)
