"""Reading a feed: pages behind a cursor, in an order that every reader sees alike and that never changes."""

from __future__ import annotations

import time
from dataclasses import dataclass

from changefeed.statements import AsyncSession, Entry, Operation, Session, run, run_async
from changefeed.ulid import START

MAX_PAGE_SIZE = 1000

# How often a reader that waits looks for news where commits do not notify it, and where they do.
_POLL_EVERY_S = 0.15
_LOOK_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class Page:
    """What one read gave.

    Attributes:
        entries: The events behind the cursor, in order. Fewer than asked for does not mean that there are no more;
            none does.
        cursor: Where to read on.
    """

    entries: list[Entry]
    cursor: bytes


class Feed:
    """The feed of one table, read through a sync session."""

    def __init__(self, session: Session, table: str) -> None:
        """`table` is `schema.Table`, as it was given to setup_feed."""
        self._session = session
        self._table = table
        self._pause_s: float | None = None

    def read(self, shard_id: int, cursor: bytes = START, page_size: int = 100) -> Page:
        """One page; the first reader of an event gives it its position.

        Args:
            shard_id: The shard.
            cursor: Where the page before ended; START to begin with.
            page_size: 1 to MAX_PAGE_SIZE.

        Raises:
            CursorError, ArgumentError, IsolationError, FeedBusyError, SetupError, DatabaseError
        """
        return run(
            self._session, _page(self._session.dialect.read(self._table, shard_id, cursor, page_size), cursor)
        )

    def wait(self, shard_id: int, cursor: bytes, timeout_s: float) -> bool:
        """Wait until there may be events behind the cursor; returns False if the time is over before.

        A cursor that is ahead ends the wait at once: the read that follows raises CursorError.
        """
        ends = time.monotonic() + timeout_s
        if self._pause_s is None:
            channel = run(self._session, self._session.dialect.channel(self._table))
            if channel is not None:
                self._session.listen(channel)
            self._pause_s = _POLL_EVERY_S if channel is None else _LOOK_EVERY_S
        while not run(self._session, self._session.dialect.has_news(self._table, shard_id, cursor)):
            left_s = ends - time.monotonic()
            if left_s <= 0:
                return False
            self._session.notified(min(left_s, self._pause_s))
        return True


class AsyncFeed:
    """The feed of one table, read through an async session; see Feed."""

    def __init__(self, session: AsyncSession, table: str) -> None:
        self._session = session
        self._table = table
        self._pause_s: float | None = None

    async def read(self, shard_id: int, cursor: bytes = START, page_size: int = 100) -> Page:
        """One page, as Feed.read."""
        reading = self._session.dialect.read(self._table, shard_id, cursor, page_size)
        return await run_async(self._session, _page(reading, cursor))

    async def wait(self, shard_id: int, cursor: bytes, timeout_s: float) -> bool:
        """Wait for events behind the cursor, as Feed.wait."""
        ends = time.monotonic() + timeout_s
        if self._pause_s is None:
            channel = await run_async(self._session, self._session.dialect.channel(self._table))
            if channel is not None:
                await self._session.listen(channel)
            self._pause_s = _POLL_EVERY_S if channel is None else _LOOK_EVERY_S
        while not await run_async(self._session, self._session.dialect.has_news(self._table, shard_id, cursor)):
            left_s = ends - time.monotonic()
            if left_s <= 0:
                return False
            await self._session.notified(min(left_s, self._pause_s))
        return True


def _page(reading: Operation[list[Entry]], cursor: bytes) -> Operation[Page]:
    entries = yield from reading
    return Page(entries, entries[-1].ulid if entries else cursor)
