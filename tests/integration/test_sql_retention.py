"""Retention end to end: workers delete what the policy allows and every consumer has read, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from outbox_relay.changefeed import (
    START,
    AsyncConsumer,
    AsyncFeed,
    CursorPrunedError,
    connect_async,
    set_keep_async,
)
from outbox_relay.changefeed.statements import AsyncSession, Statement
from relay.backends.sql import worker as workers
from relay.backends.sql.database import Database
from relay.backends.sql.worker import Worker
from tests.support.in_memory import InMemoryPublisher
from tests.support.sql_outbox import TABLE, relay_of, sql_settings
from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S

_OLD, _RECENT = "2 hours", "30 minutes"


class Counted(AsyncFeed):
    """A feed that counts how often retention was carried out."""

    times = 0

    async def carry_out_retention(self) -> int:
        deleted = await super().carry_out_retention()
        Counted.times += 1
        return deleted


class Site:
    """A feed of two shards that keeps positions for an hour, and a worker on it."""

    def __init__(self, url: str, session: AsyncSession) -> None:
        self.session = session
        self.topic = InMemoryPublisher()
        settings = sql_settings(url, shards=2)
        self.database = Database(settings)
        relay = relay_of(self.database, self.topic)
        self.stop = asyncio.Event()
        worker = Worker(relay, settings, self.database.connect, page_size=100, poll_delay_s=0.05)
        self.running = asyncio.create_task(worker.run(self.stop))

    async def put(self, *ids: str, shard_id: int = 0, ago: str = "0 s") -> None:
        """Commit events in one transaction, which the feed takes for that old."""
        await self.session.execute(
            Statement(
                "with event as (insert into outbox.domain_event (id, partition_key, data) "
                'select id, ?, \'{"action": "Made"}\' from unnest(?::text[]) id returning id) '
                f'insert into changefeed."outbox:{TABLE}" (shard_id, time_hint, id) '
                "select ?, now() - ?::interval, id from event order by id",
                (f"k{shard_id}", list(ids), shard_id, ago),
            )
        )

    async def feed(self) -> list[str]:
        result = await self.session.execute(Statement(f'select id from changefeed."feed:{TABLE}" order by id'))
        return [row[0] for row in result.rows]

    async def consumer(self, name: str, shard_id: int, cursor: bytes) -> None:
        """Another consumer of the feed, which has come that far."""
        consumer = AsyncConsumer(self.session, TABLE, name)
        (claim,) = await consumer.claims([shard_id])
        await consumer.store(await consumer.take(claim, "a process"), cursor)

    async def position(self, identifier: str) -> bytes:
        result = await self.session.execute(
            Statement(f'select ulid from changefeed."feed:{TABLE}" where id = ?', (identifier,))
        )
        position: bytes = result.rows[0][0]
        return position

    async def end(self) -> None:
        self.stop.set()
        async with asyncio.timeout(WATCHDOG_S):
            await self.running
        await self.database.close()
        await self.session.close()


@pytest.fixture
async def session(outbox_database: str) -> AsyncSession:
    return await connect_async(outbox_database)


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(WATCHDOG_S):
        while not await holds():
            await look_again()


async def test_what_is_old_and_was_read_by_every_consumer_goes_and_nothing_else(
    outbox_database: str, session: AsyncSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_RETENTION_AFTER_S", 0.05)
    monkeypatch.setattr(workers, "_RETENTION_EVERY_S", 0.05)
    monkeypatch.setattr(workers, "AsyncFeed", Counted)
    await set_keep_async(session, TABLE, "forever")
    site = Site(outbox_database, session)
    try:
        # Committed one after another: a position is never before that of an earlier event.
        await site.put("old-1", "old-2", "old-3", ago=_OLD)
        await site.put("other-shard", shard_id=1, ago=_OLD)
        await until(lambda: _published(site, 4))
        await site.put("recent-1", ago=_RECENT)
        await until(lambda: _published(site, 5))
        # Of shard 1, this one has read nothing.
        slow = await site.position("old-2")
        await site.consumer("slow", 0, slow)
        await _retained()
        assert await site.feed() == ["old-1", "old-2", "old-3", "other-shard", "recent-1"]

        await set_keep_async(session, TABLE, "1h")

        await until(lambda: _has(site, ["old-3", "other-shard", "recent-1"]))
        await _retained()
        assert await site.feed() == ["old-3", "other-shard", "recent-1"]
        await site.consumer("slow", 1, await site.position("other-shard"))
        await site.consumer("slow", 0, await site.position("recent-1"))
        await until(lambda: _has(site, ["recent-1"]))

        # The relay continues, a cursor from before is refused, and the events themselves are all there.
        await site.put("new", ago="0 s")
        await until(lambda: _published(site, 6))
        with pytest.raises(CursorPrunedError):
            await AsyncFeed(session, TABLE).read(0, slow)
        assert [
            entry.row and entry.row["id"] for entry in (await AsyncFeed(session, TABLE).read(0, START)).entries
        ] == [
            "recent-1",
            "new",
        ]
        assert (await session.execute(Statement(f"select count(*) from {TABLE}"))).rows == [(6,)]
    finally:
        await site.end()


async def _published(site: Site, count: int) -> bool:
    if sum(map(len, site.topic.accepted.values())) < count:
        return False
    unread = f'select 1 from changefeed."feed:{TABLE}" f join changefeed."claim:{TABLE}" c using (shard_id)'
    left = await site.session.execute(Statement(f"{unread} where c.consumer = 'relay' and f.ulid > c.last_ulid"))
    return not left.rows


async def _retained() -> None:
    """Wait until the worker has carried out retention twice, of which the second began after this call."""
    times = Counted.times

    async def again() -> bool:
        return Counted.times >= times + 2

    await until(again)


async def _has(site: Site, ids: list[str]) -> bool:
    return await site.feed() == ids
