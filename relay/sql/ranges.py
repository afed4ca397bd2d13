"""The events of a range, from the feed, in order, with the rights of a reader."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from datetime import UTC, datetime

from changefeed import START, AsyncFeed, CursorError, CursorPrunedError, Entry
from changefeed.statements import AsyncSession
from changefeed.ulid import LENGTH, at, from_text, milliseconds, to_text
from relay.canary import is_canary
from relay.events import Document
from relay.outbox import POSITIONS_DELETED, ROW_MISSING, Gone, Range
from relay.settings import SqlFeed
from relay.sql.rows import document_of, is_of_type

Use = Callable[[Callable[[AsyncSession], Awaitable[list[Entry]]]], Awaitable[list[Entry]]]
"""Calls a function with a session. Errors of the database are raised as ServiceErrors."""

_PAGE_ROWS = 500


class SqlReading:
    """See `outbox.Reading`. Nothing is counted, so nothing is `unread`."""

    def __init__(
        self, use: Use, feed: SqlFeed, event_type: str, chosen: Range, cursors: Mapping[int, bytes]
    ) -> None:
        """`cursors` say how far the relay is in each shard. Nothing is read yet."""
        self.unread = 0
        self.gone: list[Gone] = []
        self._use = use
        self._feed = feed
        self._event_type = event_type
        self._range = chosen
        self._cursors = cursors
        self._start = from_text(chosen.cursor) if chosen.cursor is not None else _before(chosen.since)

    async def count(self) -> int | None:
        """Unknown: the feed stores only positions and keys."""
        return None

    async def pages(self) -> AsyncGenerator[list[Document], None]:
        """Of each shard, one after another. Events that have no position yet get one, as by any reader."""
        shards = range(self._feed.shards) if self._range.shard is None else [self._range.shard]
        for shard_id in shards:
            cursor = self._start
            while entries := await self._read(shard_id, cursor):
                ended = milliseconds(entries[-1].ulid) >= self._range.until * 1000
                within = [each for each in entries if self._is_within(each)]
                documents = [document for each in within for document in self._documents(each, shard_id)]
                if documents or self.gone:
                    yield documents
                if ended:
                    break
                cursor = entries[-1].ulid
            if self.gone:
                yield []

    def _is_within(self, entry: Entry) -> bool:
        return entry.ulid > self._start and milliseconds(entry.ulid) < self._range.until * 1000

    async def _read(self, shard_id: int, cursor: bytes) -> list[Entry]:
        async def page(session: AsyncSession, behind: bytes) -> list[Entry]:
            feed = AsyncFeed(session, self._feed.feed)
            return (await feed.read(shard_id, behind, _PAGE_ROWS, max_bytes=self._feed.max_bytes)).entries

        async def read(session: AsyncSession) -> list[Entry]:
            try:
                return await page(session, cursor)
            except CursorPrunedError as error:
                if self._range.cursor is not None:
                    raise
                self.gone.append(Gone(f"shard {shard_id}", POSITIONS_DELETED, str(error)))
                return await page(session, START)
            except CursorError:
                # The range begins behind the last position given in this shard. What has no position yet gets
                # one behind that of the relay.
                return await page(session, self._cursors.get(shard_id, START))

        return await self._use(read)

    def _documents(self, entry: Entry, shard_id: int) -> list[Document]:
        """The document of an entry, if it is in the range."""
        document = document_of(entry, shard_id, self._event_type)
        if entry.row is not None:
            return [document] if is_of_type(entry, self._event_type) and self._range.holds(document) else []
        # Its key and action are not known any more. A smoke test deletes its own events.
        if not is_canary(document["id"]) and (not self._range.ids or document["id"] in self._range.ids):
            where = f"shard {shard_id}, position {to_text(entry.ulid)}"
            detail = f"{self._feed.feed} has no such row any more ({where})"
            self.gone.append(Gone(str(document["id"]), ROW_MISSING, detail))
        return []


def _before(since: int) -> bytes:
    """The last position before a time in seconds since 1970."""
    first = int.from_bytes(at(datetime.fromtimestamp(since, UTC)), "big")
    return max(0, first - 1).to_bytes(LENGTH, "big")
