"""A tick of the timer: it reads what is there, waits for news, and ends with the shards released."""

from __future__ import annotations

import asyncio

import pytest

from outbox_relay.changefeed import START, AsyncConsumer, connect_async, set_keep_async
from outbox_relay.changefeed.statements import Statement
from relay.backends.sql import worker as workers
from relay.backends.sql.database import Database
from relay.backends.sql.worker import Worker, read_until_next_tick
from relay.config.settings import CONSUMER
from tests.support.in_memory import InMemoryPublisher
from tests.support.outbox import event
from tests.support.sql_outbox import TABLE, SqlOutbox, relay_of, sql_settings
from tests.support.watchdog import WATCHDOG_S

# Ticks are that much shorter here.
_QUICKER = 20


def working(url: str, database: Database, topic: InMemoryPublisher) -> Worker:
    relay = relay_of(database, topic)
    return Worker(relay, sql_settings(url), database.connect, page_size=100, poll_delay_s=0.1)


async def test_each_tick_reads_what_is_there_and_releases_the_shards(outbox_database: str) -> None:
    session = await connect_async(outbox_database)
    database, topic = Database(sql_settings(outbox_database)), InMemoryPublisher()
    worker = working(outbox_database, database, topic)
    cursors = []
    for number in range(3):
        await SqlOutbox(session).commit(event(f"e{number}", "k"))
        async with asyncio.timeout(WATCHDOG_S):
            await read_until_next_tick(worker, lasts_s=1.5)
        (claim,) = await AsyncConsumer(session, TABLE, CONSUMER).claims([0])
        assert claim.owner is None
        cursors.append(claim.cursor)

    assert topic.accepted == {"k": ["e0", "e1", "e2"]}
    assert START < cursors[0] < cursors[1] < cursors[2]
    await database.close()
    await session.close()


async def test_a_tick_carries_out_retention(outbox_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker runs for one tick only, so what begins later than that never does."""
    monkeypatch.setattr(workers, "_RETENTION_AFTER_S", workers._RETENTION_AFTER_S / _QUICKER)
    session = await connect_async(outbox_database)
    database = Database(sql_settings(outbox_database))
    worker = working(outbox_database, database, InMemoryPublisher())
    await SqlOutbox(session).commit(event("e0", "k"))
    await session.execute(
        Statement(f"update changefeed.\"outbox:{TABLE}\" set time_hint = now() - interval '2 hours'")
    )
    await set_keep_async(session, TABLE, "1h")

    async with asyncio.timeout(WATCHDOG_S):
        await read_until_next_tick(worker, lasts_s=workers._LASTS_S / _QUICKER)

    assert (await session.execute(Statement(f'select id from changefeed."feed:{TABLE}"'))).rows == []
    assert (await session.execute(Statement("select count(*) from changefeed.low_water"))).rows == [(1,)]
    await database.close()
    await session.close()
