"""The broker's timers: locks and messages expire, scheduled messages come due, waits end."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable

Clock = Callable[[], int]


def system_clock() -> int:
    """Return the time, in milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


class TimerQueue:
    """Callbacks by the time they are due. Somebody must call `run_due`.

    `on_earlier` is called whenever the first due time has become an earlier one, so that `run_due` can be called
    in time.
    """

    def __init__(self, clock: Clock = system_clock) -> None:
        self.now = clock
        self.on_earlier: Callable[[int], None] | None = None
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()

    @property
    def next_due(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def call_at(self, when: int, callback: Callable[[], None]) -> None:
        """Call `callback` at `when`, in milliseconds since the epoch. This cannot be cancelled."""
        earlier = not self._heap or when < self._heap[0][0]
        heapq.heappush(self._heap, (when, next(self._order), callback))
        if earlier and self.on_earlier:
            self.on_earlier(when)

    def run_due(self) -> None:
        """Run the callbacks that are due."""
        now = self.now()
        while self._heap and self._heap[0][0] <= now:
            _, _, callback = heapq.heappop(self._heap)
            callback()


class TimerRunner:
    """Runs a timer queue on the asyncio loop."""

    def __init__(self, timers: TimerQueue) -> None:
        self._timers = timers
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timers.on_earlier = self._arm
        self._rearm()

    def stop(self) -> None:
        self._timers.on_earlier = None
        if self._timer:
            self._timer.cancel()

    def _arm(self, when: int) -> None:
        if self._timer:
            self._timer.cancel()
        delay = max(0, when - self._timers.now()) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay, self._run)

    def _run(self) -> None:
        self._timer = None
        self._timers.run_due()
        self._rearm()

    def _rearm(self) -> None:
        due = self._timers.next_due
        if due is not None:
            self._arm(due)


class Alarm:
    """One callback at the earliest of the moments it was set for; after it was called, it is to be set again."""

    def __init__(self, timers: TimerQueue, callback: Callable[[], None]) -> None:
        self._timers = timers
        self._callback = callback
        self._set_for: int | None = None

    def set(self, when: int) -> None:
        """Let the callback be called at `when`, unless it is called before that."""
        if self._set_for is None or when < self._set_for:
            self._set_for = when
            self._timers.call_at(when, self._ring)

    def _ring(self) -> None:
        self._set_for = None
        self._callback()
