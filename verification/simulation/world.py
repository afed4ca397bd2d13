"""A world: processes, one virtual time, and a scheduler that takes every decision from one seed."""

from __future__ import annotations

import asyncio
import heapq
import math
import random
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from verification.simulation.loop import ProcessLoop, restart_numbers

# 2026-01-01T00:00:00Z: when each universe begins, in seconds since 1970.
EPOCH = 1_767_225_600.0


# The longest universes of the tests take 91 100 rounds. More than this are an endless loop: a bound that does not
# depend on the machine, as a time limit of the test would.
_MOST_ROUNDS = 2_000_000


class StuckError(Exception):
    """Every process waits, and nothing is due that could wake one."""


class EndlessError(Exception):
    """The processes go on and on."""


class Process:
    """A simulated process: a loop with its memory, a clock, and what befalls it.

    Attributes:
        name: Stands in the journal.
        number: Identifies it within the world, as `os.getpid` does on a machine.
        is_alive: Not killed. What it has had in memory is gone when it is: its callbacks never run again.
        is_frozen: Nothing of it runs, and its clocks go on, as after SIGSTOP.
        skew_s: How far its wall clock is ahead of the world's, in seconds.
        pause_s: Virtual seconds for which it is busy after each round of callbacks.
        slept_s: Seconds for which its machine was suspended so far.
    """

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.number = world.next_number()
        self.loop = world.loop_of(self)
        self.is_alive = True
        self.is_frozen = False
        # The earliest time for which the world has it on its list.
        self.listed = math.inf
        self.skew_s = 0.0
        self.pause_s = 0.0
        self.busy_until = 0.0
        self.slept_s = 0.0
        self._offset_s = world.entropy.uniform(0, 1000)
        self._clock_stopped: float | None = None
        self._trap: tuple[int, Callable[[], None]] | None = None
        self._deaths: list[Callable[[], None]] = []

    def monotonic(self) -> float:
        """Return seconds by a clock that does not step, and begins anywhere."""
        return self.world.now + self._offset_s

    def boottime(self) -> float:
        """Return the same with the time for which its machine was suspended."""
        return self.monotonic() + self.slept_s

    def wall(self) -> float:
        """Return the seconds since 1970, by this process's clock."""
        return EPOCH + self.world.now + self.skew_s

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run `work` in this process. If it fails, that is a defect of the simulation, and ends it."""
        task = self.loop.create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.world.failures.append(task.exception())

    def at(self, when_s: float, act: Callable[..., object], *args: Any) -> None:
        """Call `act` in this process at a time of the world."""
        self.loop.call_at(when_s + self._offset_s, act, *args)

    def after(self, delay_s: float, act: Callable[..., object], *args: Any) -> None:
        """Call `act` in this process after some seconds."""
        self.at(self.world.now + delay_s, act, *args)

    def freeze(self, *, with_clock: bool = False) -> None:
        """Stop it where it is; with its machine, the clock that does not step stops too."""
        self.is_frozen = True
        self._clock_stopped = self.world.now if with_clock else None

    def resume(self) -> None:
        """Let it go on."""
        self.is_frozen = False
        if self._clock_stopped is not None:
            slept_s = self.world.now - self._clock_stopped
            self.slept_s += slept_s
            self._offset_s -= slept_s
            self._clock_stopped = None
        self.world.enlist(self)

    def listen(self, when: float) -> None:
        """Let the process run at a time of its own clock, unless it is to run earlier."""
        when -= self._offset_s
        if when < self.listed:
            self.world.enlist_at(self, max(when, self.world.now))

    def due(self) -> float | None:
        """Return the world's time at which the process can run, or None if nothing of it can."""
        if self.is_frozen or not self.is_alive:
            return None
        if self.loop.ready:
            return max(self.world.now, self.busy_until)
        due = self.loop.due()
        return None if due is None else max(due - self._offset_s, self.busy_until)

    def interrupt_after(self, callbacks: int, act: Callable[[], None]) -> None:
        """Call `act` after that many more of its callbacks: between any two of them, at one virtual time."""
        self._trap = (callbacks, act)

    def on_death(self, act: Callable[[], None]) -> None:
        """Call `act` when it is killed, as the machine closes the connections of a process that is gone."""
        self._deaths.append(act)

    def kill(self) -> None:
        """End it. No `finally` of it runs while the world lasts."""
        self.is_alive = False
        for act in self._deaths:
            act()
        self._deaths.clear()

    def run(self) -> None:
        """Run what is ready now. What that makes ready runs in the next round."""
        loop = self.loop
        loop.wake(self.monotonic() + 1e-9)
        for _ in range(len(loop.ready)):
            if self._trap is not None:
                left, act = self._trap
                self._trap = (left - 1, act) if left else None
                if not left:
                    act()
            if not loop.ready or self.is_frozen or not self.is_alive:
                return
            loop.run_one()
        if self.pause_s:
            self.busy_until = self.world.now + self.pause_s


class World:
    """Time, randomness and the processes of one universe.

    Attributes:
        now: Virtual seconds since the universe began.
        entropy: Every decision that is not a scheduled fault comes from it.
        running: The process whose callback runs; the world's own between callbacks.
        rounds: Rounds of callbacks so far.
    """

    def __init__(self, seed: str) -> None:
        restart_numbers()
        self.now = 0.0
        self.entropy = random.Random(seed)
        self.processes: list[Process] = []
        self.rounds = 0
        self.failures: list[BaseException | None] = []
        self._dead: list[Process] = []
        # When a process may run, a random number and a count that break ties, and the process: a heap.
        self._list: list[tuple[float, float, int, Process]] = []
        self._listed = 0
        self._numbered = 0
        # The services, which are not killed: what has reached them is carried out.
        self.outside = self.process("outside")
        self.running = self.outside

    def loop_of(self, process: Process) -> ProcessLoop:
        """Return the loop for a process that begins."""
        return ProcessLoop(process)  # type: ignore[abstract]  # no files, pipes or signals here

    def process(self, name: str) -> Process:
        """Create another process, which lives until it is killed."""
        made = Process(self, name)
        self.processes.append(made)
        return made

    def next_number(self) -> int:
        """Return the number of the process that begins, from 1 on."""
        self._numbered += 1
        return self._numbered

    def bury(self) -> None:
        """Forget about the killed processes, whose objects stay in memory until the world ends."""
        self._dead += [each for each in self.processes if not each.is_alive]
        self.processes = [each for each in self.processes if each.is_alive]

    def run(self, until: Callable[[], bool], at_most_s: float) -> bool:
        """Let time pass until a condition holds; returns whether it does, after `at_most_s` seconds at the latest.

        Raises StuckError if nothing is due any more, and EndlessError after too many rounds.
        """
        end = self.now + at_most_s
        while not until():
            due = self._next()
            if due is None:
                raise StuckError(f"after {self.now:.3f} s every process waits for another one")
            when, chosen = due
            if when > end:
                self.now = end
                return until()
            self.now = max(self.now, when)
            heapq.heappop(self._list)
            chosen.listed = math.inf
            self._run(chosen)
            self.enlist(chosen)
            if self.failures:
                self._fail(self.failures[0])
        return True

    def _fail(self, error: BaseException | None) -> NoReturn:
        """End the universe with the error of a process."""
        if error is not None and not isinstance(error, Exception):
            # Of a signal's handler, which a time limit has: no process is at fault.
            raise error
        raise RuntimeError(f"a simulated process has failed: {error!r}") from error

    def run_task(self, process: Process, work: Coroutine[Any, Any, Any], at_most_s: float) -> Any:
        """Run `work` in a process, and everything else meanwhile; returns its result, or raises its error."""
        task = process.loop.create_task(work)
        if not self.run(task.done, at_most_s):
            raise TimeoutError(f"{process.name} did not end within {at_most_s:g} virtual seconds")
        return task.result()

    def enlist(self, process: Process) -> None:
        """Note when a process can run."""
        due = process.due()
        if due is not None and due < process.listed:
            self.enlist_at(process, due)

    def enlist_at(self, process: Process, when: float) -> None:
        """Note that a process may run at a time."""
        process.listed = when
        self._listed += 1
        heapq.heappush(self._list, (when, self.entropy.random(), self._listed, process))

    def _next(self) -> tuple[float, Process] | None:
        """Return the process that runs next: the earliest, and any of those that are at the same time."""
        waiting = self._list
        while waiting:
            when, _, _, process = waiting[0]
            due = process.due() if when == process.listed else None
            if due is not None and due <= when:
                return when, process
            heapq.heappop(waiting)
            if when == process.listed:
                process.listed = math.inf
                self.enlist(process)
        return None

    def _run(self, process: Process) -> None:
        self.rounds += 1
        if self.rounds > _MOST_ROUNDS:
            raise EndlessError(f"{process.name} goes on after {_MOST_ROUNDS} rounds, at {self.now:.3f} s")
        before = self.running
        self.running = process
        asyncio._set_running_loop(process.loop)
        try:
            process.run()
        finally:
            asyncio._set_running_loop(None)
            self.running = before

    def close(self) -> None:
        """End the universe, and suppress the warnings about tasks that it abandons."""
        self.bury()
        for process in (*self.processes, *self._dead):
            for task in asyncio.all_tasks(process.loop):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
            process.loop.close()
