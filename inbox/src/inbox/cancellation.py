"""Cancelling tasks that wait in azure-servicebus, and finishing what a cancellation must not interrupt."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

_REPEAT_S = 1.0

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
    """Await `work` to its end, also when cancelled, then pass the cancellation on.

    Settling and closing are finished: half done, they would leave a link open that the broker gives messages to.

    Args:
        work: What to finish.
        within_s: How long it may go on after a cancellation, in seconds.
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
        task.exception()  # was seen, and the cancellation comes first
    raise asyncio.CancelledError


async def _give_up(task: asyncio.Future[Any]) -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=_REPEAT_S)
