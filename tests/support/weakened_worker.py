"""A part of a campaign's stack: the worker of an SQL source, which stores its cursor before the page is published.

`python -m local chaos --worker tests.support.weakened_worker` starts it.
"""

# ruff: noqa: B010
from __future__ import annotations

import asyncio
import sys

from changefeed import AsyncConsumer, Page
from local.stack import worker
from relay.cli.main import main
from relay.sql.database import CONSUMER
from relay.sql.shard import Shard


def store_before_publishing() -> None:
    """Take the safeguard away."""
    publish = Shard._publish

    async def store_and_publish(self: Shard, page: Page) -> float | None:
        session = await self._connect()
        try:
            await AsyncConsumer(session, self._settings.feed, CONSUMER).store(self.claim, page.cursor)
        finally:
            await session.close()
        return await publish(self, page)

    setattr(Shard, "_publish", store_and_publish)


if __name__ == "__main__":
    if sys.argv[1:] != ["run"]:
        sys.exit(asyncio.run(worker.work(("-m", "tests.support.weakened_worker", "run"))))
    store_before_publishing()
    sys.exit(main(["run"]))
