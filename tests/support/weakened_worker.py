"""The worker of an SQL source without one of its safeguards, as a part of a campaign's stack.

`python -m local chaos --worker tests.support.weakened_worker` starts it, with WITHOUT set to one of SAFEGUARDS.
"""

# ruff: noqa: B010
from __future__ import annotations

import asyncio
import os
import sys

from changefeed import AsyncConsumer, AsyncFeed, Page
from changefeed.statements import Entry, Statement
from local.stack import worker
from relay.cli.main import main
from relay.sql.database import CONSUMER
from relay.sql.shard import Shard

_POLL_EVERY_S = 0.05


def without_publishing_first() -> None:
    """The cursor is stored before the page is published."""
    publish = Shard._publish

    async def store_and_publish(self: Shard, page: Page) -> bool:
        session = await self._connect()
        try:
            await AsyncConsumer(session, self._settings.feed, CONSUMER).store(self.claim, page.cursor)
        finally:
            await session.close()
        return await publish(self, page)

    setattr(Shard, "_publish", store_and_publish)


def without_numbering_at_the_read() -> None:
    """The cursor is the number that an event drew within its transaction."""

    async def read(self: AsyncFeed, shard_id: int, cursor: bytes, page_size: int) -> Page:
        result = await self._session.execute(
            Statement(
                f'select o.order_sequence, e.* from changefeed."outbox:{self._table}" o '
                f"join {self._table} e using (id) where o.shard_id = ? and o.order_sequence > ? "
                "order by o.order_sequence limit ?",
                (shard_id, int.from_bytes(cursor, "big"), page_size),
            )
        )
        entries = [
            Entry(row[0].to_bytes(16, "big"), dict(zip(result.columns[1:], row[1:], strict=True)), {})
            for row in result.rows
        ]
        return Page(entries, entries[-1].ulid if entries else cursor)

    async def wait(self: AsyncFeed, shard_id: int, cursor: bytes, timeout_s: float) -> bool:
        await asyncio.sleep(min(timeout_s, _POLL_EVERY_S))
        return True

    setattr(AsyncFeed, "read", read)
    setattr(AsyncFeed, "wait", wait)


SAFEGUARDS = {
    "publishing first": without_publishing_first,
    "numbering at the read": without_numbering_at_the_read,
}


if __name__ == "__main__":
    if sys.argv[1:] != ["run"]:
        sys.exit(asyncio.run(worker.work(("-m", "tests.support.weakened_worker", "run"))))
    SAFEGUARDS[os.environ["WITHOUT"]]()
    sys.exit(main(["run"]))
