"""The events in all shards of a process together: bounded in bytes, without making a shard wait forever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from outbox_relay.changefeed import AsyncFeed, connect_async
from outbox_relay.changefeed.statements import AsyncSession, Entry, Result, Statement
from outbox_relay.operator.backends.sql import backlog
from relay.backends.sql import shard as shards_module
from relay.backends.sql.database import Database
from relay.backends.sql.memory import Memory, PageSize, size_of
from relay.backends.sql.worker import Worker
from relay.core.errors import RetryableError
from relay.core.events import Event
from relay.core.results import KeyOutcome
from tests.support.in_memory import InMemoryPublisher
from tests.support.sql_outbox import TABLE, relay_of, sql_settings
from tests.support.waiting import elapse, look_again
from tests.support.watchdog import WATCHDOG_S

_MAX_BYTES = 4 * 1024**2
_EVENT_BYTES = 20_000
_SHARE_BYTES = _MAX_BYTES // 8

_EVENTS = f"""
with made as (
    insert into outbox.domain_event (id, partition_key, data)
    select format('%s-%s', shard, number), format('k%s', shard),
           json_build_object('action', 'A', 'text', repeat('x', {_EVENT_BYTES}))
    from generate_series(0, ?::int - 1) shard, generate_series(1, ?::int) number
    returning id
)
insert into changefeed."outbox:outbox.domain_event" (shard_id, id) select split_part(id, '-', 1)::int, id from made
"""


class Measuring(InMemoryPublisher):
    """A topic that takes a while, and knows how many bytes are on their way to it."""

    def __init__(self, broken_keys: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self._broken_keys = broken_keys
        self._bytes = 0
        self.most_bytes = 0

    async def publish(self, events: Mapping[str, Sequence[Event]], /, **how: Any) -> list[KeyOutcome]:
        size = sum(len(each.body or b"") for its_events in events.values() for each in its_events)
        self._bytes += size
        self.most_bytes = max(self.most_bytes, self._bytes)
        try:
            await elapse(0.03)
            if not self._broken_keys.isdisjoint(events):
                self.broken = RetryableError("the broker does not take this key")
            return await super().publish(events, **how)
        finally:
            self.broken = None
            self._bytes -= size

    def count(self) -> int:
        return sum(map(len, self.accepted.values()))


@asynccontextmanager
async def working(url: str, session: AsyncSession, topic: Measuring, shards: int) -> AsyncIterator[Worker]:
    settings = replace(sql_settings(url, shards=shards, claim_s=10), max_bytes=_MAX_BYTES)
    database = Database(settings)
    relay = relay_of(database, topic)
    worker = Worker(relay, settings, database.connect, page_size=1000, poll_delay_s=0.1)
    stop = asyncio.Event()
    task = asyncio.create_task(worker.run(stop))
    try:
        yield worker
    finally:
        stop.set()
        async with asyncio.timeout(WATCHDOG_S):
            await task
        await database.close()
        await session.close()


async def until(holds: Any) -> None:
    async with asyncio.timeout(WATCHDOG_S):
        while not holds():
            await look_again()


async def test_all_shards_together_hold_no_more_than_the_limit(outbox_database: str) -> None:
    session, topic = await connect_async(outbox_database), Measuring()
    await session.execute(Statement(_EVENTS, (12, 60)))

    async with working(outbox_database, session, topic, shards=12) as worker:
        await until(lambda: topic.count() == 12 * 60)
        await until(lambda: worker._memory.held < _MAX_BYTES / 2)

    assert {key: len(ids) for key, ids in topic.accepted.items()} == {f"k{shard}": 60 for shard in range(12)}
    # Without a limit it would be all of them, 14 MB; one page may be larger than what was reserved for it.
    assert topic.most_bytes < _MAX_BYTES + 32 * _EVENT_BYTES
    assert worker._memory.held == 0


async def test_a_first_page_of_large_events_is_bounded_too(outbox_database: str) -> None:
    """Nothing is known of the rows yet, and the number that is asked for would be several times the limit."""
    session, topic = await connect_async(outbox_database), Measuring()
    await session.execute(Statement(_EVENTS.replace(str(_EVENT_BYTES), str(_SHARE_BYTES)), (4, 20)))

    async with working(outbox_database, session, topic, shards=4):
        await until(lambda: topic.count() == 4 * 20)

    # One event for each shard, as each is larger than the share of a page.
    assert topic.most_bytes < 5 * _SHARE_BYTES


async def test_shards_that_wait_for_their_next_attempt_keep_no_room_from_others(
    outbox_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards_module, "_FIRST_PAUSE_S", 10 * WATCHDOG_S)
    # Their pages together are larger than the limit.
    session, topic = await connect_async(outbox_database), Measuring(frozenset(f"k{shard}" for shard in range(11)))
    await session.execute(Statement(_EVENTS, (12, 60)))

    async with working(outbox_database, session, topic, shards=12):
        await until(lambda: topic.count() == 60)

    assert list(topic.accepted) == ["k11"]


async def test_pages_wait_in_turn_and_a_large_one_holds_back_the_next() -> None:
    memory = Memory(800)
    order: list[str] = []

    async def page(name: str, size: int, done: asyncio.Event) -> None:
        async with memory.room(lambda: True) as room:
            assert room is not None
            room.keep(size)
            order.append(name)
            await done.wait()

    large, small = asyncio.Event(), asyncio.Event()
    async with asyncio.timeout(WATCHDOG_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(page("larger than all", 2000, large))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for number in range(3):
            tasks.create_task(page(str(number), 10, small))
        for _ in range(10):
            await asyncio.sleep(0)
        assert order == ["larger than all"]
        assert memory.held == 2000
        large.set()
        while len(order) < 4:
            await asyncio.sleep(0)
        assert memory.held == 30
        small.set()
    assert order == ["larger than all", "0", "1", "2"]
    assert memory.held == 0


async def test_who_does_not_wait_any_more_takes_nothing() -> None:
    memory = Memory(8)
    async with asyncio.timeout(WATCHDOG_S):
        async with memory.room(lambda: True) as first:
            assert first is not None
            first.keep(8)
            async with memory.room(lambda: False) as none:
                assert none is None
            waiting = asyncio.create_task(_enter(memory))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait((waiting,))
    assert memory.held == 0
    # Cancelled between the grant and its notice.
    async with memory.room(lambda: True) as only:
        assert only is not None
        only.keep(8)
        waiting = asyncio.create_task(_enter(memory))
        await asyncio.sleep(0)
        only.keep(0)
        waiting.cancel()
        await asyncio.wait((waiting,))
    assert memory.held == 0


async def _enter(memory: Memory) -> None:
    async with memory.room(lambda: True):
        await asyncio.Event().wait()


def test_pages_have_as_many_rows_as_fit() -> None:
    size = PageSize(1000)
    first = size.rows
    for _ in range(10):
        size.read(size.rows, size.rows * 100, 1_000_000)
    assert size.rows == 1000

    size.read(1000, 1000 * 200_000, 8_000_000)
    assert size.rows == 40

    for _ in range(5):
        size.read(size.rows, size.rows * 200_000, 8_000_000)
    assert size.rows == 40

    size.read(1, 20_000_000, 8_000_000)
    assert size.rows == 1
    # A page that the feed had no more rows for says nothing of how many would fit.
    size.read(0, 0, 8_000_000)
    assert size.rows == 1
    assert PageSize(5).rows == 5
    assert first > 1


def test_a_page_that_cannot_be_read_is_halved_down_to_one_row() -> None:
    size = PageSize(1000)

    found = []
    for rows in (9, 4, 1, 1):
        size.failed(rows)
        found.append(size.rows)

    assert found == [4, 2, 1, 1]


def test_the_size_of_a_page_is_that_of_its_values() -> None:
    row = {"id": "e", "data": "x" * 10_000, "tags": ["y" * 10_000, {"z": "z" * 10_000}], "bytes": b"b" * 10_000}

    assert 40_000 < size_of([Entry(bytes(16), row, {})]) < 42_000
    assert size_of([Entry(bytes(16), None, {"id": "e" * 1000})]) > 1000


@pytest.mark.parametrize("numbered", [False, True])
async def test_the_pages_of_a_scan_are_bounded_in_bytes(
    outbox_database: str, monkeypatch: pytest.MonkeyPatch, numbered: bool
) -> None:
    pages: list[int] = []
    session = await connect_async(outbox_database)
    await session.execute(Statement(_EVENTS, (1, 200)))
    if numbered:
        await AsyncFeed(session, TABLE).read(0, page_size=1000)
    execute = session.execute

    async def measured(statement: Statement, /) -> Result:
        result = await execute(statement)
        if "e.*" in statement.sql:
            pages.append(sum(len(str(value)) for row in result.rows for value in row))
        return result

    monkeypatch.setattr(session, "execute", measured)
    monkeypatch.setattr(backlog, "connect", AsyncMock(return_value=session))

    scanned = await backlog.scan(replace(sql_settings(outbox_database), max_bytes=_MAX_BYTES))

    assert scanned.data["scannedRows"] == 200
    # At first, the size of the rows is unknown.
    first, *others = sorted(pages, reverse=True)
    assert first < 33 * _EVENT_BYTES
    assert max(others) < _SHARE_BYTES
