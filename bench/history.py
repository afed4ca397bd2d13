"""The cost of an SQL feed's statements against the size of its history and of its backlog: it stays flat.

Milliseconds depend on what is in the server's cache, and on the pages that it has to write first. The pages that a
statement visits do not.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import psycopg

from bench.benchmark import TIMES, Bound, Findings, Live, Plan, Table, Target, median, shown
from bench.writers import running_server
from changefeed import AsyncFeed, AsyncSession, connect_async, install_async, set_keep_async, setup_feed_async
from changefeed.statements import Statement, run_async

_FEED = "app.event"
_PAGE = 1000
_MOST_TIMES = 3.0
_MOST_VISITED = 1.2
_SIZES = (100_000, 300_000, 1_000_000)
_LARGEST = 10_000_000
_TIMES = 15

_FIRST_PAGE = "a first page of the backlog"
_NUMBER = (
    'select count(*) from changefeed."read_events:app.event"(1, coalesce((select ulid from '
    f"changefeed.\"state:app.event\" where shard_id = 1), '{'0' * 32}'), {_PAGE}, null)"
)
_TABLE = "create schema app; create table app.event (id text primary key, data json not null default '{}')"
# The history is shard 0's, the backlog shard 1's. Nothing is analysed: statistics are those of empty tables.
_FILL = """
insert into app.event (id) select 'e' || n from generate_series({first}, {last}) n;
insert into changefeed."feed:app.event" (shard_id, ulid, id)
    select 0, changefeed.ulid(1500000000000 + n, 0, 0), 'e' || n from generate_series({first}, {last}) n;
insert into changefeed."state:app.event" (shard_id, ulid) values (0, changefeed.ulid(1500000000000 + {last}, 0, 0))
    on conflict (shard_id) do update set ulid = excluded.ulid;
insert into changefeed."outbox:app.event" (shard_id, id)
    select 1, 'e' || n from generate_series({first}, {first} + ({last} - {first}) / 10) n;
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of the statements at one size.

    Attributes:
        rows: The number of positions.
        ms: Milliseconds of each statement, by its name.
        visited: 8 KB pages that a first page of the backlog visits, and those of them that are not in the cache.
    """

    rows: int
    ms: dict[str, float]
    visited: tuple[float, float]


class History:
    """The benchmark."""

    name = "history"
    about = "what the statements of an SQL feed cost against the size of its history and its backlog"

    async def run(self, plan: Plan, live: Live) -> Findings:
        sizes = plan.pick(quick=_SIZES, full=(*_SIZES, _LARGEST))
        costs: list[Cost] = []
        live.step("history: starting PostgreSQL")
        async with running_server(plan.scratch / "history") as (url, _):
            session = await connect_async(url, options="-c statement_timeout=600s -c synchronous_commit=off")
            try:
                await _set_up(url, session)
                filled = 0
                for size in sizes:
                    live.step(f"history: {size} positions")
                    await session.execute(Statement(_FILL.format(first=filled + 1, last=size)))
                    filled = size
                    costs.append(Cost(size, await _measure(session, size), await _visited(session)))
            finally:
                await session.close()
        smallest, largest = costs[0], costs[-1]
        rows = (
            *((f"{name}, ms", *(shown(cost.ms[name]) for cost in costs)) for name in smallest.ms),
            (f"{_FIRST_PAGE}, 8 KB pages visited", *(shown(cost.visited[0]) for cost in costs)),
            ("of which not in PostgreSQL's cache", *(shown(cost.visited[1]) for cost in costs)),
        )
        visited = f"pages visited by {_FIRST_PAGE} of an SQL feed with {largest.rows:,} positions"
        return Findings(
            targets=[
                Target(
                    f"{visited}, against {smallest.rows:,}",
                    (largest.visited[0] / smallest.visited[0],),
                    TIMES,
                    Bound.AT_MOST,
                    _MOST_VISITED,
                ),
                *(
                    Target(
                        f"{name} of an SQL feed with {largest.rows:,} positions, against {smallest.rows:,}",
                        (largest.ms[name] / smallest.ms[name],),
                        TIMES,
                        Bound.AT_MOST,
                        _MOST_TIMES,
                    )
                    for name in smallest.ms
                ),
            ],
            tables=[
                Table("An SQL feed as it grows", ("positions", *(f"{one.rows:,}" for one in costs)), rows, _PROSE)
            ],
        )


_PROSE = (
    f"By number of positions; the backlog of another shard has a tenth of it. A page has {_PAGE:,} events. "
    "Nothing is analysed, so the statistics are those of empty tables. PostgreSQL's cache has its default size, "
    "128 MB. A first page of the backlog visits as many pages of tables and indexes at each size: it takes longer "
    "where they are not in the cache, and where others that are to be written have to make room for them."
)


async def _set_up(url: str, session: AsyncSession) -> None:
    await install_async(session)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(_TABLE)
        await setup_feed_async(session, _FEED, roles=False)
        await connection.execute("analyze")
        for table in ("app.event", 'changefeed."feed:app.event"', 'changefeed."outbox:app.event"'):
            await connection.execute(f"alter table {table} set (autovacuum_enabled = off)".encode())
    await set_keep_async(session, _FEED, "forever")


async def _measure(session: AsyncSession, size: int) -> dict[str, float]:
    """Measure each statement a few times: the first ones fill caches."""
    feed = AsyncFeed(session, _FEED)
    head = _position(size)
    middle = _position(size // 2)
    prune = session.dialect.prune_shard
    ms = {
        "a look by an idle reader": await _ms(lambda: feed.wait(0, head, 0)),
        "an empty page": await _ms(lambda: feed.read(0, head, _PAGE)),
        "a page of the history": await _ms(lambda: feed.read(0, middle, _PAGE)),
        _FIRST_PAGE: await _ms(lambda: session.execute(Statement(_NUMBER)), 5),
    }
    # Few enough are deleted that the history keeps its size.
    ms["deleting 50 positions"] = await _ms(lambda: run_async(session, prune(_FEED, 0, middle, 50)))
    return ms


async def _visited(session: AsyncSession) -> tuple[float, float]:
    """Return the median of pages that a first page of the backlog visits.

    Returns that of the pages outside the cache, too.
    """
    hit, read = [], []
    for _ in range(5):
        result = await session.execute(Statement(f"explain (analyze, buffers, format json) {_NUMBER}"))
        plan = json.loads(result.rows[0][0])[0]["Plan"]
        hit.append(plan["Shared Hit Blocks"])
        read.append(plan["Shared Read Blocks"])
    return median([sum(both) for both in zip(hit, read, strict=True)]), median(read)


async def _ms(act: Callable[[], Awaitable[object]], times: int = _TIMES) -> float:
    """Return the median of the later executions, in milliseconds."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        await act()
        found.append((time.perf_counter() - began) * 1000)
    return median(found[times // 3 :])


def _position(number: int) -> bytes:
    """Return a position in the form that changefeed.ulid writes."""
    return (1_500_000_000_000 + number).to_bytes(6, "big") + bytes(10)
