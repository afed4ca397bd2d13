"""The way to a service, for what needs no wire: requests take time, and answers may be lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from verification.simulation.channel import Channel
from verification.simulation.world import World

T = TypeVar("T")


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
