"""The store of the timeline and of the streams' positions, which are restored and lost together."""

from __future__ import annotations

import random
import types
from collections.abc import Generator
from dataclasses import dataclass, field, replace

from relay.core.errors import RulesError
from relay.routes.generations import Timeline
from relay.routes.rulebook import StoredTimeline, TimelineChanged

Place = tuple[str, int]
"""A stream, and a partition of the outbox."""


@types.coroutine
def wait() -> Generator[None, None, None]:
    """Let others go on."""
    yield


@dataclass(slots=True)
class State:
    """The stored timeline and positions.

    Attributes:
        timeline: The timeline, with its ETag; None if there is none.
        positions: Number of changes that a stream has passed, by its place.
    """

    timeline: StoredTimeline | None = None
    positions: dict[Place, int] = field(default_factory=dict)


class Store:
    """The lease container.

    Attributes:
        state: What is stored now.
        owners: The process that reads a place, with a number for each time that it was taken.
        is_kind: Whether every read is current, and every answer comes.
    """

    def __init__(self, entropy: random.Random) -> None:
        self.state = State()
        self.owners: dict[Place, tuple[str, int]] = {}
        self.is_kind = False
        self._entropy = entropy
        self._etags = 0
        self._before: StoredTimeline | None = None

    def saved(self) -> State:
        """Return a copy of what is stored."""
        return replace(self.state, positions=dict(self.state.positions))

    def restore(self, state: State) -> None:
        """Set everything back to a copy. Nobody reads any more."""
        self.state = replace(state, positions=dict(state.positions))
        if state.timeline is not None:
            self.state.timeline = StoredTimeline(state.timeline.timeline, self._etag())
        self._before = self.state.timeline
        self.owners.clear()

    def take(self, place: Place, owner: str) -> tuple[str, int]:
        """Become the owner of a place."""
        taken = owner, self.owners.get(place, ("", 0))[1] + 1
        self.owners[place] = taken
        return taken

    def checkpoint(self, place: Place, owner: tuple[str, int], position: int) -> None:
        """Store a position, if the owner is still the same."""
        if self.owners.get(place) == owner:
            self.state.positions[place] = position

    # `relay.routes.rulebook.Timelines`

    async def read(self) -> StoredTimeline | None:
        await self._go()
        # A replica may be behind.
        found = self._before if not self.is_kind and self._entropy.random() < 0.1 else self.state.timeline
        await self._go()
        return found

    async def create(self, timeline: Timeline, /) -> None:
        await self._go()
        if self.state.timeline is not None:
            raise TimelineChanged("there is one already")
        self._write(timeline)
        await self._go()

    async def replace(self, timeline: Timeline, etag: str, /) -> None:
        await self._go()
        if not self._is(etag):
            raise TimelineChanged("it has another ETag")
        self._write(timeline)
        await self._go()

    async def close(self) -> None:
        """There is no connection."""

    def _is(self, etag: str) -> bool:
        return self.state.timeline is not None and self.state.timeline.etag == etag

    def _write(self, timeline: Timeline) -> None:
        self._before = self.state.timeline
        self.state.timeline = StoredTimeline(timeline, self._etag())

    def _etag(self) -> str:
        self._etags += 1
        return str(self._etags)

    async def _go(self) -> None:
        """The way there, or back: something may be lost on it."""
        await wait()
        if not self.is_kind and self._entropy.random() < 0.05:
            raise RulesError("no answer")
