"""Workers on an SQL outbox: a real PostgreSQL, the emulated broker, and the relay between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from outbox_relay.changefeed import START, AsyncConsumer, ClaimLostError, connect_async
from outbox_relay.changefeed.statements import AsyncSession, Statement
from relay.backends.sql.database import Database
from relay.backends.sql.source import Ownership
from relay.backends.sql.worker import Worker
from relay.config.settings import CONSUMER, SqlFeed
from relay.core.errors import RetryableError
from relay.core.pipeline import Relay
from tests.support.in_memory import InMemoryPublisher, InMemoryQuarantine
from tests.support.outbox import event
from tests.support.sql_outbox import TABLE, SqlOutbox, relay_of, sql_settings
from tests.support.waiting import forever, look_again
from tests.support.watchdog import WATCHDOG_S


@dataclass(slots=True)
class Running:
    """A worker of its own relay, as a process would have it; all publish to one topic."""

    relay: Relay[Any]
    worker: Worker
    database: Database
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    async def end(self) -> None:
        self.stop.set()
        assert self.task is not None
        async with asyncio.timeout(WATCHDOG_S):
            await self.task

    async def kill(self) -> None:
        """It ends without a word: nothing is released or closed."""
        assert self.task is not None
        for task in self.worker._running.values():
            task.cancel()
        self.worker._end = _nothing  # type: ignore[method-assign]
        self.task.cancel()
        await asyncio.wait((self.task, *self.worker._running.values()))


async def _nothing() -> None:
    return


class Site:
    """A database with an outbox, a topic, and the workers between them."""

    def __init__(self, url: str, session: AsyncSession) -> None:
        self.session = session
        self.outbox = SqlOutbox(session)
        self.topic = InMemoryPublisher()
        self.quarantine = InMemoryQuarantine()
        self._url = url
        self._all: list[Running] = []

    def settings(self, shards: int) -> SqlFeed:
        return sql_settings(self._url, shards=shards)

    async def start(self, *, shards: int = 1, page_size: int = 100) -> Running:
        database = Database(self.settings(shards))
        relay = relay_of(database, self.topic, self.quarantine)
        worker = Worker(relay, self.settings(shards), database.connect, page_size=page_size, poll_delay_s=0.2)
        running = Running(relay, worker, database)
        running.task = asyncio.create_task(worker.run(running.stop))
        self._all.append(running)
        return running

    async def close(self) -> None:
        for running in self._all:
            if running.task is not None and not running.task.done():
                await running.end()
            # A killed one has not closed it.
            await running.worker._forget_session()
            await running.database.close()
        await self.session.close()

    async def claims(self, shards: int = 1) -> list[Any]:
        return await AsyncConsumer(self.session, TABLE, CONSUMER).claims(range(shards))

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(WATCHDOG_S):
            while not holds():
                await look_again()

    async def until_claims(self, holds: Callable[[list[Any]], bool], shards: int) -> None:
        async with asyncio.timeout(WATCHDOG_S):
            while not holds(await self.claims(shards)):
                await look_again()


@pytest.fixture
async def site(outbox_database: str) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        made = Site(outbox_database, await connect_async(outbox_database))
        stack.push_async_callback(made.close)
        yield made


async def test_events_arrive_in_order_and_once_and_the_cursor_is_stored(site: Site) -> None:
    await site.outbox.commit_each(event(f"e{number}", "k") for number in range(250))
    running = await site.start()
    await site.until(lambda: len(site.topic.accepted.get("k", [])) == 250)
    await site.outbox.commit(event("late", "k"))
    await site.until(lambda: len(site.topic.accepted["k"]) == 251)
    await running.end()

    assert site.topic.accepted["k"] == [*[f"e{number}" for number in range(250)], "late"]
    (claim,) = await site.claims()
    assert claim.owner is None
    assert claim.cursor > START


async def test_a_worker_that_starts_again_publishes_nothing_twice(site: Site) -> None:
    await site.outbox.commit_each(event(f"e{number}", "k") for number in range(5))
    first = await site.start()
    await site.until(lambda: len(site.topic.accepted.get("k", [])) == 5)
    await first.end()
    # Another topic does not know what the first one has dropped as duplicates.
    site.topic = InMemoryPublisher()
    second = await site.start()
    await site.outbox.commit(event("next", "k"))
    await site.until(lambda: bool(site.topic.accepted))
    await second.end()

    assert site.topic.accepted == {"k": ["next"]}


async def test_what_cannot_be_published_comes_again_and_the_cursor_waits(site: Site) -> None:
    site.topic.broken = RetryableError("the broker is away")
    await site.outbox.commit(event("e1", "k"))
    await site.start()
    await site.until_claims(lambda claims: claims[0].owner is not None, 1)
    await site.until_claims(lambda claims: claims[0].renewals > 2, 1)
    assert (await site.claims())[0].cursor == START

    site.topic.broken = None
    await site.until(lambda: site.topic.accepted == {"k": ["e1"]})
    await site.until_claims(lambda claims: claims[0].cursor > START, 1)


async def test_the_age_of_the_oldest_unpublished_event_is_reported_for_each_shard(site: Site) -> None:
    site.topic.broken = RetryableError("the broker is away")
    await site.outbox.commit(event("e1", "k"), shard_id=1)
    await site.session.execute(
        Statement(
            'update changefeed."outbox:outbox.domain_event" set time_hint = now() - make_interval(hours => 1)'
        )
    )
    await site.outbox.commit(event("e2", "k"), shard_id=1)
    running = await site.start(shards=2)
    ages_s = running.relay.telemetry.shard_ages.ages_s
    await site.until(lambda: ages_s().get(1, 0) > 3600)
    assert 3600 < ages_s()[1] < 3600 + WATCHDOG_S
    assert ages_s()[0] < WATCHDOG_S

    site.topic.broken = None
    await site.until(lambda: max(ages_s().values()) < WATCHDOG_S)
    assert site.topic.accepted == {"k": ["e1", "e2"]}
    await running.end()
    assert ages_s() == {}


async def test_a_row_that_is_no_event_is_quarantined_and_the_rest_goes_on(site: Site) -> None:
    await site.outbox.commit(event("e1", "k"), event("e2", "k") | {"data": 7}, event("e3", "k"))
    await site.session.execute(
        Statement('insert into changefeed."outbox:outbox.domain_event" (shard_id, id) values (0, ?)', ("gone",))
    )
    await site.start()

    await site.until(lambda: site.topic.accepted == {"k": ["e1", "e3"]} and len(site.quarantine.records) == 2)

    assert [(each.id, str(each.reason)) for each in site.quarantine.records] == [
        ("e2", "data-not-object"),
        ("gone", "partition-key-missing"),
    ]


async def test_two_workers_share_the_shards_and_one_takes_over_what_the_other_had(site: Site) -> None:
    shards = 4
    one = await site.start(shards=shards)
    await site.until_claims(lambda claims: all(claim.owner == one.worker.name for claim in claims), shards)
    two = await site.start(shards=shards)
    names = {one.worker.name, two.worker.name}
    await site.until_claims(lambda claims: sorted(c.owner for c in claims).count(two.worker.name) == 2, shards)
    assert {claim.owner for claim in await site.claims(shards)} == names

    await one.kill()
    for shard_id in range(shards):
        await site.outbox.commit(event(f"e{shard_id}", f"k{shard_id}"), shard_id=shard_id)

    await site.until(lambda: len(site.topic.accepted) == shards)
    await site.until_claims(lambda claims: all(claim.owner == two.worker.name for claim in claims), shards)


async def test_a_dead_workers_shard_is_taken_although_the_other_shard_is_asked_for(site: Site) -> None:
    consumer = AsyncConsumer(site.session, TABLE, CONSUMER)
    await consumer.take((await consumer.claims(range(2)))[1], "ended")
    one = await site.start(shards=2)
    await site.until_claims(lambda claims: claims[0].owner == one.worker.name, 2)

    await consumer.ask((await site.claims(2))[0], "ended after it had asked")

    await site.until_claims(lambda claims: all(claim.owner == one.worker.name for claim in claims), 2)


async def test_a_worker_that_ends_releases_its_shards_at_once(site: Site) -> None:
    one = await site.start(shards=2)
    await site.until_claims(lambda claims: all(claim.owner is not None for claim in claims), 2)
    await one.end()

    assert [claim.owner for claim in await site.claims(2)] == [None, None]


async def test_a_worker_that_ends_waits_for_a_page_for_no_longer_than_its_claim_lasts(site: Site) -> None:
    sending = asyncio.Event()

    class Stuck(InMemoryPublisher):
        async def publish(self, *_: Any, **how: Any) -> Any:
            sending.set()
            await forever()

    site.topic = Stuck()
    await site.outbox.commit(event("e1", "k"))
    one = await site.start()
    async with asyncio.timeout(WATCHDOG_S):
        await sending.wait()
    # From here on, nothing renews its claim.
    one.worker._settings = replace(one.worker._settings, claim_s=0.01)

    await one.end()

    (claim,) = await site.claims()
    assert (claim.owner, claim.cursor) == (one.worker.name, START)


async def test_nothing_is_sent_after_the_claim_has_ended(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    held = asyncio.Event()
    monkeypatch.setattr(Ownership, "holds", lambda self: not held.is_set())
    await site.start()
    await site.until_claims(lambda claims: claims[0].owner is not None, 1)
    held.set()
    await site.outbox.commit(event("e1", "k"))
    await site.until_claims(lambda claims: claims[0].renewals > 4, 1)

    assert site.topic.accepted == {}
    assert (await site.claims())[0].cursor == START
    held.clear()
    await site.until(lambda: site.topic.accepted == {"k": ["e1"]})


async def test_a_claim_taken_by_force_stops_the_worker_that_had_it(site: Site) -> None:
    one = await site.start()
    await site.until_claims(lambda claims: claims[0].owner == one.worker.name, 1)
    taken = None
    while taken is None:
        (claim,) = await site.claims()
        with suppress(ClaimLostError):
            taken = await AsyncConsumer(site.session, TABLE, CONSUMER).take(claim, "another")
    await site.outbox.commit(event("e1", "k"))

    # Whether or not it was sent before its claim ended, the cursor is stored only under one that holds. The one
    # that took it shows no sign of life, so in the end the worker takes it again.
    await site.until_claims(lambda claims: claims[0].cursor > START, 1)
    (claim,) = await site.claims()
    assert claim.epoch > taken.epoch
    assert claim.owner == one.worker.name
    assert site.topic.accepted == {"k": ["e1"]}


async def test_a_lost_connection_is_opened_again(site: Site) -> None:
    await site.start()
    await site.until_claims(lambda claims: claims[0].owner is not None, 1)
    await site.session.execute(
        Statement(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and pid <> pg_backend_pid()"
        )
    )
    await site.outbox.commit(event("e1", "k"))

    await site.until(lambda: site.topic.accepted == {"k": ["e1"]})
