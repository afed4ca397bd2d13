"""The change feed of the outbox container, followed from one page to the next."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relay.cosmos.documents import in_commit_order
from relay.cosmos.leases import Positions
from relay.events import Document
from relay.outbox import Committed

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy

_BEGINNING = "Beginning"


@dataclass(slots=True)
class _Reader:
    """Where one physical partition, or what it was split into, is read on.

    Attributes:
        feed_range: As the SDK gives it.
        continuation: The SDK's token; None before the first page. It goes on with each child of a split partition.
        lsn, place: Those of the last event that was read: a commit may go on with the next page.
    """

    feed_range: dict[str, Any]
    continuation: str | None
    lsn: int | None = None
    place: int = -1


class Feed:
    """Reads the events of one type, page by page, each partition in the order of commits."""

    def __init__(self, container: ContainerProxy, event_type: str, *, from_beginning: bool) -> None:
        """
        Args:
            container: The outbox container, over a client that nothing else uses: the SDK hands over the token of
                a page with no document as that of its client's latest response.
            event_type: The type of the documents that are events.
            from_beginning: False to start where the relay's leases are.
        """
        self._container = container
        self._event_type = event_type
        self._from_beginning = from_beginning
        self._turn = asyncio.Lock()
        self._readers: list[_Reader] | None = None
        # What was read and not handed over yet: a later partition failed, or the caller was cancelled.
        self._read: list[Committed] = []

    async def next(self, limit: int, positions: Positions) -> list[Committed]:
        """The next events, at most about `limit`; none only where all of the feed was read.

        Raises:
            azure.core.exceptions.AzureError, OSError: What was read before is handed over by the next call.
        """
        async with self._turn:
            if self._readers is None:
                self._readers = await self._start(positions)
            # Each gets its turn to be the first.
            self._readers.append(self._readers.pop(0))
            for reader in self._readers:
                while len(self._read) < limit and await self._page(reader, limit, positions):
                    pass
            found, self._read = self._read, []
            return found

    async def _start(self, positions: Positions) -> list[_Reader]:
        feed_ranges = [each async for each in self._container.read_feed_ranges()]
        if self._from_beginning:
            return [_Reader(each, None) for each in feed_ranges]
        rid = str((await self._container.read())["_rid"])
        return [_Reader(each, _continuation(rid, each, _passed(positions, each))) for each in feed_ranges]

    async def _page(self, reader: _Reader, limit: int, positions: Positions) -> bool:
        """Read a page; returns False at the end of the feed."""
        if reader.continuation is None:
            options: dict[str, Any] = {"feed_range": reader.feed_range, "start_time": _BEGINNING}
        else:
            options = {"continuation": reader.continuation}
        pages: Any = self._container.query_items_change_feed(max_item_count=limit, **options).by_page()
        async for page in pages:
            documents = [document async for document in page if document.get("type") == self._event_type]
            events, lsn, place = [], reader.lsn, reader.place
            for document, own, within in numbered(documents, lsn, place):
                lsn, place = own, within
                partition = await _partition(positions, reader.feed_range, document.get("partitionKey"))
                events.append(committed_of(document, partition, (lsn, place)))
            # Nothing is awaited from here: a caller that is cancelled loses no event, and reads none twice.
            self._read += events
            reader.continuation, reader.lsn, reader.place = pages.continuation_token, lsn, place
            return True
        reader.continuation = self._container.client_connection.last_response_headers["etag"]
        return False


def numbered(
    documents: Sequence[Document], lsn: int | None = None, place: int = -1
) -> Iterator[tuple[Document, int, int]]:
    """Documents in commit order, each with its `_lsn` and its place within that commit.

    Args:
        documents: In the order of the feed.
        lsn, place: Those of the document before the first one.
    """
    for document in in_commit_order(documents):
        own, order = int(document.get("_lsn") or 0), document.get("order")
        place = order if type(order) is int else place + 1 if own == lsn else 0
        lsn = own
        yield document, lsn, place


def committed_of(document: Document, partition: str, place: tuple[int, int]) -> Committed:
    """An event of the change feed."""
    ts, ttl = document.get("_ts"), document.get("ttl")
    committed_at = ts if type(ts) is int else 0
    expires_at = committed_at + ttl if type(ttl) is int and ttl > 0 else None
    return Committed.of(document, partition, place, committed_at, expires_at)


async def _partition(positions: Positions, feed_range: Mapping[str, Any], partition_key: object) -> str:
    """The lease token of a document that was read in a range; the range itself where no lease covers it."""
    leases = positions.within(feed_range)
    if len(leases) > 1 and isinstance(partition_key, str):
        lease = await positions.lease_of(partition_key)
        leases = [] if lease is None else [lease]
    if leases:
        return leases[0].token
    bounds = feed_range["Range"]
    return f"{bounds['min'] or '0'}-{bounds['max']}"


def _passed(positions: Positions, feed_range: Mapping[str, Any]) -> str | None:
    """The ETag behind which the relay has not read in a range yet; None where it has read nothing there."""
    leases = positions.within(feed_range)
    if any(lease.continuation is None for lease in leases):
        return None
    return min(leases, key=lambda lease: lease.done).continuation if leases else None


def _continuation(rid: str, feed_range: dict[str, Any], etag: str | None) -> str | None:
    """The SDK's token for the documents behind an ETag; None, for all of them, without one.

    It is the token that azure-cosmos 4.17.1 gives with a page. There is no call that makes one.
    """
    if etag is None:
        return None
    bounds = feed_range["Range"]
    token = {
        "v": "v2",
        "containerRid": rid,
        "mode": "LatestVersion",
        "startFrom": {"Type": _BEGINNING},
        "continuation": {
            "v": "v2",
            "rid": rid,
            "continuation": [{"token": etag, "range": bounds}],
            "Range": bounds,
        },
    }
    return base64.b64encode(json.dumps(token).encode()).decode()
