"""Reading a feed: pages behind a cursor, in an order that is the same for every reader and never changes."""

from __future__ import annotations

import time
from dataclasses import dataclass

from outbox_relay.changefeed.errors import ArgumentError
from outbox_relay.changefeed.statements import AsyncSession, Dialect, Entry, Operation, Session, run, run_async
from outbox_relay.changefeed.ulid import START

MAX_PAGE_SIZE = 1000

# Seconds between polls if commits notify the reader.
_LOOK_EVERY_S = 5.0

# Seconds between polls if they do not: while events arrive, and after a while without any. The first event of a
# burst waits up to 0.15 s, and those that follow a few milliseconds. An idle shard is polled 7 times a second.
_SOONEST_LOOK_S = 0.004
_LATEST_LOOK_S = 0.15
_BUSY_FOR_S = 0.25
_SLOWER = 1.5


@dataclass(frozen=True, slots=True)
class Page:
    """The result of one read.

    Attributes:
        entries: The events behind the cursor, in order. Fewer than asked for does not mean that there are no more;
            none does.
        cursor: Where to read on.
    """

    entries: list[Entry]
    cursor: bytes


class Pauses:
    """The pause of a reader before it polls again.

    Attributes:
        notified: Whether commits notify this reader; None if that has not been asked yet.
    """

    def __init__(self) -> None:
        self.notified: bool | None = None
        self._last_news: dict[int, float] = {}
        self._pauses_s: dict[int, float] = {}

    def news(self, shard_id: int) -> None:
        """Note that there was something to read: more may follow soon."""
        self._last_news[shard_id] = time.monotonic()
        self._pauses_s[shard_id] = _SOONEST_LOOK_S

    def next_s(self, shard_id: int) -> float:
        """Return the pause before the next look, in seconds."""
        if self.notified:
            return _LOOK_EVERY_S
        pause_s = self._pauses_s.get(shard_id, _LATEST_LOOK_S)
        if time.monotonic() - self._last_news.get(shard_id, 0.0) > _BUSY_FOR_S:
            self._pauses_s[shard_id] = min(_SLOWER * pause_s, _LATEST_LOOK_S)
        return pause_s


class Feed:
    """The feed of one table, read through a sync session."""

    def __init__(self, session: Session, table: str) -> None:
        """Create the reader of a feed. `table` is `schema.Table`, as it was given to setup_feed."""
        self._session = session
        self._table = table
        self._pauses = Pauses()

    def read(
        self,
        shard_id: int,
        cursor: bytes = START,
        page_size: int = 100,
        *,
        max_bytes: int | None = None,
        unlimited: bool = False,
    ) -> Page:
        """Read one page; the first reader of an event gives it its position.

        Args:
            shard_id: The shard.
            cursor: Where the page before ended; START to begin with.
            page_size: 1 to MAX_PAGE_SIZE.
            max_bytes: Maximum size of the page's events in bytes, as the server measures them: as text in
                PostgreSQL, as stored in SQL Server. A larger event is a page by itself. None: no maximum.
            unlimited: Whether it may take longer than a minute, as for one large event over a slow line.

        Raises:
            CursorPrunedError: Retention has deleted positions behind the cursor.
            CursorError, ArgumentError, IsolationError, FeedBusyError, SetupError, DatabaseError
        """
        reading = _read(self._session.dialect, self._table, shard_id, cursor, page_size, max_bytes, unlimited)
        return run(self._session, reading)

    def carry_out_retention(self) -> int:
        """Delete positions that are older than the feed keeps and that every consumer has read.

        At most 1000 rows of each shard in one transaction: call it again at once while it deletes any. Where
        nothing is due, it costs a few index look-ups. Any reader may call it; it deletes nothing else.

        Returns:
            Number of rows deleted; 0 if everything is kept or another process is doing it.

        Raises:
            SetupError, DatabaseError
        """
        return run(self._session, self._session.dialect.retain(self._table))

    def wait(self, shard_id: int, cursor: bytes, timeout_s: float) -> bool:
        """Wait until there may be events behind the cursor; returns False if the time is over before.

        A cursor that is ahead ends the wait at once: the read that follows raises CursorError.
        """
        ends = time.monotonic() + timeout_s
        if self._pauses.notified is None:
            channel = run(self._session, self._session.dialect.channel(self._table))
            if channel is not None:
                self._session.listen(channel)
            self._pauses.notified = channel is not None
        while not run(self._session, self._session.dialect.has_news(self._table, shard_id, cursor)):
            left_s = ends - time.monotonic()
            if left_s <= 0:
                return False
            self._session.notified(min(left_s, self._pauses.next_s(shard_id)), str(shard_id))
        self._pauses.news(shard_id)
        return True


class AsyncFeed:
    """The feed of one table, read through an async session; see `Feed`."""

    def __init__(self, session: AsyncSession, table: str) -> None:
        self._session = session
        self._table = table
        self._pauses = Pauses()

    async def read(
        self,
        shard_id: int,
        cursor: bytes = START,
        page_size: int = 100,
        *,
        max_bytes: int | None = None,
        unlimited: bool = False,
    ) -> Page:
        """Read one page; the first reader of an event gives it its position.

        See `Feed.read` for the arguments and errors.
        """
        reading = _read(self._session.dialect, self._table, shard_id, cursor, page_size, max_bytes, unlimited)
        return await run_async(self._session, reading)

    async def carry_out_retention(self) -> int:
        """Delete what the feed's policy allows, as `Feed.carry_out_retention`."""
        return await run_async(self._session, self._session.dialect.retain(self._table))

    async def wait(self, shard_id: int, cursor: bytes, timeout_s: float) -> bool:
        """Wait for events behind the cursor, as `Feed.wait`."""
        ends = time.monotonic() + timeout_s
        if self._pauses.notified is None:
            channel = await run_async(self._session, self._session.dialect.channel(self._table))
            if channel is not None:
                await self._session.listen(channel)
            self._pauses.notified = channel is not None
        while not await run_async(self._session, self._session.dialect.has_news(self._table, shard_id, cursor)):
            left_s = ends - time.monotonic()
            if left_s <= 0:
                return False
            await self._session.notified(min(left_s, self._pauses.next_s(shard_id)), str(shard_id))
        self._pauses.news(shard_id)
        return True


def _read(
    dialect: Dialect,
    table: str,
    shard_id: int,
    cursor: bytes,
    page_size: int,
    max_bytes: int | None,
    unlimited: bool,
) -> Operation[Page]:
    if max_bytes is not None and max_bytes < 1:
        raise ArgumentError(f"max_bytes is {max_bytes}: a page has one byte at least")
    entries = yield from dialect.read(table, shard_id, cursor, page_size, max_bytes, unlimited)
    return Page(entries, entries[-1].ulid if entries else cursor)
