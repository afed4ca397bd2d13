"""Cancels tasks that wait in azure-servicebus, and finishes work that a cancellation must not interrupt."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from inbox.connection import Connections
from inbox.errors import Unanswered

_REPEAT_S = 1.0
_REPEATS = 5

T = TypeVar("T")


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their ends. Their results and errors stay in them.

    Repeatedly: the SDK waits with `asyncio.wait_for`, which before Python 3.12 can swallow a cancellation
    (python/cpython issue 86296).
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_REPEAT_S)


async def finish(work: Coroutine[Any, Any, T], *, within_s: float = 5.0) -> T:
    """Await `work` to its end even if cancelled, then re-raise the cancellation.

    For settling and closing: interrupted, they would leave a link open to which the broker delivers messages.

    Args:
        work: The awaitable to finish.
        within_s: Maximum seconds that it may take after a cancellation.
    """
    task = asyncio.ensure_future(work)
    deadline: float | None = None
    while not task.done():
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            await _give_up(task)
            break
        try:
            await asyncio.wait({task}, timeout=left)
        except asyncio.CancelledError:
            deadline = deadline or time.monotonic() + within_s
    if deadline is None:
        return task.result()
    if task.done() and not task.cancelled():
        task.exception()  # asyncio would log it; the cancellation takes precedence
    raise asyncio.CancelledError


async def within(
    seconds: float, work: Coroutine[Any, Any, T], what: str, *, connections: Connections | None = None
) -> T:
    """Await `work`, for a limited time.

    Args:
        seconds: Maximum time.
        work: The awaitable. If this call is cancelled, `work` is cancelled first.
        what: What it does, for the error message.
        connections: Discarded when the time is over, before `work` is cancelled, so that its cleanup does not wait
            for answers. Remembered if this call is cancelled.

    Raises:
        Unanswered: It took longer.
    """
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
        if not done and connections is not None:
            connections.discard()
    finally:
        if connections is not None:
            connections.note()
        await _give_up(task)
    if not done:
        raise Unanswered(f"{what} got no answer within {seconds:g} seconds")
    return task.result()


async def _give_up(task: asyncio.Future[Any]) -> None:
    """Cancel `task` until it has ended or a few seconds have passed. Ignores cancellations of the caller."""
    for _ in range(_REPEATS):
        if task.done():
            break
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({task}, timeout=_REPEAT_S)
    if task.done() and not task.cancelled():
        task.exception()  # asyncio logs errors that are never retrieved
