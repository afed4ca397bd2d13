"""The reader of an SQL feed alone, on PostgreSQL: rows a second, and statements for a page."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any

import psutil
import psycopg

from local.stack import outboxes
from local.stack.environment import Source
from local.stack.options import StackOptions
from local.stack.processor import processor_seconds
from outbox_relay.changefeed import START, AsyncFeed, connect_async
from verification.bench.benchmark import Bound, Findings, Live, Plan, Table, Target, median
from verification.bench.counting import CountedSessions
from verification.bench.offline import ENVIRONMENT
from verification.bench.outbox import balanced_keys, event

_EVENTS = "copy outbox.domain_event (id, partition_key, type, data) from stdin"
_PLACES = 'copy changefeed."outbox:outbox.domain_event" (shard_id, id) from stdin'
_SHARD = 0


async def fill(url: str, documents: Sequence[dict[str, Any]]) -> None:
    """Write documents in their order, all in one transaction: readers see all of them at once."""
    async with await psycopg.AsyncConnection.connect(url) as connection, connection.cursor() as cursor:
        async with cursor.copy(_EVENTS) as copy:
            for each in documents:
                row = each["id"], each["partitionKey"], each["type"], json.dumps(each["data"])
                await copy.write_row(row)
        async with cursor.copy(_PLACES) as copy:
            for each in documents:
                await copy.write_row((_SHARD, each["id"]))


_FEED = "outbox.domain_event"
_PAGE = 1000
_KEYS = 100
_ROWS_TARGET = 20_000


@dataclass(frozen=True, slots=True)
class Turn:
    """One read of many pages.

    Attributes:
        rate: Rows a second.
        reader_us, database_us: Processor time for a row, in microseconds.
        statements: For a page.
    """

    rate: float
    reader_us: float
    database_us: float
    statements: float


class Feed:
    """The benchmark."""

    name = "feed"
    about = "the reader of an SQL feed alone: rows a second, and statements for a page"

    async def run(self, plan: Plan, live: Live) -> Findings:
        live.step("feed: starting PostgreSQL")
        async with _running_database(plan.scratch / "feed") as (url, server):
            first, later = await _measure(url, server, _documents(), plan, live)
        name = "first read of an SQL feed, one shard, pages of 1 000"
        pages = "statements for a page of an SQL feed"
        rows = (("first read, which gives positions", *_cells(first)), ("later read", *_cells(later)))
        return Findings(
            targets=[
                Target(name, tuple(turn.rate for turn in first), "rows/s", Bound.AT_LEAST, _ROWS_TARGET),
                Target(pages, tuple(turn.statements for turn in (*first, *later)), "", Bound.AT_MOST, 1),
            ],
            tables=[Table("The reader of an SQL feed", _COLUMNS, rows, _PROSE)],
        )


@asynccontextmanager
async def _running_database(logs: Path) -> AsyncIterator[tuple[str, psutil.Process]]:
    """PostgreSQL with an outbox of one shard: its URL and its process."""
    options = StackOptions(source=Source.SQL, shards=1, logs=logs)
    database = await outboxes.start(options)
    try:
        environment = {**ENVIRONMENT, **outboxes.settings(database, options)}
        await outboxes.install(environment)
        yield environment["SQL"], psutil.Process(database.pid)
    finally:
        await database.stop()


def _documents() -> Iterator[dict[str, Any]]:
    keys = cycle(islice(balanced_keys(1), _KEYS))
    return (event(f"{number:08}-{key}", key) for number, key in zip(count(), keys, strict=False))


async def _measure(
    url: str,
    server: psutil.Process,
    documents: Iterator[dict[str, Any]],
    plan: Plan,
    live: Live,
) -> tuple[list[Turn], list[Turn]]:
    """Measure first and later reads of the same rows, which are committed before."""
    pages, repeats = plan.pick(quick=20, full=50), plan.pick(quick=5, full=9)
    first, later = [], []
    sessions = CountedSessions(lambda: connect_async(url))
    session = await sessions.connect()
    try:
        feed, cursor = AsyncFeed(session, _FEED), START
        while (page := await feed.read(0, cursor, _PAGE)).entries:
            cursor = page.cursor
        for repeat in range(repeats):
            live.step(f"feed: {pages} pages, {repeat + 1} of {repeats}")
            await fill(url, list(islice(documents, pages * _PAGE)))
            turn, reached = await _read(feed, cursor, pages, sessions, server)
            first.append(turn)
            live.rate(turn.rate, "rows/s")
            turn, _ = await _read(feed, cursor, pages, sessions, server)
            later.append(turn)
            cursor = reached
    finally:
        await session.close()
    return first, later


async def _read(
    feed: AsyncFeed, cursor: bytes, pages: int, sessions: CountedSessions, server: psutil.Process
) -> tuple[Turn, bytes]:
    """Read that many full pages behind the cursor; returns also where the last one ended."""
    gc.collect()
    rows = pages * _PAGE
    asked, reader, database = sessions.total, time.process_time(), processor_seconds(server)
    started = time.perf_counter()
    for _ in range(pages):
        page = await feed.read(0, cursor, _PAGE)
        if len(page.entries) < _PAGE:
            raise RuntimeError(f"a page has {len(page.entries)} rows, though there are {_PAGE}")
        cursor = page.cursor
    took = time.perf_counter() - started
    turn = Turn(
        rate=rows / took,
        reader_us=(time.process_time() - reader) / rows * 1e6,
        database_us=(processor_seconds(server) - database) / rows * 1e6,
        statements=(sessions.total - asked) / pages,
    )
    return turn, cursor


def _cells(turns: Sequence[Turn]) -> tuple[str, ...]:
    rate = median([turn.rate for turn in turns])
    return (
        f"{rate:,.0f}",
        f"{_PAGE / rate * 1000:.1f}",
        f"{median([turn.reader_us for turn in turns]):.1f}",
        f"{median([turn.database_us for turn in turns]):.1f}",
    )


_COLUMNS = ("what", "rows/s", "ms for a page", "reader, µs/row", "PostgreSQL, µs/row")
_PROSE = (
    "One session reads one page of 1 000 rows after another, and makes of each row what the relay gets. Nothing "
    "is published, and no cursor is stored. The rows have about 260 bytes of `data`, committed beforehand. "
    "PostgreSQL is the local stack's, without `fsync`. The last two columns are processor time."
)
