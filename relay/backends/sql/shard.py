"""One shard: its pages, one after another, through the pipeline; the cursor is stored only after success.

Whatever goes wrong, the shard continues after a pause, while this process owns it. A page whose attempt has failed
is read again, so that its memory is free for other shards meanwhile.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from outbox_relay.changefeed import (
    AsyncConsumer,
    AsyncFeed,
    ChangefeedError,
    Claim,
    ClaimLostError,
    CursorChangedError,
    DatabaseError,
    Page,
    Stored,
)
from outbox_relay.changefeed.statements import AsyncSession, Entry
from outbox_relay.changefeed.ulid import milliseconds
from relay.backends.sql.database import FAILURES, BoundedSession
from relay.backends.sql.memory import Memory, PageSize, size_of
from relay.backends.sql.missing import vouch_for
from relay.backends.sql.rows import document_of
from relay.backends.sql.source import Ownership, SqlBatch, now
from relay.config.settings import SqlFeed
from relay.core.errors import LostOwnershipError, RelayError, described, first_line
from relay.core.pipeline import Relay
from relay.core.remedy import Sentence, set_aside
from relay.routes.selection import Selection
from relay.telemetry.stream import as_logged, logger_of

logger = logger_of(__name__)

Connect = Callable[[], Awaitable[AsyncSession]]

# How late an idle shard may notice the order to stop.
_LONGEST_WAIT_S = 1.0

# Between attempts at a page: as the trigger's retry policy in relay/backends/cosmos/backend.py.
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0

# Maximum seconds of the read of a page: the server's own limit, and time for its answer. The read of one event
# that fails gets twice as long the next time, up to the longest: its size and the line's speed are unknown.
_READ_S = 65.0
_LONGEST_READ_S = 3600.0


class Shard:
    """Reads and publishes one shard while this process owns it."""

    def __init__(
        self,
        relay: Relay[SqlBatch],
        settings: SqlFeed,
        connect: Connect,
        claim: Claim,
        ownership: Ownership,
        memory: Memory,
        stored: Stored,
        *,
        page_size: int,
        poll_delay_s: float,
    ) -> None:
        self.claim = claim
        self.ownership = ownership
        self._relay = relay
        self._settings = settings
        self._connect = connect
        self._memory = memory
        self._page_size = PageSize(page_size)
        self._read_s = _READ_S
        self._attempts = _Attempts()
        self._poll_delay_s = min(poll_delay_s, _LONGEST_WAIT_S)
        self._stored = stored
        # Where this process had the claim before, not from where somebody else may have moved the cursor to.
        expected = stored.expected(claim)
        self._cursor = expected[-1]
        # Number of events behind it that the former owner may have attempted: a page has at most as many.
        self._taken_over = page_size
        # The end of a page that was published, while its cursor may not be stored. It is stored before another
        # page is read: a shorter one, read again from the cursor before, would move the stored cursor back.
        # This process may have begun to store it before it gave the claim up as lost.
        self._published: bytes | None = self._cursor if len(expected) > 1 else None
        self._stopping = asyncio.Event()
        self._successor: str | None = None
        # When the first event of the page under way was committed; without one, when the feed was last looked at.
        self._oldest_at = time.time()

    def age_s(self) -> float:
        """Return the age of the oldest event to publish; without any, how long ago the feed was looked at."""
        return max(0.0, time.time() - self._oldest_at)

    def stop(self, successor: str | None = None) -> None:
        """End after the page under way, and give the shard to this process, or to whoever comes."""
        self._successor = successor
        self._stopping.set()

    async def run(self) -> None:
        """Read and publish until stopped, or until the shard has another owner."""
        with self._relay.telemetry.shard_ages.watched(self.claim.shard_id, self.age_s):
            await self._run(self.claim.shard_id)

    async def _run(self, shard_id: int) -> None:
        # The database is looked for often enough that a shard is read again soon after its return.
        pauses = _Pauses(max(_FIRST_PAUSE_S, self._settings.claim_s / 2))
        while self._goes_on():
            try:
                await self._read(pauses)
            except (ClaimLostError, LostOwnershipError) as error:
                self.ownership.end()
                logger.warning("relay_shard_lost shard=%d: %s", shard_id, first_line(error))
            except CursorChangedError as error:
                # Continuing from there would skip events, or publish them again. The shard stops until the cursor
                # is as it was: nothing behind the page that it has published gets a position.
                logger.error("relay_cursor_changed shard=%d: %s", shard_id, first_line(error))
                await self._pause(_LONGEST_PAUSE_S)
            except FAILURES as error:
                logger.warning(
                    "relay_feed_unavailable shard=%d: %s It is tried again.", shard_id, first_line(error)
                )
                await self._pause(pauses.next())
            except Exception as error:  # noqa: BLE001 - a defect stops one shard, and never the process
                self._report(error, ())
                await self._pause(pauses.next())

    def _goes_on(self) -> bool:
        return not self._stopping.is_set() and self.ownership.holds()

    async def _read(self, pauses: _Pauses) -> None:
        session = BoundedSession(await self._connect(), self._read_s, self.ownership.holds)
        # All but the read of a page takes moments.
        quick = BoundedSession(session, max(self._settings.claim_s, self._poll_delay_s), self.ownership.holds)
        try:
            feed, waiting = AsyncFeed(session, self._settings.feed), AsyncFeed(quick, self._settings.feed)
            consumer = AsyncConsumer(quick, self._settings.feed, self._settings.consumer, self._stored)
            news = True
            while not self._stopping.is_set():
                if self._published is not None:
                    await self._store(consumer, self._published)
                if news:
                    news = await self._read_page(session, feed, consumer)
                else:
                    # Nothing to read: a wait that ends without news is only repeated.
                    news = await waiting.wait(self.claim.shard_id, self._cursor, self._poll_delay_s)
                    if not news:
                        self._oldest_at = time.time()
                pauses.reset()
                if not self.ownership.holds():
                    raise LostOwnershipError("the claim was not renewed in time")
            if self.ownership.holds():
                await consumer.release(self.claim, self._successor)
                self.ownership.end()
        finally:
            await session.close()

    async def _read_page(self, session: AsyncSession, feed: AsyncFeed, consumer: AsyncConsumer) -> bool:
        """Read a page and attempt it once; returns whether to read at once, without a look before."""
        async with self._memory.room(self._goes_on) as room:
            if room is None:
                return True
            rows = self._attempts.rows or self._page_size.rows
            try:
                # Within the time of the session, if that is longer than the server's own.
                page = await feed.read(
                    self.claim.shard_id,
                    self._cursor,
                    rows,
                    max_bytes=room.size,
                    unlimited=self._read_s > _READ_S,
                )
            except Exception as error:
                if isinstance(error, DatabaseError) or not isinstance(error, ChangefeedError):
                    self._failed_to_read(rows, error)
                raise
            self._read_s = _READ_S
            size = size_of(page.entries)
            room.keep(size)
            await vouch_for(session, self._settings, page.entries)
            self._page_size.read(len(page.entries), size, self._memory.share)
            self._oldest_at = milliseconds(page.entries[0].ulid) / 1000 if page.entries else time.time()
            if not page.entries:
                return False
            full = len(page.entries) == rows
            pause_s = await self._publish(page)
            if pause_s is None:
                self._attempts = _Attempts()
                self._taken_over -= len(page.entries)
                self._published = page.cursor
                await self._store(consumer, page.cursor)
            # The page is released during the pause.
            del page
        if pause_s is not None:
            await self._pause(pause_s)
            return True
        if not full:
            # There is rarely more behind a short page, and a look costs less than an empty page.
            self._oldest_at = time.time()
        return full

    async def _store(self, consumer: AsyncConsumer, cursor: bytes) -> None:
        since = now()
        await consumer.store(self.claim, cursor)
        self.ownership.renewed(since)
        self._cursor, self._published = cursor, None

    async def _publish(self, page: Page) -> float | None:
        """Attempt the page once; returns None if it is done, else how long to wait before the next attempt."""
        attempts = self._attempts
        batch = SqlBatch(
            self.claim.shard_id,
            page,
            self.ownership,
            taken_over=self._taken_over > 0,
            epoch=self.claim.epoch,
            after=self._cursor,
        )
        try:
            await self._relay.handle(batch, attempts.invocation_id, attempts.retries)
        except RelayError:
            # The pipeline has logged it.
            attempts.retries += 1
            attempts.rows = len(page.entries)
        except Exception as error:  # noqa: BLE001 - a defect stops one shard, and never the process
            attempts.rows = max(1, len(page.entries) // 2)
            self._report(error, page.entries)
            # A defect is no evidence against an event, but from the first retry on an operator's orders are read.
            attempts.retries = max(1, attempts.retries)
            if len(page.entries) > 1:
                # To find the one event at which it happens.
                return _FIRST_PAUSE_S
        else:
            return None
        return attempts.pauses.next()

    def _failed_to_read(self, rows: int, error: Exception) -> None:
        """Read fewer rows next: the page may have taken too long, or one row or its value cannot be read."""
        self._page_size.failed(rows)
        self._attempts.rows = None
        if rows == 1:
            self._read_s = min(2 * self._read_s, _LONGEST_READ_S)
        if rows == 1 and not (isinstance(error, DatabaseError) and error.lost):
            logger.error(
                "relay_event_unreadable shard=%d: not even one event can be read behind the position %s (%s). If "
                "other shards are read, that event is the cause. Repair its row in the event table, or delete it: "
                "the event is then quarantined under its primary key.",
                self.claim.shard_id,
                self._cursor.hex(),
                described(error),
            )

    def _report(self, error: Exception, entries: Sequence[Entry]) -> None:
        """Log an error that is a defect of the relay, and name the event if there is only one."""
        remedy = Sentence("It is tried again.")
        if len(entries) == 1:
            remedy = Sentence(
                "It is tried again. It happens with one event, and the shard waits for it. Report this defect. ",
                _way_past(entries[0], self.claim.shard_id, self._settings.selection),
            )
        elif entries:
            remedy = Sentence(f"It is tried again with half of the {len(entries)} events.")
        said = remedy.render(as_logged())
        logger.error("relay_defect shard=%d: %s. %s", self.claim.shard_id, described(error), said)

    async def _pause(self, pause_s: float) -> None:
        """Wait, but only while this process owns the shard, so that it is free for its next owner."""
        ends = time.monotonic() + pause_s
        while self._goes_on() and (left_s := ends - time.monotonic()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, _LONGEST_WAIT_S)):
                    await self._stopping.wait()


def _way_past(entry: Entry, shard_id: int, selection: Selection) -> Sentence:
    """Return the remedy for an event that stops its shard."""
    try:
        document = document_of(entry, shard_id, selection)
    except Exception:  # noqa: BLE001 - where this is the defect, no order is looked for
        return Sentence(
            f"It is the event at the position {entry.ulid.hex()}. To go on without it, delete its row in the "
            "event table: the event is then quarantined under its primary key."
        )
    key, identifier = (str(document.fields.get(name)) for name in ("partitionKey", "id"))
    return Sentence("To set the event aside: ", set_aside(key, identifier))


class _Pauses:
    """1 s at first, doubled each time up to the longest."""

    def __init__(self, longest_s: float = _LONGEST_PAUSE_S) -> None:
        self._longest_s = longest_s
        self._next_s = _FIRST_PAUSE_S

    def next(self) -> float:
        pause_s = self._next_s
        self._next_s = min(2 * pause_s, self._longest_s)
        return pause_s

    def reset(self) -> None:
        self._next_s = _FIRST_PAUSE_S


@dataclass(slots=True)
class _Attempts:
    """The attempts at the page behind the cursor, with one `invocation_id`.

    Attributes:
        retries: Number of failed attempts.
        rows: Number of rows of the next page, according to the last one; None before the first.
    """

    invocation_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    retries: int = 0
    rows: int | None = None
    pauses: _Pauses = field(default_factory=_Pauses)
