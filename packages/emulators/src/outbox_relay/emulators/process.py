"""Readiness and shutdown of an emulator that runs as its own process."""

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
AGAIN = "AGAIN "

T = TypeVar("T")

_stopped: ContextVar[asyncio.Event | None] = ContextVar("stopped", default=None)


class Stopped(Exception):
    """A signal stopped a command before its work was done."""


def announce(details: Mapping[str, object]) -> None:
    """Print the line on standard output that says the process serves, and where, as JSON for a supervisor."""
    print(READY + json.dumps(details), flush=True)


def announce_again(program: str, exit_code: int) -> None:
    """Print the line that says that a program of this process had ended, and runs again."""
    print(AGAIN + json.dumps({"program": program, "exit_code": exit_code}), flush=True)


def explain(title: str, facts: Mapping[str, object]) -> None:
    """Print the same for a person, on standard error: a title, and a line for each fact."""
    width = max(map(len, facts), default=0)
    lines = [title, *(f"  {name:<{width}}  {value}" for name, value in facts.items()), "Press Ctrl-C to stop."]
    print("\n".join(lines), file=sys.stderr, flush=True)


def heed_signals() -> asyncio.Event:
    """Handle SIGINT and SIGTERM from now on; returns the event that they set and that `until_stopped` awaits.

    A process that receives one while it is starting stops as soon as it has started.
    """
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()

    def stop(*_: object) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(stopped.set)

    for number in (signal.SIGINT, signal.SIGTERM):
        # Not by the loop, whose handlers do not exist on Windows.
        signal.signal(number, stop)
    _stopped.set(stopped)
    return stopped


async def until_stopped(*, exit_with_stdin: bool) -> None:
    """Return on SIGINT or SIGTERM and, with `exit_with_stdin`, at the end of standard input.

    A supervisor holds the other end of that pipe. However it dies, the pipe closes and this process ends too.
    """
    stopped = _stopped.get() or heed_signals()
    if exit_with_stdin:
        loop = asyncio.get_running_loop()
        threading.Thread(target=_await_end_of_stdin, args=(loop, stopped), daemon=True).start()
    await stopped.wait()


async def until_done(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end; returns its result.

    Raises:
        Stopped: SIGINT or SIGTERM came first. `work` was cancelled and has finished its clean-up.
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
