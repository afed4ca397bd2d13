"""A tick of the timer: it reads what is there, waits for news, and ends with the shards released."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from changefeed import START, AsyncConsumer, connect_async, set_keep_async
from changefeed.statements import Statement
from relay.pipeline import Relay
from relay.settings import OnPoison, SqlFeed
from relay.sql import retention
from relay.sql.database import CONSUMER, Database
from relay.sql.source import SqlSource
from relay.sql.tick import read_until_next_tick
from relay.sql.worker import Worker
from tests.support.in_memory import InMemoryPublisher, InMemoryQuarantine
from tests.support.outbox import event
from tests.support.sql_outbox import TABLE, SqlOutbox, sql_settings


def worker_on(database: Database, settings: SqlFeed, topic: InMemoryPublisher) -> Worker:
    relay: Relay[Any] = Relay(
        SqlSource("domainEvent", database.cursor),
        topic,
        InMemoryQuarantine(),
        duplicate_window_s=600,
        on_poison=OnPoison.SKIP,
    )
    return Worker(relay, settings, database.connect, page_size=100, poll_delay_s=0.1)


async def test_retention_is_carried_out_though_each_tick_is_shorter_than_the_time_between_two_looks(
    outbox_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_EVERY_S", 0.6)
    session = await connect_async(outbox_database)
    await set_keep_async(session, TABLE, "1h")
    await SqlOutbox(session).commit(event("e", "k"))
    await session.execute(
        Statement(f"update changefeed.\"outbox:{TABLE}\" set time_hint = now() - interval '1 day'")
    )
    settings, topic = sql_settings(outbox_database), InMemoryPublisher()
    database = Database(settings)
    worker = worker_on(database, settings, topic)

    async with asyncio.timeout(30):
        left = 1
        while not topic.accepted or left:
            await read_until_next_tick(worker, lasts_s=0.4)
            left = (await session.execute(Statement(f'select from changefeed."feed:{TABLE}"'))).changed

    await database.close()
    await session.close()


async def test_each_tick_reads_what_is_there_and_releases_the_shards(outbox_database: str) -> None:
    session = await connect_async(outbox_database)
    settings = sql_settings(outbox_database)
    database, topic = Database(settings), InMemoryPublisher()
    worker = worker_on(database, settings, topic)
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
