"""How a command that works until it is stopped learns that it is."""

from __future__ import annotations

import asyncio
import signal


def on_signals() -> asyncio.Event:
    """An event that SIGINT and SIGTERM set."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def set_stop(*_: object) -> None:
        loop.call_soon_threadsafe(stop.set)

    for number in (signal.SIGINT, signal.SIGTERM):
        # Not by the loop, whose handlers do not exist on Windows.
        signal.signal(number, set_stop)
    return stop
