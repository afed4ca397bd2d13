"""The change feed in latest-version mode: every item once, at the place of its last change.

All documents of a transaction share one `_lsn`. A reader's position is a plain number. A transaction takes as many
numbers as it has operations, and its documents have the last one as their `_lsn`. So a position can be within a
transaction, and a reader that has reached a document's `_lsn` has the whole transaction. Partitions that are
merged have counted by themselves, so that their numbers overlap: their transactions are indivisible from then on.

The behaviour that the service leaves open is drawn from a seed:

- The order of the documents of one transaction is not documented
  (https://learn.microsoft.com/azure/cosmos-db/change-feed promises the order of changes within a partition key).
- The number of changes in a page: the requested maximum is a hint, and there may be fewer
  (https://learn.microsoft.com/dotnet/api/microsoft.azure.cosmos.changefeedprocessorbuilder.withmaxitems).
- Whether a page may end within a transaction: that page says that it does not, and so does a maintainer
  (https://github.com/Azure/azure-cosmos-dotnet-v3/issues/2644); Microsoft's own emulator does it
  (https://github.com/Azure/azure-cosmos-db-emulator-docker/issues/324). If it happens here, the parts come in the
  order in which they were written.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from dataclasses import dataclass

from outbox_relay.emulators.cosmos.clock import Clock
from outbox_relay.emulators.cosmos.documents import Item
from outbox_relay.emulators.cosmos.edges import Edge, Edges
from outbox_relay.emulators.cosmos.items import ITEM_COLUMNS
from outbox_relay.emulators.cosmos.partitioning import KeyRange
from outbox_relay.emulators.cosmos.physical_partitions import Partition
from outbox_relay.emulators.cosmos.storage import NOT_EXPIRED, Storage

MAX_PAGE_BYTES = 4 * 1024 * 1024

_CUT_A_PAGE = 1 / 8
_CUT_A_TRANSACTION = 1 / 8
_REORDER = 1 / 2


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """A reader's position: it has read everything up to this number, and skips what was written up to this second.

    The time is exclusive
    (https://learn.microsoft.com/dotnet/api/microsoft.azure.documents.client.changefeedoptions.starttime).
    """

    number: int = 0
    since: int = -1


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Items in commit order, and the number up to which the reader has now seen everything."""

    items: list[Item]
    number: int


class ChangeFeed:
    def __init__(self, storage: Storage, clock: Clock, edges: Edges) -> None:
        self._storage = storage
        self._clock = clock
        self._edges = edges

    def read(
        self, partition: Partition, key_range: KeyRange | None, position: FeedPosition, max_items: int
    ) -> FeedPage:
        """Read the next page of a physical partition, or of its part within `key_range`."""
        if position.number >= partition.lsn:
            return FeedPage([], position.number)
        transactions, is_last = self._page(partition, key_range, position, max_items)
        end = partition.lsn if is_last else transactions[-1][-1].lsn
        cut = self._cut(partition, transactions)
        if cut is not None:
            end = cut
        for transaction in transactions:
            begins = transaction[0].lsn <= partition.whole or transaction[0].before >= position.number
            if transaction[0].lsn <= end and begins:
                self._reorder(transaction)
        return FeedPage(list(itertools.chain.from_iterable(transactions)), end)

    def _page(
        self, partition: Partition, key_range: KeyRange | None, position: FeedPosition, max_items: int
    ) -> tuple[list[list[Item]], bool]:
        """Return whole transactions, or the rest of the first, and True if these are the last."""
        transactions: list[list[Item]] = []
        count = size = 0
        for _, group in itertools.groupby(
            self._items(partition, key_range, position), key=operator.attrgetter("lsn")
        ):
            if count >= max_items or size >= MAX_PAGE_BYTES:
                return transactions, False
            transactions.append(list(group))
            count += len(transactions[-1])
            size += sum(len(item.text) for item in transactions[-1])
        return transactions, True

    def _items(self, partition: Partition, key_range: KeyRange | None, position: FeedPosition) -> Iterator[Item]:
        bounds = key_range or partition.key_range
        rows = self._storage.execute(
            f"SELECT {ITEM_COLUMNS} FROM items WHERE partition=:partition AND lsn>:number AND ts>:since "
            f"AND epk>=:minimum AND epk<:maximum AND {NOT_EXPIRED} ORDER BY lsn, position",
            {
                "partition": partition.number,
                "number": position.number,
                "since": position.since,
                "minimum": bounds.minimum,
                "maximum": bounds.maximum,
                "now": self._clock.seconds(),
            },
        )
        items = (Item(*row) for row in rows)
        return (item for item in items if item.lsn <= partition.whole or item.place > position.number)

    def _cut(self, partition: Partition, transactions: list[list[Item]]) -> int | None:
        """End the page early if so drawn; returns the number up to which it then reaches."""
        if len(transactions) > 1 and self._edges.drawn(Edge.PAGE_CUT, _CUT_A_PAGE):
            self._edges.met(Edge.PAGE_CUT)
            del transactions[self._edges.stream(Edge.PAGE_CUT).randrange(1, len(transactions)) :]
            return transactions[-1][-1].lsn
        last = sorted(transactions[-1], key=operator.attrgetter("place")) if transactions else []
        is_divisible = len(last) > 1 and last[0].lsn > partition.whole
        if is_divisible and self._edges.drawn(Edge.TRANSACTION_CUT, _CUT_A_TRANSACTION):
            self._edges.met(Edge.TRANSACTION_CUT)
            del last[self._edges.stream(Edge.TRANSACTION_CUT).randrange(1, len(last)) :]
            transactions[-1] = last
            return last[-1].place
        return None

    def _reorder(self, transaction: list[Item]) -> None:
        """Reorder the documents of a whole transaction if so drawn."""
        if len(transaction) > 1 and self._edges.drawn(Edge.TRANSACTION_REORDERED, _REORDER):
            written = list(transaction)
            self._edges.stream(Edge.TRANSACTION_REORDERED).shuffle(transaction)
            if transaction != written:
                self._edges.met(Edge.TRANSACTION_REORDERED)
