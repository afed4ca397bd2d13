"""The smoke test's events in an SQL outbox: the event and its outbox row, in one transaction."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from changefeed import START, AsyncConsumer, ChangefeedError
from changefeed.statements import AsyncSession, Statement, run_async
from changefeed.tables import Tables
from relay.errors import ServiceError, UsageError, first_line
from relay.outbox import CLEAN_UP_S
from relay.settings import SqlFeed
from relay.sql.catalog import catalog_of
from relay.sql.database import connect, explaining
from relay.sql.rows import REQUIRED_COLUMNS

_POLL_S = 0.2


class SqlCanary:
    """An event table and its feed; all events go to one shard. `outbox.Canary` says what each method does."""

    def __init__(
        self, session: AsyncSession, feed: SqlFeed, columns: Mapping[str, str], shard_id: int | None = None
    ) -> None:
        """`columns` are the types of the event table's columns."""
        self._session = session
        self._feed = feed
        self._columns = columns
        self._shard_id = secrets.randbelow(feed.shards) if shard_id is None else shard_id
        self._tables = Tables(session.dialect, feed.feed)
        self._cursors: dict[str, bytes] = {}

    async def write(self, document: dict[str, Any], /) -> dict[str, Any]:
        with explaining(self._feed):
            cursor = await self._cursor()
        data = json.dumps(_storable(document["data"], self._columns["data"]))
        values = {"id": document["id"], "partition_key": document["partitionKey"], "data": data}
        values |= {name: value for name, value in _optional(document).items() if name in self._columns}
        columns = ", ".join(map(self._session.dialect.quoted, values))
        event = f"insert into {self._tables.events} ({columns}) values ({', '.join('?' * len(values))})"
        try:
            await self._session.execute(Statement("begin transaction"))
            await self._session.execute(Statement(event, list(values.values())))
            await run_async(self._session, self._tables.append(self._shard_id, document["id"]))
            # It comes behind everything that the relay has published so far.
            self._cursors[document["id"]] = cursor
            await self._session.execute(Statement("commit"))
        except ChangefeedError as error:
            raise ServiceError(
                f"no event could be written to {self._feed.feed}: {first_line(error)} smoke needs a login that "
                f'may also write: the role "changefeed.writers:{self._feed.feed}", and the rights to insert into, '
                "select from and delete from the event table. Set SQL to it for this command."
            ) from error
        with explaining(self._feed):
            stored = await self._execute(f"select data from {self._tables.events} where id = ?", document["id"])
        without = {"ttl"} | ({"traceparent"} - self._columns.keys())
        kept = {name: value for name, value in document.items() if name not in without}
        return {**kept, "data": json.loads(stored[0][0])}

    async def remove(self, document: dict[str, Any], /) -> str | None:
        """Delete the event once the relay has passed it: before, the relay would find a row that is gone."""
        identifier = document["id"]
        if identifier not in self._cursors:
            return None
        left = f"event {identifier!r} of {document['partitionKey']!r} in {self._feed.feed}"
        try:
            async with asyncio.timeout(CLEAN_UP_S):
                with explaining(self._feed):
                    while not await self._passed(identifier):
                        await asyncio.sleep(_POLL_S)
                    await self._execute(f"delete from {self._tables.events} where id = ?", identifier)
        except TimeoutError:
            return f"{left}: the relay has not passed it, and publishes it when it gets there; delete it then"
        except ServiceError as error:
            return f"{left}: {error}"
        return None

    async def _passed(self, identifier: str) -> bool:
        """Whether the event has a position that the relay has passed."""
        cursor = self._cursors[identifier]
        found = await run_async(self._session, self._tables.position(self._shard_id, cursor, identifier))
        return found is not None and found <= await self._cursor()

    async def _cursor(self) -> bytes:
        claim = (await AsyncConsumer(self._session, self._feed.feed, self._feed.consumer).existing()).get(
            self._shard_id
        )
        return START if claim is None else claim.cursor

    async def _execute(self, text: str, *values: object) -> Any:
        return (await self._session.execute(Statement(text, values))).rows


@asynccontextmanager
async def open_canary(feed: SqlFeed) -> AsyncIterator[SqlCanary]:
    """The SQL outbox of the settings. Raises ServiceError, or UsageError if the event table lacks a column."""
    with explaining(feed):
        session = await connect(feed)
    try:
        with explaining(feed):
            rows = (await session.execute(catalog_of(feed.connection_string).columns(feed.feed))).rows
        columns = {name: kind for name, kind, *_ in rows}
        if missing := [name for name in REQUIRED_COLUMNS if name not in columns]:
            raise UsageError(f"{feed.feed} has no column {', '.join(missing)}: run python -m relay check")
        yield SqlCanary(session, feed, columns)
    finally:
        await session.close()


def _optional(document: Mapping[str, Any]) -> dict[str, str]:
    moment = datetime.fromisoformat(document["data"]["createdAt"]).astimezone(UTC)
    return {
        "type": document["type"],
        "action": document["data"]["action"],
        # Every database reads it in this form. The relay prefers the member of `data`.
        "created_at": f"{moment:%Y-%m-%dT%H:%M:%SZ}",
        "traceparent": document.get("traceparent", ""),
    }


def _storable(data: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """jsonb has no place for the character 0."""
    if kind != "jsonb" or "control" not in data:
        return data
    return {**data, "control": [text for text in data["control"] if "\x00" not in text]}
