"""A steady rate."""

from __future__ import annotations

import asyncio
import time


class Pace:
    """Spreads events evenly; `rate` is in events a second, 0 for no limit."""

    def __init__(self, rate: float) -> None:
        self._interval = 1 / rate if rate else 0.0
        self._next = time.monotonic()

    async def take(self, events: int) -> None:
        """Wait until that many more events are due."""
        now = time.monotonic()
        self._next = max(self._next, now - 1.0) + events * self._interval
        if self._next > now:
            await asyncio.sleep(self._next - now)
