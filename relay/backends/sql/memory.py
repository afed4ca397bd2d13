"""The memory of all shards of a process together, bounded in bytes."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from outbox_relay.changefeed.statements import Entry

# The share of the whole that is reserved for a page before it is read, when its size is unknown.
_SHARES = 8

# Seconds between two looks at whether the room is still needed.
_LOOK_EVERY_S = 0.5


class Memory:
    """Memory shared by all pages. Create one per process; pages wait, in the order of their requests, for room.

    A page may be larger than its reserved space, because a row is read as a whole; the next ones then wait until
    it has been given back. So each page is read in the end, however large its rows are.
    """

    def __init__(self, max_bytes: int) -> None:
        """Create the memory; `max_bytes` is the size of all pages that are held at a time."""
        self.share = max(1, max_bytes // _SHARES)
        self._max_bytes = self._free = max_bytes
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def held(self) -> int:
        """Bytes that are reserved or in use."""
        return self._max_bytes - self._free

    @asynccontextmanager
    async def room(self, needed: Callable[[], bool]) -> AsyncIterator[Room | None]:
        """Room for a page, `share` bytes; None if it is no longer needed before there is any."""
        if not await self._wait(needed):
            yield None
            return
        room = Room(self, self.share)
        try:
            yield room
        finally:
            room.keep(0)

    async def _wait(self, needed: Callable[[], bool]) -> bool:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            self._grant()
            while not turn.done() and needed():
                await asyncio.wait((turn,), timeout=_LOOK_EVERY_S)
        except BaseException:
            self._withdraw(turn)
            raise
        if not turn.done():
            self._withdraw(turn)
            return False
        return True

    def _withdraw(self, turn: asyncio.Future[None]) -> None:
        if turn.done():
            self.take(-self.share)
        else:
            self._waiting.remove(turn)
            self._grant()

    def take(self, size: int) -> None:
        """Take that many bytes, or give back if it is negative."""
        self._free -= size
        self._grant()

    def _grant(self) -> None:
        while self._waiting and self._free >= self.share:
            self._free -= self.share
            self._waiting.popleft().set_result(None)


class Room:
    """The bytes that one page may have, and then those that it has."""

    def __init__(self, memory: Memory, size: int) -> None:
        self._memory = memory
        self.size = size

    def keep(self, size: int) -> None:
        """Keep that many bytes, which may be more than there were."""
        more, self.size = size - self.size, size
        self._memory.take(more)


class PageSize:
    """The number of rows of the next page: as many as fit into the bytes of one, by what the last pages had."""

    # At first the size of rows is unknown.
    _FIRST = 32

    def __init__(self, at_most: int) -> None:
        self._at_most = at_most
        self.rows = min(self._FIRST, at_most)

    def read(self, rows: int, size: int, max_bytes: int) -> None:
        """Learn from a page of `size` bytes, of which `max_bytes` were wanted at most."""
        if size > max_bytes:
            self.rows = max(1, rows * max_bytes // size)
        elif rows >= self.rows and 2 * size <= max_bytes:
            self.rows = min(2 * self.rows, self._at_most)

    def failed(self, rows: int) -> None:
        """Ask for fewer: a page of `rows` rows could not be read."""
        self.rows = max(1, rows // 2)


def size_of(entries: Iterable[Entry]) -> int:
    """Return the bytes that the values of a page take in memory."""
    return sum(_size(value) for entry in entries for value in (entry.row or entry.key).values())


def _size(value: Any) -> int:
    if isinstance(value, list | tuple):
        return sys.getsizeof(value) + sum(map(_size, value))
    if isinstance(value, dict):
        return sys.getsizeof(value) + sum(_size(each) for pair in value.items() for each in pair)
    return sys.getsizeof(value)
