"""The events in memory: those that wait, those in quarantine, the latest, and those that operators removed."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from operator import attrgetter
from typing import Any

from outbox_relay.operator.console.history import started_at
from outbox_relay.operator.console.model import QuarantineRecord, Removal, RemovedRecord, Tracked
from outbox_relay.operator.outcomes import OUTCOME_TYPE, Removed
from relay.backends.outbox import Committed, id_name, key_name
from relay.core.events import EventName
from relay.core.place import PlaceInFeed
from relay.quarantine.items import Filter, Items, RecordSummary

_PAGE = 1000
_PAGES = 20

# Records are written by several hosts, whose clocks differ.
_OVERLAP = timedelta(seconds=30)

# Maximum number of removals in memory.
_REMOVALS = 10_000

# Maximum number of records in memory: about 50 MB. Only the latest keep their summaries.
_KNOWN = 500_000
_SUMMARIES = 1000


@dataclass(slots=True)
class Waiting:
    """An event that the relay has not passed, or that may be in quarantine.

    Attributes:
        partition, place: Where it is now.
        committed_at: About when it was committed (`moments.estimated_at`).
        started_at: From when its latency counts; None if that is not known well enough.
        expires_at: When the outbox deletes it.
        passed_at: When the position was seen to pass it.
    """

    name: EventName
    partition: str
    place: PlaceInFeed
    committed_at: float
    started_at: float | None
    expires_at: float | None
    passed_at: float = 0.0

    def committed(self) -> Committed:
        """Return the event, without what only its document has."""
        partition_key, identifier = self.name
        return Committed(
            identifier,
            partition_key,
            action=None,
            committed_at=self.committed_at,
            created_at=None,
            sequence=None,
            traceparent=None,
            partition=self.partition,
            place=self.place,
            expires_at=self.expires_at,
        )


class Backlog:
    """Events that wait. A look goes through all of them, as their number is bounded and mostly small."""

    def __init__(self) -> None:
        self._waiting: dict[EventName, Waiting] = {}
        self._partitions: dict[str, dict[EventName, Waiting]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def partitions(self) -> set[str]:
        return {name for name, events in self._partitions.items() if events}

    def add(self, event: Committed, committed_at: float) -> bool:
        """Add an event, or move the one of its name to its present place; returns whether it is new."""
        name = event.partition_key, event.id
        known = self._waiting.get(name)
        if known is not None:
            self.move(known, event.partition, event.place)
            return False
        start = started_at(event.committed_at, event.created_at)
        new = Waiting(name, event.partition, event.place, committed_at, start, event.expires_at)
        self._waiting[name] = self._partitions.setdefault(event.partition, {})[name] = new
        return True

    def remove(self, name: EventName) -> bool:
        """Remove the event of this name; returns whether it waited."""
        event = self._waiting.pop(name, None)
        if event is not None:
            del self._partitions[event.partition][name]
        return event is not None

    def move(self, event: Waiting, partition: str, place: PlaceInFeed) -> None:
        del self._partitions[event.partition][event.name]
        event.partition, event.place = partition, place
        self._partitions.setdefault(partition, {})[event.name] = event

    def take(self, partition: str, place: PlaceInFeed) -> list[Waiting]:
        """Remove the events at or before a place of a partition."""
        found = [event for event in self.within(partition) if event.place <= place]
        for event in found:
            del self._waiting[event.name], self._partitions[partition][event.name]
        return found

    def within(self, partition: str) -> Collection[Waiting]:
        """Return the events that wait in a partition, in no order."""
        return self._partitions.get(partition, {}).values()

    def oldest(self, partition: str) -> float | None:
        """Return the time at which the oldest event of a partition was committed, or None if none waits."""
        return min((event.committed_at for event in self.within(partition)), default=None)

    def expires_at(self) -> float | None:
        """Return the earliest expiry among the waiting events, or None if none expires."""
        return min(
            (each.expires_at for each in self._waiting.values() if each.expires_at is not None), default=None
        )


class Quarantined:
    """The events in quarantine, read as records are added and operators remove them.

    Attributes:
        removals: Number of removals that were read.
        complete: Whether every record that was read is still known of.
    """

    def __init__(self, items: Items) -> None:
        self._items = items
        self._names: dict[int, None] = {}
        self._latest: OrderedDict[int, QuarantineRecord] = OrderedDict()
        self._since: str | None = None
        self._newest: str | None = None
        self._removed: OrderedDict[int, tuple[str, Removal]] = OrderedDict()
        self._removed_since: str | None = None
        self.removals = 0
        self.complete = True

    async def read(self) -> bool:
        """Read the records that were added and removed since; returns False if there are more than were read.

        Raises:
            StoreError: The quarantine cannot be read.
        """
        limit = _PAGE
        for _ in range(_PAGES):
            page = await self._items.summaries(Filter(since=self._since), limit)
            self._keep(page)
            if len(page) < limit:
                if self._newest is not None:
                    self._since = overlapping(self._newest)
                await self._read_removals()
                return True
            # If a whole page of records has the same time, the next one has to be larger to get past it.
            limit = 2 * limit if page[-1].quarantined_at == self._since else _PAGE
            self._since = page[-1].quarantined_at
        return False

    async def _read_removals(self) -> None:
        """Read the removals since. One is stored as its record is removed, so they are read after the records."""
        newest = self._removed_since
        for item in await self._items.of_type(OUTCOME_TYPE, since=self._removed_since):
            removed = Removed.of(item)
            name = _name(removed)
            latest = self._removed.get(name)
            if latest is None or latest[0] < removed.quarantined_at:
                self._remove(name, removed)
            newest = max(newest or "", overlapping(removed.at))
        self._removed_since = newest

    def _remove(self, name: int, removed: Removed) -> None:
        self.removals += 1
        self._removed[name] = removed.quarantined_at, Removal.of(removed)
        record = self._latest.get(name)
        if record is None or record.quarantined_at <= removed.quarantined_at:
            self._names.pop(name, None)
            self._latest.pop(name, None)
        if len(self._removed) > _REMOVALS:
            self._removed.popitem(last=False)
            self.complete = False

    def removal(self, event: Waiting) -> Removal | None:
        """The last removal of an event's record, unless the event has a record again."""
        if self.has(event):
            return None
        return next((self._removed[name][1] for name in _names_of(event) if name in self._removed), None)

    def has(self, event: Waiting) -> bool:
        return any(name in self._names for name in _names_of(event))

    def record(self, event: Waiting) -> QuarantineRecord | None:
        """Return the record of an event, if it is one of the latest."""
        return next((self._latest[name] for name in _names_of(event) if name in self._latest), None)

    def _keep(self, page: Iterable[RecordSummary]) -> None:
        for summary in page:
            name = _name(summary)
            if name in self._removed and summary.quarantined_at <= self._removed[name][0]:
                continue
            self._names[name] = None
            self._latest[name] = QuarantineRecord.of(summary)
            if len(self._latest) > _SUMMARIES:
                self._latest.popitem(last=False)
            if self._newest is None or summary.quarantined_at > self._newest:
                self._newest = summary.quarantined_at
        while len(self._names) > _KNOWN:
            del self._names[next(iter(self._names))]
            self.complete = False


def overlapping(moment: str) -> str:
    """Return the time from which to read again after this one, as the clocks of those who write differ."""
    return (datetime.fromisoformat(moment) - _OVERLAP).isoformat()


# Hashes, as half a million of names would take ten times as much. A record whose document is stored in parts, or
# has no string for an id, is found by its place in the feed.
def _name(summary: RecordSummary | Removed) -> int:
    known = summary.document_id
    return hash((key_name(summary.partition_key), id_name(known) if known else summary.committed))


def _names_of(event: Waiting) -> tuple[int, int]:
    partition_key, identifier = event.name
    return hash((partition_key, identifier)), hash((partition_key, event.place))


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


MOST_REMOVALS = 50
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
        self._known = dict(ordered[:MOST_REMOVALS])
        if self._known:
            # A command whose clock is ahead hides none that follows it.
            newest = max(map(attrgetter("at"), self._known.values()))
            self._since = overlapping(min(newest, moment.isoformat()))
