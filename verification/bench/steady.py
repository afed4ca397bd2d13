"""Few events, one at a time: how long each takes, and what PostgreSQL pays for it.

A transaction changes a row of the business and inserts an event with its place in the outbox, 50 times a second,
on a PostgreSQL whose fsync is on. The relay's worker reads them, and its senders accept everything at once; then
once more with a broker and a consumer, each in its own process.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import psutil
import psycopg

from changefeed import connect_async, install_async, setup_feed_async
from changefeed.statements import Statement
from relay.servicebus.transfers import Transfer
from relay_operator.backends.sql import install
from verification.bench.benchmark import Bound, Findings, Live, Plan, Table, Target, median, shown
from verification.bench.broker import Broker
from verification.bench.counting import CountedSessions
from verification.bench.latency import percentile
from verification.bench.offline import AcceptingSenders
from verification.bench.postgresql import database_seconds, running_server
from verification.bench.sql_relay import running_worker
from verification.bench.subscriber import SUBSCRIPTION, running_subscriber

_RATE = 50.0
_FEED = "outbox.domain_event"
_TABLES = """
create schema outbox;
create table outbox.domain_event (id text primary key, partition_key text not null, data json not null);
create table outbox.contact (id int primary key, version int not null default 0);
insert into outbox.contact (id) select generate_series(1, 1000);
"""
_CHANGE = "update outbox.contact set version = version + 1 where id = %s"
_COMMIT = """
with event as (
    insert into outbox.domain_event (id, partition_key, data)
    values (%s, %s, '{"action": "Renamed", "name": "Jane"}') returning id, partition_key
)
insert into changefeed."outbox:outbox.domain_event" (shard_id, id)
select changefeed.shard_of(partition_key, 1), id from event
"""
# Sessions that the consumer has open.
_KEYS = 16
_LATENCY_MS = 5.0
_DATABASE_MS = 1.5
_IDLE_MS_A_SECOND = 10.0
# Until the plans are cached; and until the reader looks less often.
_WARM_UP_S = 1.0
_BUSY_S = 2.0
_SENT_WITHIN_S = 20.0

_KINDS = {"read_events": "pages", "set last_ulid": "cursors", "has_news": "looks"}


@dataclass(frozen=True, slots=True)
class Turn:
    """One period of steady load.

    Attributes:
        latencies_ms: From BEGIN to the send, sorted.
        database_ms: PostgreSQL's processor time for an event.
        statements: By kind, how many the worker asked for an event.
    """

    latencies_ms: list[float]
    database_ms: float
    statements: dict[str, float]


class Steady:
    """The benchmark."""

    name = "steady"
    about = "50 events a second on an SQL outbox: from BEGIN to the send and the consumer, and PostgreSQL's time"

    async def run(self, plan: Plan, live: Live) -> Findings:
        seconds, repeats = plan.pick(quick=4.0, full=10.0), plan.pick(quick=3, full=5)
        live.step("steady: starting PostgreSQL")
        alone, turns, idle, idle_worker = [], [], [], []
        async with running_server(plan.scratch / "steady") as (url, server):
            await _set_up(url)
            for number in range(repeats):
                live.step(f"steady: {number + 1} of {repeats}")
                async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
                    writer = Writer(connection, plan.seed + number)
                    async with _relaying(url) as (senders, sessions):
                        turns.append(await _turn(server, senders, sessions, writer, seconds))
                        live.rate(median(turns[-1].latencies_ms), "ms")
                        await asyncio.sleep(_BUSY_S)
                        before, before_worker = database_seconds(server), time.process_time()
                        await asyncio.sleep(seconds)
                        idle.append((database_seconds(server) - before) * 1000 / seconds)
                        idle_worker.append((time.process_time() - before_worker) * 1000 / seconds)
                    writer.began.clear()
                    before = database_seconds(server)
                    await writer.run(seconds)
                    alone.append((database_seconds(server) - before) * 1000 / len(writer.began))
            delivered = await _delivered(url, plan, live, seconds, repeats)
        return Findings(
            targets=[
                Target(
                    f"from BEGIN to the send, {_RATE:g} events/s on an SQL outbox, p50",
                    tuple(median(turn.latencies_ms) for turn in turns),
                    "ms",
                    Bound.AT_MOST,
                    _LATENCY_MS,
                ),
                Target(
                    f"from BEGIN to the consumer's handler, {_RATE:g} events/s on an SQL outbox, p50",
                    tuple(median(latencies_ms) for latencies_ms in delivered),
                    "ms",
                    Bound.AT_MOST,
                    _LATENCY_MS,
                ),
                Target(
                    f"PostgreSQL's processor time for an event, {_RATE:g} events/s",
                    tuple(turn.database_ms for turn in turns),
                    "ms",
                    Bound.AT_MOST,
                    _DATABASE_MS,
                ),
                Target("PostgreSQL, an idle shard", tuple(idle), "ms/s", Bound.AT_MOST, _IDLE_MS_A_SECOND),
                Target("the worker, an idle shard", tuple(idle_worker), "ms/s", Bound.AT_MOST, _IDLE_MS_A_SECOND),
            ],
            tables=[
                Table("An SQL outbox at a low rate", ("what", "value"), _rows(turns, alone, delivered), _PROSE)
            ],
        )


def _rows(turns: list[Turn], alone: list[float], delivered: list[list[float]]) -> tuple[tuple[str, str], ...]:
    def of(measure: Callable[[Turn], float]) -> str:
        return shown(median([measure(turn) for turn in turns]))

    return (
        ("from BEGIN to the send, p50, ms", of(lambda turn: median(turn.latencies_ms))),
        ("from BEGIN to the send, p99, ms", of(lambda turn: percentile(turn.latencies_ms, 0.99))),
        ("from BEGIN to the consumer's handler, p50, ms", shown(median([median(each) for each in delivered]))),
        (
            "from BEGIN to the consumer's handler, p99, ms",
            shown(median([percentile(each, 0.99) for each in delivered])),
        ),
        ("PostgreSQL, ms an event", of(lambda turn: turn.database_ms)),
        ("PostgreSQL, ms an event, nothing reads", shown(median(alone))),
        *((f"{kind} an event", of(_statements(kind))) for kind in _KINDS.values()),
    )


def _statements(kind: str) -> Callable[[Turn], float]:
    return lambda turn: turn.statements[kind]


_PROSE = (
    f"Transactions that change a row of the business and insert an event with its place, {_RATE:g} a second at "
    "random moments, in four round trips; fsync is on. The relay's worker reads one shard by polling. *To the "
    "send*, its senders accept everything at once. *To the consumer's handler*, there are a broker and a consumer "
    f"too, with an open session for each of {_KEYS} keys, on the same cores. *Looks* ask for news without reading."
)


async def _set_up(url: str) -> None:
    session = await connect_async(url)
    try:
        await install_async(session)
        await session.execute(Statement(_TABLES))
        await setup_feed_async(session, _FEED, roles=False, keep="forever")
        await install.install(session)
    finally:
        await session.close()


class Timed(AcceptingSenders):
    """Senders that know when each event was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: dict[str, float] = {}

    async def send(
        self,
        transfer: Transfer,
        timeout_s: float,
        may_send: Callable[[], None],
        accepted_late: Callable[[], None],
        wait_s: float | None = None,
    ) -> None:
        await super().send(transfer, timeout_s, may_send, accepted_late, wait_s)
        self.sent.update((event.id, time.monotonic()) for event in transfer.events)


class Writer:
    """Commits one event at a time, at random moments.

    Attributes:
        began: When the transaction of each event began.
    """

    def __init__(self, connection: psycopg.AsyncConnection[Any], seed: int, *, contacts: int = 1000) -> None:
        """`contacts`: the number of rows that are changed, each of which is a key."""
        self._connection = connection
        self._random = random.Random(seed)
        self._contacts = contacts
        self.began: dict[str, float] = {}

    async def run(self, seconds: float) -> None:
        """Write for that long."""
        began = due = time.monotonic()
        while (due := due + self._random.expovariate(_RATE)) < began + seconds:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            identifier = f"{self._random.getrandbits(64):016x}"
            self.began[identifier] = time.monotonic()
            contact = self._random.randint(1, self._contacts)
            async with self._connection.transaction():
                await self._connection.execute(_CHANGE, (contact,))
                await self._connection.execute(_COMMIT, (identifier, _key(contact)))


def _key(contact: int) -> str:
    return f"contact-{contact}"


async def _delivered(url: str, plan: Plan, live: Live, seconds: float, repeats: int) -> list[list[float]]:
    """Return the milliseconds from BEGIN to the consumer's handler, sorted, of each turn."""
    live.step("steady: starting the broker and the consumer")
    keys = [_key(contact) for contact in range(1, _KEYS + 1)]
    found = []
    async with (
        Broker(plan.scratch, subscriptions=[SUBSCRIPTION]) as broker,
        running_subscriber(broker.connection_string, keys, plan.scratch) as subscriber,
        running_worker(None, lambda: connect_async(url), SQL=url, SERVICEBUS=broker.connection_string),
        await psycopg.AsyncConnection.connect(url, autocommit=True) as connection,
    ):
        for number in range(-1, repeats):
            # The first turn opens the links, and relays what is left from above. Ids come from the seed.
            writer = Writer(connection, plan.seed + 1000 + number, contacts=_KEYS)
            await writer.run(_WARM_UP_S if number < 0 else seconds)
            await _all_in(subscriber.arrivals, writer)
            if number >= 0:
                live.step(f"steady: to the consumer, {number + 1} of {repeats}")
                found.append(
                    sorted((subscriber.arrivals[each] - began) * 1000 for each, began in writer.began.items())
                )
    return found


@asynccontextmanager
async def _relaying(url: str) -> AsyncIterator[tuple[Timed, CountedSessions]]:
    sessions, senders = CountedSessions(lambda: connect_async(url)), Timed()
    async with running_worker(senders, sessions.connect, SQL=url):
        yield senders, sessions


async def _turn(
    server: psutil.Process, senders: Timed, sessions: CountedSessions, writer: Writer, seconds: float
) -> Turn:
    """Write, and wait until all was sent."""
    await writer.run(_WARM_UP_S)
    await _all_in(senders.sent, writer)
    writer.began.clear()
    before, asked = database_seconds(server), _counted(sessions)
    await writer.run(seconds)
    used, asked = database_seconds(server) - before, _counted(sessions) - asked
    await _all_in(senders.sent, writer)
    count = len(writer.began)
    return Turn(
        sorted((senders.sent[each] - began) * 1000 for each, began in writer.began.items()),
        used * 1000 / count,
        {kind: asked[kind] / count for kind in _KINDS.values()},
    )


async def _all_in(seen: Mapping[str, float], writer: Writer) -> None:
    """Wait until all events of the writer were seen."""
    async with asyncio.timeout(_SENT_WITHIN_S):
        while not writer.began.keys() <= seen.keys():
            await asyncio.sleep(0.01)


def _counted(sessions: CountedSessions) -> Counter[str]:
    """Return the number of statements of each kind asked so far."""
    texts = [text for statements in sessions.opened for text in statements]
    return Counter(kind for text in texts for part, kind in _KINDS.items() if part in text)
