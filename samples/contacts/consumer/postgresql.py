"""The directory in PostgreSQL: what an event changes is committed with the record that it was handled."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Self

from psycopg_pool import AsyncConnectionPool

from outbox_relay import inbox
from samples.contacts.consumer.changes import UnreadableEvent, parse_change, parse_event
from samples.contacts.consumer.directory import contacts_of, rows_of

SCHEMA = "directory"
"""The schema of its tables, and of those of its inbox."""

_CONNECTIONS = 16
# Not jsonb, which cannot hold the character U+0000.
_CREATE = f"""
CREATE SCHEMA IF NOT EXISTS {SCHEMA};
CREATE TABLE IF NOT EXISTS {SCHEMA}.aspects (
    contact_id text NOT NULL,
    aspect text NOT NULL,
    version bigint NOT NULL,
    value json NOT NULL,
    PRIMARY KEY (contact_id, aspect)
);
"""
# A late event, which operators have released, must not replace a newer value.
_APPLY = f"""
INSERT INTO {SCHEMA}.aspects AS stored VALUES (%s, %s, %s, %s)
ON CONFLICT (contact_id, aspect) DO UPDATE SET version = excluded.version, value = excluded.value
WHERE excluded.version > stored.version
"""
_ALL = f'SELECT contact_id, aspect, value::text FROM {SCHEMA}.aspects ORDER BY contact_id COLLATE "C"'

_MISSING = "contact %s: event %d is missing, event %s has arrived"

_log = logging.getLogger(__name__)


class PostgresDirectory:
    """Contacts by id, in a database that several processes share: each has its own `PostgresDirectory`."""

    def __init__(self, pool: AsyncConnectionPool[Any]) -> None:
        self._pool = pool
        self._store = inbox.PostgresStore(pool.connection, schema=SCHEMA)

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncGenerator[Self]:
        """Connect, and create the tables that do not exist yet.

        Args:
            url: Of the database: `postgresql://user@host/database`.
        """
        async with AsyncConnectionPool(url, min_size=1, max_size=_CONNECTIONS, open=False) as pool:
            directory = cls(pool)
            async with pool.connection() as connection:
                await connection.execute(_CREATE)
            await directory._store.prepare()
            yield directory

    async def handle(self, message: inbox.Message) -> None:
        """Apply the event in a message, once.

        Raises:
            DeadLetter: The message can never be handled: `unreadable`, or the store cannot record it.
        """
        try:
            event = parse_event(message.body)
            change = parse_change(event)
        except UnreadableEvent as error:
            raise inbox.DeadLetter("unreadable", str(error)) from error
        contact_id = event.get("contactId")
        entity = contact_id if isinstance(contact_id, str) else None
        # Also for an event that the directory ignores, which would otherwise count as missing.
        async with self._store.once(message, entity=entity) as arrival:
            for number in arrival.missing:
                _log.warning(
                    "contact %s: event %d is missing, event %s has arrived", entity, number, message.sequence
                )
            if arrival.first and change is not None:
                async with arrival.connection.cursor() as cursor:
                    await cursor.executemany(_APPLY, rows_of(change))

    async def contacts(self) -> list[dict[str, Any]]:
        """Return the contacts, as `Directory.contacts` does."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(_ALL)
            return list(contacts_of(await cursor.fetchall()))

    async def missing(self) -> list[tuple[str, int]]:
        """Contact id and sequence number of each missing event, sorted."""
        gaps = await self._store.gaps()
        return [(gap.entity, number) for gap in gaps for number in range(gap.first, gap.last + 1)]
