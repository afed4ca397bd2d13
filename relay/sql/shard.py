"""One shard: its pages, one after another, through the pipeline; the cursor is stored only after success."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable

from changefeed import AsyncConsumer, AsyncFeed, ChangefeedError, Claim, ClaimLostError, Page, Stored
from changefeed.statements import AsyncSession
from changefeed.ulid import milliseconds
from relay.errors import LostOwnershipError, RelayError, first_line
from relay.pipeline import Relay
from relay.settings import SqlFeed
from relay.sql.database import CONSUMER
from relay.sql.ownership import Ownership, now
from relay.sql.source import SqlBatch
from relay.telemetry.instruments import shard_ages

logger = logging.getLogger(__name__)

Connect = Callable[[], Awaitable[AsyncSession]]

# How late an idle shard may notice the order to stop.
_LONGEST_WAIT_S = 1.0

# Between attempts at a page: as the trigger's retry policy in function_app.py.
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0


class Shard:
    """Reads and publishes one shard while this process owns it."""

    def __init__(
        self,
        relay: Relay[SqlBatch],
        settings: SqlFeed,
        connect: Connect,
        claim: Claim,
        ownership: Ownership,
        *,
        page_size: int,
        poll_delay_s: float,
    ) -> None:
        self.claim = claim
        self.ownership = ownership
        self._relay = relay
        self._settings = settings
        self._connect = connect
        self._page_size = page_size
        self._poll_delay_s = min(poll_delay_s, _LONGEST_WAIT_S)
        self._cursor = claim.cursor
        self._stored = Stored()
        self._stopping = asyncio.Event()
        self._successor: str | None = None
        # When the first event of the page under way was committed; without one, when the feed was last looked at.
        self._oldest_at = time.time()

    def age_s(self) -> float:
        """The age of the oldest event to publish; without any, how long ago the feed was looked at."""
        return max(0.0, time.time() - self._oldest_at)

    def stop(self, successor: str | None = None) -> None:
        """End after the page under way, and give the shard to this process, or to whoever comes."""
        self._successor = successor
        self._stopping.set()

    async def run(self) -> None:
        """Read and publish until told to stop, or until the shard has another owner."""
        with shard_ages.watched(self.claim.shard_id, self.age_s):
            await self._run()

    async def _run(self) -> None:
        pauses = _Pauses()
        while not self._stopping.is_set() and self.ownership.holds():
            try:
                await self._read(pauses)
            except (ClaimLostError, LostOwnershipError) as error:
                self.ownership.end()
                logger.warning("relay_shard_lost shard=%d: %s", self.claim.shard_id, first_line(error))
            except (ChangefeedError, OSError) as error:
                logger.warning(
                    "relay_feed_unavailable shard=%d: %s It is tried again.",
                    self.claim.shard_id,
                    first_line(error),
                )
                await self._pause(pauses.next())

    async def _read(self, pauses: _Pauses) -> None:
        session = await self._connect()
        try:
            feed = AsyncFeed(session, self._settings.feed)
            consumer = AsyncConsumer(session, self._settings.feed, CONSUMER, self._stored)
            news = True
            while not self._stopping.is_set():
                if news:
                    news = await self._read_page(feed, consumer)
                else:
                    # Nothing to read: a wait that ends without news is only repeated.
                    news = await feed.wait(self.claim.shard_id, self._cursor, self._poll_delay_s)
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

    async def _read_page(self, feed: AsyncFeed, consumer: AsyncConsumer) -> bool:
        """Read a page, publish it, and store its cursor; returns whether there was anything."""
        page = await feed.read(self.claim.shard_id, self._cursor, self._page_size)
        self._oldest_at = milliseconds(page.entries[0].ulid) / 1000 if page.entries else time.time()
        if page.entries and await self._publish(page):
            await self._store(consumer, page.cursor)
        return bool(page.entries)

    async def _store(self, consumer: AsyncConsumer, cursor: bytes) -> None:
        since = now()
        await consumer.store(self.claim, cursor)
        self.ownership.renewed(since)
        self._cursor = cursor

    async def _publish(self, page: Page) -> bool:
        """Attempt the page until it is done; returns False where the reader was told to stop before."""
        batch = SqlBatch(self.claim.shard_id, page, self.ownership)
        invocation_id, pauses, retries = str(uuid.uuid4()), _Pauses(), 0
        while True:
            try:
                await self._relay.handle(batch, invocation_id, retries)
            except RelayError as error:
                if not self.ownership.holds():
                    raise LostOwnershipError("the claim on the shard was not renewed in time") from error
                retries += 1
                if await self._pause(pauses.next()):
                    return False
            else:
                return True

    async def _pause(self, pause_s: float) -> bool:
        """Wait; returns whether the order to stop came meanwhile."""
        try:
            async with asyncio.timeout(pause_s):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True


class _Pauses:
    """1 s at first, doubled each time up to a minute."""

    def __init__(self) -> None:
        self._next_s = _FIRST_PAUSE_S

    def next(self) -> float:
        pause_s = self._next_s
        self._next_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return pause_s

    def reset(self) -> None:
        self._next_s = _FIRST_PAUSE_S
