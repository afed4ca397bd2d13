"""The SQL outbox on Azure Functions: a timer's tick reads until shortly before the next one."""

from __future__ import annotations

import asyncio

from relay.sql.worker import Worker

# A tick a minute. Between two of them, the shards are free for another instance's worker, or wait for a moment.
SCHEDULE = "0 * * * * *"
_LASTS_S = 57.0


async def read_until_next_tick(worker: Worker, lasts_s: float = _LASTS_S) -> None:
    """Publish what is there, then wait for news; the pages under way are finished when the time is over."""
    stop = asyncio.Event()
    reading = asyncio.create_task(worker.run(stop))
    try:
        await asyncio.wait((reading,), timeout=lasts_s)
    finally:
        stop.set()
        await reading
