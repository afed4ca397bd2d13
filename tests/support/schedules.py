"""Every interleaving of a few tasks, up to a number of preemptions: each task waits for its turn before each step.

A schedule names the task that goes on at each turn. Without one, a task goes on until it ends. The schedules with
one more preemption are those that let another task go on at one of its turns (CHESS: Musuvathi and Qadeer,
"Iterative context bounding for systematic testing of multithreaded programs", PLDI 2007).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

Step = Callable[[], Awaitable[None]]
"""Awaited before a step: it returns when it is the task's turn."""

Actor = Callable[[Step], Coroutine[Any, Any, object]]


class Stepped:
    """An object before each of whose calls its user waits for its turn."""

    def __init__(self, target: Any, step: Step) -> None:
        self._target, self._step = target, step

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def call(*arguments: Any, **options: Any) -> Any:
            await self._step()
            return await found(*arguments, **options)

        return call

    async def close(self) -> None:
        """Leave it open for the others."""


@dataclass
class Schedule:
    """The turns of one run.

    Attributes:
        chosen: The tasks that go on, by their numbers, at the first turns.
        turns: The tasks that could go on at each turn, and the one that did.
    """

    chosen: tuple[int, ...] = ()
    turns: list[tuple[tuple[int, ...], int]] = field(default_factory=list)

    async def run(self, actors: Sequence[Actor]) -> list[object]:
        """Run the actors to their ends, one step at a time; returns their results."""
        waiting: dict[int, asyncio.Event] = {}
        arrived = asyncio.Event()

        async def play(number: int, actor: Actor) -> object:
            async def step() -> None:
                assert number not in waiting, "an actor makes two calls at once"
                waiting[number] = turn = asyncio.Event()
                arrived.set()
                await turn.wait()

            try:
                await step()
                return await actor(step)
            finally:
                arrived.set()

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(play(number, actor)) for number, actor in enumerate(actors)]
            # Each comes to its first turn by itself.
            await asyncio.sleep(0)
            while waiting:
                number = self._next(tuple(sorted(waiting)))
                arrived.clear()
                waiting.pop(number).set()
                await arrived.wait()
        return [task.result() for task in tasks]

    def _next(self, ready: tuple[int, ...]) -> int:
        last = self.turns[-1][1] if self.turns else ready[0]
        turn = len(self.turns)
        number = self.chosen[turn] if turn < len(self.chosen) else last if last in ready else ready[0]
        self.turns.append((ready, number))
        return number

    def others(self, preemptions: int) -> list[Schedule]:
        """Return the schedules that first differ behind `chosen`, and have at most that many preemptions."""
        found, so_far = [], 0
        numbers = tuple(number for _, number in self.turns)
        for turn, (ready, number) in enumerate(self.turns):
            is_free = turn == 0 or numbers[turn - 1] not in ready
            if turn >= len(self.chosen) and (is_free or so_far < preemptions):
                found += [Schedule((*numbers[:turn], each)) for each in ready if each != number]
            so_far += not is_free and numbers[turn - 1] != number
        return found


async def schedules(preemptions: int) -> AsyncIterator[Schedule]:
    """Yield every schedule; each has to be run before the next one is asked for."""
    left = [Schedule()]
    while left:
        schedule = left.pop()
        yield schedule
        left += schedule.others(preemptions)
