"""Cancels tasks that wait in azure-servicebus, says when the event loop is blocked, and stops at signals."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import threading
import time
import traceback
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from outbox_relay.inbox.connection import Connections
from outbox_relay.inbox.errors import Unanswered

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


_LOOKS = 4
"""Looks of the watchdog within the time for which the loop may be blocked."""

_RUNS_CALLBACKS = (str(Path(asyncio.__file__).with_name("events.py")), "_run")
_THIS_LIBRARY = str(Path(__file__).parent)

_log = logging.getLogger(__name__)


class Watchdog:
    """A thread that watches the event loop from `start` to `stop`, and logs what blocks it, while it does.

    The loop sets a time again and again, and the thread looks at it. So it also notices a handler that never
    returns.

    Args:
        limit_s: Seconds for which the loop may be blocked: those between two renewals of a lock.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._ended = threading.Event()
        self._beat_at = 0.0
        self._loop: asyncio.AbstractEventLoop
        self._timer: asyncio.TimerHandle
        self._thread_id: int

    def start(self) -> None:
        """Begin to watch the running loop."""
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._beat()
        threading.Thread(target=self._watch, name="inbox-watchdog", daemon=True).start()

    def stop(self) -> None:
        self._ended.set()
        self._timer.cancel()

    def allow(self, seconds: float) -> None:
        """Watch for a shorter time, if a lock has to be renewed sooner."""
        self._limit_s = min(self._limit_s, seconds)

    def _beat(self) -> None:
        self._beat_at = time.monotonic()
        self._timer = self._loop.call_later(self._limit_s / _LOOKS, self._beat)

    def _watch(self) -> None:
        looked_at = time.monotonic()
        while not self._ended.wait(self._limit_s / _LOOKS):
            before, looked_at = looked_at, time.monotonic()
            if looked_at - before > self._limit_s:
                _log.warning(
                    "This process did not run for %.1f s: it was suspended, had no processor time, or an extension"
                    " held the GIL. Locks may have been lost: what was not settled is then delivered again.",
                    looked_at - before,
                )
            elif looked_at - self._beat_at > self._limit_s:
                self._blocked()
                looked_at = time.monotonic()

    def _blocked(self) -> None:
        since = self._beat_at
        what = self._running()
        _log.warning(
            "%s has blocked the event loop for %.1f s, and goes on. No lock is renewed meanwhile. Await, or call "
            "what blocks with asyncio.to_thread. It is at:\n%s",
            what,
            time.monotonic() - since,
            self._stack(),
        )
        while self._beat_at == since:
            if self._ended.wait(self._limit_s / _LOOKS):
                return
        _log.warning(
            "%s blocked the event loop for %.1f s. Locks may have been lost: what was not settled is then "
            "delivered again.",
            what,
            self._beat_at - since,
        )

    def _running(self) -> str:
        task = asyncio.current_task(self._loop)
        return "A callback" if task is None else task.get_name()

    def _stack(self) -> str:
        """Return the place of the callback that runs: lines of code, without values, and none of this library."""
        frame = sys._current_frames().get(self._thread_id)
        kept: list[traceback.FrameSummary] = []
        for line in traceback.extract_stack(frame) if frame is not None else ():
            if (line.filename, line.name) == _RUNS_CALLBACKS:
                kept.clear()
            elif not line.filename.startswith(_THIS_LIBRARY):
                kept.append(line)
        return "".join(traceback.format_list(kept)).rstrip()


_NAMES = ("SIGINT", "SIGTERM", "SIGBREAK")  # the last one on Windows: Ctrl+Break
_SIGNALS = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]


class Stoppable(Protocol):
    """A `Receiver` or a `DeadLetterReceiver`."""

    def stop(self) -> None:
        """Make its `run` return."""


def stop_on_signals(receiver: Stoppable) -> None:
    """Call `receiver.stop()` at the first SIGINT or SIGTERM. A second one has its usual effect.

    Call it within the event loop, in the main thread.

    Raises:
        ValueError: This is not the main thread.
    """
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        try:
            loop.add_signal_handler(number, _stop, loop, receiver, number)
        except NotImplementedError:
            _stop_without_loop(loop, receiver, number)


def _stop(loop: asyncio.AbstractEventLoop, receiver: Stoppable, number: signal.Signals) -> None:
    loop.remove_signal_handler(number)
    receiver.stop()


def _stop_without_loop(loop: asyncio.AbstractEventLoop, receiver: Stoppable, number: signal.Signals) -> None:
    """Stop on a signal on Windows, where loops have no signal handlers.

    The signal of `signal` wakes the loop all the same.
    """

    def stop(*_: Any) -> None:
        signal.signal(number, before)
        if loop.is_closed():
            signal.raise_signal(number)
        else:
            loop.call_soon_threadsafe(receiver.stop)

    before = signal.signal(number, stop)
