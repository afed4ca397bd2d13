"""What the commands of quarantine ask of an outbox: an event, and whether later ones of its key went out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from changefeed.statements import AsyncSession, Statement
from changefeed.ulid import from_text
from relay.cli.committed import Outbox, open_outbox
from relay.cli.quarantine.records import Records
from relay.cli.quarantine.successors import Successors
from relay.cli.sources import SourceKind, explaining_feed_errors, open_session, read_cursors, sql_feed
from relay.events import Event
from relay.quarantine.summaries import Filter
from relay.settings import Settings, SqlFeed


@dataclass(frozen=True, slots=True)
class Found:
    """An event as the outbox has it.

    Attributes:
        type: The type of its document.
        passed: Whether the relay has passed it; None where that is not known.
    """

    type: object
    passed: bool | None


class Lookup(Protocol):
    """One outbox. Both methods raise ServiceError where it cannot be read."""

    async def find(self, partition_key: str, identifier: str, /) -> Found | None:
        """An event by its key and id; None if there is none."""

    async def went_out(self, event: Event, /) -> bool:
        """Whether the relay has passed a later event of the same key that is not in quarantine.

        False also if that is unknown.
        """


class CosmosLookup:
    """An outbox in Cosmos DB: the change feed, and the trigger's leases."""

    def __init__(self, outbox: Outbox, records: Records, event_type: str) -> None:
        self._outbox = outbox
        self._successors = Successors(outbox, records, event_type)

    async def find(self, partition_key: str, identifier: str, /) -> Found | None:
        """See Lookup."""
        stored = await self._outbox.find(partition_key, identifier)
        if stored is None:
            return None
        passed = None
        if stored.lsn is not None:
            passed = await (await self._outbox.positions()).passed(partition_key, stored.lsn)
        return Found(stored.type, passed)

    async def went_out(self, event: Event, /) -> bool:
        """See Lookup."""
        return await self._successors.went_out(event)


class SqlLookup:
    """An outbox in SQL: the feed, and the relay's stored cursors."""

    def __init__(self, session: AsyncSession, feed: SqlFeed, records: Records, event_type: str) -> None:
        self._session = session
        self._settings = feed
        self._records = records
        self._event_type = event_type
        schema, _, table = feed.feed.partition(".")
        quoted = session.dialect.quoted
        self._events = f"{quoted(schema)}.{quoted(table)}"
        self._feed = f"changefeed.{quoted(f'feed:{feed.feed}')}"

    async def find(self, partition_key: str, identifier: str, /) -> Found | None:
        """See Lookup."""
        with explaining_feed_errors(self._settings):
            event = await self._session.execute(
                Statement(f"select * from {self._events} where id = ?", (identifier,))
            )
            placed = await self._session.execute(
                Statement(f"select shard_id, ulid from {self._feed} where id = ?", (identifier,))
            )
        rows = [dict(zip(event.columns, row, strict=True)) for row in event.rows]
        if not any(row["partition_key"] == partition_key for row in rows):
            return None
        cursors = await read_cursors(self._session, self._settings)
        passed = any(shard in cursors and bytes(ulid) <= cursors[shard] for shard, ulid in placed.rows)
        return Found(rows[0].get("type", self._event_type), passed)

    async def went_out(self, event: Event, /) -> bool:
        """See Lookup."""
        ulid, shard_id = event.document.get("_ulid"), event.document.get("_shard")
        if not isinstance(ulid, str) or type(shard_id) is not int:
            return False
        cursor = (await read_cursors(self._session, self._settings)).get(shard_id)
        if cursor is None:
            return False
        bounds = (self._session.dialect.ulid(from_text(ulid)), self._session.dialect.ulid(cursor))
        with explaining_feed_errors(self._settings):
            later = await self._session.execute(
                Statement(
                    f"select e.id from {self._feed} f join {self._events} e on e.id = f.id "
                    "where f.shard_id = ? and f.ulid > ? and f.ulid <= ? and e.partition_key = ?",
                    (shard_id, *bounds, event.partition_key),
                )
            )
        summaries = await self._records.find(Filter(partition_key=event.partition_key))
        quarantined = {summary.document_id for summary in summaries}
        return any(str(identifier) not in quarantined for (identifier,) in later.rows)


@asynccontextmanager
async def open_lookup(settings: Settings, source: SourceKind, records: Records) -> AsyncIterator[Lookup]:
    """Connect to the outbox. Raises ServiceError."""
    if source is SourceKind.SQL:
        feed = sql_feed(settings)
        async with open_session(feed) as session:
            yield SqlLookup(session, feed, records, settings.event_type)
        return
    async with open_outbox(settings) as outbox:
        yield CosmosLookup(outbox, records, settings.event_type)
