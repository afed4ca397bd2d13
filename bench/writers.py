"""The cost of an SQL outbox for writers: commits a second without one, with ours, with one read by SKIP LOCKED.

pgbench writes, on a PostgreSQL whose fsync is on. A transaction changes a row of the business; with an outbox it
also inserts an event. The relay's worker is in this process, and its senders accept everything at once. So is the
publisher with SKIP LOCKED, which deletes what it has read and keeps no order between its batches.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg

from bench.benchmark import TIMES, Bound, Findings, Live, Plan, Table, Target, median, shown
from bench.offline import AcceptingSenders
from bench.sql_relay import running_worker
from changefeed import connect_async, install_async, setup_feed_async
from inbox.cancellation import end_tasks
from local.database.server import POSTGRES, as_other_user, prepare
from relay.sql import install

_FEED = "app.event"
_WRITERS = 16
_SHARDS = 4
_LEAST_RATIO = 0.4
_TABLES = """
create schema app;
create table app.contact (id int primary key, version int not null default 0);
insert into app.contact (id) select generate_series(1, 10000);
create table app.event (id text primary key, partition_key text not null, data json not null);
create table app.queue (number bigint generated always as identity primary key, data json not null);
"""
_DATA = """'{"action": "Renamed", "name": "Jane", "createdAt": "2026-02-09"}'"""
_EVENT = f"""app.event (id, partition_key, data) select gen_random_uuid()::text, 'k' || :key, {_DATA}"""
# In the script, a colon begins a variable of pgbench.
_OUTBOX = 'changefeed.U&"outbox\\003aapp.event" (shard_id, id)'

Reader = Callable[[str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to write.

    Attributes:
        name: In the tables.
        statements: Those in the transaction, after the change of the business row.
        order: The order of a key's events.
        reader: The concurrent reader, if any.
        notify: Whether commits notify readers.
    """

    name: str
    statements: str
    order: str
    reader: Reader | None = None
    notify: bool = False


async def _relay(url: str) -> None:
    """Run the relay's worker on all shards, until cancelled."""
    settings = {"SQL": url, "SQL_FEED": _FEED, "SQL_SHARDS": str(_SHARDS)}
    async with running_worker(AcceptingSenders(), lambda: connect_async(url), **settings):
        await asyncio.Event().wait()


async def _read_queue(url: str) -> None:
    """Take batches of what other readers have not locked, until cancelled."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        while True:
            taken = await connection.execute(
                "delete from app.queue where number = any (array(select number from app.queue "
                "order by number limit 100 for update skip locked)) returning number, data"
            )
            if not await taken.fetchall():
                await asyncio.sleep(0.01)


_ONE_STATEMENT = (
    f"with event as (insert into {_EVENT} returning id, partition_key) insert into {_OUTBOX} "
    f"select changefeed.shard_of(partition_key, {_SHARDS}), id from event;"
)
_NUMBERED = _EVENT.replace("gen_random_uuid()::text", ":client_id || '-' || :number || '-' || :other")
_TWO_STATEMENTS = (
    "\\set number random(1, 1000000000)\n\\set other random(1, 1000000000)\n"
    f"insert into {_NUMBERED};\n"
    f"insert into {_OUTBOX} select :key % {_SHARDS}, :client_id || '-' || :number || '-' || :other;"
)
_KEPT = "kept for each key"
_VARIANTS = (
    Variant("no outbox", "", ""),
    Variant("two statements, nothing reads", _TWO_STATEMENTS, _KEPT),
    Variant("one statement, nothing reads", _ONE_STATEMENT, _KEPT),
    Variant("one statement, relayed", _ONE_STATEMENT, _KEPT, _relay),
    Variant("one statement, NOTIFY, nothing reads", _ONE_STATEMENT, _KEPT, notify=True),
    Variant("one statement, NOTIFY, relayed", _ONE_STATEMENT, _KEPT, _relay, notify=True),
    Variant("SKIP LOCKED, read", f"insert into app.queue (data) values ({_DATA});", "lost", _read_queue),
)


@dataclass(frozen=True, slots=True)
class Turn:
    """Commits a second, and PostgreSQL's processor time for a commit in microseconds."""

    rate: float
    database_us: float


class Writers:
    """The benchmark."""

    name = "writers"
    about = "what an SQL outbox costs its writers, next to no outbox and to one read by SKIP LOCKED"

    async def run(self, plan: Plan, live: Live) -> Findings:
        seconds, rounds = plan.pick(quick=1.5, full=5.0), plan.pick(quick=3, full=5)
        turns: dict[str, list[Turn]] = {variant.name: [] for variant in _VARIANTS}
        live.step("writers: starting PostgreSQL")
        async with running_server(plan.scratch / "writers") as (url, server):
            for number in range(rounds):
                for variant in _VARIANTS:
                    live.step(f"writers: {variant.name}, {number + 1} of {rounds}")
                    turns[variant.name].append(await _turn(url, server, variant, seconds, plan.scratch))
                    live.rate(turns[variant.name][-1].rate, "commits/s")
        bare = [turn.rate for turn in turns["no outbox"]]
        ratios = {
            name: tuple(turn.rate / without for turn, without in zip(found, bare, strict=True))
            for name, found in turns.items()
        }
        rows = tuple(
            (
                variant.name,
                shown(median([turn.rate for turn in turns[variant.name]])),
                shown(median(ratios[variant.name])),
                shown(median([turn.database_us for turn in turns[variant.name]])),
                variant.order,
            )
            for variant in _VARIANTS
        )
        name = f"commits with {_WRITERS} writers and the relay, against none of an outbox"
        return Findings(
            targets=[Target(name, ratios["one statement, relayed"], TIMES, Bound.AT_LEAST, _LEAST_RATIO)],
            tables=[Table("The writers of an SQL outbox", _COLUMNS, rows, _PROSE)],
        )


_COLUMNS = ("transaction", "commits/s", "of those without an outbox", "µs of PostgreSQL a commit", "order")
_PROSE = (
    f"{_WRITERS} writers with pgbench, fsync on, {_SHARDS} shards. Each transaction changes a business row. "
    "The relay runs on the same cores, and its senders accept everything at once: a broker comes on top."
)


async def _turn(url: str, server: psutil.Process, variant: Variant, seconds: float, scratch: Path) -> Turn:
    await _reset(url, notify=variant.notify)
    script = scratch / "writers.sql"
    script.write_text(
        "\\set key random(1, 10000)\nbegin;\nupdate app.contact set version = version + 1 where id = :key;\n"
        f"{variant.statements}\ncommit;\n"
    )
    reading = asyncio.ensure_future(variant.reader(url)) if variant.reader else None
    try:
        before, began = database_seconds(server), time.monotonic()
        rate = await _pgbench(url, script, seconds)
        commits = rate * (time.monotonic() - began)
        return Turn(rate, (database_seconds(server) - before) / commits * 1e6)
    finally:
        if reading is not None:
            await end_tasks([reading])


async def _reset(url: str, *, notify: bool) -> None:
    session = await connect_async(url)
    try:
        await install_async(session)
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            await connection.execute("drop schema if exists app cascade")
            if await (await connection.execute("select from changefeed.outbox_feed")).fetchone() is not None:
                await connection.execute("select changefeed.drop_feed(table_name) from changefeed.outbox_feed")
            await connection.execute(_TABLES)
            await setup_feed_async(session, _FEED, notify=notify, roles=False, keep="forever")
            await install.install(session)
            await connection.execute("vacuum analyze")
            await connection.execute("checkpoint")
    finally:
        await session.close()


async def _pgbench(url: str, script: Path, seconds: float) -> float:
    program = POSTGRES.with_name("pgbench")
    process = await asyncio.create_subprocess_exec(
        *(str(program), "-n", "-M", "prepared", "-c", str(_WRITERS), "-j", "2", "-T", str(round(seconds))),
        *("-f", str(script), url),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    found = re.search(rb"tps = ([\d.]+)", output)
    if process.returncode or found is None:
        raise RuntimeError(f"pgbench failed: {errors.decode(errors='replace')}")
    return float(found[1])


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
