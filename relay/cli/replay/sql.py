"""A replay of events of an SQL outbox, which it reads from the feed, in order, with the rights of a reader."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from changefeed import START, AsyncFeed, CursorError, CursorPrunedError, Entry
from changefeed.statements import AsyncSession, Statement
from changefeed.ulid import LENGTH, at, from_text, milliseconds, to_text
from relay.cli.replay.state import Invalid
from relay.cli.smoke.canary import is_canary
from relay.cli.sources import explaining_feed_errors
from relay.events import Document, Event, Rejected, read_event
from relay.settings import SqlFeed
from relay.sql.rows import document_of, is_of_type

_PAGE_ROWS = 500

ROW_MISSING = "row-missing"
POSITIONS_DELETED = "positions-deleted"


@dataclass(frozen=True, slots=True)
class SqlRange:
    """Events by the times in their positions: `since <= time < until`, in seconds since 1970.

    Attributes:
        event_type: Their type.
        since: The beginning of the range.
        until: Its end.
        partition_key: Only events of this key.
        action: Only events with this `data.action`.
        ids: Only events with these ids; all where it is empty.
        shard_id: Only events of this shard.
        after: Only events behind this position, where one is given.
    """

    event_type: str
    since: int
    until: int
    partition_key: str | None = None
    action: str | None = None
    ids: frozenset[str] = frozenset()
    shard_id: int | None = None
    after: bytes | None = None

    @property
    def start(self) -> bytes:
        """The cursor to start reading with."""
        if self.after is not None:
            return self.after
        # The last position before the range.
        first = int.from_bytes(at(datetime.fromtimestamp(self.since, UTC)), "big")
        return max(0, first - 1).to_bytes(LENGTH, "big")

    def holds(self, document: Document) -> bool:
        """Whether the event of a row is in the range, apart from its position."""
        data = document.get("data")
        return (
            (self.partition_key is None or document.get("partitionKey") == self.partition_key)
            and (self.action is None or (isinstance(data, dict) and data.get("action") == self.action))
            and (not self.ids or document.get("id") in self.ids)
        )


class SqlReading:
    """See `reading.Reading`."""

    def __init__(
        self, session: AsyncSession, feed: SqlFeed, chosen: SqlRange, cursors: Mapping[int, bytes]
    ) -> None:
        """`cursors` say how far the relay is in each shard."""
        self.unread = 0
        self.gone: list[Invalid] = []
        self._feed = AsyncFeed(session, feed.feed)
        self._settings = feed
        self._range = chosen
        self._cursors = cursors

    async def count(self) -> int | None:
        """Nobody can tell: the feed has positions and keys, and no more."""
        return None

    async def pages(self) -> AsyncGenerator[list[Document], None]:
        """Of each shard, one after another. Events that have no position yet get one, as by any reader."""
        shards = range(self._settings.shards) if self._range.shard_id is None else [self._range.shard_id]
        for shard_id in shards:
            cursor = self._range.start
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
        return entry.ulid > self._range.start and milliseconds(entry.ulid) < self._range.until * 1000

    async def _read(self, shard_id: int, cursor: bytes) -> list[Entry]:
        with explaining_feed_errors(self._settings):
            try:
                return await self._page(shard_id, cursor)
            except CursorPrunedError as error:
                if self._range.after is not None:
                    raise
                self.gone.append(Invalid(f"shard {shard_id}", "", POSITIONS_DELETED, str(error)))
                return await self._page(shard_id, START)
            except CursorError:
                # The range begins behind the last position given in this shard. What has no position yet gets
                # one behind that of the relay.
                return await self._page(shard_id, self._cursors.get(shard_id, START))

    async def _page(self, shard_id: int, cursor: bytes) -> list[Entry]:
        return (await self._feed.read(shard_id, cursor, _PAGE_ROWS, max_bytes=self._settings.max_bytes)).entries

    def _documents(self, entry: Entry, shard_id: int) -> list[Document]:
        """The document of an entry, if it is in the range."""
        document = document_of(entry, shard_id, self._range.event_type)
        if entry.row is not None:
            chosen = is_of_type(entry, self._range.event_type) and self._range.holds(document)
            return [document] if chosen else []
        # Its key and action are not known any more. A smoke test deletes its own events.
        if not is_canary(document["id"]) and (not self._range.ids or document["id"] in self._range.ids):
            self.gone.append(
                Invalid(
                    str(document["id"]),
                    "",
                    ROW_MISSING,
                    f"{self._settings.feed} has no such row any more (shard {shard_id}, position "
                    f"{to_text(entry.ulid)})",
                )
            )
        return []

    async def passed(self, document: Document, /) -> bool:
        """By the stored cursor of the shard."""
        return from_text(document["_ulid"]) <= self._cursors.get(document["_shard"], START)

    def event_of(self, document: Document, /) -> Event | Rejected:
        """As the relay reads it."""
        committed_at = min(milliseconds(from_text(document["_ulid"])) // 1000, int(time.time()))
        return read_event(document, committed_at=committed_at)


async def feed_identity(session: AsyncSession, feed: SqlFeed) -> str:
    """What another feed of the same name does not have. Raises ServiceError."""
    table = f"changefeed.{session.dialect.quoted(f'claim:{feed.feed}')}"
    text = "select current_database(), to_regclass(?)::oid::bigint"
    if session.dialect.name == "sqlserver":
        text = "select db_name(), object_id(?)"
    with explaining_feed_errors(feed):
        ((database, number),) = (await session.execute(Statement(text, (table,)))).rows
    return f"{database}/{feed.feed}/{number}"
