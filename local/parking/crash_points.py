"""Has a process kill itself before, within or after an operation of its store."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

OPERATIONS = ("park", "set_aside", "claim", "next", "give_back", "fail", "release", "discard")

_MOST_STATEMENTS = 5


class Deadly:
    """A process that may die at any of these operations.

    Args:
        chance: The probability for each call.
        edges: A file that gets a line for each death.
    """

    def __init__(self, chance: float, edges: Path) -> None:
        self._chance = chance
        self._edges = edges
        self._rng = random.Random()
        self._statements = 0
        self._name = ""

    def arm(self, store: Any) -> None:
        """Replace the operations of a store, and how it executes statements."""
        for name in OPERATIONS:
            setattr(store, name, partial(self._call, name, getattr(store, name)))
        execute = store._execute

        def sync(*arguments: Any) -> Any:
            result = execute(*arguments)
            self._count()
            return result

        async def coroutine(*arguments: Any) -> Any:
            result = await execute(*arguments)
            self._count()
            return result

        store._execute = sync if type(store).__name__ == "SqliteStore" else coroutine

    def maybe(self, name: str) -> None:
        """Die here, perhaps."""
        if self._rng.random() < self._chance:
            self._die(name)

    async def _call(self, name: str, operation: Callable[..., Awaitable[Any]], *args: Any, **more: Any) -> Any:
        # Most calls of `claim` find nothing, and there are many.
        chance = self._chance / 10 if name == "claim" else self._chance
        where = self._rng.choice(("before", "within", "after")) if self._rng.random() < chance else ""
        if where == "before":
            self._die(f"{name}, before")
        if where == "within":
            self._name, self._statements = f"{name}, within", self._rng.randint(1, _MOST_STATEMENTS)
        result = await operation(*args, **more)
        if where:
            self._die(f"{name}, after")
        return result

    def _count(self) -> None:
        self._statements -= 1
        if self._statements == 0:
            self._die(self._name)

    def _die(self, edge: str) -> NoReturn:
        with self._edges.open("a") as file:
            file.write(f"{edge}\n")
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("not reached")
