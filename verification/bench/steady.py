"""Few events, one at a time: how long each takes, and what PostgreSQL pays for it.

A transaction changes a row of the business and inserts an event with its place in the outbox, 50 times a second,
on a PostgreSQL whose fsync is on. The relay's worker reads them; broker and consumer have a process each.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg

from local.database.server import POSTGRES, as_other_user, prepare
from outbox_relay.changefeed import connect_async, install_async, setup_feed_async
from outbox_relay.changefeed.statements import Statement
from outbox_relay.operator.backends.sql import install
from relay.backends.sql.backend import SqlBackend
from relay.backends.sql.worker import Worker
from relay.config.settings import Settings
from verification.bench.benchmark import Bound, Findings, Live, Plan, Table, Target, median, shown
from verification.bench.broker import Broker
from verification.bench.counting import Connect
from verification.bench.latency import percentile
from verification.bench.offline import ENVIRONMENT, AcceptingSenders, accepting_senders
from verification.bench.subscriber import SUBSCRIPTION, running_subscriber


@asynccontextmanager
async def running_server(folder: Path) -> AsyncIterator[tuple[str, psutil.Process]]:
    """A PostgreSQL with fsync on, on a socket in its folder: its URL and its process."""
    data = folder / "data"
    await asyncio.to_thread(prepare, data)
    (data / "pg_hba.conf").write_text("local all all trust\n")
    process = await asyncio.create_subprocess_exec(
        *(str(POSTGRES), "-D", str(data), "-k", str(data), "-c", "listen_addresses=", "-c", "max_wal_size=4GB"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        **as_other_user(),
    )
    url = f"postgresql://postgres@/postgres?host={data}"
    try:
        async with asyncio.timeout(20):
            while not await _answers(url):
                await asyncio.sleep(0.05)
        yield url, psutil.Process(process.pid)
    finally:
        process.terminate()
        await process.wait()


async def _answers(url: str) -> bool:
    try:
        await (await psycopg.AsyncConnection.connect(url)).close()
    except psycopg.OperationalError:
        return False
    return True


def database_seconds(server: psutil.Process) -> float:
    """Return the seconds of the server and of all sessions, those that have ended included."""
    times = [server.cpu_times()]
    for child in server.children():
        try:
            times.append(child.cpu_times())
        except psutil.NoSuchProcess:
            continue
    own = sum(one.user + one.system for one in times)
    return float(own + times[0].children_user + times[0].children_system)


@asynccontextmanager
async def running_worker(
    senders: AcceptingSenders | None, connect: Connect, **settings: str
) -> AsyncIterator[None]:
    """Relay until the block ends.

    Args:
        senders: Senders that accept everything, instead of a broker; None to send to the one of SERVICEBUS.
        connect: Opens a session on the database.
        settings: Those of the outbox: SQL, SQL_FEED, SQL_SHARDS; and SERVICEBUS.
    """
    read = Settings.from_environment({"SERVICEBUS": ENVIRONMENT["SERVICEBUS"], **settings})
    assert read.sql is not None
    with nullcontext() if senders is None else accepting_senders(senders):
        relay = SqlBackend(read).relay
    worker = Worker(relay, read.sql, connect, page_size=1000, poll_delay_s=0.5)
    stop = asyncio.Event()
    running = asyncio.create_task(worker.run(stop))
    try:
        yield
    finally:
        stop.set()
        await running
        await relay.close()


_RATE = 50.0
_FEED = "outbox.domain_event"
_TABLES = """
create schema outbox;
create table outbox.domain_event (id text primary key, partition_key text not null, data json not null);
create table outbox.contact (id int primary key, version int not null default 0);
insert into outbox.contact (id) select generate_series(1, 100);
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
# Until the plans are cached.
_WARM_UP_S = 1.0
_SENT_WITHIN_S = 20.0


@dataclass(frozen=True, slots=True)
class Turn:
    """One period of steady load.

    Attributes:
        latencies_ms: From BEGIN to the consumer's handler, sorted.
        database_ms: PostgreSQL's processor time for an event.
    """

    latencies_ms: list[float]
    database_ms: float


class Steady:
    """The benchmark."""

    name = "steady"
    about = "50 events a second on an SQL outbox: from BEGIN to the consumer, and PostgreSQL's time"

    async def run(self, plan: Plan, live: Live) -> Findings:
        live.step("steady: starting PostgreSQL")
        async with running_server(plan.scratch / "steady") as (url, server):
            await _set_up(url)
            turns = await _take_turns(url, server, plan, live)
        latencies = tuple(median(turn.latencies_ms) for turn in turns)
        database = tuple(turn.database_ms for turn in turns)
        begin_to_handler = f"from BEGIN to the consumer's handler, {_RATE:g} events/s on an SQL outbox, p50"
        rows = (
            ("from BEGIN to the consumer's handler, p50, ms", shown(median(latencies))),
            (
                "from BEGIN to the consumer's handler, p99, ms",
                shown(median([percentile(turn.latencies_ms, 0.99) for turn in turns])),
            ),
            ("PostgreSQL, ms an event", shown(median(database))),
        )
        return Findings(
            targets=[
                Target(begin_to_handler, latencies, "ms", Bound.AT_MOST, _LATENCY_MS),
                Target(
                    f"PostgreSQL's processor time for an event, {_RATE:g} events/s",
                    database,
                    "ms",
                    Bound.AT_MOST,
                    _DATABASE_MS,
                ),
            ],
            tables=[Table("An SQL outbox at a low rate", ("what", "value"), rows, _PROSE)],
        )


_PROSE = (
    f"Transactions that change a row of the business and insert an event with its place, {_RATE:g} a second at "
    "random moments, in four round trips; fsync is on. The relay's worker reads one shard by polling. The "
    f"consumer has an open session for each of {_KEYS} keys, on the same cores."
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


class Writer:
    """Commits one event at a time, at random moments.

    Attributes:
        began: When the transaction of each event began.
    """

    def __init__(self, connection: psycopg.AsyncConnection[Any], seed: int) -> None:
        self._connection = connection
        self._random = random.Random(seed)
        self.began: dict[str, float] = {}

    async def run(self, seconds: float) -> None:
        """Write for that long."""
        began = due = time.monotonic()
        while (due := due + self._random.expovariate(_RATE)) < began + seconds:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            identifier = f"{self._random.getrandbits(64):016x}"
            self.began[identifier] = time.monotonic()
            contact = self._random.randint(1, _KEYS)
            async with self._connection.transaction():
                await self._connection.execute(_CHANGE, (contact,))
                await self._connection.execute(_COMMIT, (identifier, _key(contact)))


def _key(contact: int) -> str:
    return f"contact-{contact}"


async def _take_turns(url: str, server: psutil.Process, plan: Plan, live: Live) -> list[Turn]:
    live.step("steady: starting the broker and the consumer")
    seconds, repeats = plan.pick(quick=4.0, full=10.0), plan.pick(quick=3, full=5)
    keys = [_key(contact) for contact in range(1, _KEYS + 1)]
    turns = []
    async with (
        Broker(plan.scratch, subscriptions=[SUBSCRIPTION]) as broker,
        running_subscriber(broker.connection_string, keys, plan.scratch) as subscriber,
        running_worker(None, lambda: connect_async(url), SQL=url, SERVICEBUS=broker.connection_string),
        await psycopg.AsyncConnection.connect(url, autocommit=True) as connection,
    ):
        for number in range(-1, repeats):
            live.step(f"steady: {number + 1} of {repeats}")
            # The first turn opens the links. Ids come from the seed.
            writer = Writer(connection, plan.seed + number)
            before = database_seconds(server)
            await writer.run(_WARM_UP_S if number < 0 else seconds)
            used = database_seconds(server) - before
            await _all_in(subscriber.arrivals, writer)
            if number >= 0:
                latencies = ((subscriber.arrivals[each] - began) * 1000 for each, began in writer.began.items())
                turns.append(Turn(sorted(latencies), used * 1000 / len(writer.began)))
                live.rate(median(turns[-1].latencies_ms), "ms")
    return turns


async def _all_in(seen: Mapping[str, float], writer: Writer) -> None:
    """Wait until all events of the writer were seen."""
    async with asyncio.timeout(_SENT_WITHIN_S):
        while not writer.began.keys() <= seen.keys():
            await asyncio.sleep(0.01)
