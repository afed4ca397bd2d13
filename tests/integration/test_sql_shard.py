"""One shard under its claim: what it may publish, and when it may store its cursor."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from outbox_relay.changefeed import START, AsyncConsumer, AsyncFeed, Claim, DatabaseError, Stored, connect_async
from outbox_relay.changefeed.statements import AsyncSession, Result, Statement
from outbox_relay.changefeed.ulid import at, to_text
from relay.backends.sql import shard as shards
from relay.backends.sql import worker as workers
from relay.backends.sql.database import Database, connect
from relay.backends.sql.memory import Memory, PageSize
from relay.backends.sql.shard import Shard
from relay.backends.sql.source import Ownership, SqlBatch, SqlSource, now
from relay.backends.sql.worker import Worker
from relay.config.settings import CONSUMER
from relay.core.errors import RetryableError
from relay.core.events import Event
from relay.core.results import KeyOutcome
from relay.routes.selection import BY_DEFAULT
from tests.support.in_memory import InMemoryPublisher, InMemoryQuarantine
from tests.support.outbox import event
from tests.support.sql_outbox import TABLE, SqlOutbox, relay_of, sql_settings
from tests.support.waiting import elapse, look_again
from tests.support.watchdog import WATCHDOG_S

_CLAIM_S = 2.0
# Longer than a claim of 2 s holds for its owner, and shorter than for those who watch it.
_LATE_S = 1.7

Publish = Callable[[Mapping[str, Sequence[Event]]], Awaitable[None]]


class Topic(InMemoryPublisher):
    """Calls `before` before it publishes."""

    before: Publish | None = None

    async def publish(self, events: Mapping[str, Sequence[Event]], /, **how: Any) -> list[KeyOutcome]:
        if self.before is not None:
            await self.before(events)
        return await super().publish(events, **how)


class Late:
    """A session whose answers to some statements come late."""

    def __init__(self, session: AsyncSession, *late: str) -> None:
        self._session = session
        self.late = late
        self.was_late = asyncio.Event()
        self.dialect = session.dialect
        self.listen = session.listen
        self.notified = session.notified
        self.close = session.close

    async def execute(self, statement: Statement, /) -> Result:
        result = await self._session.execute(statement)
        if any(part in statement.sql for part in self.late):
            await elapse(_LATE_S)
            self.was_late.set()
        return result


class Recorded:
    """A session that records what it was asked."""

    def __init__(self, session: AsyncSession) -> None:
        self.session = session
        self.asked: list[str] = []
        self.dialect = session.dialect
        self.listen = session.listen
        self.notified = session.notified
        self.close = session.close

    async def execute(self, statement: Statement, /) -> Result:
        self.asked.append(statement.sql)
        return await self.session.execute(statement)

    def count(self, part: str) -> int:
        return sum(part in sql for sql in self.asked)


class Site:
    """A database, and one shard of it that this test has claimed; nobody renews the claim."""

    def __init__(self, url: str, session: AsyncSession) -> None:
        self.settings = sql_settings(url, claim_s=_CLAIM_S)
        self.session = session
        self.outbox = SqlOutbox(session)
        self.topic = Topic()
        self.database = Database(self.settings)
        self.relay = relay_of(self.database, self.topic)
        self.late = "nothing of this kind"

    async def connect(self) -> AsyncSession:
        return Late(await connect(self.settings), self.late)

    async def shard(self, *, claim_s: float = 1000.0, page_size: int = 100) -> Shard:
        consumer = AsyncConsumer(self.session, TABLE, CONSUMER)
        (claim,) = await consumer.claims([0])
        taken = await consumer.take(claim, "this test")
        return self.shard_of(taken, Stored(), claim_s=claim_s, page_size=page_size)

    def shard_of(self, claim: Claim, stored: Stored, *, claim_s: float = 1000.0, page_size: int = 100) -> Shard:
        return Shard(
            self.relay,
            self.settings,
            self.connect,
            claim,
            Ownership(claim_s, now()),
            Memory(2**20),
            stored,
            page_size=page_size,
            poll_delay_s=0.05,
        )

    async def move_cursor(self, cursor: bytes) -> None:
        """An action reserved for the shard's reader."""
        await self.session.execute(
            Statement(f'update changefeed."claim:{TABLE}" set last_ulid = ?', (UUID(bytes=cursor),))
        )

    async def until_cursor(self, holds: Callable[[bytes], bool]) -> bytes:
        async with asyncio.timeout(WATCHDOG_S):
            while not holds(cursor := (await self.claim()).cursor):
                await look_again()
        return cursor

    async def claim(self) -> Claim:
        (claim,) = await AsyncConsumer(self.session, TABLE, CONSUMER).claims([0])
        return claim


@pytest.fixture
async def site(outbox_database: str) -> AsyncIterator[Site]:
    made = Site(outbox_database, await connect_async(outbox_database))
    yield made
    await made.database.close()
    await made.session.close()


async def test_a_shard_that_is_stopped_while_its_page_fails_stores_no_cursor(site: Site) -> None:
    await site.outbox.commit(event("e1", "k"), event("e2", "k"))
    site.topic.broken = RetryableError("the broker is away")
    shard = await site.shard()

    async def stop(events: Mapping[str, Sequence[Event]]) -> None:
        shard.stop()

    site.topic.before = stop
    async with asyncio.timeout(WATCHDOG_S):
        await shard.run()

    claim = await site.claim()
    assert (claim.cursor, claim.owner) == (START, None)


async def test_nothing_more_of_a_page_is_sent_when_the_claim_ends_within_a_turn(site: Site) -> None:
    await site.outbox.commit(event("e1", "a"), event("e2", "b"))
    shard = await site.shard()
    publish = site.topic._publish

    def end_after_the_first(event: Event, *rest: Any) -> None:
        publish(event, *rest)
        shard.ownership.end()

    site.topic._publish = end_after_the_first  # type: ignore[method-assign, assignment]
    async with asyncio.timeout(WATCHDOG_S):
        await shard.run()

    assert site.topic.accepted == {"a": ["e1"]}
    assert (await site.claim()).cursor == START


async def test_a_page_that_has_failed_is_not_attempted_again_after_the_claim_has_ended(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The shard ends at once: while it waits, this process cannot take the shard again.
    monkeypatch.setattr(shards, "_FIRST_PAUSE_S", 10 * WATCHDOG_S)
    await site.outbox.commit(event("e1", "k"))
    site.topic.broken = RetryableError("the broker is away")
    shard = await site.shard()
    attempts = 0

    async def end(events: Mapping[str, Sequence[Event]]) -> None:
        nonlocal attempts
        attempts += 1
        shard.ownership.end()

    site.topic.before = end
    async with asyncio.timeout(WATCHDOG_S):
        await shard.run()

    assert attempts == 1
    claim = await site.claim()
    assert (claim.cursor, claim.owner) == (START, "this test")


async def test_a_claim_that_a_stored_cursor_renews_counts_from_before_the_request(site: Site) -> None:
    await site.outbox.commit_each([event("e1", "k"), event("e2", "k")])
    site.late = "last_ulid = "
    shard = await site.shard(claim_s=_CLAIM_S, page_size=1)

    async with asyncio.timeout(WATCHDOG_S):
        await shard.run()

    # By the time the answer came, another process may have taken over.
    assert site.topic.accepted == {"k": ["e1"]}


@pytest.mark.parametrize(
    "late",
    [("owner = ", "set renewals = "), ("owner = ", "select shard_id, last_ulid")],
    ids=["taking and renewing", "taking, and reading what is renewed"],
)
@pytest.mark.slow
@pytest.mark.weekly
async def test_a_claim_of_a_worker_counts_from_before_the_request(site: Site, late: tuple[str, ...]) -> None:
    connected = 0

    async def connecting() -> AsyncSession:
        nonlocal connected
        connected += 1
        # The first one is that of the claims.
        return Late(await connect(site.settings), *(late if connected == 1 else ()))

    await site.outbox.commit(event("e1", "k"))
    worker = Worker(site.relay, site.settings, connecting, page_size=100, poll_delay_s=0.05)
    stop = asyncio.Event()
    running = asyncio.create_task(worker.run(stop))
    async with asyncio.timeout(WATCHDOG_S):
        while (await site.claim()).renewals < 3:
            await asyncio.sleep(0.05)
        stop.set()
        await running

    # Whenever the answer came, another process might have taken over already.
    assert site.topic.accepted == {}


async def test_a_claim_that_a_worker_renews_within_a_page_counts_from_before_the_request(site: Site) -> None:
    sessions: list[Late] = []

    async def connecting() -> AsyncSession:
        sessions.append(Late(await connect(site.settings)))
        return sessions[-1]

    await site.outbox.commit(event("e1", "k"))
    worker = Worker(site.relay, site.settings, connecting, page_size=100, poll_delay_s=0.05)
    stop = asyncio.Event()

    async def outlast_a_renewal(events: Mapping[str, Sequence[Event]]) -> None:
        claims = sessions[0]
        claims.late = ("set renewals = ",)
        await claims.was_late.wait()
        for _ in range(20):
            # The worker takes the answer.
            await asyncio.sleep(0)
        stop.set()

    site.topic.before = outlast_a_renewal
    async with asyncio.timeout(WATCHDOG_S):
        await worker.run(stop)

    # When the answer came, the claim that was renewed had ended.
    assert site.topic.accepted == {}


async def test_a_wall_clock_that_is_set_forward_takes_nobody_for_dead(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = count(1)
    monkeypatch.setattr(workers, "now", lambda: (1000.0, next(hours) * 3600.0))
    opened: list[Recorded] = []

    async def connecting() -> AsyncSession:
        opened.append(Recorded(await connect(site.settings)))
        return opened[-1]

    await AsyncConsumer(site.session, TABLE, CONSUMER).take(await site.claim(), "another")
    worker = Worker(site.relay, site.settings, connecting, page_size=100, poll_delay_s=0.05)
    stop = asyncio.Event()
    running = asyncio.create_task(worker.run(stop))
    await _until(lambda: bool(opened) and opened[0].count("select shard_id, last_ulid") >= 3)
    stop.set()
    async with asyncio.timeout(WATCHDOG_S):
        await running

    assert (await site.claim()).owner == "another"


@pytest.mark.parametrize("before", ["set renewals = ", "select shard_id, last_ulid"], ids=["renewed", "read"])
async def test_a_claim_that_another_process_takes_right_before_it_is_looked_at_has_ended(
    site: Site, before: str
) -> None:
    owned: list[bool] = []

    class Overtaken(Recorded):
        """The session of the claims: another process takes the shard, and then the worker notices."""

        is_taken = False

        async def execute(self, statement: Statement, /) -> Result:
            shard = worker._shards.get(0)
            if self.is_taken and shard is not None:
                owned.append(shard.ownership.holds())
                stop.set()
            elif shard is not None and before in statement.sql:
                await AsyncConsumer(site.session, TABLE, CONSUMER).take(await site.claim(), "another")
                self.is_taken = True
            return await super().execute(statement)

    async def connecting() -> AsyncSession:
        session = await connect(site.settings)
        return session if worker._shards else Overtaken(session)

    worker = Worker(site.relay, site.settings, connecting, page_size=100, poll_delay_s=0.05)
    stop = asyncio.Event()
    async with asyncio.timeout(WATCHDOG_S):
        await worker.run(stop)

    assert owned[0] is False


@pytest.mark.parametrize("moved", ["ahead", "back"])
async def test_a_cursor_that_somebody_else_has_moved_stops_the_shard_until_it_is_as_it_was(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, moved: str
) -> None:
    monkeypatch.setattr(shards, "_LONGEST_PAUSE_S", 0.05)
    await site.outbox.commit(event("e1", "k"))
    shard = await site.shard()
    running = asyncio.create_task(shard.run())
    stored = await site.until_cursor(lambda cursor: cursor > START)
    intruded = b"\xff" * 16 if moved == "ahead" else START

    with caplog.at_level(logging.ERROR, "relay"):
        await site.move_cursor(intruded)
        await site.outbox.commit(event("e2", "k"))
        await _until(lambda: caplog.text.count("relay_cursor_changed shard=0") >= 1)
        await site.outbox.commit(event("e3", "k"))
        await _until(lambda: caplog.text.count("relay_cursor_changed shard=0") >= 4)

    assert site.topic.accepted == {"k": ["e1", "e2"]}
    assert (await site.claim()).cursor == intruded
    assert f"is {to_text(intruded)} in the database, and this reader stored {to_text(stored)} last" in caplog.text

    await site.move_cursor(stored)

    await _until(lambda: site.topic.accepted == {"k": ["e1", "e2", "e3"]})
    await site.until_cursor(lambda cursor: cursor > stored)
    shard.stop()
    async with asyncio.timeout(WATCHDOG_S):
        await running


async def test_a_shard_that_is_begun_again_does_not_take_over_a_cursor_that_was_moved(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    await site.outbox.commit(event("e1", "k"))
    consumer = AsyncConsumer(site.session, TABLE, CONSUMER)
    stored = Stored()
    shard = site.shard_of(await consumer.take((await consumer.claims([0]))[0], "this test"), stored)
    running = asyncio.create_task(shard.run())
    await site.until_cursor(lambda cursor: cursor > START)
    await site.move_cursor(START)
    await site.outbox.commit(event("e2", "k"))
    await _until(lambda: "relay_cursor_changed" in caplog.text)
    shard.stop()
    async with asyncio.timeout(WATCHDOG_S):
        await running
    caplog.clear()

    # As by the worker, whose claim it still is.
    claim = await site.claim()
    assert claim.owner == "this test"
    again = site.shard_of(claim, stored)
    running = asyncio.create_task(again.run())
    await _until(lambda: "relay_cursor_changed" in caplog.text)
    again.stop()
    async with asyncio.timeout(WATCHDOG_S):
        await running

    assert (await site.claim()).cursor == START


async def test_a_cursor_whose_answer_was_lost_is_never_moved_back(site: Site) -> None:
    moved: list[bytes] = []

    class Losing(Recorded):
        """Loses its answer to the first cursor, after which pages are shorter."""

        async def execute(self, statement: Statement, /) -> Result:
            result = await super().execute(statement)
            if "set last_ulid" in statement.sql:
                moved.append((await site.claim()).cursor)
                if len(moved) == 1:
                    shard._page_size = PageSize(1)
                    raise DatabaseError("the answer was lost", lost=True)
            return result

    async def connecting() -> AsyncSession:
        return Losing(await connect(site.settings))

    site.connect = connecting  # type: ignore[method-assign]
    await site.outbox.commit(event("e1", "k"), event("e2", "k"))
    shard = await site.shard()
    running = asyncio.create_task(shard.run())
    await _until(lambda: len(moved) == 2)
    await site.outbox.commit(event("e3", "k"))
    await _until(lambda: len(moved) == 3)
    shard.stop()
    async with asyncio.timeout(WATCHDOG_S):
        await running

    assert moved == sorted(moved)
    assert moved[0] == moved[1] < moved[2]
    assert site.topic.accepted == {"k": ["e1", "e2", "e3"]}


async def test_a_cursor_that_was_not_stored_is_stored_when_the_shard_is_begun_again(site: Site) -> None:
    """Nothing new has to come for it: after the duplicate detection window, the event would be sent again."""
    refused = asyncio.Event()

    class Away(Recorded):
        """Refuses to store a cursor, as a database that is switched over."""

        async def execute(self, statement: Statement, /) -> Result:
            if "set last_ulid" in statement.sql:
                refused.set()
                raise DatabaseError("the database is away", lost=True)
            return await super().execute(statement)

    async def connecting() -> AsyncSession:
        return Away(await connect(site.settings))

    there, site.connect = site.connect, connecting  # type: ignore[method-assign]
    await site.outbox.commit(event("e1", "k"))
    consumer, stored = AsyncConsumer(site.session, TABLE, CONSUMER), Stored()
    shard = site.shard_of(await consumer.take((await consumer.claims([0]))[0], "this test"), stored)
    running = asyncio.create_task(shard.run())
    await refused.wait()
    shard.stop()
    await running
    assert (await site.claim()).cursor == START

    # As by the worker, whose claim it still is.
    site.connect = there  # type: ignore[method-assign]
    again = site.shard_of(await site.claim(), stored)
    running = asyncio.create_task(again.run())
    await site.until_cursor(lambda cursor: cursor > START)
    again.stop()
    await running

    assert site.topic.accepted == {"k": ["e1"]}


async def test_a_lone_event_is_read_and_stored_by_one_statement_each(site: Site) -> None:
    opened: list[Recorded] = []

    async def connecting() -> AsyncSession:
        opened.append(Recorded(await connect(site.settings)))
        return opened[-1]

    site.connect = connecting  # type: ignore[method-assign]
    await site.outbox.commit(event("e1", "k"))
    shard = await site.shard()
    running = asyncio.create_task(shard.run())
    await _until(lambda: bool(opened) and opened[0].count("has_news") >= 3)
    (recorded,) = opened
    shard.stop()
    async with asyncio.timeout(WATCHDOG_S):
        await running

    assert (recorded.count("read_events"), recorded.count("set last_ulid")) == (1, 1)


class Unreadable(Recorded):
    """A session that cannot read the rows of some events.

    Attributes:
        reads: How many rows each read asked for, and whether it set the server's limit aside.
    """

    def __init__(self, session: AsyncSession, failure: Exception, *bad: str) -> None:
        super().__init__(session)
        self.reads: list[tuple[int, bool]] = []
        self._failure = failure
        self.bad = bad

    async def execute(self, statement: Statement, /) -> Result:
        result = await super().execute(statement)
        if "read_events" in statement.sql:
            self.reads.append((statement.parameters[2], statement.unlimited))
            if any(name in row for row in result.rows for name in self.bad):
                raise self._failure
        return result


@pytest.mark.parametrize(
    ("failure", "is_named"),
    [
        (DatabaseError("cannot parse a column"), True),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"), True),
        (DatabaseError("no answer in time", lost=True), False),
    ],
    ids=["the server", "the driver", "the time"],
)
async def test_rows_before_one_that_cannot_be_read_are_published_and_that_one_gets_more_time(
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failure: Exception,
    is_named: bool,
) -> None:
    monkeypatch.setattr(shards, "_FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(shards, "_LONGEST_READ_S", 5 * shards._READ_S)
    limits_s: list[float] = []
    reads: list[tuple[int, bool]] = []
    opened: list[Unreadable] = []

    async def connecting() -> AsyncSession:
        limits_s.append(shard._read_s)
        session = Unreadable(await connect(site.settings), failure, "bad" if len(opened) < 7 else "none")
        session.reads = reads
        opened.append(session)
        return session

    site.connect = connecting  # type: ignore[method-assign]
    await site.outbox.commit_each([event(name, "k") for name in ("a", "b", "c", "bad", "z")])
    shard = await site.shard(page_size=4)
    running = asyncio.create_task(shard.run())
    await _until(lambda: site.topic.accepted.get("k", [])[-1:] == ["z"])
    shard.stop()
    async with asyncio.timeout(WATCHDOG_S):
        await running

    assert site.topic.accepted == {"k": ["a", "b", "c", "bad", "z"]}
    # Half of a page that cannot be read, twice of one that can; then the row alone, until it can be read.
    assert [rows for rows, _ in reads[:10]] == [4, 2, 4, 2, 1, 2, 1, 1, 1, 1]
    assert [unlimited for _, unlimited in reads[:11]] == [False] * 7 + [True] * 3 + [False]
    assert [limit_s / shards._READ_S for limit_s in limits_s] == [1, 1, 1, 1, 1, 2, 4, 5]
    assert caplog.text.count("relay_event_unreadable shard=0") == (3 if is_named else 0)
    assert caplog.text.count("relay_defect") == (0 if isinstance(failure, DatabaseError) else 7)


class Defective(InMemoryPublisher):
    """A topic with a defect that one event meets; notes what it is given."""

    def __init__(self, bad: str) -> None:
        super().__init__()
        self._bad = bad
        self.attempts: list[list[str]] = []

    async def publish(self, events: Mapping[str, Sequence[Event]], /, **how: Any) -> list[KeyOutcome]:
        self.attempts.append([each.id for its_events in events.values() for each in its_events])
        if self._bad in self.attempts[-1]:
            raise ZeroDivisionError("Jane's secret")
        return await super().publish(events, **how)


async def test_a_defect_is_narrowed_down_to_one_event_which_is_named_and_can_be_set_aside(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shards, "_FIRST_PAUSE_S", 0.001)
    topic, quarantine = Defective("bad"), InMemoryQuarantine()
    site.relay = relay_of(site.database, topic, quarantine)
    handled: list[tuple[str, int, int]] = []
    handle = site.relay.handle

    async def noting(batch: SqlBatch, invocation_id: str, retries: int) -> Any:
        handled.append((invocation_id, len(batch.page.entries), retries))
        return await handle(batch, invocation_id, retries)

    site.relay.handle = noting  # type: ignore[method-assign, assignment]
    await site.outbox.commit_each([event(name, "a key") for name in ("a", "b", "c", "bad", "z")])
    shard = await site.shard(page_size=5)
    pauses_ms: list[float] = []
    pause = shard._pause

    async def noting_pause(pause_s: float) -> None:
        pauses_ms.append(round(pause_s * 1000, 3))
        await pause(pause_s)

    shard._pause = noting_pause  # type: ignore[method-assign]
    running = asyncio.create_task(shard.run())
    await _until(lambda: topic.attempts.count(["bad"]) >= 3)
    quarantine.ordered.add(("a key", "bad"))
    await _until(lambda: topic.accepted == {"a key": ["a", "b", "c", "z"]})
    shard.stop()
    async with asyncio.timeout(WATCHDOG_S):
        await running

    assert [item.id for item in quarantine.records] == ["bad"]
    assert topic.attempts[:4] == [["a", "b", "c", "bad", "z"], ["a", "b"], ["c", "bad", "z"], ["c"]]
    # The page of all, its half, then the rest, and one by one; each page that is done ends its attempts.
    assert [(rows, retries) for _, rows, retries in handled[:5]] == [(5, 0), (2, 1), (3, 0), (1, 1), (2, 0)]
    assert handled[0][0] == handled[1][0] != handled[2][0] == handled[3][0] != handled[4][0]
    # Where half of a page is tried next, and then the longer the more often the one event has failed.
    assert pauses_ms[:6] == [1, 1, 1, 1, 2, 4]
    assert "python -m relay quarantine add 'a key' bad" in caplog.text
    assert "It is tried again with half of the 5 events." in caplog.text
    assert "secret" not in caplog.text


async def test_the_attempts_at_a_page_are_counted_until_it_is_done(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "_FIRST_PAUSE_S", 0.001)
    site.topic.broken = RetryableError("the broker is away")
    handled: list[tuple[str, int, int]] = []
    handle = site.relay.handle

    async def noting(batch: SqlBatch, invocation_id: str, retries: int) -> Any:
        handled.append((invocation_id, len(batch.page.entries), retries))
        if len(handled) == 4:
            site.topic.broken = None
        return await handle(batch, invocation_id, retries)

    site.relay.handle = noting  # type: ignore[method-assign, assignment]
    await site.outbox.commit_each([event(name, "k") for name in ("a", "b", "c")])
    shard = await site.shard(page_size=2)
    running = asyncio.create_task(shard.run())
    await _until(lambda: site.topic.accepted == {"k": ["a", "b", "c"]})
    shard.stop()
    async with asyncio.timeout(WATCHDOG_S):
        await running

    assert [(rows, retries) for _, rows, retries in handled] == [(2, 0), (2, 1), (2, 2), (2, 3), (1, 0)]
    assert len({name for name, _, _ in handled[:4]}) == 1
    assert handled[4][0] != handled[0][0]


async def test_the_age_of_a_shard_without_events_is_how_long_ago_it_was_looked_at(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Recorded] = []

    async def connecting() -> AsyncSession:
        opened.append(Recorded(await connect(site.settings)))
        return opened[-1]

    async def until_looked() -> None:
        looks = opened[0].count("has_news")
        await _until(lambda: opened[0].count("has_news") >= looks + 3)

    wall_s = 1_800_000_000.0
    monkeypatch.setattr(shards, "time", SimpleNamespace(time=lambda: wall_s, monotonic=time.monotonic))
    site.connect = connecting  # type: ignore[method-assign]
    shard = await site.shard()
    running = asyncio.create_task(shard.run())
    await _until(lambda: bool(opened))
    await until_looked()
    assert shard.age_s() == 0

    wall_s += 900
    await until_looked()

    assert shard.age_s() == 0
    wall_s += 7
    assert shard.age_s() <= 7
    wall_s -= 3600
    assert shard.age_s() == 0
    shard.stop()
    async with asyncio.timeout(WATCHDOG_S):
        await running


@pytest.fixture
def nothing_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """No event is old enough for another process to have attempted it, however slow this machine is."""
    monkeypatch.setattr("relay.core.orders._UNTRIED_S", 10**6)


async def _published(site: Site, quarantine: InMemoryQuarantine, count: int) -> list[str]:
    """Publish with pages of two events until the cursor has passed `count`; returns what was accepted."""
    site.relay = relay_of(site.database, site.topic, quarantine)
    shard = await site.shard(page_size=2)
    running = asyncio.create_task(shard.run())
    await _until(lambda: len(site.topic.accepted.get("k", ())) + len(quarantine.records) == count)
    shard.stop()
    async with asyncio.timeout(WATCHDOG_S):
        await running
    return site.topic.accepted["k"]


async def test_what_the_former_owner_set_aside_is_not_sent_however_new_it_is(
    site: Site, nothing_is_old: None
) -> None:
    quarantine = InMemoryQuarantine()
    quarantine.ordered = {("k", "e1")}
    await site.outbox.commit(*(event(f"e{number}", "k") for number in range(6)))

    accepted = await _published(site, quarantine, 6)

    assert accepted == ["e0", "e2", "e3", "e4", "e5"]
    assert [each.name for each in quarantine.records] == [("k", "e1")]
    # The former owner attempted no page behind its first one.
    assert quarantine.reads == 1


async def test_an_event_may_have_been_set_aside_while_positions_are_ahead_of_the_time(
    site: Site, nothing_is_old: None
) -> None:
    """So they are after the database's clock has been set back."""
    quarantine = InMemoryQuarantine()
    await site.outbox.commit(event("e0", "k"))
    await AsyncFeed(site.session, TABLE).read(0)
    ahead = UUID(bytes=at(datetime(2099, 1, 1, tzinfo=UTC)))
    await site.session.execute(Statement(f'update changefeed."state:{TABLE}" set ulid = ?', (ahead,)))
    await site.outbox.commit(*(event(f"e{number}", "k") for number in range(1, 6)))

    async def order(events: Mapping[str, Sequence[Event]]) -> None:
        if "e2" in {each.id for each in events["k"]}:
            quarantine.ordered = {("k", "e4")}

    site.topic.before = order

    assert await _published(site, quarantine, 6) == ["e0", "e1", "e2", "e3", "e5"]


async def test_what_the_cursor_has_passed_is_judged_by_position_and_not_by_time(site: Site) -> None:
    # One transaction: the same millisecond.
    await site.outbox.commit(*(event(f"e{number}", "k") for number in range(3)))
    page = await AsyncFeed(site.session, TABLE).read(0)
    consumer = AsyncConsumer(site.session, TABLE, CONSUMER)
    (claim,) = await consumer.claims([0])
    claim = await consumer.take(claim, "this test")
    await consumer.store(claim, page.entries[1].ulid)

    source = SqlSource(BY_DEFAULT, site.database.claim)
    received = await source.read(SqlBatch(0, page, Ownership(1000, now())))

    assert len(await source.passed_positions(received.events)) == 2


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WATCHDOG_S):
        while not holds():
            await look_again()
