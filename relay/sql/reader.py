"""An SQL outbox, as the console reads it.

It reads tables only: the outbox table has what was committed and has no position yet, the feed table what has
one, and the claim table the relay's cursors. It never reads the feed as a reader does, which would give positions
and wait for locks. Its role needs to select from these three, from the event table and from relay.item; the role
`changefeed.readers:…` has all of that but the outbox table and relay.item.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

from azure.core.exceptions import AzureError

from changefeed import START, ChangefeedError, DatabaseError, Entry
from changefeed.statements import Result, Statement
from changefeed.tables import Statements
from changefeed.ulid import milliseconds, to_text
from relay import jsontext
from relay.console.committed import committed_of
from relay.console.model import Committed
from relay.console.ports import Position
from relay.errors import ServiceError, first_line
from relay.events import DATA_TEXT
from relay.settings import SqlFeed
from relay.sql.database import CONSUMER, Database
from relay.sql.rows import document_of, is_of_type

# Numbers are drawn before a transaction commits, so a lower one may become visible after a higher one: so many of
# those read before are looked at again. What comes even later is seen when it gets its position.
_LOOK_BACK = 1000

_IDS = 100


@dataclass(slots=True)
class _Shard:
    """How far a shard was read.

    Attributes:
        cursor: The position of the last event of the feed.
        number: The highest number seen in the outbox table.
        seen: The numbers that were handed over, of those that are looked at again.
    """

    cursor: bytes
    number: int = 0
    seen: set[int] = field(default_factory=set)


class SqlOutbox:
    """Reads the tables of a feed; `ports.Outbox` says what of it is promised.

    An event without a position has a place behind every position; it comes again, with its own place, when it has
    got one. A look without news is two statements for each shard, each a search in a primary key.
    """

    def __init__(self, feed: SqlFeed, event_type: str, *, from_beginning: bool) -> None:
        """`from_beginning`: False to start at the relay's cursors, with what waits for it."""
        self._settings = feed
        self._event_type = event_type
        self._from_beginning = from_beginning
        self._database = Database(feed, call_timeout_s=None)
        self._shards: dict[int, _Shard] | None = None
        # What was read and not handed over, as the caller was cancelled or a later shard could not be read.
        self._read: list[Committed] = []
        self._known: Statements | None = None

    async def news(self, limit: int, /) -> Sequence[Committed]:
        """See ports.Outbox."""
        if self._shards is None:
            cursors = {} if self._from_beginning else await self._cursors()
            self._shards = {number: _Shard(cursors.get(number, START)) for number in range(self._settings.shards)}
        for shard_id, shard in self._shards.items():
            while len(self._read) < limit and await self._read_feed(shard_id, shard, limit):
                pass
            if len(self._read) < limit:
                await self._read_outbox(shard_id, shard, limit)
        found, self._read = self._read, []
        return found

    async def positions(self) -> Sequence[Position]:
        """The relay's claims; a shard that it has never claimed is among them."""
        statements = await self._statements()
        rows = (await self._execute(statements.claims(CONSUMER))).rows
        claims = {shard_id: (owner, bytes(ulid)) for shard_id, owner, ulid in rows}
        found = []
        for shard_id in sorted(claims.keys() | set(range(self._settings.shards))):
            owner, cursor = claims.get(shard_id, (None, START))
            text = None if cursor == START else to_text(cursor)
            found.append(Position(str(shard_id), owner, text, None if text is None else (text, 0)))
        return found

    async def partition_of(self, partition_key: str, /) -> str | None:
        """Nobody can tell: writers choose the shard of an event."""
        return None

    async def of_key(self, partition_key: str, limit: int, /) -> tuple[Sequence[Committed], bool]:
        """The last events of a key.

        Two statements, each of which looks for the key in the event table. Without an index that begins with
        `partition_key` the database reads all of that table; with it, the events of the key, whose positions it
        then sorts.
        """
        statements = await self._statements()
        # In this order: what gets its position in between is in both, and then counts with its position.
        unnumbered = await self._execute(statements.unnumbered_of_key(partition_key, limit + 1))
        numbered = await self._execute(statements.numbered_of_key(partition_key, limit + 1))
        events = {}
        for shard_id, number, hint, *rest in reversed(unnumbered.rows):
            event = self._unnumbered(shard_id, number, hint, self._entry(START, rest, unnumbered.columns[3:]))
            if event is not None:
                events[event.id] = event
        for shard_id, ulid, *rest in numbered.rows:
            event = self._numbered(shard_id, self._entry(bytes(ulid), rest, numbered.columns[2:]))
            if event is not None:
                events[event.id] = event
        ordered = sorted(events.values(), key=attrgetter("place"))
        return ordered[-limit:], len(ordered) > limit

    async def data(self, partition_key: str, ids: Collection[str], /) -> Mapping[str, str]:
        """See ports.Outbox. The text of the column, with what other columns add as the relay does."""
        statements = await self._statements()
        wanted = list(ids)
        found = {}
        for start in range(0, len(wanted), _IDS):
            result = await self._execute(statements.data(partition_key, wanted[start : start + _IDS]))
            for row in result.rows:
                entry = Entry(START, dict(zip(result.columns, row, strict=True)), {})
                document = document_of(entry, 0, self._event_type)
                text = document.get(DATA_TEXT)
                found[document["id"]] = text or jsontext.encode(document["data"]).decode()
        return found

    async def close(self) -> None:
        """Close the session, if there is one."""
        await self._database.close()

    async def _read_feed(self, shard_id: int, shard: _Shard, limit: int) -> bool:
        """Read a page of what has positions; returns whether there was anything."""
        statements = await self._statements()
        result = await self._execute(statements.numbered(shard_id, shard.cursor, limit))
        for ulid, *rest in result.rows:
            event = self._numbered(shard_id, self._entry(bytes(ulid), rest, result.columns[1:]))
            if event is not None:
                self._read.append(event)
            shard.cursor = bytes(ulid)
        return bool(result.rows)

    async def _read_outbox(self, shard_id: int, shard: _Shard, limit: int) -> None:
        """Read what has no position yet, as far as it is new."""
        statements = await self._statements()
        after = max(0, shard.number - _LOOK_BACK)
        result = await self._execute(statements.unnumbered(shard_id, after, limit + _LOOK_BACK))
        for number, hint, *rest in result.rows:
            if number in shard.seen:
                continue
            event = self._unnumbered(shard_id, number, hint, self._entry(START, rest, result.columns[2:]))
            if event is not None:
                self._read.append(event)
            shard.seen.add(number)
            shard.number = max(shard.number, number)
        shard.seen = {number for number in shard.seen if number > shard.number - _LOOK_BACK}

    @staticmethod
    def _entry(ulid: bytes, row: Sequence[Any], columns: Sequence[str]) -> Entry:
        """`row` has the id, and the columns of the event, all NULL where it does not exist."""
        identifier, *values = row
        event = dict(zip(columns[1:], values, strict=True))
        if event["id"] is None:
            return Entry(ulid, None, {"id": identifier})
        return Entry(ulid, event, {})

    def _numbered(self, shard_id: int, entry: Entry) -> Committed | None:
        """An event with its position; None for a row of another type."""
        place = (to_text(entry.ulid), 0)
        return self._event(shard_id, entry, place, milliseconds(entry.ulid) / 1000)

    def _unnumbered(self, shard_id: int, number: int, hint: datetime, entry: Entry) -> Committed | None:
        """An event without a position. `~` is behind every digit of a ULID."""
        utc = hint.replace(tzinfo=UTC) if hint.tzinfo is None else hint
        return self._event(shard_id, entry, (f"~{number:020}", 0), utc.timestamp())

    def _event(self, shard_id: int, entry: Entry, place: tuple[str, int], committed_at: float) -> Committed | None:
        if not is_of_type(entry, self._event_type):
            return None
        document = document_of(entry, shard_id, self._event_type)
        # A clock that has stepped back leaves positions ahead of the time: no event was committed in the future.
        return committed_of(document, str(shard_id), place, min(committed_at, time.time()))

    async def _cursors(self) -> dict[int, bytes]:
        statements = await self._statements()
        return {
            shard_id: bytes(ulid) for shard_id, _, ulid in (await self._execute(statements.claims(CONSUMER))).rows
        }

    async def _statements(self) -> Statements:
        if self._known is None:
            with self._explaining():
                async with self._database.session() as session:
                    self._known = Statements(session.dialect, self._settings.feed)
        return self._known

    async def _execute(self, statement: Statement) -> Result:
        with self._explaining():
            async with self._database.session() as session:
                return await session.execute(statement)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except (ChangefeedError, AzureError, OSError) as error:
            needed = ""
            if self._known is not None and isinstance(error, DatabaseError) and not error.lost:
                needed = f" The console's role needs: {self._known.grants()}"
            raise ServiceError(
                f"the SQL outbox {self._settings.feed} cannot be read: {first_line(error)} Check SQL and "
                f"SQL_FEED.{needed}"
            ) from error
