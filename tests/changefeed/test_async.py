"""The async face keeps the same contract: reads, waits, claims, installation, and errors."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator

import pytest

from outbox_relay import changefeed
from outbox_relay.changefeed import (
    START,
    ArgumentError,
    AsyncConsumer,
    AsyncFeed,
    AsyncSession,
    Claim,
    ClaimLostError,
    CursorError,
    DatabaseError,
    FeedBusyError,
    SetupError,
)
from outbox_relay.changefeed.install import migrations
from outbox_relay.changefeed.statements import Statement
from tests.changefeed.backends import TABLE, Backend
from tests.changefeed.history import Seen
from tests.changefeed.journal import Journal, Observer, Read
from tests.changefeed.postgresql import PostgresBackend
from tests.changefeed.reading import as_read
from tests.support.waiting import elapse
from tests.support.watchdog import WATCHDOG_S


@pytest.fixture
async def session(backend: Backend) -> AsyncIterator[AsyncSession]:
    opened = await backend.session_async()
    yield opened
    await opened.close()


async def test_pages_follow_one_another(backend: Backend, journal: Journal, session: AsyncSession) -> None:
    written = journal.write(backend.writer(), 0, "a", "b", "c")
    feed = AsyncFeed(session, TABLE)

    first = await feed.read(0, START, 2)
    second = await feed.read(0, first.cursor, 2)

    assert [entry.event for page in (first, second) for entry in as_read(0, page).seen] == written
    assert (await feed.read(0, second.cursor)).entries == []


async def test_both_faces_see_the_same(backend: Backend, journal: Journal, session: AsyncSession) -> None:
    journal.write(backend.writer(), 0, "a", "日本語")

    page = await AsyncFeed(session, TABLE).read(0)

    assert page == changefeed.Feed(backend.session(), TABLE).read(0)


async def test_writers_in_threads_and_readers_in_tasks(backend: Backend, journal: Journal) -> None:
    seen: list[list[Seen]] = [[] for _ in range(3)]
    written = asyncio.Event()

    def write(number: int) -> None:
        choice, writer = random.Random(number), backend.writer()
        for _ in range(30):
            unit = journal.begin(writer)
            for aggregate in sorted(choice.sample("abcd", 2)):
                unit.append(0, aggregate)
            if choice.random() < 0.1:
                unit.rollback()
            else:
                unit.commit()

    async def read(number: int) -> None:
        own = await backend.session_async()
        feed, cursor = AsyncFeed(own, TABLE), START
        while True:
            ends = written.is_set()
            while (page := await feed.read(0, cursor, 1 + 10 * number)).entries:
                seen[number] += as_read(0, page).seen
                cursor = page.cursor
            if ends:
                break
            await feed.wait(0, cursor, 0.2)
        await own.close()

    async with asyncio.timeout(WATCHDOG_S), asyncio.TaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(read(number))
        await asyncio.gather(*(asyncio.to_thread(write, number) for number in range(4)))
        written.set()

    for number, entries in enumerate(seen):
        one = Observer(f"reader {number}", lambda shard, cursor, size, entries=entries: Read(entries, cursor))  # type: ignore[misc]
        one.read()
        journal.observed(one)
    assert len(seen[0]) > 100
    assert journal.faults() == []


async def test_refusals(backend: Backend, session: AsyncSession) -> None:
    feed = AsyncFeed(session, TABLE)

    with pytest.raises(ArgumentError):
        await feed.read(0, START, 0)
    with pytest.raises(CursorError):
        await feed.read(0, b"\xff" * 16)
    with pytest.raises(SetupError, match="setup-feed"):
        await AsyncFeed(session, "app.aggregate").read(0)
    with pytest.raises(SetupError, match="setup-feed"):
        await AsyncFeed(session, "app.aggregate").wait(0, START, 0)


async def test_a_held_shard_is_busy(backend: Backend, journal: Journal, session: AsyncSession) -> None:
    feed = AsyncFeed(session, TABLE)
    journal.write(backend.writer(), 0, "a")
    await feed.read(0)
    journal.write(backend.writer(), 0, "b")
    backend.set_lock_timeout(150)

    with backend.shard_held(0), pytest.raises(FeedBusyError):
        await feed.read(0, (await feed.read(0)).cursor)


async def test_a_killed_session_is_lost(backend: Backend, session: AsyncSession) -> None:
    session_id = (await session.execute(Statement(backend.session_id_query))).rows[0][0]
    backend.kill(session_id)

    with pytest.raises(DatabaseError) as failed:
        await AsyncFeed(session, TABLE).read(0)

    assert failed.value.lost


async def test_a_commit_wakes_a_reader(backend: Backend, journal: Journal, session: AsyncSession) -> None:
    feed, writer = AsyncFeed(session, TABLE), backend.writer()
    assert not await feed.wait(0, START, 0.1)
    waiting = asyncio.create_task(feed.wait(0, START, WATCHDOG_S))
    await elapse(0.05)
    committed = time.monotonic()

    await asyncio.to_thread(journal.write, writer, 0, "a")

    assert await waiting
    assert time.monotonic() - committed < WATCHDOG_S / 2


async def test_a_commit_between_look_and_wait_is_not_missed(
    postgresql: PostgresBackend, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await postgresql.session_async()
    wait_for_one = session.notified

    async def commit_first(timeout_s: float, payload: str | None = None, /) -> bool:
        monkeypatch.undo()
        await asyncio.to_thread(journal.write, postgresql.writer(), 0, "a")
        # The notification arrives with the answer of this statement.
        await session.execute(Statement("select pg_sleep(0.05)"))
        return await wait_for_one(timeout_s)

    monkeypatch.setattr(session, "notified", commit_first)
    began = time.monotonic()

    assert await AsyncFeed(session, TABLE).wait(0, START, WATCHDOG_S)

    assert time.monotonic() - began < WATCHDOG_S / 2
    await session.close()


async def test_without_notifications_a_reader_looks_again(postgresql: PostgresBackend, journal: Journal) -> None:
    session = await postgresql.session_async()
    await changefeed.drop_feed_async(session, TABLE)
    await changefeed.setup_feed_async(session, TABLE, notify=False)
    waiting = asyncio.create_task(AsyncFeed(session, TABLE).wait(0, START, WATCHDOG_S))
    await elapse(0.05)
    committed = time.monotonic()

    await asyncio.to_thread(journal.write, postgresql.writer(), 0, "a")

    assert await waiting
    assert time.monotonic() - committed < WATCHDOG_S / 2
    await session.close()


async def test_a_wait_that_is_cancelled_leaves_the_session_of_use(
    backend: Backend, journal: Journal, session: AsyncSession
) -> None:
    feed = AsyncFeed(session, TABLE)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await feed.wait(0, START, 20)

    journal.write(backend.writer(), 0, "a")

    assert await feed.wait(0, START, 20)
    assert len((await feed.read(0)).entries) == 1


async def test_claims(backend: Backend, session: AsyncSession) -> None:
    mine = AsyncConsumer(session, TABLE, "relay")
    (seen,) = await mine.claims([0])
    claim = await mine.take(seen, "me")
    await mine.renew(claim)
    await mine.store(claim, b"\1" * 16)
    await mine.ask(claim, "you")

    assert await mine.claims([0]) == [Claim(0, b"\1" * 16, "me", 1, 3, "you")]
    await mine.decline(claim)
    assert await mine.claims([0]) == [Claim(0, b"\1" * 16, "me", 1, 3, None)]
    await mine.release(claim, "you")
    assert await mine.claims([0]) == [Claim(0, b"\1" * 16, "you", 2, 4, None)]
    for refused in (mine.store(claim, START), mine.renew(claim), mine.take(seen, "me"), mine.release(claim)):
        with pytest.raises(ClaimLostError):
            await refused
    for refused in (mine.ask(claim, "me"), mine.decline(claim)):
        with pytest.raises(ClaimLostError):
            await refused


async def test_installation(postgres_database: str) -> None:
    sessions = [await changefeed.connect_async(postgres_database) for _ in range(3)]

    applied = await asyncio.gather(*(changefeed.install_async(one) for one in sessions))

    assert sorted(map(len, applied)) == [0, 0, len(migrations("postgresql"))]
    await sessions[0].execute(Statement("create schema app; create table app.one (id int primary key)"))
    await changefeed.setup_feed_async(sessions[0], "app.one")
    with pytest.raises(ArgumentError, match="has a feed already"):
        await changefeed.setup_feed_async(sessions[1], "app.one")
    await changefeed.drop_feed_async(sessions[1], "app.one")
    for one in sessions:
        await one.close()
