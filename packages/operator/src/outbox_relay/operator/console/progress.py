"""The relay's progress: events as they are committed, their fate when a position passes, and the owners."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from outbox_relay.operator.console.backlog import Backlog, Quarantined, Recent, Waiting
from outbox_relay.operator.console.freshness import Freshness, Part
from outbox_relay.operator.console.history import Latencies, Rate, estimated_at
from outbox_relay.operator.console.model import (
    Delivery,
    Partition,
    Problem,
    Removal,
    Stage,
    Tracked,
    accepted_at,
    earliest,
)
from outbox_relay.operator.console.ports import Parts, Sources
from outbox_relay.operator.console.timeline import OpenTimelines
from outbox_relay.operator.console.truncation import OWNER, optional
from relay.backends.outbox import Committed, Position
from relay.core.events import EventName

# After a longer pause in reading, a renewal may have been missed.
_OWNERS_PAUSE_S = 5.0

# An owner renews its lease or claim at least twice in the time for which it is held.
_SILENT = 0.5


@dataclass(frozen=True, slots=True)
class _Seen:
    """A renewal: `sign` is the owner with the value of the renewal, `at` when it was seen first."""

    sign: Hashable
    at: float
    held_s: float


class Owners:
    """The last renewal of each partition, as this process has seen it, by its own clock alone."""

    def __init__(self) -> None:
        self._seen: Mapping[str, _Seen] = {}
        self._read_at = -math.inf

    def note(self, positions: Iterable[Position], now: float) -> None:
        """Note the positions that were read now."""
        before = self._seen if now - self._read_at <= _OWNERS_PAUSE_S else {}
        self._read_at = now
        owned = [each for each in positions if each.owner is not None and each.renewal is not None]
        self._seen = {each.name: _noted(each, before.get(each.name), now) for each in owned}

    def held_s(self, name: str, now: float, ended_at: float | None) -> int | None:
        """Return the seconds within which the partition is free of an owner that is gone; negative afterwards.

        Args:
            name: The partition.
            now: The current time.
            ended_at: When the owner has ended; None if that is not known.

        Returns:
            None if there is no owner, or if it is alive, as far as is known.
        """
        seen = self._seen.get(name)
        if seen is None or math.isinf(seen.held_s):
            return None
        silent_s = now - (seen.at if ended_at is None else min(ended_at, seen.at))
        is_gone = ended_at is not None or silent_s > seen.held_s * _SILENT
        return math.ceil(seen.held_s - silent_s) if is_gone else None


def _noted(position: Position, before: _Seen | None, now: float) -> _Seen:
    sign = (position.owner, position.renewal)
    return before if before is not None and before.sign == sign else _Seen(sign, now, position.held_s)


# Maximum number of events of one call, and of calls before the positions are read again.
_PAGE = 1000
_PAGES = 10

# Maximum number of unpublished events in memory; reading pauses at this limit.
_HELD = 100_000

# Maximum number of newly passed events that are looked up at the topic.
_SAMPLE = 200

# Events that the relay has passed are remembered this long, so that one that comes again is not counted again.
_REMEMBERED = 100_000

# Maximum number of events in memory that expired: the outbox does not have them any more.
_EXPIRED = 10_000

# After a longer pause in reading, events since then count towards no rate and no latency.
_PAUSE_S = 5


class _Extent(Enum):
    """How much of the outbox was read: everything, as much as may wait, or some of what is there."""

    ALL = auto()
    BOUND = auto()
    SOME = auto()


@dataclass(frozen=True, slots=True)
class Figures:
    """The findings of one look at the relay; the names are those of `model.Flow` and `model.Snapshot`.

    A look that is under way has read some of it again and some not yet, so nothing else is shown of it.
    """

    published: int | None = None
    waiting: int | None = None
    published_s: float | None = None
    latency_p50_ms: float | None = None
    latency_p99_ms: float | None = None
    lag_s: float | None = None
    headroom_s: float | None = None
    partitions: Sequence[Partition] = ()


class Progress:
    """The events read, in bounded memory: for most events that were passed, only a hash of the name.

    Attributes:
        committed: Number of events read, and their rate, as of the last look that could read the outbox.
        figures: Those of the last look that could read everything, to the end of the outbox.
        owners: Of the partitions, as of the last look that could read the positions.
        latest: The latest events; `recent` are those of the last look that could read the topic as well, newest
            first, with all that are in memory.
    """

    def __init__(
        self,
        sources: Sources,
        parts: Parts,
        freshness: Freshness,
        followed: OpenTimelines,
        clock: Callable[[], float],
    ) -> None:
        self._outbox, self._topic = sources.outbox, sources.topic
        self._quarantine = Quarantined(sources.items)
        self._parts = parts
        self._freshness = freshness
        self._followed = followed
        self._clock = clock
        self.committed: tuple[int, float] | None = None
        self.figures = Figures()
        self.latest = Recent()
        self.recent: Sequence[Tracked] = ()
        self._backlog = Backlog()
        self._committed = self._published = 0
        self._commits, self._publications, self._latencies = Rate(), Rate(), Latencies()
        # Events that were passed and may be in quarantine.
        self._passed: list[Waiting] = []
        # Events that were counted as set aside: an operator may release or discard them.
        self._aside: OrderedDict[EventName, Waiting] = OrderedDict()
        self._expired: OrderedDict[EventName, Committed] = OrderedDict()
        self._removals = 0
        self._remembered: OrderedDict[int, None] = OrderedDict()
        self._positions: dict[str, Position] = {}
        self._moved_at: dict[str, float] = {}
        self.owners = Owners()
        self._looked_at = clock()
        # Everything that was committed before this time has been read; None if that was long ago, or never so.
        self._read_up_to: float | None = None

    @property
    def _held(self) -> int:
        """Number of events kept because their fate is not known yet."""
        return len(self._backlog) + len(self._passed)

    async def look(self) -> bool:
        """Read events, positions and new records of quarantine, in this order; returns whether there was any news.

        A record is stored before the position passes its event. So what a position has passed is counted when the
        records that were added since have been read, and not before.
        """
        started_at = self._clock()
        if started_at - self._looked_at >= _PAUSE_S:
            self._read_up_to = None
        before = self._committed, self._published
        extent = await self._read_outbox()
        self._freshness.note(Part.OUTBOX, started_at, extent is not None)
        judged, arrived = await self._read_relay(), await self._read_deliveries()
        whole = judged and extent in (_Extent.ALL, _Extent.BOUND)
        if whole:
            self.figures = self._figures()
        if whole and arrived:
            self.recent = self.latest.newest_first()
        self._freshness.note(Part.RELAY, started_at, whole)
        self._freshness.note(Part.RECENT, started_at, whole and arrived)
        if extent is _Extent.ALL:
            self._read_up_to = started_at
        self._looked_at = self._clock()
        return extent is not _Extent.ALL or before != (self._committed, self._published)

    async def _read_outbox(self) -> _Extent | None:
        """Read committed events; returns how many of them, None if they cannot be read."""
        async with self._parts.reading("outbox"):
            extent = await self._read_news()
            self.committed = self._committed, self._commits.per_second(self._clock())
            return extent
        return None

    async def _read_relay(self) -> bool:
        """Read positions and new records; returns whether what was passed is counted."""
        read = False
        async with self._parts.reading("positions"):
            await self._read_positions()
            read = True
        if not self._passed and not self._aside:
            return read
        async with self._parts.reading("quarantine"):
            if await self._quarantine.read():
                await self._count_passed()
                self._count_removed()
                return read
        return False

    async def _read_deliveries(self) -> bool:
        """Read where the latest messages and those of open timelines are; returns whether it could."""
        names = set(self.latest.shown_names())
        found = await self._deliveries([*names, *(name for name in self._followed.names() if name not in names)])
        if found is None:
            return False
        self._deliver(found)
        self._followed.compare(found)
        return True

    def expired(self, partition_key: str) -> Mapping[str, Committed]:
        """Return the events of a key that expired before the relay was seen to pass them, by id."""
        return {event.id: event for event in self._expired.values() if event.partition_key == partition_key}

    def limits(self) -> Iterator[Problem]:
        """Yield a problem for each bound of the memory that leaves events out."""
        if self._held >= _HELD:
            yield Problem("outbox", f"more than {_HELD} events wait: the others are counted when these are passed")
        if not self._quarantine.complete:
            yield Problem(
                "quarantine",
                "there are more records than are remembered: an event that was set aside long ago may be counted "
                "as published",
            )

    def _figures(self) -> Figures:
        now, expires_at = self._clock(), self._backlog.expires_at()
        p50, p99 = self._latencies.percentiles(now)
        partitions = tuple(self._partition(name, now) for name in self._names())
        return Figures(
            self._published,
            self._held,
            self._publications.per_second(now),
            p50,
            p99,
            max((partition.oldest_s for partition in partitions), default=0.0),
            None if expires_at is None else float(max(0, int(expires_at - now))),
            partitions,
        )

    def _names(self) -> Sequence[str]:
        """Return each partition that the relay has a position in, or in which something waits."""
        return sorted(self._positions.keys() | self._backlog.partitions, key=_by_number)

    def _partition(self, name: str, now: float) -> Partition:
        position = self._positions.get(name, Position(name, None, None, None))
        oldest, moved_at = self._backlog.oldest(name), self._moved_at.get(name)
        return Partition(
            name,
            optional(position.owner, OWNER),
            optional(position.position, OWNER),
            behind=len(self._backlog.within(name)),
            oldest_s=0.0 if oldest is None else _age_s(oldest, now),
            moved_at=moved_at,
            # Before there was anything to read, a position had no reason to move.
            still_since=None if oldest is None or moved_at is None else max(moved_at, oldest),
        )

    async def _read_news(self) -> _Extent:
        for _ in range(_PAGES):
            if self._held >= _HELD:
                return _Extent.BOUND
            events, now = await self._outbox.news(_PAGE), self._clock()
            for event in events:
                self._add(event, now)
            for name in self._outbox.given_elsewhere():
                self._forget(name)
            if not events:
                return _Extent.ALL
        return _Extent.SOME

    def _add(self, event: Committed, now: float) -> None:
        name = event.partition_key, event.id
        if hash(name) in self._remembered:
            return
        self._followed.touch(event.partition_key)
        committed_at = estimated_at(event.committed_at, event.created_at, self._read_up_to, now)
        if self._backlog.add(event, committed_at):
            self._committed += 1
            self._commits.add(committed_at)
        known = self.latest.get(name)
        stage = Stage.COMMITTED if known is None else known.stage
        deliveries = () if known is None else known.deliveries
        self.latest.add(Tracked(event.id, stage, event, deliveries=deliveries), event)

    def _forget(self, name: EventName) -> None:
        """Leave out an event that waited and is another stream's."""
        if self._backlog.remove(name):
            self._committed -= 1
            self.latest.remove(name)
            self._followed.touch(name[0])

    async def _read_positions(self) -> None:
        positions = await self._outbox.positions()
        now, before = self._clock(), self._positions
        self.owners.note(positions, now)
        self._positions = {position.name: position for position in positions}
        for name, position in self._positions.items():
            if name in before and before[name].position != position.position:
                self._moved_at[name] = now
        self._moved_at = {name: at for name, at in self._moved_at.items() if name in self._positions}
        self._pass(now)
        # An event that waits under a name that no position has any more is where its key is now.
        gone = self._backlog.partitions - self._positions.keys() if positions else set()
        lost = [event for name in gone for event in self._backlog.within(name)]
        for event in lost:
            partition = await self._outbox.partition_of(event.name[0])
            if partition is not None and partition != event.partition:
                self._backlog.move(event, partition, event.place)
        if lost:
            self._pass(now)

    def _pass(self, now: float) -> None:
        for position in self._positions.values():
            if position.place is not None:
                for event in self._backlog.take(position.name, position.place):
                    event.passed_at = now
                    self._followed.touch(event.name[0])
                    self._passed.append(event)
                    self._remembered[hash(event.name)] = None
                    if len(self._remembered) > _REMEMBERED:
                        self._remembered.popitem(last=False)

    async def _count_passed(self) -> None:
        """Count the events that were passed; quarantine has been read to its end since."""
        found = await self._deliveries([event.name for event in self._passed[-_SAMPLE:]]) or {}
        for event in self._passed:
            self._followed.touch(event.name[0])
            at = accepted_at(found.get(event.name, ()))
            removal = self._quarantine.removal(event)
            if self._quarantine.has(event):
                self._set_aside(event)
            elif removal is not None:
                self._remove(event, removal, accepted=at is not None)
            elif at is None and event.expires_at is not None and event.expires_at <= event.passed_at:
                # The change feed has no expired document: the relay may have passed it unread.
                self._expire(event)
            else:
                self._publish(event, at)
        self._passed.clear()

    def _count_removed(self) -> None:
        """Count the events that were set aside and that an operator has released or discarded since."""
        if self._quarantine.removals == self._removals:
            return
        self._removals = self._quarantine.removals
        for event in list(self._aside.values()):
            if (removal := self._quarantine.removal(event)) is not None:
                del self._aside[event.name]
                self._remove(event, removal)

    def _remove(self, event: Waiting, removal: Removal, *, accepted: bool = False) -> None:
        """Count an event by what an operator did with its record; its time says nothing of the relay."""
        self._followed.touch(event.name[0])
        stage = Stage.PUBLISHED if accepted else removal.stage
        self._published += stage is Stage.PUBLISHED
        self.latest.change(event.name, stage=stage, quarantined=None, removed=removal)

    def _publish(self, event: Waiting, at: float | None) -> None:
        """Count an event as accepted; `at` is the broker's time of it, if it is known."""
        self._published += 1
        looked = self._read_up_to is not None
        # Events that were passed before the console looked were published some time before.
        published_at = event.passed_at if at is None and looked else at
        if looked and published_at is not None:
            self._publications.add(published_at)
            if event.started_at is not None:
                self._latencies.add(max(0.0, published_at - event.started_at), published_at)
        self.latest.change(event.name, stage=Stage.PUBLISHED, published_at=published_at)

    def _expire(self, event: Waiting) -> None:
        self.latest.change(event.name, stage=Stage.EXPIRED)
        known = self.latest.get(event.name)
        self._expired[event.name] = event.committed() if known is None or known.event is None else known.event
        if len(self._expired) > _EXPIRED:
            self._expired.popitem(last=False)

    def _set_aside(self, event: Waiting) -> None:
        record = self._quarantine.record(event)
        stage = Stage.QUARANTINED if record is None else record.stage
        self.latest.change(event.name, stage=stage, quarantined=record)
        self._aside[event.name] = event
        if len(self._aside) > _REMEMBERED:
            self._aside.popitem(last=False)

    def _deliver(self, found: Mapping[EventName, Sequence[Delivery]]) -> None:
        """Apply the topic's information about the latest events."""
        for name, deliveries in found.items():
            if (tracked := self.latest.get(name)) is not None:
                at = None if tracked.stage is Stage.COMMITTED else accepted_at(deliveries)
                if at is not None and tracked.stage in (Stage.DISCARDED, Stage.EXPIRED):
                    self.latest.change(name, stage=Stage.PUBLISHED)
                    self._published += 1
                # A message that comes again is accepted later.
                published_at = earliest(tracked.published_at, at)
                self.latest.change(name, deliveries=tuple(deliveries), published_at=published_at)

    async def _deliveries(self, names: Sequence[EventName]) -> Mapping[EventName, Sequence[Delivery]] | None:
        """Return the topic's information about these events' messages, or None if it cannot be read."""
        keys: dict[str, list[str]] = {}
        for partition_key, identifier in names:
            keys.setdefault(partition_key, []).append(identifier)
        found: dict[EventName, list[Delivery]] = {}
        async with self._parts.reading("deliveries"):
            for partition_key, ids in keys.items():
                for delivery in await self._topic.deliveries(partition_key, ids):
                    found.setdefault((partition_key, delivery.message_id), []).append(delivery)
            return found
        return None


def _age_s(since: float, now: float) -> float:
    """Return an age in seconds.

    It has tenths up to ten seconds, then whole ones, so that a page changes once a second.
    """
    age = max(0.0, now - since)
    return round(age, 1) if age < 10 else float(int(age))


def _by_number(name: str) -> tuple[int, str]:
    return (int(name), "") if name.isdecimal() else (1 << 62, name)
