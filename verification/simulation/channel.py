"""A connection to a service, whose state faults change, and requests over it that need no wire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from verification.simulation.world import Process, World

T = TypeVar("T")


class Channel:
    """A connection to a service, for everything that is sent to it or comes back.

    Attributes:
        fastest_s, slowest_s: Seconds that what is sent takes, in either direction.
        cut: Names of processes that reach nothing, and that nothing reaches.
        is_down: Whether the service answers nobody.
        loses: The share of what is sent that gets lost.
    """

    def __init__(self, world: World, name: str, *, fastest_s: float = 0.001, slowest_s: float = 0.02) -> None:
        self.world = world
        self.name = name
        self.fastest_s, self.slowest_s = fastest_s, slowest_s
        self.cut: set[str] = set()
        self.is_down = False
        self.loses = 0.0

    def delay_s(self) -> float:
        """Return the seconds for one way."""
        return self.world.entropy.uniform(self.fastest_s, self.slowest_s)

    def is_open(self, process: Process) -> bool:
        """Return True if something can get through at the moment."""
        return not self.is_down and process.name not in self.cut

    def is_struck(self) -> bool:
        """Return True if what is sent now gets lost."""
        return self.loses > 0 and self.world.entropy.random() < self.loses


class LineError(Exception):
    """The request was not answered: it may or may not have been carried out."""


class RpcChannel(Channel):
    """A way to a service that answers requests.

    Of the requests that get lost, half were carried out.

    Attributes:
        timeout_s: After how many seconds the caller learns that there is no answer.
    """

    def __init__(self, world: World, name: str, *, timeout_s: float = 5.0) -> None:
        super().__init__(world, name)
        self.timeout_s = timeout_s

    async def ask(self, operation: Callable[[], T]) -> T:
        """Let the service carry out an operation for the process that runs.

        Raises LineError if there is no answer, and what the operation raises.
        """
        world, process = self.world, self.world.running
        answer: asyncio.Future[T] = process.loop.create_future()

        def no_answer() -> None:
            if not answer.done():
                answer.set_exception(LineError(f"{self.name} has not answered"))

        def carry_out() -> None:
            if not self.is_open(process):
                return
            result: Any = None
            error: Exception | None = None
            try:
                result = operation()
            except Exception as raised:  # noqa: BLE001 - it is the answer
                error = raised
            if not is_lost:
                world.outside.after(self.delay_s(), deliver, result, error)

        def deliver(result: Any, error: Exception | None) -> None:
            # It reaches the machine; a process that is frozen looks at it later.
            if process.is_alive and self.is_open(process):
                process.loop.call_soon(settle, result, error)

        def settle(result: Any, error: Exception | None) -> None:
            if answer.done():
                return
            if error is None:
                answer.set_result(result)
            else:
                answer.set_exception(error)

        is_lost = self.is_struck()
        timer = process.loop.call_later(self.timeout_s, no_answer)
        if self.is_open(process) and not (is_lost and world.entropy.random() < 0.5):
            world.outside.after(self.delay_s(), carry_out)
        try:
            return await answer
        finally:
            timer.cancel()
