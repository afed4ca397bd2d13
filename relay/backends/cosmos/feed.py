"""The change feed of the outbox container: followed from one page to the next, or read for a range of time.

It has the order of commits within a physical partition, and so within a partition key. A query does not: `_ts` has
whole seconds, so `ORDER BY c._ts` does not order the commits of one second. A query only counts.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from relay.backends.cosmos.containers import explaining, parameters
from relay.backends.cosmos.leases import LeasePosition, Positions
from relay.backends.cosmos.source import commit_time, in_commit_order
from relay.backends.outbox import Committed, Gone, Range, cut_text
from relay.core.documents import Mapped, SourceDocument, StoredDocument
from relay.routes.conditions import NAMED
from relay.routes.mapping import Fields
from relay.routes.pointers import Pointer
from relay.routes.selection import Selection

if TYPE_CHECKING:
    from azure.core.async_paging import AsyncItemPaged
    from azure.cosmos.aio import ContainerProxy

BEGINNING = "Beginning"
"""The start of the feed, as the SDK names it."""

RulesUntil = Callable[[int], Awaitable[Callable[[int], Selection]]]
"""Returns what says which events are a stream's by the times of their commits, the latest of which it is given."""

_NOTHING = (None, -1)

_RANGE_ID = "x-ms-documentdb-partitionkeyrangeid"

_OF_DOCUMENT = ("id", "partitionKey", "sequence", "traceparent", "order")
_OF_SERVICE = ("ttl", "_lsn", "_ts")
# More than any of these may be shown of.
_MOST_TEXT = 4096

# Documents of a page of a range.
_PAGE_ITEMS = 500

# The feed is started this much before the range, so that the filter here decides, not the rounding of the service.
_START_MARGIN_S = 5

# Nothing more is committed to a range that ended this long ago, even if clocks differ.
_SETTLED_S = 300


@dataclass(slots=True)
class _Reader:
    """The point from which one physical partition, or its children, is read.

    Attributes:
        feed_range: As the SDK gives it.
        continuation: The SDK's token; None before the first page. Children of a split partition have the same.
        last: The place of the last event that was read: a commit may continue with the next page.
    """

    feed_range: dict[str, Any]
    continuation: str | None
    last: tuple[int | None, int] = _NOTHING


class Feed:
    """Reads the events of a stream, page by page, each partition in the order of commits."""

    def __init__(
        self,
        container: ContainerProxy,
        selection: Selection,
        rules: RulesUntil | None = None,
        *,
        from_beginning: bool,
    ) -> None:
        """Create a reader of the feed.

        Nothing else may use the client of `container`: the SDK hands over the token of a page with no document as
        that of its client's latest response.

        Args:
            container: The outbox.
            selection: The events of the stream, by the rules of today.
            rules: The events of the stream by the time of their commit; None where the rules of today count.
            from_beginning: False to start where the relay's leases are.
        """
        self._container = container
        self._selection = selection
        self._rules = rules
        self._from_beginning = from_beginning
        self._turn = asyncio.Lock()
        self._readers: list[_Reader] | None = None
        # Events read and not returned yet: a later partition failed, or the caller was cancelled.
        self._read: list[Committed] = []

    async def next(self, limit: int, positions: Positions) -> list[Committed]:
        """Return the next events, at most about `limit`; none only if all of the feed was read.

        Raises AzureError or OSError; events read before are returned by the next call.
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
        return [_Reader(each, _continuation(rid, each, positions)) for each in feed_ranges]

    async def _page(self, reader: _Reader, limit: int, positions: Positions) -> bool:
        """Read a page; returns False at the end of the feed."""
        if reader.continuation is None:
            options: dict[str, Any] = {"feed_range": reader.feed_range, "start_time": BEGINNING}
        else:
            options = {"continuation": reader.continuation}
        pages: Any = self._container.query_items_change_feed(max_item_count=limit, **options).by_page()
        async for page in pages:
            found = [each async for each in page]
            document_of = await documents_by(self._selection, self._rules, max(map(commit_time, found), default=0))
            documents = [each for stored in found if (each := document_of(stored)) is not None]
            events, last = [], reader.last
            for document, place in numbered(documents, last):
                last = place
                partition = await _partition(positions, reader.feed_range, document.fields.get("partitionKey"))
                events.append(committed_of(document, partition, place))
            # Nothing is awaited from here: a caller that is cancelled loses no event, and reads none twice.
            self._read += events
            reader.continuation, reader.last = pages.continuation_token, last
            return True
        reader.continuation = self._container.client_connection.last_response_headers["etag"]
        return False


async def documents_by(
    selection: Selection, rules: RulesUntil | None, latest: int
) -> Callable[[StoredDocument], SourceDocument | None]:
    """Return what makes the document of a stored one of a stream; it returns None for any other.

    Args:
        selection: The events of the stream, by the rules of today.
        rules: As of `Feed`.
        latest: The latest commit time of the documents, as far as it is known.
    """
    if rules is None:
        return selection.document_of
    at = await rules(latest)
    return lambda stored: at(commit_time(stored)).document_of(stored)


def numbered(
    documents: Sequence[SourceDocument], last: tuple[int | None, int] = _NOTHING
) -> Iterator[tuple[SourceDocument, tuple[int, int]]]:
    """Yield documents in commit order, each with its place: its `_lsn`, and its number within that commit.

    `last` is the place of the document before the first one.
    """
    lsn, place = last
    for document in in_commit_order(documents):
        own, order = document.lsn or 0, document.fields.get("order")
        place = order if type(order) is int else place + 1 if own == lsn else 0
        lsn = own
        yield document, (own, place)


def brief(document: SourceDocument) -> SourceDocument:
    """Return the parts of a document, which may have 2 MB, that `numbered` and `committed_of` need."""
    stored = {name: document.stored[name] for name in _OF_SERVICE if name in document.stored}
    fields = {name: _cut(document.fields[name]) for name in _OF_DOCUMENT if name in document.fields}
    return SourceDocument(stored, fields, mapped=Mapped(_cut(document.action), _cut(document.created_at)))


def _cut(value: object) -> object:
    return cut_text(value, _MOST_TEXT) if isinstance(value, str) else value


def committed_of(document: SourceDocument, partition: str, place: tuple[int, int]) -> Committed:
    ts, ttl = document.stored.get("_ts"), document.stored.get("ttl")
    committed_at = ts if type(ts) is int else 0
    expires_at = committed_at + ttl if type(ttl) is int and ttl > 0 else None
    return Committed.of(document, partition, place, committed_at, expires_at)


async def _partition(positions: Positions, feed_range: Mapping[str, Any], partition_key: object) -> str:
    """Return the lease token of a document that was read in a range, or the range itself if no lease covers it."""
    leases = positions.within(feed_range)
    if len(leases) > 1 and isinstance(partition_key, str):
        lease = await positions.lease_of(partition_key)
        leases = [] if lease is None else [lease]
    if leases:
        return leases[0].token
    bounds = feed_range["Range"]
    return f"{bounds['min'] or '0'}-{bounds['max']}"


def _continuation(rid: str, feed_range: dict[str, Any], positions: Positions) -> str | None:
    """Return the SDK's token for what the relay has not read in a range, or None if it has read nothing there."""
    leases = positions.within(feed_range)
    if not leases or any(lease.continuation is None for lease in leases):
        return None
    etag = min(leases, key=lambda lease: lease.done).continuation
    return sdk_token(rid, feed_range["Range"], str(etag))


def sdk_token(rid: str, bounds: Mapping[str, Any], etag: str) -> str:
    """Return the SDK's token for what comes after an ETag of the feed, within the bounds of a range.

    It is the token that azure-cosmos 4.17.1 gives with a page. There is no call that makes one.
    """
    token = {
        "v": "v2",
        "containerRid": rid,
        "mode": "LatestVersion",
        "startFrom": {"Type": BEGINNING},
        "continuation": {
            "v": "v2",
            "rid": rid,
            "continuation": [{"token": etag, "range": bounds}],
            "Range": bounds,
        },
    }
    return base64.b64encode(json.dumps(token).encode()).decode()


def behind(container: ContainerProxy, lease: LeasePosition, page_items: int) -> AsyncItemPaged[dict[str, Any]]:
    """Return the documents behind a lease's position. The first may be passed, if the lease is within a commit."""
    options: dict[str, Any]
    if lease.continuation is not None and lease.token.isdecimal():
        # A bare ETag goes with the range that it belongs to (azure-cosmos 4.17.1).
        options = {"continuation": lease.continuation, "headers": {_RANGE_ID: lease.token}}
    else:
        bounds = {"min": lease.minimum, "max": lease.maximum, "isMinInclusive": True, "isMaxInclusive": False}
        options = {"feed_range": {"Range": bounds}, "start_time": BEGINNING}
    return container.query_items_change_feed(max_item_count=page_items, **options)


@contextmanager
def integers_of_any_length() -> Iterator[None]:
    """A block in which this process reads documents with any integer; by default Python takes 4 300 digits."""
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(limit)


def feed_start(since: int) -> datetime:
    """Return the start of the change feed for events committed at `since`, in seconds since 1970, or later."""
    return datetime.fromtimestamp(max(0, since - _START_MARGIN_S), UTC)


def of_type(selection: Selection, end: str = "") -> tuple[str, dict[str, Any]]:
    """Return the condition of a query for documents that may be events, and its parameters.

    `end` is that of the parameters' names.
    """
    [place] = selection.fields.of_document("type")
    found = []
    values: dict[str, Any] = {}
    if len(selection.types) == 1:
        found.append(_condition(place, f"{{}} = @type{end}", selection.fields))
        values[f"type{end}"] = selection.type
    elif selection.types:
        found.append(_condition(place, f"ARRAY_CONTAINS(@types{end}, {{}})", selection.fields))
        values[f"types{end}"] = list(selection.types)
    for number, condition in enumerate(selection.events):
        pointers = _places(condition.name, selection.fields)
        if len(pointers) == 1 and is_queried(pointers[0]) and condition.prefix is None:
            values[f"event{number}{end}"] = list(condition.values)
            found.append(_condition(pointers[0], f"ARRAY_CONTAINS(@event{number}{end}, {{}})", selection.fields))
    return " AND ".join(found) or "true", values


def of_any_type(selections: Sequence[Selection]) -> tuple[str, dict[str, Any]]:
    """Return the condition for documents that may be events by any of several rules, and its parameters."""
    different = {str(of_type(each)): each for each in selections}
    found = [of_type(each, f"_{number}") for number, each in enumerate(different.values())]
    values = {name: value for _, each in found for name, value in each.items()}
    return " OR ".join(f"({where})" for where, _ in found), values


def _condition(place: Pointer, condition: str, fields: Fields) -> str:
    """Return a query's condition for the value at a place, which holds too where only the relay can read it."""
    holds = condition.format(expression(place))
    if not fields.may_be_in_text(place):
        return holds
    return f"({holds} OR IS_STRING({expression(fields.of_document('data')[0])}))"


def _places(name: str, fields: Fields) -> tuple[Pointer, ...]:
    return fields.of_document(name) if name in NAMED else (Pointer.parse(name),)


def is_queried(pointer: Pointer) -> bool:
    """Return True if a query can have the value: it would have to know arrays from objects."""
    return not any(name.isdecimal() for name in pointer.names)


def expression(pointer: Pointer) -> str:
    """Return the expression for a place in a document, in a query of `c`."""
    return "c" + "".join(f".{each}" if each in _OWN else f"[{json.dumps(each)}]" for each in pointer.names)


# Names of fields and their members, none of which is a word of the language. Any other is quoted.
_OWN = frozenset({"id", "partitionKey", "type", "data", "action", "createdAt"})


class CosmosReading:
    """See `outbox.Reading`. It has every event: none is `gone`."""

    def __init__(self, container: ContainerProxy, selection: Selection, chosen: Range) -> None:
        """Create a reading of the outbox container, which has read nothing yet.

        `selection` picks the events among its documents.
        """
        self.unread = 0
        self.gone: list[Gone] = []
        self._container = container
        self._selection = selection
        self._range = chosen
        self._counts: list[tuple[dict[str, Any], int | None]] = []

    async def count(self) -> int | None:
        """Return the count.

        It is None where routes decide, or the type or action may be within text, neither of which a query knows.

        Then the feed is read to its end.
        """
        with explaining(self._container.id):
            if self._range.partition_key is not None:
                feed_ranges = [await self._container.feed_range_from_partition_key(self._range.partition_key)]
            else:
                feed_ranges = [feed_range async for feed_range in self._container.read_feed_ranges()]
            asks_action, asks_type = self._range.action is not None, bool(self._selection.types)
            may_be_text = (asks_action and self._may_be_in_text("action")) or (
                asks_type and self._may_be_in_text("type")
            )
            if may_be_text or not self._selection.is_by_type:
                self._counts = [(each, None) for each in feed_ranges]
                return None
            counts = [(each, await self._count(each)) for each in feed_ranges]
        self._counts = [*counts]
        return sum(count for _, count in counts)

    def _may_be_in_text(self, name: str) -> bool:
        fields = self._selection.fields
        return any(map(fields.may_be_in_text, fields.of_document(name)))

    async def pages(self) -> AsyncGenerator[list[SourceDocument], None]:
        for feed_range, count in self._counts:
            found = 0
            async with aclosing(self.pages_of(feed_range, count)) as pages:
                async for documents in pages:
                    found += len(documents)
                    yield documents
            # Documents may expire after they were counted; those that still exist should have been read.
            if count is not None and found < count:
                self.unread += max(0, min(count, await self._count(feed_range)) - found)

    async def pages_of(
        self, feed_range: dict[str, Any], count: int | None
    ) -> AsyncGenerator[list[SourceDocument], None]:
        """Yield the documents of one feed range in commit order, page by page.

        Reading ends when all `count` documents were read, or at the end of the feed. It does not end at the first
        document that is too young: after a merge of physical partitions, older documents may follow. A range that
        ended recently, or has not ended, is read to the end of the feed, as an updated document moves there.
        """
        settled = count is not None and self._range.until < time.time() - _SETTLED_S
        found = 0
        # A page may end within a commit, so its last commit waits for the next page.
        commit: list[SourceDocument] = []
        if settled and count == 0:
            return
        with explaining(self._container.id):
            pages = self._container.query_items_change_feed(
                feed_range=feed_range, start_time=feed_start(self._range.since), max_item_count=_PAGE_ITEMS
            ).by_page()
            async for page in pages:
                documents = commit + [each async for stored in page if (each := self._held(stored)) is not None]
                found += len(documents) - len(commit)
                whole, commit = _split_last_commit(documents)
                if settled and found >= (count or 0):
                    break
                if whole:
                    yield list(in_commit_order(whole))
            else:
                whole = []
        if whole or commit:
            yield list(in_commit_order(whole + commit))

    def _held(self, stored: StoredDocument) -> SourceDocument | None:
        """Return the document of a stored one, or None if it is not in the range."""
        document = self._selection.document_of(stored)
        if document is None or not self._range.since <= stored["_ts"] < self._range.until:
            return None
        return document if self._range.holds(document) else None

    async def _count(self, feed_range: dict[str, Any]) -> int:
        chosen, fields = self._range, self._selection.fields
        where, values = of_type(self._selection)
        conditions = [where, "c._ts >= @since", "c._ts < @until"]
        values |= {"since": chosen.since, "until": chosen.until}
        if chosen.partition_key is not None:
            conditions.append(f"{expression(fields.of_document('key')[0])} = @partitionKey")
            values["partitionKey"] = chosen.partition_key
        if chosen.action is not None:
            conditions.append(f"{expression(fields.of_document('action')[0])} = @action")
            values["action"] = chosen.action
        with explaining(self._container.id):
            counts = self._container.query_items(
                "SELECT VALUE COUNT(1) FROM c WHERE " + " AND ".join(conditions),
                parameters=parameters(**values),
                feed_range=feed_range,
            )
            return sum([int(str(count)) async for count in counts])


def _split_last_commit(
    documents: list[SourceDocument],
) -> tuple[list[SourceDocument], list[SourceDocument]]:
    """Return the documents of all commits but the last, and those of the last, which may be incomplete."""
    last = documents[-1].lsn if documents else None
    start = len(documents)
    while last is not None and start and documents[start - 1].lsn == last:
        start -= 1
    return documents[:start], documents[start:]
