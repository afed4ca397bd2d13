"""The relay's worker on an SQL outbox, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

from relay.backends.sql.backend import SqlBackend
from relay.backends.sql.worker import Worker
from relay.config.settings import Settings
from verification.bench.counting import Connect
from verification.bench.offline import ENVIRONMENT, AcceptingSenders, accepting_senders


@asynccontextmanager
async def running_worker(
    senders: AcceptingSenders | None, connect: Connect, **settings: str
) -> AsyncIterator[None]:
    """Relay until the block ends.

    Args:
        senders: Senders that accept everything, instead of a broker; None to send to the one of SERVICEBUS.
        connect: Opens a session on the database.
        settings: Those of the outbox: SQL, SQL_FEED, SQL_SHARDS; and SERVICEBUS.
    """
    read = Settings.from_environment({"SERVICEBUS": ENVIRONMENT["SERVICEBUS"], **settings})
    assert read.sql is not None
    with nullcontext() if senders is None else accepting_senders(senders):
        relay = SqlBackend(read).relay
    worker = Worker(relay, read.sql, connect, page_size=1000, poll_delay_s=0.5)
    stop = asyncio.Event()
    running = asyncio.create_task(worker.run(stop))
    try:
        yield
    finally:
        stop.set()
        await running
        await relay.close()
