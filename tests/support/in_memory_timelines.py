"""The timelines of an outbox in memory, as two processes see them."""

from __future__ import annotations

import json
from itertools import count

from relay.core.errors import RulesError
from relay.routes.generations import Timeline
from relay.routes.rulebook import StoredTimeline, TimelineChanged


class InMemoryTimelines:
    """A store in memory; `rulebook.Timelines` says what each method does. It is unreachable while `is_down`."""

    def __init__(self) -> None:
        self.is_down = False
        self._etags = count(1)
        self._stored: tuple[str, str] | None = None

    async def read(self) -> StoredTimeline | None:
        self._reach()
        if self._stored is None:
            return None
        text, etag = self._stored
        return StoredTimeline(Timeline.from_item(json.loads(text)), etag)

    async def create(self, timeline: Timeline, /) -> None:
        self._reach()
        if self._stored is not None:
            raise TimelineChanged("there is one already")
        self._store(timeline)

    async def replace(self, timeline: Timeline, etag: str, /) -> None:
        self._reach()
        if self._stored is None or self._stored[1] != etag:
            raise TimelineChanged("it has another ETag")
        self._store(timeline)

    async def close(self) -> None:
        pass

    def restore(self, stored: StoredTimeline | None) -> None:
        """Put back an earlier state, under a new ETag; None if it is lost."""
        self._stored = None
        if stored is not None:
            self._store(stored.timeline)

    def _reach(self) -> None:
        if self.is_down:
            raise RulesError("the store is down")

    def _store(self, timeline: Timeline) -> None:
        self._stored = json.dumps(timeline.item()), str(next(self._etags))
