"""The latest events of all partitions, by the time of their commit."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from operator import itemgetter
from typing import Any

from relay.backends.outbox import Committed
from relay.core.events import EventName
from relay_operator.console.model import Tracked

MOST = 50
"""Maximum number of events shown as the latest ones."""


class Recent:
    """The newest fifty events that were read, in whatever order the partitions were.

    Events of the same time keep the order in which they were read, which is that of the feed within a partition.
    """

    def __init__(self) -> None:
        self._tracked: dict[EventName, Tracked] = {}
        self._times: dict[EventName, tuple[float, int]] = {}
        self._numbers = count()

    def __iter__(self) -> Iterator[tuple[EventName, Tracked]]:
        return iter(self._tracked.items())

    def add(self, tracked: Tracked, event: Committed) -> None:
        """Add an event that is new, or was read again."""
        name = event.partition_key, event.id
        self._tracked[name] = tracked
        self._times[name] = event.committed_at, next(self._numbers)
        if len(self._tracked) > MOST:
            oldest, _ = min(self._times.items(), key=itemgetter(1))
            del self._tracked[oldest], self._times[oldest]

    def change(self, name: EventName, **changes: Any) -> None:
        """Change what is known of an event, if it is one of the latest."""
        if (tracked := self._tracked.get(name)) is not None:
            self._tracked[name] = replace(tracked, **changes)

    def get(self, name: EventName) -> Tracked | None:
        return self._tracked.get(name)

    def newest_first(self) -> Sequence[Tracked]:
        names = heapq.nlargest(MOST, self._times, key=self._times.__getitem__)
        return tuple(self._tracked[name] for name in names)
