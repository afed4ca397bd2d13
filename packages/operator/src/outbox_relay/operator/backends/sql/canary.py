"""The smoke test's events in an SQL outbox: the event and its outbox row, in one transaction."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from outbox_relay.changefeed import START, AsyncConsumer, ChangefeedError
from outbox_relay.changefeed.statements import AsyncSession, Entry, Statement, run_async
from relay.backends.outbox import CLEAN_UP_S
from relay.backends.sql.catalog import catalog_of, tables_of
from relay.backends.sql.database import connect, explaining
from relay.backends.sql.rows import REQUIRED_COLUMNS, document_of
from relay.config.settings import SqlFeed
from relay.core.documents import SourceDocument
from relay.core.errors import ServiceError, UsageError, first_line
from relay.core.place import Place
from relay.core.remedy import CHECK

_POLL_S = 0.2


class SqlCanary:
    """An event table and its feed. `outbox.Canary` says what each method does.

    All events go to one shard, unless a trigger of the event table puts them on the feed.
    """

    def __init__(
        self,
        session: AsyncSession,
        feed: SqlFeed,
        columns: Mapping[str, str],
        shard_id: int | None = None,
        *,
        key: Sequence[str] = ("id",),
        sees_outbox: bool = False,
    ) -> None:
        """Create the canary.

        Args:
            session: A session of a login that may write events.
            feed: The feed.
            columns: The types of the event table's columns, by name.
            shard_id: The shard of its events; None for a random one.
            key: The primary key of the event table.
            sees_outbox: Whether the login may select from the outbox table of the feed.
        """
        self._session = session
        self._feed = feed
        self._columns = columns
        self._key = key
        self._fields = feed.selection.fields
        self._shard_id = secrets.randbelow(feed.shards) if shard_id is None else shard_id
        self._tables = tables_of(session.dialect, feed)
        self._id_column = self._fields.column_of("id")
        self._of_id = f"from {self._tables.events} where {session.dialect.quoted(self._id_column)} = ?"
        self._sees_outbox = sees_outbox
        # By the id of an event: its shard, and the cursor there before it was written.
        self._places: dict[str, tuple[int, bytes]] = {}

    async def write(self, document: dict[str, Any], /) -> SourceDocument:
        with explaining(self._feed):
            place = self._shard_id, await self._cursor(self._shard_id)
        identifier = document[self._id_column]
        values = self._row(document) if self._fields.names_fields else self._usual_row(document)
        columns = ", ".join(map(self._session.dialect.quoted, values))
        event = f"insert into {self._tables.events} ({columns}) values ({', '.join('?' * len(values))})"
        try:
            await self._session.execute(Statement("begin transaction"))
            await self._session.execute(Statement(event, list(values.values())))
            shard_id = await self._shard_by_trigger(identifier)
            if shard_id is None:
                await run_async(self._session, self._tables.append(self._shard_id, identifier, self._key))
            else:
                place = shard_id, await self._cursor(shard_id)
            # It comes behind everything that the relay has published so far.
            self._places[identifier] = place
            await self._session.execute(Statement("commit"))
        except ChangefeedError as error:
            raise ServiceError(
                f"no event could be written to {self._feed.feed}: {first_line(error)} It has values for "
                f"{', '.join(values)} alone. To write it needs a login that may also write: the role "
                f'"changefeed.writers:{self._feed.feed}", and the rights to insert into, select from and delete '
                "from the event table. Set SQL to it for this command."
            ) from error
        with explaining(self._feed):
            return await self._stored(document)

    async def _shard_by_trigger(self, identifier: str) -> int | None:
        """Return the shard in which a trigger of the event table has put an event, or None if none has."""
        if not self._sees_outbox:
            return None
        column = self._session.dialect.quoted(self._id_column)
        rows = await self._execute(f"select shard_id from {self._tables.outbox} where {column} = ?", identifier)
        return rows[0][0] if rows else None

    async def _stored(self, document: dict[str, Any]) -> SourceDocument:
        """Return the event as the relay reads it."""
        if self._fields.names_fields:
            names = list(self._columns)
            columns = ", ".join(map(self._session.dialect.quoted, names))
            [row] = await self._execute(f"select {columns} {self._of_id}", document[self._id_column])
            found = Entry(START, dict(zip(names, row, strict=True)), {})
            read = document_of(found, self._shard_id, self._feed.selection)
            # All digits that the database has given a number: the text is the message's body.
            return read._replace(fields={**read.fields, "data": json.loads(str(read.body))})
        stored = await self._execute(f"select data {self._of_id}", document["id"])
        without = {"ttl"} | ({"traceparent"} - self._columns.keys())
        kept = {name: value for name, value in document.items() if name not in without}
        kept["data"] = json.loads(stored[0][0])
        return self._fields.of_fields(SourceDocument({}, kept, Place()))

    def _usual_row(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of a row, by column, where relay.toml names no fields."""
        data = json.dumps(_storable(document["data"], self._columns["data"]))
        values = {"id": document["id"], "partition_key": document["partitionKey"], "data": data}
        return values | {name: value for name, value in _optional(document).items() if name in self._columns}

    def _row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of a row, by column, where relay.toml names fields.

        A table may lack the usual columns that it need not have.
        """
        return {
            name: json.dumps(_storable(value, self._columns[name])) if isinstance(value, dict) else value
            for name, value in row.items()
            if name in self._columns
        }

    async def remove(self, document: dict[str, Any], /) -> str | None:
        """Delete the event once the relay has passed it: before, the relay would find a row that is gone."""
        identifier = document[self._id_column]
        if identifier not in self._places:
            return None
        names_fields = self._fields.names_fields
        key = self._fields.of_columns("key")[0].find(document) if names_fields else document["partitionKey"]
        left = f"event {identifier!r} of {key!r} in {self._feed.feed}"
        try:
            async with asyncio.timeout(CLEAN_UP_S):
                with explaining(self._feed):
                    while not await self._passed(identifier):
                        await asyncio.sleep(_POLL_S)
                    await self._execute(f"delete {self._of_id}", identifier)
        except TimeoutError:
            return f"{left}: the relay has not passed it, and publishes it when it gets there; delete it then"
        except ServiceError as error:
            return f"{left}: {error}"
        return None

    async def _passed(self, identifier: str) -> bool:
        """Return True if the event has a position that the relay has passed."""
        shard_id, cursor = self._places[identifier]
        found = await run_async(self._session, self._tables.position(shard_id, cursor, identifier))
        return found is not None and found <= await self._cursor(shard_id)

    async def _cursor(self, shard_id: int) -> bytes:
        claims = await AsyncConsumer(self._session, self._feed.feed, self._feed.consumer).existing()
        return claims[shard_id].cursor if shard_id in claims else START

    async def _execute(self, text: str, *values: object) -> Any:
        return (await self._session.execute(Statement(text, values))).rows


@asynccontextmanager
async def open_canary(feed: SqlFeed, shard_id: int | None = None) -> AsyncIterator[SqlCanary]:
    """The SQL outbox of the settings, whose events go to a shard, or to a random one.

    Raises ServiceError, or UsageError if the event table lacks a column.
    """
    with explaining(feed):
        session = await connect(feed)
    try:
        with explaining(feed):
            catalog = catalog_of(feed.connection_string)
            rows = (await session.execute(catalog.columns(feed.feed))).rows
            keys = (await session.execute(catalog.primary_key(feed.feed))).rows
            objects = (await session.execute(catalog.objects(feed.feed, feed.quarantine_table))).rows
        sees_outbox = any(purpose == "outbox" and may_select for purpose, _, may_select, *_ in objects)
        columns = {name: kind for name, kind, *_ in rows}
        fields = feed.selection.fields
        own = [fields.column_of(name) for name in ("id", "key", "data")]
        needed = own if fields.names_fields else REQUIRED_COLUMNS
        if missing := [name for name in needed if name not in columns]:
            raise UsageError(f"{feed.feed} has no column {', '.join(missing)}: run ", CHECK)
        key = [name for name, _ in keys]
        yield SqlCanary(session, feed, columns, shard_id, key=key, sees_outbox=sees_outbox)
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


def _storable(value: Any, kind: str) -> Any:
    """Return a value without the character 0, for which jsonb has no place: lists lose the texts with it."""
    if kind != "jsonb":
        return value
    if isinstance(value, Mapping):
        return {name: _storable(each, kind) for name, each in value.items()}
    if isinstance(value, list):
        return [_storable(each, kind) for each in value if not (isinstance(each, str) and "\x00" in each)]
    return value
