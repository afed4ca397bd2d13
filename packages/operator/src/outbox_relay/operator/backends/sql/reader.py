"""An SQL outbox, as `outbox.Outbox` promises it.

But for `in_range` it reads tables only: the outbox table has what was committed and has no position yet, the feed
table what has one, and the claim table the relay's cursors. Reading the feed as a reader does would give positions
and wait for locks. It needs to select from these three and from the event table; the role `changefeed.readers:…`
has all of that but the outbox table.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import attrgetter
from typing import TypeVar

from outbox_relay.changefeed import START, AsyncConsumer, AsyncFeed, Claim, CursorError, CursorPrunedError, Entry
from outbox_relay.changefeed.statements import AsyncSession, Operation, run_async
from outbox_relay.changefeed.tables import Tables, Unnumbered
from outbox_relay.changefeed.ulid import LENGTH, at, from_text, milliseconds, to_text
from outbox_relay.operator.backends.rules import StoredRules
from relay.backends.canary import is_canary
from relay.backends.findings import Finding
from relay.backends.outbox import (
    POSITIONS_DELETED,
    ROW_MISSING,
    Committed,
    Found,
    Gone,
    NextPage,
    Position,
    Range,
    Reading,
)
from relay.backends.sql.catalog import catalog_of, tables_of
from relay.backends.sql.database import Database, explaining
from relay.backends.sql.rows import (
    committed_at,
    document_if_taken,
    document_of,
    identifier_of,
    of_row,
    position_time,
    select,
)
from relay.config.settings import SqlFeed
from relay.core import jsontext
from relay.core.documents import SourceDocument, StoredDocument
from relay.core.events import Event, EventName, Rejected, read_event
from relay.core.place import Place
from relay.routes.selection import Selection

# Number of rows without a position that are read again: numbers are drawn before a transaction commits, so a lower
# one may become visible after a higher one. What comes even later is seen when it gets its position.
_LOOK_BACK = 1000

# Maximum number of ids in one statement.
_IDS = 100

# The place of a row that has none in the feed.
_NOWHERE = Place()

# Rows of a page of a range.
_PAGE_ROWS = 500

# The members of a document that was made of a key alone, besides the columns of the key.

ResultT = TypeVar("ResultT")


@dataclass(slots=True)
class _Shard:
    """The point up to which a shard was read: a position of the feed, and the highest number of the outbox table.

    `seen` are the numbers that were handed over, of those that are looked at again.
    """

    cursor: bytes
    number: int = 0
    seen: set[int] = field(default_factory=set)


class SqlOutbox:
    """Reads the tables of a feed; `outbox.Outbox` says what each method does.

    An event without a position has a place behind every position; it comes again, with its own place, when it has
    got one. A look without news is two statements for each shard, each a search in a primary key.
    """

    def __init__(self, feed: SqlFeed, rules: StoredRules | None = None, *, from_beginning: bool = True) -> None:
        """Create the outbox.

        Args:
            feed: Its settings.
            rules: The stream's rules by the time of a commit, by which `news` and `of_key` go, to close with it;
                None where the rules of the settings count for all events.
            from_beginning: False to begin with the news behind the relay's cursors.
        """
        self._settings = feed
        self._rules = rules
        # News that have no position, and so no time yet, by the event's id; and those that are another stream's.
        self._timeless: dict[str | None, EventName] = {}
        self._elsewhere: list[EventName] = []
        self._selection = feed.selection
        self._from_beginning = from_beginning
        self._database = Database(feed, call_timeout_s=None)
        self._shards: dict[int, _Shard] | None = None
        # Events read and not returned, because the caller was cancelled or a later shard could not be read.
        self._read: list[Committed] = []
        self._tables = tables_of(catalog_of(feed.connection_string).dialect, feed)
        self._cursors: Mapping[int, bytes] | None = None

    async def news(self, limit: int, /) -> Sequence[Committed]:
        if self._shards is None:
            claims = {} if self._from_beginning else await self._claims()
            self._shards = {number: _Shard(START) for number in range(self._settings.shards)}
            for number in claims.keys() & self._shards.keys():
                self._shards[number].cursor = claims[number].cursor
        for shard_id, shard in self._shards.items():
            while len(self._read) < limit and await self._read_feed(shard_id, shard, limit):
                pass
            if len(self._read) < limit:
                await self._read_outbox(shard_id, shard, limit)
        found, self._read = self._read, []
        return found

    def given_elsewhere(self) -> Collection[EventName]:
        found, self._elsewhere = self._elsewhere, []
        return found

    async def positions(self) -> Sequence[Position]:
        """Return the relay's claims; a shard that it has never claimed is among them."""
        claims = await self._claims()
        found = []
        for shard_id in sorted(claims.keys() | set(range(self._settings.shards))):
            claim = claims.get(shard_id)
            owner, cursor = (None, START) if claim is None else (claim.owner, claim.cursor)
            text = None if cursor == START else to_text(cursor)
            place = None if text is None else (text, 0)
            renewal = None if claim is None else claim.version
            found.append(Position(str(shard_id), owner, text, place, renewal, self._settings.claim_s))
        return found

    async def obstacles(self) -> Sequence[Finding]:
        """Return none: nothing but the claims, which expire, keeps a worker from a shard."""
        return []

    async def next_pages(self, limit: int, /) -> Sequence[NextPage]:
        """Return the next page of events with positions: the relay has seen no others yet."""
        claims = await self._claims()
        found = []
        for shard_id in range(self._settings.shards):
            cursor = claims[shard_id].cursor if shard_id in claims else START
            entries = await self._ask(self._tables.numbered(shard_id, cursor, limit))
            found.append(NextPage(str(shard_id), select(entries, shard_id, self._selection)))
        return found

    async def partition_of(self, partition_key: str, /) -> str | None:
        """Return None: the position is unknown, as writers choose the shard of an event."""
        return None

    async def of_key(self, partition_key: str, limit: int, /) -> tuple[Sequence[Committed], bool]:
        """Return the last events of a key, by two statements that look for the key in the event table.

        Without an index that begins with the key's column the database reads all of that table; with it, the
        events of the key, whose positions it then sorts.
        """
        # In this order: what gets its position in between is in both, and then counts with its position.
        unnumbered = await self._ask(self._tables.unnumbered_of_key(partition_key, limit + 1))
        numbered = await self._ask(self._tables.numbered_of_key(partition_key, limit + 1))
        last, at = await self._last(), await self._until([entry for _, entry in numbered])
        found = [
            *(self._unnumbered(each, last) for each in reversed(unnumbered)),
            *(self._numbered(shard_id, entry, at(entry)) for shard_id, entry in numbered),
        ]
        events = {event.id: event for each in found for event in each}
        ordered = sorted(events.values(), key=attrgetter("place"))
        return ordered[-limit:], len(ordered) > limit

    async def data(self, partition_key: str, ids: Collection[str], /) -> Mapping[str, str]:
        """Return the text of the column, with what other columns add as the relay does."""
        wanted = list(ids)
        found = {}
        for start in range(0, len(wanted), _IDS):
            for entry in await self._ask(self._tables.rows(partition_key, wanted[start : start + _IDS])):
                document = document_of(entry, 0, self._selection)
                fields = document.fields
                if isinstance(fields.get("id"), str) and "data" in fields:
                    found[fields["id"]] = document.body or jsontext.encode(fields["data"]).decode()
        return found

    async def identity(self) -> str:
        """Return the names of database and feed, and the number of the feed's table of claims."""
        return await self._ask(self._tables.identity())

    async def in_range(self, chosen: Range, /) -> Reading:
        return SqlReading(self, self._settings, chosen, await self._read_cursors())

    def event_of(self, document: SourceDocument, /) -> Event | Rejected:
        ulid = document.place.ulid
        at = None if ulid is None else committed_at(from_text(ulid))
        return self._selection.judged(read_event(document, committed_at=at))

    async def restored(self, document: SourceDocument, /) -> SourceDocument | None:
        place = document.place
        if place.ulid is None or place.shard is None or "id" not in document.fields or "data" in document.fields:
            return None
        row = await self._ask(self._tables.row(document.stored))
        entry = Entry(from_text(place.ulid), row, {})
        return None if row is None else document_of(entry, place.shard, self._selection)

    def document_of(self, stored: StoredDocument, place: Place | None = None, /) -> SourceDocument:
        return of_row(stored, place or _NOWHERE, self._selection)

    async def current(self, partition_key: str, identifier: str, /) -> SourceDocument | None:
        found = await self._ask(self._tables.rows(partition_key, [identifier]))
        return document_of(found[0], 0, self._selection) if found and found[0].row is not None else None

    async def find(self, partition_key: str, identifier: str, /) -> Found | None:
        """Find an event by its key and id. An event that has no position yet was not passed."""
        found = await self._ask(self._tables.rows(partition_key, [identifier]))
        if not found or found[0].row is None:
            return None
        places = await self._ask(self._tables.positions(identifier))
        claims = await self._claims()
        passed = any(shard in claims and ulid <= claims[shard].cursor for shard, ulid in places)
        at = [Place(ulid=to_text(ulid), shard=shard) for shard, ulid in places]
        taken = document_if_taken(found[0], 0, self._selection) is not None
        document = document_of(found[0], 0, self._selection)
        return Found(document.fields.get("type"), taken, passed, at)

    async def passed(self, document: SourceDocument, /) -> bool:
        ulid, shard_id = document.place.ulid, document.place.shard
        if ulid is None or shard_id is None:
            return False
        return from_text(ulid) <= (await self._read_cursors()).get(shard_id, START)

    async def passed_behind(self, event: Event, /) -> Collection[str]:
        """Return the ids of later passed events, by the feed of the event's shard up to its present cursor."""
        ulid, shard_id = event.document.place.ulid, event.document.place.shard
        if ulid is None or shard_id is None:
            return ()
        claim = (await self._claims()).get(shard_id)
        if claim is None:
            return ()
        between = self._tables.ids_between(shard_id, from_text(ulid), claim.cursor, event.partition_key)
        return [str(identifier_of(identifier)) for identifier in await self._ask(between)]

    async def close(self) -> None:
        await self._database.close()
        if self._rules is not None:
            await self._rules.close()

    async def _read_feed(self, shard_id: int, shard: _Shard, limit: int) -> bool:
        """Read a page of events with positions; returns whether there were any."""
        entries = await self._ask(self._tables.numbered(shard_id, shard.cursor, limit))
        at = await self._until(entries)
        for entry in entries:
            found = self._numbered(shard_id, entry, at(entry))
            self._read += found
            self._note_position(entry, is_taken=bool(found))
            shard.cursor = entry.ulid
        return bool(entries)

    async def _read_outbox(self, shard_id: int, shard: _Shard, limit: int) -> None:
        """Read new events that have no position yet."""
        after = max(0, shard.number - _LOOK_BACK)
        rows = await self._ask(self._tables.unnumbered(shard_id, after, limit + _LOOK_BACK))
        last = await self._last() if rows else self._selection
        for row in rows:
            if row.number not in shard.seen:
                found = self._unnumbered(row, last)
                self._read += found
                self._remember(row.entry, found)
                shard.seen.add(row.number)
                shard.number = max(shard.number, row.number)
        shard.seen = {number for number in shard.seen if number > shard.number - _LOOK_BACK}

    async def _until(self, entries: Sequence[Entry]) -> Callable[[Entry], Selection]:
        """Return what gives each of these entries, which have positions, the rules of its time."""
        if self._rules is None or not entries:
            return lambda _: self._selection
        at = await self._rules.until(max(position_time(each.ulid) for each in entries))
        return lambda entry: at(position_time(entry.ulid))

    async def _last(self) -> Selection:
        """Return the rules for entries without a position."""
        return self._selection if self._rules is None else await self._rules.last()

    def _remember(self, entry: Entry, found: Sequence[Committed]) -> None:
        """Remember news without a position: their position may say that they are another stream's."""
        if self._rules is not None:
            self._timeless |= {self._id_of(entry): (each.partition_key, each.id) for each in found}

    def _note_position(self, entry: Entry, *, is_taken: bool) -> None:
        """Note that an entry has got a position."""
        name = self._timeless.pop(self._id_of(entry), None) if self._timeless else None
        if name is not None and not is_taken:
            self._elsewhere.append(name)

    def _id_of(self, entry: Entry) -> str | None:
        column = self._selection.fields.column_of("id")
        return identifier_of((entry.key if entry.row is None else entry.row).get(column))

    def _numbered(self, shard_id: int, entry: Entry, selection: Selection) -> list[Committed]:
        """Return an event with its position; none for a row of another type."""
        place = (to_text(entry.ulid), 0)
        return self._event(shard_id, entry, place, milliseconds(entry.ulid) / 1000, selection)

    def _unnumbered(self, row: Unnumbered, selection: Selection) -> list[Committed]:
        """Return an event without a position. `~` is behind every digit of a ULID."""
        hint = row.time_hint
        utc = hint.replace(tzinfo=UTC) if hint is not None and hint.tzinfo is None else hint
        at = time.time() if utc is None else utc.timestamp()
        return self._event(row.shard_id, row.entry, (f"~{row.number:020}", 0), at, selection)

    def _event(
        self, shard_id: int, entry: Entry, place: tuple[str, int], at: float, selection: Selection
    ) -> list[Committed]:
        document = document_if_taken(entry, shard_id, selection)
        if document is None:
            return []
        # A clock that has stepped back leaves positions ahead of the time: no event was committed in the future.
        return [Committed.of(document, str(shard_id), place, min(at, time.time()))]

    async def _read_cursors(self) -> Mapping[int, bytes]:
        if self._cursors is None:
            self._cursors = {shard_id: claim.cursor for shard_id, claim in (await self._claims()).items()}
        return self._cursors

    async def _claims(self) -> dict[int, Claim]:
        return await self.use(
            lambda session: AsyncConsumer(session, self._settings.feed, self._settings.consumer).existing()
        )

    async def _ask(self, operation: Operation[ResultT]) -> ResultT:
        return await self.use(lambda session: run_async(session, operation))

    async def use(self, call: Callable[[AsyncSession], Awaitable[ResultT]]) -> ResultT:
        """Call a function with a session. Raises ServiceError."""
        with explaining(self._settings, _grants(self._tables, self._settings.quarantine_table)):
            async with self._database.session() as session:
                return await call(session)


def _grants(tables: Tables, quarantine: str) -> str:
    """Return the rights of a role that reads the tables and the quarantine, as statements."""
    read = (tables.outbox, tables.feed, tables.claim, tables.events, quarantine)
    if tables.dialect.name == "postgresql":
        schema = tables.events.partition(".")[0]
        usage = f"grant usage on schema changefeed, relay, {schema} to <role>;"
        return f"{usage} grant select on {', '.join(read)} to <role>;"
    return " ".join(f"grant select on {table} to <role>;" for table in read)


class SqlReading:
    """See `outbox.Reading`. Nothing is counted, so nothing is `unread`."""

    def __init__(self, outbox: SqlOutbox, feed: SqlFeed, chosen: Range, cursors: Mapping[int, bytes]) -> None:
        """Create a reading, which has read nothing yet; `cursors` say how far the relay is in each shard."""
        self.unread = 0
        self.gone: list[Gone] = []
        self._outbox = outbox
        self._feed = feed
        self._range = chosen
        self._cursors = cursors
        self._start = from_text(chosen.cursor) if chosen.cursor is not None else _before(chosen.since)

    async def count(self) -> int | None:
        """Return None: the count is unknown, as the feed stores only positions and keys."""
        return None

    async def pages(self) -> AsyncGenerator[list[SourceDocument], None]:
        """Yield the documents of each shard, one after another.

        Events that have no position yet get one, as by any reader.
        """
        shards = range(self._feed.shards) if self._range.shard is None else [self._range.shard]
        for shard_id in shards:
            cursor = self._start
            while entries := await self._read(shard_id, cursor):
                cursor = entries[-1].ulid
                within = [each for each in entries if self._is_within(each)]
                documents = [document for each in within for document in self._documents(each, shard_id)]
                if documents or self.gone:
                    yield documents
                if milliseconds(cursor) >= self._range.until * 1000:
                    break
            if self.gone:
                yield []

    def _is_within(self, entry: Entry) -> bool:
        return entry.ulid > self._start and milliseconds(entry.ulid) < self._range.until * 1000

    async def _read(self, shard_id: int, cursor: bytes) -> list[Entry]:
        async def read(session: AsyncSession) -> list[Entry]:
            async def behind(position: bytes) -> list[Entry]:
                feed = AsyncFeed(session, self._feed.feed)
                page = await feed.read(
                    shard_id, position, _PAGE_ROWS, max_bytes=self._feed.max_bytes, unlimited=True
                )
                return page.entries

            try:
                return await behind(cursor)
            except CursorPrunedError as error:
                if self._range.cursor is not None:
                    raise
                self.gone.append(Gone(f"shard {shard_id}", POSITIONS_DELETED, str(error)))
                return await behind(START)
            except CursorError:
                # The range begins behind the last position given in this shard. What has no position yet gets
                # one behind that of the relay.
                return await behind(self._cursors.get(shard_id, START))

        return await self._outbox.use(read)

    def _documents(self, entry: Entry, shard_id: int) -> list[SourceDocument]:
        """Return the document of an entry, if it is in the range."""
        document = document_if_taken(entry, shard_id, self._feed.selection)
        if document is None:
            return []
        if entry.row is not None:
            return [document] if self._range.holds(document) else []
        # Its key and action are no longer known. A smoke test deletes its own events.
        identifier = document.fields["id"]
        if not is_canary(identifier) and (not self._range.ids or identifier in self._range.ids):
            where = f"shard {shard_id}, position {to_text(entry.ulid)}"
            detail = f"{self._feed.feed} has no such row any more ({where})"
            self.gone.append(Gone(str(identifier), ROW_MISSING, detail))
        return []


def _before(since: int) -> bytes:
    """Return the last position before a time in seconds since 1970."""
    first = int.from_bytes(at(datetime.fromtimestamp(since, UTC)), "big")
    return max(0, first - 1).to_bytes(LENGTH, "big")
