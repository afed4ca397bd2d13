"""Knows which task is inside which block of `once`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any


class Block:
    """An open block.

    Attributes:
        connection: That of its transaction, as soon as it has one.
    """

    def __init__(self) -> None:
        self.connection: Any = None


# Tasks that a handler starts inside its block inherit it.
_entered: ContextVar[tuple[Block, ...]] = ContextVar("inbox_blocks", default=())


class Blocks:
    """The open blocks of a store."""

    def __init__(self) -> None:
        self._open: set[Block] = set()

    @property
    def are_open(self) -> bool:
        """True while any task has a block open."""
        return bool(self._open)

    @property
    def is_mine(self) -> bool:
        """True inside a block that the current task has opened."""
        return self.mine is not None

    @property
    def mine(self) -> Block | None:
        """The open block that the current task is inside."""
        return next((each for each in _entered.get() if each in self._open), None)

    def check(self) -> None:
        """Raise RuntimeError if the current task is inside an open block, and would wait for itself."""
        if self.is_mine:
            raise RuntimeError("This task is already inside a block of `once`: leave it first.")

    @contextmanager
    def enter(self) -> Iterator[Block]:
        """Open a block of the current task.

        Raises:
            RuntimeError: The current task is inside an open block, and would wait for itself.
        """
        self.check()
        block = Block()
        self._open.add(block)
        _entered.set((*_entered.get(), block))
        try:
            yield block
        finally:
            self._open.discard(block)
            _entered.set(tuple(each for each in _entered.get() if each is not block))


class Turn:
    """Lets one task at a time into a block."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._blocks = Blocks()

    @property
    def is_taken(self) -> bool:
        """True while any task has a block open."""
        return self._blocks.are_open

    @property
    def is_mine(self) -> bool:
        """True inside the open block if the current task has opened it."""
        return self._blocks.is_mine

    @asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        """Wait until no block is open, and open one.

        Raises:
            RuntimeError: The current task is inside the open block, and would wait for itself.
        """
        self._blocks.check()
        async with self._lock:
            with self._blocks.enter():
                yield
