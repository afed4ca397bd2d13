"""An SQL outbox for tests: its event table with the documented columns, its feed, and who writes to it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from outbox_relay.changefeed import connect, connect_async, install, setup_feed
from outbox_relay.changefeed.statements import AsyncSession, Entry, Statement
from outbox_relay.operator.backends.sql.install import migrations
from relay.backends.sql.database import Database
from relay.backends.sql.rows import document_of, event_in
from relay.backends.sql.source import SqlBatch, SqlSource
from relay.config.clients import Identity
from relay.config.settings import OnPoison, SqlFeed
from relay.core.events import Event, Rejected
from relay.core.pipeline import Relay
from relay.core.ports import Publisher
from relay.routes.selection import BY_DEFAULT, Selection
from tests.support.in_memory import InMemoryQuarantine

TABLE = "outbox.domain_event"

_EVENT_TABLE = """
create schema outbox;
create table outbox.domain_event (
    id text primary key,
    partition_key text,
    type text not null default 'domainEvent',
    action text,
    data json not null,
    created_at timestamptz not null default now(),
    sequence bigint,
    traceparent text
);
"""


def sql_settings(url: str, *, shards: int = 1, claim_s: float = 2.0) -> SqlFeed:
    """The settings of a relay for this database."""
    return SqlFeed(url, Identity(managed=False, client_id=None), TABLE, shards, claim_s)


def relay_of(
    database: Database, topic: Publisher, quarantine: InMemoryQuarantine | None = None
) -> Relay[SqlBatch]:
    """A relay from the feed of a database to a topic, which skips what is poisoned."""
    return Relay(
        SqlSource(BY_DEFAULT, database.claim),
        topic,
        quarantine or InMemoryQuarantine(),
        duplicate_window_s=600,
        on_poison=OnPoison.SKIP,
    )


def provision(url: str) -> None:
    """Make an event table with a feed, and the quarantine's table."""
    session = connect(url)
    install(session)
    session.execute(Statement(_EVENT_TABLE))
    setup_feed(session, TABLE, roles=False)
    for file in migrations("postgresql"):
        session.execute(Statement(file.read_text()))
    session.close()


async def provisioned(url: str) -> AsyncSession:
    """A session on a database that has an event table with a feed, and the quarantine's table."""
    provision(url)
    return await connect_async(url)


def event_of(entry: Entry, shard_id: int, selection: Selection, position: int = 0) -> Event | Rejected:
    """The event of one entry; `position` is its place among those it came with."""
    return event_in(document_of(entry, shard_id, selection), entry, selection, position)


class SqlOutbox:
    """Commits events."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def commit(self, *documents: dict[str, Any], shard_id: int = 0, at: datetime | None = None) -> None:
        """Commit documents of the shape of tests.support.outbox, all in one transaction."""
        await self._session.execute(Statement("begin"))
        for document in documents:
            await self._session.execute(
                Statement(
                    "insert into outbox.domain_event (id, partition_key, type, data, sequence, traceparent) "
                    "values (?, ?, ?, ?::json, ?, ?)",
                    (
                        document["id"],
                        document.get("partitionKey"),
                        document["type"],
                        json.dumps(document["data"]),
                        document.get("sequence"),
                        document.get("traceparent"),
                    ),
                )
            )
            await self._session.execute(
                Statement(
                    'insert into changefeed."outbox:outbox.domain_event" (shard_id, id, time_hint) '
                    "values (?, ?, coalesce(?, clock_timestamp()))",
                    (shard_id, document["id"], at),
                )
            )
        await self._session.execute(Statement("commit"))

    async def commit_each(self, documents: Iterable[dict[str, Any]], shard_id: int = 0) -> None:
        """Commit documents, each in its own transaction."""
        for document in documents:
            await self.commit(document, shard_id=shard_id)
