"""Waiting that can be cut short."""

from __future__ import annotations

import asyncio


async def pause(seconds: float, *, until: asyncio.Event) -> bool:
    """Wait that long, or until the event is set; whether it was set."""
    try:
        async with asyncio.timeout(seconds):
            return await until.wait()
    except TimeoutError:
        return False
