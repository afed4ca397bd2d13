"""The timeline of an SQL feed: a row of the table relay.rules, in the database with the feed and its cursors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from uuid import uuid4

from outbox_relay.changefeed import ChangefeedError
from outbox_relay.changefeed.statements import AsyncSession, Row, Statement
from relay.backends.sql.database import Database
from relay.config.settings import SqlFeed
from relay.core.errors import RulesError
from relay.routes.generations import Timeline
from relay.routes.rulebook import StoredTimeline, TimelineChanged

TABLE = "relay.rules"

READ = f"select body, etag from {TABLE} where feed = ?"
INSERT = f"insert into {TABLE} (feed, etag, body) values (?, ?, ?)"
REPLACE = f"update {TABLE} set etag = ?, body = ? where feed = ? and etag = ?"


class SqlTimelines:
    """A row of relay.rules; `rulebook.Timelines` says what each method does."""

    def __init__(self, database: Database, feed: SqlFeed) -> None:
        """`database` is the connection to use, to the database of the feed; it is closed with the store."""
        self._database = database
        # As each engine compares names of tables.
        self._feed = feed.feed if feed.is_postgresql else feed.feed.lower()

    async def read(self) -> StoredTimeline | None:
        async with self._database.session_for(TABLE, RulesError) as session:
            rows = await self._rows(session)
        if not rows:
            return None
        body, etag = rows[0]
        return StoredTimeline(Timeline.from_item(json.loads(body)), etag)

    async def create(self, timeline: Timeline, /) -> None:
        async with self._database.session_for(TABLE, RulesError) as session:
            try:
                await session.execute(Statement(INSERT, (self._feed, _new_etag(), _body(timeline))))
            except ChangefeedError as error:
                # Whatever the database calls it: if there is a row, that is why.
                if await self._rows(session):
                    raise TimelineChanged(f"there is a row of {self._feed} in {TABLE} already") from error
                raise

    async def replace(self, timeline: Timeline, etag: str, /) -> None:
        async with self._database.session_for(TABLE, RulesError) as session:
            values = (_new_etag(), _body(timeline), self._feed, etag)
            if (await session.execute(Statement(REPLACE, values))).changed == 0:
                raise TimelineChanged(f"the row of {self._feed} in {TABLE} has another ETag, or is gone")

    async def close(self) -> None:
        await self._database.close()

    async def _rows(self, session: AsyncSession) -> Sequence[Row]:
        return (await session.execute(Statement(READ, (self._feed,)))).rows


def _body(timeline: Timeline) -> str:
    # In ASCII: the database's encoding does not matter.
    return json.dumps(timeline.item())


def _new_etag() -> str:
    return uuid4().hex
