"""An SQL outbox for the operators' commands: what is in it, how far the relay is, and a relay in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from outbox_relay.changefeed import connect, install, setup_feed
from outbox_relay.inbox.event_loop import end_tasks
from outbox_relay.operator.backends.sql.install import migrations
from relay.backends.sql.backend import SqlBackend
from relay.config.settings import CONSUMER, Settings
from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S

TABLE = "outbox.domain_event"
OUTBOX, FEED, STATE, CLAIM = (f'changefeed."{part}:{TABLE}"' for part in ("outbox", "feed", "state", "claim"))

COLUMNS = "id text primary key, partition_key text not null, data jsonb not null"


class SqlDeployment:
    """A database with an event table.

    Attributes:
        url: Of the database, for its owner.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.connection = psycopg.connect(url, autocommit=True)

    def create(self, columns: str = COLUMNS, *, set_up: bool = True, notify: bool = True) -> None:
        """Create the event table, the table of the quarantine and, unless told otherwise, the feed."""
        self.connection.execute(f"create schema outbox; create table {TABLE} ({columns})")
        for file in migrations("postgresql"):
            self.connection.execute(file.read_text())
        session = connect(self.url)
        install(session)
        if set_up:
            setup_feed(session, TABLE, notify=notify, keep="forever")
        session.close()

    def write(self, *events: tuple[str, str, Any], shard_id: int = 0, hint: str | None = None) -> None:
        """Commit events, each an id, a key and its data, in one transaction; `hint` is their time."""
        with self.connection.transaction():
            for identifier, key, data in events:
                self.connection.execute(
                    f"insert into {TABLE} (id, partition_key, data) values (%s, %s, %s)",
                    (identifier, key, json.dumps(data)),
                )
                self.connection.execute(
                    f"insert into {OUTBOX} (shard_id, time_hint, id) values (%s, coalesce(%s, now()), %s)",
                    (shard_id, hint, identifier),
                )

    def named(self, *identifiers: str, key: str = "k", **place: Any) -> None:
        """Commit events of one key with the action `Named`."""
        self.write(*((each, key, {"action": "Named"}) for each in identifiers), **place)

    def read(self, shard_id: int = 0) -> list[bytes]:
        """Give positions to what is in the outbox table; returns all positions of the shard."""
        self.connection.execute(
            f"select * from changefeed.\"read_feed:{TABLE}\"(%s, '00000000-0000-0000-0000-000000000000', 1000)",
            (shard_id,),
        )
        while self.rows(f"select 1 from {OUTBOX} where shard_id = {shard_id} limit 1"):
            self.connection.execute(
                f'select * from changefeed."read_feed:{TABLE}"(%s, '
                f"(select ulid from {STATE} where shard_id = %s), 1000)",
                (shard_id, shard_id),
            )
        return [
            row[0].bytes for row in self.rows(f"select ulid from {FEED} where shard_id = {shard_id} order by 1")
        ]

    def pass_to(self, cursor: bytes, shard_id: int = 0, consumer: str = CONSUMER) -> None:
        """Store a cursor of the relay, as if it had published everything up to it."""
        self.connection.execute(
            f"insert into {CLAIM} (consumer, shard_id, last_ulid) values (%s, %s, %s::uuid) "
            "on conflict (consumer, shard_id) do update set last_ulid = excluded.last_ulid",
            (consumer, shard_id, cursor.hex()),
        )

    def pass_all(self, *shards: int) -> None:
        """Set the positions to those after everything was published."""
        for shard_id in shards or (0,):
            positions = self.read(shard_id)
            self.pass_to(positions[-1] if positions else bytes(16), shard_id)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return self.connection.execute(query).fetchall()

    async def until_passed(self) -> None:
        """Wait until the relay has passed everything."""
        unread = f"select 1 from {FEED} f join {CLAIM} c on c.shard_id = f.shard_id and f.ulid > c.last_ulid"
        async with asyncio.timeout(WATCHDOG_S):
            while self.rows(f"select 1 from {OUTBOX}") or self.rows(unread):
                await look_again()  # what another session commits can only be asked for again and again

    def close(self) -> None:
        self.connection.close()


PATIENT = {"SQL_CLAIM_S": "300"}
"""Settings of a check that waits for a renewal, however seldom a busy machine lets a worker renew its claim."""


@asynccontextmanager
async def working(settings: Settings) -> AsyncIterator[SqlBackend]:
    """The relay on the SQL outbox of these settings, in this process."""
    sql = SqlBackend(settings)
    stop = asyncio.Event()
    running = asyncio.create_task(sql.worker.run(stop))
    try:
        yield sql
    finally:
        stop.set()
        try:
            async with asyncio.timeout(WATCHDOG_S):
                await running
        finally:
            await end_tasks([running])
            await sql.relay.close()
