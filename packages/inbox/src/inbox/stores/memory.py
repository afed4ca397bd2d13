"""A store in memory, for tests."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from operator import attrgetter

from inbox.messages import Message
from inbox.sequences import Arrival, Step, advance
from inbox.stores.block_guard import Turn
from inbox.stores.memory_parking import MemoryParking
from inbox.stores.port import Gap, Identity, entity_of

_start = attrgetter("start")


@dataclass(slots=True)
class _Progress:
    last: int | None = None
    gaps: list[range] = field(default_factory=list)

    def step(self, sequence: int) -> Step:
        at = bisect_right(self.gaps, sequence, key=_start) - 1
        gap = self.gaps[at] if at >= 0 and sequence in self.gaps[at] else None
        return advance(self.last, gap, sequence)

    def take(self, step: Step) -> None:
        self.last = step.last
        at = bisect_right(self.gaps, step.last if step.closed is None else step.closed.start, key=_start)
        if step.closed is None:
            self.gaps[at:at] = step.opened
        else:
            self.gaps[at - 1 : at] = step.opened


class MemoryStore(MemoryParking):
    """Keeps records until the process ends. For tests, or for effects that do not outlive the process either."""

    def __init__(self) -> None:
        super().__init__({}, Turn())
        self._progress: dict[tuple[str, str, str], _Progress] = {}

    @asynccontextmanager
    async def once(self, message: Message, *, entity: str | None = None) -> AsyncIterator[Arrival]:
        """See `Store.once`."""
        identity = Identity.of(message)
        async with self._turn.take():
            if identity in self._handled:
                yield Arrival(first=False)
                return
            if message.sequence is None:
                yield Arrival(first=True)
            else:
                place = (entity_of(message, entity), message.key, message.topic)
                progress = self._progress.get(place, _Progress())
                step = progress.step(message.sequence)
                yield step.arrival
                progress.take(step)
                self._progress[place] = progress
            self._handled[identity] = datetime.now(UTC)

    async def gaps(self) -> list[Gap]:
        """See `Store.gaps`."""
        return [
            Gap(entity, gap.start, gap.stop - 1, key, topic)
            for (entity, key, topic), progress in sorted(self._progress.items(), key=lambda item: item[0])
            for gap in progress.gaps
        ]

    async def forget(self, older_than: timedelta) -> int:
        """See `Store.forget`."""
        limit = datetime.now(UTC) - older_than
        old = [identity for identity, at in self._handled.items() if at < limit]
        for identity in old:
            del self._handled[identity]
        return len(old)
