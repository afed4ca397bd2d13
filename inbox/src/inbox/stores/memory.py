"""A store in memory, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from inbox.messages import Message
from inbox.sequences import Arrival, Progress, advance
from inbox.stores.port import Gap, identity


class MemoryStore:
    """Forgets everything when the process ends; use it in tests, or where the effect is forgotten too."""

    def __init__(self) -> None:
        self._handled: dict[str, datetime] = {}
        self._progress: dict[str, Progress] = {}
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def once(self, message: Message, *, entity: str | None = None) -> AsyncIterator[Arrival]:
        """See `Store.once`."""
        handled_id, entity = identity(message), message.key if entity is None else entity
        async with self._turn:
            if handled_id in self._handled:
                yield Arrival(first=False)
                return
            progress, arrival = self._progress.get(entity), Arrival(first=True)
            if message.sequence is not None:
                progress, arrival = advance(progress, message.sequence)
            yield arrival
            self._handled[handled_id] = datetime.now(UTC)
            if progress is not None:
                self._progress[entity] = progress

    async def gaps(self) -> list[Gap]:
        """See `Store.gaps`."""
        return [
            Gap(entity, gap.start, gap.stop - 1)
            for entity, progress in sorted(self._progress.items())
            for gap in progress.gaps
        ]

    async def forget(self, older_than: timedelta) -> int:
        """See `Store.forget`."""
        limit = datetime.now(UTC) - older_than
        old = [handled_id for handled_id, at in self._handled.items() if at < limit]
        for handled_id in old:
            del self._handled[handled_id]
        return len(old)
