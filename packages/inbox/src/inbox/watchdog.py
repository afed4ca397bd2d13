"""Says when the event loop is blocked: meanwhile nothing renews a lock, and others may get the messages."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from pathlib import Path

_LOOKS = 4
"""How often it looks within the time that is too long."""

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
