"""Reads what `check` needs to know of an SQL outbox, with the rights of this login, and changes nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from azure.core.exceptions import AzureError, ClientAuthenticationError

from changefeed import START, AsyncConsumer, ChangefeedError, Claim, DatabaseError
from changefeed.install import migrations
from changefeed.statements import AsyncSession, Row, Statement, run_async
from changefeed.tables import Tables, Waiting, names_of
from changefeed.ulid import milliseconds
from relay.errors import first_line
from relay.findings import Gap, Why
from relay.settings import SqlFeed
from relay.sql.catalog import Catalog, catalog_of
from relay.sql.database import CONSUMER, connect
from relay.sql.facts import (
    MaintenanceFacts,
    ObjectFacts,
    Owner,
    SchemaFacts,
    ServerFacts,
    ShardFacts,
    SizeFacts,
    SqlFacts,
)

# Everything that is asked, apart from the wait for signs of life.
_TIMEOUT_S = 30.0

# How often in the time that a claim lasts its owner is looked at.
_LOOKS = 8

_RIGHTS = ("select", "insert", "update", "delete", "execute")

# What a server that answers says to a login or a database that it does not accept.
_REFUSALS = ("FATAL:", "Login failed", "Cannot open database", "Invalid authorization")


async def read_sql(feed: SqlFeed) -> SqlFacts:
    """The database as it describes itself, and who reads the feed."""
    catalog = catalog_of(feed.connection_string)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            session = await connect(feed)
    except (ChangefeedError, AzureError, OSError) as error:
        return SqlFacts(catalog.engine, _gap(error))
    try:
        async with asyncio.timeout(_TIMEOUT_S + feed.claim_s):
            return await _Inspection(session, catalog, feed).read()
    except (ChangefeedError, OSError) as error:
        return SqlFacts(catalog.engine, _gap(error))
    finally:
        await session.close()


def objects_of(table: str) -> dict[str, tuple[str, str]]:
    """The schema and the name of everything that a feed consists of, by what it is for."""
    schema, _, name = table.partition(".")
    return {
        "events": (schema, name),
        "migration": ("changefeed", "migration"),
        "outbox_feed": ("changefeed", "outbox_feed"),
        "quarantine": ("relay", "item"),
        **{kind: ("changefeed", own) for kind, own in names_of(table).items()},
    }


class _Inspection:
    def __init__(self, session: AsyncSession, catalog: Catalog, feed: SqlFeed) -> None:
        self._session = session
        self._catalog = catalog
        self._feed = feed
        self._table = feed.feed
        self._tables = Tables(session.dialect, feed.feed)

    async def read(self) -> SqlFacts:
        ((isolation, snapshots, autovacuum, now_ms),) = await self._rows(self._catalog.server())
        server = ServerFacts(isolation, None if snapshots is None else bool(snapshots), autovacuum, now_ms)
        schema = await self._schema()
        if not schema.objects["has_news"].exists:
            return SqlFacts(self._catalog.engine, server, schema)
        maintenance, waiting = await self._maintenance(schema), await self._waiting(schema)
        size = await self._size(schema, now_ms)
        facts = SqlFacts(self._catalog.engine, server, schema, maintenance, waiting, size=size)
        if "select" not in schema.objects["claim"].rights:
            return facts
        owners, cursors = await self._owners()
        shards = await self._shards(schema, owners, cursors, now_ms)
        return replace(facts, shards=shards, given_up=await self._given_up(schema, cursors))

    async def _schema(self) -> SchemaFacts:
        rows = await self._rows(self._catalog.objects(objects_of(self._table)))
        objects = {
            purpose: ObjectFacts(
                bool(exists), frozenset(name for name, held in zip(_RIGHTS, rights, strict=True) if held)
            )
            for purpose, exists, *rights in rows
        }
        version = None
        if "select" in objects["migration"].rights:
            ((version,),) = await self._rows(self._catalog.version())
        columns = {row[0]: row[1] for row in await self._rows(self._catalog.columns(self._table))}
        key = await self._rows(self._catalog.primary_key(self._table))
        newest = len(migrations(self._session.dialect.name))
        return SchemaFacts(version, newest, objects, columns, tuple(name for (name,) in key))

    async def _maintenance(self, schema: SchemaFacts) -> MaintenanceFacts:
        if "select" not in schema.objects["outbox_feed"].rights:
            return MaintenanceFacts()
        statement = self._catalog.maintenance(self._table)
        ((cache, notifies, undecided, without, oldest_s),) = await self._rows(statement)
        tables = tuple(without.split(", ")) if without else ()
        return MaintenanceFacts(cache, notifies, tables, oldest_s, bool(undecided))

    async def _waiting(self, schema: SchemaFacts) -> Mapping[int, Waiting] | None:
        if "select" not in schema.objects["outbox"].rights:
            return None
        return await run_async(self._session, self._tables.waiting())

    async def _size(self, schema: SchemaFacts, now_ms: int) -> SizeFacts | None:
        if "select" not in schema.objects["feed"].rights:
            return None
        ages = [await self._oldest_s(shard_id, START, now_ms) for shard_id in range(self._feed.shards)]
        since_s = max((age_s for age_s in ages if age_s is not None), default=None)
        if since_s is None:
            return None
        try:
            rows, size = await run_async(self._session, self._session.dialect.size(self._table))
        except DatabaseError as error:
            # SQL Server shows sizes to logins with VIEW DATABASE STATE only.
            if error.lost:
                raise
            return None
        return SizeFacts(rows, size, since_s)

    async def _given_up(self, schema: SchemaFacts, cursors: Mapping[int, bytes]) -> tuple[int, ...]:
        if "select" not in schema.objects["feed"].rights:
            return ()
        outside = [shard_id for shard_id in sorted(cursors) if shard_id not in range(self._feed.shards)]
        return tuple(
            [shard_id for shard_id in outside if await self._first_unread(shard_id, cursors[shard_id]) is not None]
        )

    async def _shards(
        self, schema: SchemaFacts, owners: Mapping[int, Owner], cursors: Mapping[int, bytes], now_ms: int
    ) -> tuple[ShardFacts, ...]:
        last: dict[int, bytes] | None = None
        if "select" in schema.objects["state"].rights:
            last = await run_async(self._session, self._tables.last_positions())
        readable = "select" in schema.objects["feed"].rights
        shards = []
        for shard_id in range(self._feed.shards):
            cursor = cursors.get(shard_id, START)
            ahead = None if last is None else cursor > last.get(shard_id, START)
            if ahead and readable:
                # A feed may have been filled by hand: its last position counts too.
                ahead = cursor > await run_async(self._session, self._tables.last_position(shard_id))
            oldest_s = await self._oldest_s(shard_id, cursor, now_ms) if readable else None
            shards.append(ShardFacts(shard_id, owners.get(shard_id, Owner.NOBODY), ahead, oldest_s))
        return tuple(shards)

    async def _oldest_s(self, shard_id: int, cursor: bytes, now_ms: int) -> float | None:
        first = await self._first_unread(shard_id, cursor)
        return None if first is None else max(0.0, (now_ms - milliseconds(first)) / 1000)

    async def _first_unread(self, shard_id: int, cursor: bytes) -> bytes | None:
        return await run_async(self._session, self._tables.first_position(shard_id, cursor))

    async def _owners(self) -> tuple[dict[int, Owner], dict[int, bytes]]:
        """Who reads each shard, and its cursor.

        An owner is alive once it has renewed its claim. A shard without one may be between two owners: until a
        claim would have ended, there is another look.
        """
        ends = time.monotonic() + self._feed.claim_s
        first: dict[int, Claim] = {}
        consumer = AsyncConsumer(self._session, self._table, CONSUMER)
        while True:
            claims = await consumer.existing()
            owners = {}
            for shard_id, claim in claims.items():
                seen = first.setdefault(shard_id, claim)
                alive = (seen.owner, seen.version) != (claim.owner, claim.version)
                owners[shard_id] = Owner.NOBODY if claim.owner is None else Owner.ALIVE if alive else Owner.SILENT
            living = sum(owners.get(shard_id) is Owner.ALIVE for shard_id in range(self._feed.shards))
            # Where no shard was ever claimed, there is no sign of life to wait for.
            if living == self._feed.shards or not claims or time.monotonic() >= ends:
                return owners, {shard_id: claim.cursor for shard_id, claim in claims.items()}
            await asyncio.sleep(self._feed.claim_s / _LOOKS)

    async def _rows(self, statement: Statement) -> Sequence[Row]:
        return (await self._session.execute(statement)).rows


def _gap(error: Exception) -> Gap:
    said = first_line(error)
    refused = isinstance(error, ClientAuthenticationError) or any(words in said for words in _REFUSALS)
    return Gap(Why.REFUSED if refused else Why.UNREACHABLE, said)
