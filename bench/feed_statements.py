"""Number of statements that the relay's worker executes: for a page, and while nothing is committed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bench.counting import CountedSessions
from bench.offline import accepting_senders
from changefeed import MAX_PAGE_SIZE, connect_async
from relay.assembly import assemble_sql
from relay.settings import Settings
from relay.sql.worker import Worker

_POLL_DELAY_S = 0.5
_IDLE_WITHIN_S = 60.0

# Of the statement that stores a cursor, and of the one that looks for another page.
_STORES, _LOOKS = "set last_ulid = ?", "has_news:"


@dataclass(frozen=True, slots=True)
class Statements:
    """The counts.

    Attributes:
        a_page: For each page and its stored cursor.
        idle: In a second in which nothing is committed, those for the claim included.
    """

    a_page: float
    idle: float


async def count_statements(environment: Mapping[str, str], idle_s: float) -> Statements:
    """Let a worker relay what is in the outbox, and wait for news that long.

    Args:
        environment: Settings that name an outbox of one shard, with at least two unread pages.
        idle_s: Seconds.
    """
    async with _running_worker(environment) as sessions:
        async with asyncio.timeout(_IDLE_WITHIN_S):
            while not any(map(_is_idle, sessions.opened)):
                await asyncio.sleep(0.05)
        (a_page,) = [between_stores(statements) for statements in sessions.opened if _is_idle(statements)]
        before = sessions.total
        await asyncio.sleep(idle_s)
        return Statements(a_page, (sessions.total - before) / idle_s)


@asynccontextmanager
async def _running_worker(environment: Mapping[str, str]) -> AsyncIterator[CountedSessions]:
    """A worker whose senders accept everything; the sessions that it opens."""
    settings = Settings.from_environment(environment)
    feed = settings.sql
    assert feed is not None
    sessions = CountedSessions(lambda: connect_async(feed.connection_string))
    with accepting_senders():
        assembled = assemble_sql(settings)
        worker = Worker(
            assembled.relay, feed, sessions.connect, page_size=MAX_PAGE_SIZE, poll_delay_s=_POLL_DELAY_S
        )
        stop = asyncio.Event()
        running = asyncio.create_task(worker.run(stop))
        try:
            yield sessions
        finally:
            stop.set()
            await running
            await assembled.close()


def _is_idle(statements: list[str]) -> bool:
    """Return True if this session has stored cursors, and has looked for another page three times since then."""
    stores = _stores(statements)
    return bool(stores) and sum(_LOOKS in text for text in statements[stores[-1] :]) >= 3


def between_stores(statements: list[str]) -> float:
    """Return the average number of statements from one stored cursor to the next; at least two are stored."""
    stores = _stores(statements)
    return (stores[-1] - stores[0]) / (len(stores) - 1)


def _stores(statements: list[str]) -> list[int]:
    return [number for number, text in enumerate(statements) if _STORES in text]
