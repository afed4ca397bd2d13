"""A tick of the timer: it reads what is there, waits for news, and ends with the shards released."""

from __future__ import annotations

import asyncio
from typing import Any

from changefeed import START, AsyncConsumer, connect_async
from relay.pipeline import Relay
from relay.settings import OnPoison
from relay.sql.database import CONSUMER, Database
from relay.sql.source import SqlSource
from relay.sql.tick import read_until_next_tick
from relay.sql.worker import Worker
from tests.support.in_memory import InMemoryPublisher, InMemoryQuarantine
from tests.support.outbox import event
from tests.support.sql_outbox import TABLE, SqlOutbox, sql_settings


async def test_each_tick_reads_what_is_there_and_releases_the_shards(outbox_database: str) -> None:
    session = await connect_async(outbox_database)
    settings = sql_settings(outbox_database)
    database, topic = Database(settings), InMemoryPublisher()
    relay: Relay[Any] = Relay(
        SqlSource("domainEvent", database.cursor),
        topic,
        InMemoryQuarantine(),
        duplicate_window_s=600,
        on_poison=OnPoison.SKIP,
    )
    worker = Worker(relay, settings, database.connect, page_size=100, poll_delay_s=0.1)
    cursors = []
    for number in range(3):
        await SqlOutbox(session).commit(event(f"e{number}", "k"))
        async with asyncio.timeout(20):
            await read_until_next_tick(worker, lasts_s=1.5)
        (claim,) = await AsyncConsumer(session, TABLE, CONSUMER).claims([0])
        assert claim.owner is None
        cursors.append(claim.cursor)

    assert topic.accepted == {"k": ["e0", "e1", "e2"]}
    assert START < cursors[0] < cursors[1] < cursors[2]
    await database.close()
    await session.close()
