"""Allows one block of `once` at a time, and knows which task is inside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

# Tasks that a handler starts inside its block inherit it.
_entered: ContextVar[tuple[object, ...]] = ContextVar("inbox_blocks", default=())


class Turn:
    """Lets one task at a time into a block."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._block: object | None = None

    @property
    def is_taken(self) -> bool:
        """Whether any task has a block open."""
        return self._block is not None

    @property
    def is_mine(self) -> bool:
        """Whether the current task is inside the open block."""
        return any(block is self._block for block in _entered.get())

    @asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        """Wait until no block is open, and open one.

        Raises:
            RuntimeError: The current task is inside the open block, and would wait for itself.
        """
        if self.is_mine:
            raise RuntimeError("This task is already inside a block of `once`: leave it first.")
        async with self._lock:
            block = self._block = object()
            _entered.set((*_entered.get(), block))
            try:
                yield
            finally:
                self._block = None
                _entered.set(tuple(each for each in _entered.get() if each is not block))
