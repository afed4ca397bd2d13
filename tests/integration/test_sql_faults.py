"""Faults of a database under the workers of an SQL outbox: every shard continues when they are over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from azure.core.exceptions import ClientAuthenticationError

from outbox_relay.changefeed import START, AsyncConsumer, DatabaseError, connect_async
from outbox_relay.changefeed.statements import AsyncSession, Dialect, Result, Statement
from relay.backends.sql import rows as rows_module
from relay.backends.sql import shard as shards_module
from relay.backends.sql.database import Database, connect
from relay.backends.sql.quarantine import SqlItems
from relay.backends.sql.shard import Connect
from relay.backends.sql.worker import Worker
from relay.config.settings import CONSUMER
from relay.core.errors import FeedError, StoreError
from relay.core.events import Event, Reason, Rejected
from relay.core.results import KeyOutcome
from relay.quarantine.items import Create
from tests.support.in_memory import InMemoryPublisher, InMemoryQuarantine
from tests.support.outbox import event
from tests.support.postgres_faults import frozen, proxied
from tests.support.sql_outbox import TABLE, SqlOutbox, relay_of, sql_settings
from tests.support.watchdog import WATCHDOG_S

pytestmark = [pytest.mark.slow, pytest.mark.weekly]

_CLAIM_S = 2.0
# Many claims' time, as other tests share the machine.
_SHARDS = 4


class Work:
    """A worker in this process, and what it has published."""

    def __init__(
        self,
        url: str,
        session: AsyncSession,
        connect_with: Connect | None = None,
        topic: InMemoryPublisher | None = None,
        page_size: int = 100,
    ) -> None:
        settings = sql_settings(url, shards=_SHARDS, claim_s=_CLAIM_S)
        self.session = session
        self.outbox = SqlOutbox(session)
        self.topic = topic or InMemoryPublisher()
        self.quarantine = InMemoryQuarantine()
        self.database = Database(settings)
        relay = relay_of(self.database, self.topic, self.quarantine)
        self.worker = Worker(
            relay, settings, connect_with or self.database.connect, page_size=page_size, poll_delay_s=0.2
        )
        self.stop = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.task = asyncio.create_task(self.worker.run(self.stop))

    async def end(self) -> None:
        self.stop.set()
        if self.task is not None:
            async with asyncio.timeout(WATCHDOG_S):
                await self.task
        await self.database.close()
        await self.session.close()

    async def all_shards_publish(self, name: str) -> None:
        """Commit an event to each shard, and wait until all were published."""
        for shard_id in range(_SHARDS):
            await self.outbox.commit(event(f"{name}-{shard_id}", f"k{shard_id}"), shard_id=shard_id)
        await self.until_published(name, range(_SHARDS))

    async def until_published(self, name: str, shards: Sequence[int]) -> None:
        async with asyncio.timeout(WATCHDOG_S):
            while not all(f"{name}-{each}" in self.topic.accepted.get(f"k{each}", []) for each in shards):
                assert self.task is not None
                assert not self.task.done(), self.task.exception()
                await asyncio.sleep(0.05)

    async def until_quarantined(self, count: int) -> list[Rejected]:
        """Wait for `count` records: they are written after the batch's other events are accepted."""
        async with asyncio.timeout(WATCHDOG_S):
            while len(self.quarantine.records) < count:
                await asyncio.sleep(0.05)
        return self.quarantine.records


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as made:
        yield made


async def working(stack: AsyncExitStack, url: str, behind: str | None = None, **how: Any) -> Work:
    work = Work(behind or url, await connect_async(url), **how)
    stack.push_async_callback(work.end)
    work.start()
    await work.all_shards_publish("first")
    return work


def folder_of(url: str) -> str:
    return parse_qs(urlsplit(url).query)["host"][0]


async def test_a_frozen_server_holds_nobody_up_for_longer_than_the_limit(
    outbox_database: str, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Database.__init__, "__kwdefaults__", {"call_timeout_s": 1.0})
    database = Database(sql_settings(f"{outbox_database}&connect_timeout=2"))
    stack.push_async_callback(database.close)
    assert (await database.claim(0)).cursor == START

    with frozen(folder_of(outbox_database)):
        async with asyncio.timeout(WATCHDOG_S):
            found = await asyncio.gather(
                *(database.claim(shard_id) for shard_id in range(4)), return_exceptions=True
            )
    assert [type(each) for each in found] == [FeedError] * 4

    async with asyncio.timeout(WATCHDOG_S):
        assert (await database.claim(0)).cursor == START


async def test_every_shard_goes_on_after_the_server_was_frozen(
    outbox_database: str, stack: AsyncExitStack
) -> None:
    work = await working(stack, outbox_database)

    with frozen(folder_of(outbox_database)):
        await asyncio.sleep(2 * _CLAIM_S)  # long enough that every claim has ended

    await work.all_shards_publish("second")


@pytest.mark.parametrize("silent", ["connect", "authentication", "query"])
async def test_every_shard_goes_on_after_connections_went_silent(
    outbox_database: str, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch, silent: str
) -> None:
    proxy, behind = await stack.enter_async_context(proxied(outbox_database))
    work = await working(stack, outbox_database, behind)
    proxy.silent = silent
    proxy.silence()
    before = proxy.silenced
    async with asyncio.timeout(WATCHDOG_S):
        while proxy.silenced == before:
            await asyncio.sleep(0.05)

    # From here on, new connections are answered; those that went silent stay so.
    proxy.silent = None

    await work.all_shards_publish("second")


async def test_an_event_that_takes_long_to_read_gets_more_time_and_the_next_one_does_not(
    outbox_database: str, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards_module, "_READ_S", 0.5)
    reads: list[bool] = []
    large: set[int] = set()

    class Slow(Wrapped):
        async def execute(self, statement: Statement, /) -> Result:
            if "read_events" in statement.sql:
                reads.append(statement.unlimited)
                shard_id = statement.parameters[0]
                if shard_id in large and not statement.unlimited:
                    # As a row that takes longer than the server's limit does.
                    await asyncio.Event().wait()
                large.discard(shard_id)
            return await super().execute(statement)

    async def connecting() -> AsyncSession:
        return Slow(await connect(sql_settings(outbox_database)))

    work = await working(stack, outbox_database, connect_with=connecting, page_size=1)
    assert True not in reads
    large |= set(range(_SHARDS))
    await work.all_shards_publish("large")
    assert reads.count(True) == _SHARDS
    reads.clear()
    await work.all_shards_publish("small")

    assert True not in reads


async def test_a_page_whose_connection_goes_silent_is_read_again_while_the_claim_is_renewed(
    outbox_database: str, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards_module, "_READ_S", 2.0)
    silenced = 0

    class Silent(Wrapped):
        async def execute(self, statement: Statement, /) -> Result:
            nonlocal silenced
            if "read_events" in statement.sql and silenced < _SHARDS and armed.is_set():
                silenced += 1
                await asyncio.Event().wait()
            return await super().execute(statement)

    armed = asyncio.Event()

    async def connecting() -> AsyncSession:
        return Silent(await connect(sql_settings(outbox_database)))

    work = await working(stack, outbox_database, connect_with=connecting)
    armed.set()

    await work.all_shards_publish("second")
    assert silenced == _SHARDS


class Wrapped:
    """A session with faults."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    @property
    def dialect(self) -> Dialect:
        return self._session.dialect

    async def execute(self, statement: Statement, /) -> Result:
        return await self._session.execute(statement)

    async def listen(self, channel: str, /) -> None:
        await self._session.listen(channel)

    async def notified(self, timeout_s: float, payload: str | None = None, /) -> bool:
        return await self._session.notified(timeout_s)

    async def close(self) -> None:
        await self._session.close()


@pytest.mark.parametrize(
    "failure",
    [ClientAuthenticationError("no token"), DatabaseError("refused", lost=True), OSError("reset"), KeyError("x")],
    ids=lambda failure: type(failure).__name__,
)
async def test_what_connecting_raises_ends_no_other_shard_and_no_worker(
    outbox_database: str, stack: AsyncExitStack, caplog: pytest.LogCaptureFixture, failure: Exception
) -> None:
    fails = 0

    async def connecting() -> AsyncSession:
        nonlocal fails
        if fails and asyncio.current_task() is not work.task:
            fails -= 1
            raise failure
        return await connect(sql_settings(outbox_database))

    work = Work(outbox_database, await connect_async(outbox_database), connecting)
    stack.push_async_callback(work.end)
    work.start()
    await work.all_shards_publish("first")
    fails = 3
    await end_sessions(work)

    await work.all_shards_publish("second")
    assert fails == 0
    # Of its own connection, once: what a shard's connection raises is no reason to give up the claims.
    assert caplog.text.count("relay_claims_unavailable") <= 1


async def end_sessions(work: Work) -> None:
    await work.session.execute(
        Statement(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and pid <> pg_backend_pid()"
        )
    )


async def test_what_closing_a_session_raises_ends_nothing(outbox_database: str, stack: AsyncExitStack) -> None:
    closed = 0

    class Unclosable(Wrapped):
        async def close(self) -> None:
            nonlocal closed
            closed += 1
            await super().close()
            raise RuntimeError("close")

    async def connecting() -> AsyncSession:
        return Unclosable(await connect(sql_settings(outbox_database)))

    work = await working(stack, outbox_database, connect_with=connecting)
    await end_sessions(work)

    await work.all_shards_publish("second")
    assert closed


@pytest.mark.parametrize(
    "failure", [DatabaseError("cannot parse a column"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid")]
)
async def test_what_lies_before_a_row_that_cannot_be_read_is_published_and_the_row_is_pointed_at(
    outbox_database: str,
    stack: AsyncExitStack,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    failure: Exception,
) -> None:
    monkeypatch.setattr(shards_module, "_FIRST_PAUSE_S", 0.05)

    class Unreadable(Wrapped):
        async def execute(self, statement: Statement, /) -> Result:
            result = await super().execute(statement)
            if "read_events" in statement.sql and any("bad" in row for row in result.rows):
                raise failure
            return result

    async def connecting() -> AsyncSession:
        return Unreadable(await connect(sql_settings(outbox_database)))

    work = Work(outbox_database, await connect_async(outbox_database), connecting)
    stack.push_async_callback(work.end)
    await work.outbox.commit_each([*(event(f"e{number}", "k0") for number in range(5)), event("bad", "k0")])
    await work.outbox.commit(event("after-0", "k0"))
    work.start()

    async with asyncio.timeout(WATCHDOG_S):
        while work.topic.accepted.get("k0") != [f"e{number}" for number in range(5)]:
            await asyncio.sleep(0.05)
        while "relay_event_unreadable shard=0" not in caplog.text:
            await asyncio.sleep(0.05)
    await work.outbox.commit(event("first-1", "k1"), shard_id=1)
    await work.until_published("first", [1])

    await work.session.execute(Statement("delete from outbox.domain_event where id = 'bad'"))

    await work.until_published("after", [0])
    assert [each.id for each in await work.until_quarantined(1)] == ["bad"]


async def test_a_row_that_no_event_can_be_made_of_is_set_aside_and_the_others_go_on(
    outbox_database: str,
    stack: AsyncExitStack,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data_of = rows_module._data

    def fails(row: Mapping[str, Any]) -> tuple[Any, str | None]:
        if row["id"] == "bad":
            raise ZeroDivisionError("Jane's secret")
        return data_of(row)

    monkeypatch.setattr(rows_module, "_data", fails)
    work = Work(outbox_database, await connect_async(outbox_database))
    stack.push_async_callback(work.end)
    await work.outbox.commit_each([event("before-0", "k0"), event("bad", "k0"), event("after-0", "k0")])
    work.start()

    await work.until_published("after", [0])

    assert work.topic.accepted["k0"] == ["before-0", "after-0"]
    (record,) = await work.until_quarantined(1)
    assert (record.id, record.reason) == ("bad", Reason.NOT_MAPPED)
    assert "ZeroDivisionError" in record.detail
    assert "secret" not in record.detail + caplog.text


class Defective(InMemoryPublisher):
    """Raises what nobody foresaw where the event `bad` is to be published."""

    async def publish(self, events: Mapping[str, Sequence[Event]], /, **how: Any) -> list[KeyOutcome]:
        if any(each.id == "bad" for its_events in events.values() for each in its_events):
            raise ExceptionGroup("several", [ZeroDivisionError("Jane's secret")])
        return await super().publish(events, **how)


async def test_a_defect_stops_one_shard_whose_event_is_named_and_can_be_set_aside(
    outbox_database: str, stack: AsyncExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    session = await connect_async(outbox_database)
    work = Work(outbox_database, session, topic=Defective())
    stack.push_async_callback(work.end)
    documents = [event("before-0", "k0"), event("bad", "a key"), event("after-0", "k0")]
    await work.outbox.commit_each(documents)
    for shard_id in range(1, _SHARDS):
        await work.outbox.commit(event(f"first-{shard_id}", f"k{shard_id}"), shard_id=shard_id)
    with caplog.at_level(logging.ERROR):
        work.start()
        await work.until_published("first", range(1, _SHARDS))
        async with asyncio.timeout(WATCHDOG_S):
            while "python -m relay quarantine add 'a key' bad" not in caplog.text:
                await asyncio.sleep(0.05)
    assert work.topic.accepted["k0"] == ["before-0"]
    assert "relay_defect shard=0: ZeroDivisionError" in caplog.text
    assert "secret" not in caplog.text

    work.quarantine.ordered.add(("a key", "bad"))

    await work.until_published("after", [0])
    assert [each.id for each in await work.until_quarantined(1)] == ["bad"]


async def test_a_transaction_that_is_cancelled_is_not_left_open_for_the_next_user(outbox_database: str) -> None:
    database = Database(sql_settings(outbox_database))
    items = SqlItems(database)
    operations = [Create({"id": f"{number}", "partitionKey": "k", "type": "t"}) for number in range(60)]
    cancelled = 0
    for pause_s in (0.001, 0.002, 0.004, 0.008, 0.016):
        writing = asyncio.create_task(items.batch("k", operations))
        await asyncio.sleep(pause_s)
        writing.cancel()
        (result,) = await asyncio.gather(writing, return_exceptions=True)
        if result is None:
            break
        assert isinstance(result, asyncio.CancelledError)
        cancelled += 1
        async with database.session() as session:
            ((open_for,),) = (await session.execute(Statement("select now() <> statement_timestamp()"))).rows
        assert not open_for
        stored = await items.of_type("t")
        # Cancelled while COMMIT was answered, all of it may be stored.
        assert len(stored) in (0, len(operations))
        if stored:
            break
    await database.close()
    assert cancelled


async def test_a_store_that_does_not_answer_is_an_error_in_time(
    outbox_database: str, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Database.__init__, "__kwdefaults__", {"call_timeout_s": 1.0})
    proxy, behind = await stack.enter_async_context(proxied(outbox_database))
    items = SqlItems(Database(sql_settings(behind)))
    await items.holds()
    proxy.silence()

    async with asyncio.timeout(WATCHDOG_S):
        with pytest.raises(StoreError, match="did not answer within 1 s"):
            await items.holds()
        await items.holds()
    await items.close()


async def test_claims_are_renewed_where_one_of_them_cannot_be(outbox_database: str, stack: AsyncExitStack) -> None:
    work = await working(stack, outbox_database)
    await work.session.execute(Statement("begin"))
    await work.session.execute(
        Statement(f'update changefeed."claim:{TABLE}" set stored_at = stored_at where shard_id = 0')
    )
    # The lock of one claim holds up the renewal of it, but neither forever nor that of the others.
    await asyncio.sleep(1.5 * _CLAIM_S)
    await work.session.execute(Statement("rollback"))

    await work.all_shards_publish("second")
    assert len(await AsyncConsumer(work.session, TABLE, CONSUMER).claims(range(_SHARDS))) == _SHARDS
