"""The timelines that are open: each is read once for all its viewers, and again only when its key has changed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager

from relay_operator.console.model import Timeline
from relay_operator.console.ports import View

# A timeline is read from the outbox, which costs request units. What could not be read is tried again.
_PAUSE_S = 0.75
_RETRY_S = 5.0


class OpenTimeline:
    """The timeline of one key, for all its viewers."""

    def __init__(
        self,
        state: Callable[[], Hashable],
        read: Callable[[], Awaitable[Timeline]],
        render: Callable[[Timeline], str],
    ) -> None:
        """Open a timeline; the result of `state` changes whenever the timeline may have changed."""
        self.viewers = 0
        self._state = state
        self._read = read
        self._render = render
        self._turn = asyncio.Lock()
        self._shown: Hashable = None
        self._due_at = float("inf")
        self._read_at = float("-inf")
        self._html = ""

    async def html(self) -> str:
        """Return the HTML of the timeline.

        It is as read last if its key has not changed since, or within less than a second.
        """
        async with self._turn:
            now, state = time.monotonic(), self._state()
            if (state != self._shown or now >= self._due_at) and now - self._read_at >= _PAUSE_S:
                timeline = await self._read()
                self._shown, self._read_at = state, time.monotonic()
                self._due_at = self._read_at + _RETRY_S if timeline.problems else float("inf")
                self._html = self._render(timeline)
            return self._html


class Timelines:
    """The timelines that are open, by their keys."""

    def __init__(
        self, view: View, read: Callable[[str], Awaitable[Timeline]], render: Callable[[Timeline], str]
    ) -> None:
        self._view = view
        self._read = read
        self._render = render
        self._open: dict[str, OpenTimeline] = {}

    @contextmanager
    def open(self, partition_key: str) -> Iterator[OpenTimeline]:
        with self._view.follow(partition_key) as state:
            found = self._open.get(partition_key)
            if found is None:
                found = OpenTimeline(state, lambda: self._read(partition_key), self._render)
                self._open[partition_key] = found
            found.viewers += 1
            try:
                yield found
            finally:
                found.viewers -= 1
                if not found.viewers:
                    del self._open[partition_key]
