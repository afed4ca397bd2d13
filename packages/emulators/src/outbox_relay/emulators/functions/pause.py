"""A wait that an event ends."""

from __future__ import annotations

import asyncio


async def pause(seconds: float, *, until: asyncio.Event) -> bool:
    """Wait that long, or until the event is set; returns whether it was set."""
    try:
        async with asyncio.timeout(seconds):
            return await until.wait()
    except TimeoutError:
        return False
