"""The event loop of one simulated process: its callbacks in their order, its timers by a clock of the world.

Within a process, callbacks run in the order in which a real loop runs them: what varies is when a message comes, a
timer is due, or the process is stopped, killed or slowed, and that is for the world to decide.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, Protocol, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# A timer is due a little later than it was to be. Otherwise a wait for what is left of a time, less than the
# precision of the clock, would be over before any time has passed, and be repeated for ever.
_LATE_S = 2e-9

# Of the deterministic hash of a task: sets of tasks are iterated in the order of their hashes.
_numbers = iter(range(sys.maxsize))


class _Future(asyncio.Future[Any]):
    """A future whose hash does not depend on its address, so that a set of them has the same order in each run."""

    def __init__(self, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._number = next(_numbers)

    def __hash__(self) -> int:
        return self._number


class _Task(asyncio.Task[Any]):
    """A task of which the same holds."""

    def __init__(self, coroutine: Any, *, loop: asyncio.AbstractEventLoop, **more: Any) -> None:
        self._number = next(_numbers)
        super().__init__(coroutine, loop=loop, **more)

    def __hash__(self) -> int:
        return self._number


def restart_numbers() -> None:
    """Begin the numbers of tasks again, so that a universe does not depend on those before it."""
    global _numbers
    _numbers = iter(range(sys.maxsize))


class Owner(Protocol):
    """The part of a process that a loop needs."""

    def monotonic(self) -> float:
        """Return seconds by a clock that does not step."""

    def listen(self, when: float) -> None:
        """Let the loop run at a time of that clock."""


class ProcessLoop(asyncio.AbstractEventLoop):
    """An event loop that the world runs, callback by callback.

    Attributes:
        ready: What runs next, in order.
        timers: Due time by this loop's clock, a number that breaks ties, and the handle: a heap.
        unhandled: Contexts of exceptions that nobody has retrieved.
    """

    def __init__(self, process: Owner) -> None:
        self.process = process
        self.ready: deque[asyncio.Handle] = deque()
        self.timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self.unhandled: list[dict[str, Any]] = []
        self._timers_made = 0
        self._closed = False
        self._generators: set[Any] = set()

    # What is due, for the world.

    def due(self) -> float | None:
        """Return the time of the next timer, by this loop's clock, or None if there is none."""
        timers = self.timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    def wake(self, now: float) -> None:
        """Make ready what is due."""
        timers = self.timers
        while timers and timers[0][0] <= now:
            handle = heapq.heappop(timers)[2]
            if not handle._cancelled:
                self.ready.append(handle)

    def run_one(self) -> None:
        """Run the next callback; the world has made this the running loop."""
        handle = self.ready.popleft()
        if not handle._cancelled:
            handle._run()

    # What asyncio asks of a loop.

    def time(self) -> float:
        return self.process.monotonic()

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self.ready:
            self.process.listen(self.time())
        self.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._timers_made += 1
        late = when + _LATE_S
        heapq.heappush(self.timers, (late, self._timers_made, handle))
        self.process.listen(late)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def create_task(
        self, coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any], **more: Any
    ) -> asyncio.Task[Any]:
        return _Task(coro, loop=self, **more)

    def get_task_factory(self) -> None:
        return None

    def set_task_factory(self, factory: Any) -> None:
        raise NotImplementedError("a simulated process has its own tasks")

    def run_in_executor(self, executor: Any, func: Callable[[Unpack[Ts]], T], *args: *Ts) -> asyncio.Future[T]:
        """Run the function right away: there are no threads here."""
        future = self.create_future()
        try:
            result = func(*args)
        except Exception as error:  # noqa: BLE001 - it belongs to who awaits the future
            future.set_exception(error)
        else:
            future.set_result(result)
        return future

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        pass

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        self.ready.clear()
        self.timers.clear()

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.unhandled.append(context)

    call_exception_handler = default_exception_handler

    def get_exception_handler(self) -> None:
        return None

    def set_exception_handler(self, handler: Any) -> None:
        pass

    async def shutdown_asyncgens(self) -> None:
        pass

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        pass
