"""The records that operators have released or discarded: who did it, when and why, as the store has it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from operator import attrgetter

from relay.quarantine.items import Items
from relay_operator.console.backlog import overlapping
from relay_operator.console.model import RemovedRecord
from relay_operator.outcomes import OUTCOME_TYPE, Removed

MOST = 50
"""Maximum number of removals shown."""

DAYS = 7
"""Number of days of which removals are read when the console starts. The store keeps them for thirty."""


class Removals:
    """The latest removals, read as they are added."""

    def __init__(self, items: Items) -> None:
        self._items = items
        # By the ids of their items, as a reading overlaps the one before it.
        self._known: dict[str, Removed] = {}
        self._since: str | None = None

    @property
    def latest(self) -> Sequence[RemovedRecord]:
        """The latest removals, the newest first."""
        return tuple(map(RemovedRecord.of, self._known.values()))

    async def read(self, now: float) -> None:
        """Read the removals since the last reading; `now` is in seconds since 1970.

        Raises:
            StoreError: The quarantine cannot be read.
        """
        moment = datetime.fromtimestamp(now, UTC)
        since = self._since or (moment - timedelta(days=DAYS)).isoformat()
        found = {item["id"]: Removed.of(item) for item in await self._items.of_type(OUTCOME_TYPE, since=since)}
        ordered = sorted({**self._known, **found}.items(), key=lambda each: each[1].at, reverse=True)
        self._known = dict(ordered[:MOST])
        if self._known:
            # A command whose clock is ahead hides none that follows it.
            newest = max(map(attrgetter("at"), self._known.values()))
            self._since = overlapping(min(newest, moment.isoformat()))
