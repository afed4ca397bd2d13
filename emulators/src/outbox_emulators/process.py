"""What every part of the local stack does as a process: say that it is ready, and stop when told to."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Coroutine, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar

READY = "READY "

T = TypeVar("T")

_stopped: ContextVar[asyncio.Event | None] = ContextVar("stopped", default=None)


class Stopped(Exception):
    """A command was told to stop before its work was done."""


def announce(details: Mapping[str, object]) -> None:
    """Print the one line that tells a supervisor, or a person, that this part serves, and where."""
    print(READY + json.dumps(details), flush=True)


def heed_signals() -> asyncio.Event:
    """Take SIGINT and SIGTERM from now on; the event that they set, which `until_stopped` awaits.

    A part that is told to stop while it still starts then stops once it has started.
    """
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    _stopped.set(stopped)
    return stopped


async def until_stopped(*, exit_with_stdin: bool) -> None:
    """Return on SIGINT or SIGTERM and, with `exit_with_stdin`, when standard input reaches its end.

    A supervisor keeps the writing end of that pipe: however it dies, the pipe closes and this part goes with it.
    """
    stopped = _stopped.get() or heed_signals()
    if exit_with_stdin:
        loop = asyncio.get_running_loop()
        threading.Thread(target=_await_end_of_stdin, args=(loop, stopped), daemon=True).start()
    await stopped.wait()


async def until_done(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end; returns its result.

    Raises:
        Stopped: SIGINT or SIGTERM came first; `work` was cancelled, and has cleaned up after itself.
    """
    stopping = asyncio.create_task(until_stopped(exit_with_stdin=False))
    working = asyncio.create_task(work)
    await asyncio.wait({stopping, working}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not working.done():
        working.cancel()
    try:
        return await working
    except asyncio.CancelledError:
        raise Stopped from None


def _await_end_of_stdin(loop: asyncio.AbstractEventLoop, stopped: asyncio.Event) -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    loop.call_soon_threadsafe(stopped.set)
