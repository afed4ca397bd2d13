"""The latest events of all partitions, by the time of their commit."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from relay.backends.outbox import Committed
from relay.core.events import EventName
from relay_operator.console.model import Tracked

MOST = 50
"""Maximum number of events shown as the latest ones."""

KEPT = 500
"""Maximum number of events in memory, among which a reader of the page can search: about 5 MB at worst."""


class Recent:
    """The newest events that were read, in whatever order the partitions were.

    Events of the same time keep the order in which they were read, which is that of the feed within a partition.
    """

    def __init__(self) -> None:
        self._tracked: dict[EventName, Tracked] = {}
        self._times: dict[EventName, tuple[float, int]] = {}
        # The oldest first; a number is given once, so that no names are compared.
        self._order: list[tuple[float, int, EventName]] = []
        self._numbers = count()

    def __iter__(self) -> Iterator[tuple[EventName, Tracked]]:
        return iter(self._tracked.items())

    def add(self, tracked: Tracked, event: Committed) -> None:
        """Add an event that is new, or was read again."""
        name = event.partition_key, event.id
        if name in self._times:
            del self._order[bisect_left(self._order, (*self._times[name], name))]
        at, number = event.committed_at, next(self._numbers)
        self._tracked[name], self._times[name] = tracked, (at, number)
        insort(self._order, (at, number, name))
        if len(self._order) > KEPT:
            *_, oldest = self._order.pop(0)
            del self._tracked[oldest], self._times[oldest]

    def remove(self, name: EventName) -> None:
        """Remove an event, if it is one of the latest."""
        if name in self._times:
            del self._order[bisect_left(self._order, (*self._times[name], name))]
            del self._tracked[name], self._times[name]

    def change(self, name: EventName, **changes: Any) -> None:
        """Change what is known of an event, if it is one of the latest."""
        if (tracked := self._tracked.get(name)) is not None:
            self._tracked[name] = replace(tracked, **changes)

    def get(self, name: EventName) -> Tracked | None:
        return self._tracked.get(name)

    def shown_names(self) -> Sequence[EventName]:
        """Return the names of the events that are shown as the latest ones."""
        return [name for _, _, name in self._order[-MOST:]]

    def newest_first(self) -> Sequence[Tracked]:
        """Return every event in memory."""
        return tuple(self._tracked[name] for _, _, name in reversed(self._order))
