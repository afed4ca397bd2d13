"""Another consumer of the feed, beside the relay: it reads at the same time, and keeps what it has read.

With it, two readers meet at the head of a shard, and retention has two consumers to wait for.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict

from outbox_relay.changefeed import START, AsyncConsumer, AsyncFeed, Page, Stored
from relay.backends.sql.database import FAILURES
from verification.journal import entries
from verification.journal.checker import Wrong
from verification.simulation.sql.services import Services
from verification.simulation.sql.sessions import SimulatedSession, connect
from verification.simulation.sql.writers import EVENT_TYPE, TABLE

_CONSUMER = "observer"

# Seconds of a wait, and of all calls together.
_WAIT_S, _LIMIT_S = 5.0, 40.0

# Maximum number of rows of a page.
_ROWS = 30


class Observer:
    """Reads every shard, and never loses what it has read."""

    def __init__(self, services: Services, shards: int) -> None:
        self.process = services.world.process(_CONSUMER)
        self._services = services
        self._cursors = dict.fromkeys(range(shards), START)
        self._stored = Stored()
        self._read: list[str] = []
        for shard in range(shards):
            self.process.start(self._run(shard))

    @property
    def has_read_all(self) -> bool:
        """True if nothing is left to read."""
        feed = self._services.server.tables.feed
        return all(not rows or self._cursors[shard] >= rows[-1].ulid for shard, rows in feed.items())

    def violations(self, *, is_complete: bool) -> list[str]:
        """Return the violations.

        The observer should have read each event once, and those of a key as they were committed.
        """
        found = [
            f"{Wrong.DUPLICATED}: the observer has read {each!r} {times} times"
            for each, times in Counter(self._read).items()
            if times > 1
        ]
        places = {identifier: place for place, identifier in enumerate(self._read)}
        for names in self._committed().values():
            missing = [each for each in names if each not in places]
            found += [f"{Wrong.MISSING}: the observer has not read {each!r}" for each in missing if is_complete]
            read = [each for each in names if each in places]
            if read != sorted(read, key=places.__getitem__):
                found.append(f"{Wrong.OUT_OF_ORDER}: the observer has read {sorted(read, key=places.__getitem__)}")
        return found

    def _committed(self) -> dict[str, list[str]]:
        by_key: defaultdict[str, list[str]] = defaultdict(list)
        for entry in self._services.journal:
            if isinstance(entry, entries.Committed):
                by_key[entry.key].append(entry.id)
        return by_key

    async def _run(self, shard: int) -> None:
        while True:
            session = None
            try:
                async with asyncio.timeout(_LIMIT_S):
                    session = await connect(self.process, self._services.to_database, self._services.server)
                await self._observe(shard, session)
            except (*FAILURES, TimeoutError):
                if session is not None:
                    await session.close()
                await asyncio.sleep(1.0)

    async def _observe(self, shard: int, session: SimulatedSession) -> None:
        feed = AsyncFeed(session, TABLE)
        consumer = AsyncConsumer(session, TABLE, _CONSUMER, self._stored)
        entropy = self._services.world.entropy
        while True:
            async with asyncio.timeout(_LIMIT_S):
                (claim,) = await consumer.claims([shard])
                if await feed.wait(shard, self._cursors[shard], _WAIT_S):
                    page = await feed.read(shard, self._cursors[shard], entropy.randint(1, _ROWS))
                    self._keep(shard, page)
                    await consumer.store(claim, page.cursor)

    def _keep(self, shard: int, page: Page) -> None:
        self._read += [each.row["id"] for each in page.entries if each.row and each.row["type"] == EVENT_TYPE]
        self._cursors[shard] = page.cursor
