"""The relay's progress: events as they are committed, and the fate of each when a position passes it."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from relay.console.backlog import Backlog, Quarantined, Waiting
from relay.console.model import Delivery, Partition, Problem, Stage, Tracked, accepted_at
from relay.console.ports import Attempt, Parts, Sources
from relay.events import EventName
from relay.outbox import Committed, Position

# Maximum number of events of one call, and of calls before the positions are read again.
_PAGE = 1000
_PAGES = 10

# Maximum number of unpublished events in memory; reading pauses at this limit.
_HELD = 100_000

# Maximum number of newly passed events that are looked up at the topic.
_SAMPLE = 200

# Maximum number of events shown as the latest ones.
_RECENT = 50

# Events that the relay has passed are remembered this long, so that one that comes again is not counted again.
_REMEMBERED = 100_000

# After a longer pause in reading, events since then count towards no rate and no latency.
_PAUSE_S = 5

_RATE_S = 10
_LATENCY_S = 60.0

# Maximum number of latencies kept; beyond it, the oldest of the minute are dropped.
_LATENCIES = 2000


class Progress:
    """The events read, in bounded memory: for most events that were passed, only a hash of the name.

    Attributes:
        backlog: Events that the relay has not passed.
        latest: The latest events, the oldest first.
        committed, published: Number of events read, and how many of them were published.
    """

    def __init__(self, sources: Sources, parts: Parts, clock: Callable[[], float]) -> None:
        self._outbox, self._topic = sources.outbox, sources.topic
        self._quarantine = Quarantined(sources.items)
        self._parts = parts
        self._clock = clock
        self.backlog = Backlog()
        self.latest: OrderedDict[EventName, Tracked] = OrderedDict()
        self.committed = self.published = 0
        self.commits, self.publications, self.latencies = Rate(), Rate(), Latencies()
        # Events that were passed and may be in quarantine.
        self._passed: list[Waiting] = []
        self._remembered: OrderedDict[int, None] = OrderedDict()
        self._positions: dict[str, Position] = {}
        self._moved_at: dict[str, float] = {}
        self._looked_at = clock()
        # Everything that was committed before this time has been read; None if that was long ago, or never so.
        self._read_up_to: float | None = None

    @property
    def held(self) -> int:
        """Number of events kept because their fate is not known yet."""
        return len(self.backlog) + len(self._passed)

    async def look(self) -> bool:
        """Read events, positions and new records of quarantine, in this order; returns whether there was any news.

        A record is stored before the position passes its event. So what a position has passed is counted when the
        records that were added since have been read, and not before.
        """
        started_at = self._clock()
        if started_at - self._looked_at >= _PAUSE_S:
            self._read_up_to = None
        before, ended = (self.committed, self.published), False
        async with self._parts.reading("outbox"):
            ended = await self._read_news()
        async with self._parts.reading("positions"):
            await self._read_positions()
        if self._passed:
            async with self._parts.reading("quarantine"):
                if await self._quarantine.read():
                    await self._count_passed()
        self._deliver(await self._deliveries(list(self.latest)))
        if ended:
            self._read_up_to = started_at
        self._looked_at = self._clock()
        return not ended or before != (self.committed, self.published)

    def limits(self) -> Iterator[Problem]:
        """The events left out because of the bounds of the memory."""
        if self.held >= _HELD:
            yield Problem("outbox", f"more than {_HELD} events wait: the others are counted when these are passed")
        if not self._quarantine.complete:
            yield Problem(
                "quarantine",
                "there are more records than are remembered: an event that was set aside long ago may be counted "
                "as published",
            )

    def partitions(self, attempts: Mapping[str, Attempt]) -> list[Partition]:
        """Each partition that the relay has a position in, or in which something waits."""
        now = self._clock()
        found = []
        for name in sorted(self._positions.keys() | self.backlog.partitions, key=_by_number):
            position = self._positions.get(name, Position(name, None, None, None))
            oldest, attempt = self.backlog.oldest(name), attempts.get(name, Attempt(1, None))
            found.append(
                Partition(
                    name,
                    position.owner,
                    position.position,
                    behind=len(self.backlog.within(name)),
                    oldest_s=0.0 if oldest is None else _age_s(oldest, now),
                    moved_at=self._moved_at.get(name),
                    retry=attempt.number if attempt.number > 1 else None,
                    error=attempt.error,
                )
            )
        return found

    async def _read_news(self) -> bool:
        """Read committed events; returns whether those were all."""
        for _ in range(_PAGES):
            if self.held >= _HELD:
                return False
            events, now = await self._outbox.news(_PAGE), self._clock()
            for event in events:
                self._add(event, now)
            if not events:
                return True
        return False

    def _add(self, event: Committed, now: float) -> None:
        name = event.partition_key, event.id
        if hash(name) in self._remembered:
            return
        committed_at = self._committed_at(event, now)
        if self.backlog.add(event, committed_at):
            self.committed += 1
            self.commits.add(committed_at)
            self.latest[name] = Tracked(event.id, Stage.COMMITTED, event)
            if len(self.latest) > _RECENT:
                self.latest.popitem(last=False)
        elif name in self.latest:
            self.latest[name] = replace(self.latest[name], event=event)

    async def _read_positions(self) -> None:
        positions = await self._outbox.positions()
        now, before = self._clock(), self._positions
        self._positions = {position.name: position for position in positions}
        for name, position in self._positions.items():
            if name in before and before[name].position != position.position:
                self._moved_at[name] = now
        self._moved_at = {name: at for name, at in self._moved_at.items() if name in self._positions}
        self._pass(now)
        # An event that waits under a name that no position has any more is where its key is now.
        gone = self.backlog.partitions - self._positions.keys() if positions else set()
        lost = [event for name in gone for event in self.backlog.within(name)]
        for event in lost:
            partition = await self._outbox.partition_of(event.name[0])
            if partition is not None and partition != event.partition:
                self.backlog.move(event, partition, event.place)
        if lost:
            self._pass(now)

    def _pass(self, now: float) -> None:
        for position in self._positions.values():
            if position.place is not None:
                for event in self.backlog.take(position.name, position.place):
                    event.passed_at = now
                    self._passed.append(event)
                    self._remembered[hash(event.name)] = None
                    if len(self._remembered) > _REMEMBERED:
                        self._remembered.popitem(last=False)

    async def _count_passed(self) -> None:
        """Count the events that were passed; quarantine has been read to its end since."""
        found = await self._deliveries([event.name for event in self._passed[-_SAMPLE:]])
        for event in self._passed:
            at = accepted_at(found.get(event.name, ()))
            if at is not None:
                event.passed_at = at
            if self._quarantine.has(event):
                self._set_aside(event)
            else:
                self._publish(event)
        self._passed.clear()

    def _publish(self, event: Waiting) -> None:
        self.published += 1
        # Events that were passed before the console looked were published some time before.
        if self._read_up_to is not None:
            self.publications.add(event.passed_at)
            self.latencies.add(event.passed_at - event.committed_at, event.passed_at)
        if (tracked := self.latest.get(event.name)) is not None:
            self.latest[event.name] = replace(tracked, stage=Stage.PUBLISHED, published_at=event.passed_at)

    def _set_aside(self, event: Waiting) -> None:
        if (tracked := self.latest.get(event.name)) is not None:
            record = self._quarantine.record(event)
            stage = Stage.QUARANTINED if record is None else record.stage
            self.latest[event.name] = replace(tracked, stage=stage, quarantined=record)

    def _deliver(self, found: Mapping[EventName, Sequence[Delivery]]) -> None:
        """Apply the topic's information about the latest events."""
        for name, deliveries in found.items():
            if (tracked := self.latest.get(name)) is not None:
                at = None if tracked.stage is Stage.COMMITTED else accepted_at(deliveries)
                self.latest[name] = replace(
                    tracked,
                    deliveries=tuple(deliveries),
                    published_at=tracked.published_at if at is None else at,
                )

    async def _deliveries(self, names: Sequence[EventName]) -> Mapping[EventName, Sequence[Delivery]]:
        """The topic's information about these events' messages."""
        keys: dict[str, list[str]] = {}
        for partition_key, identifier in names:
            keys.setdefault(partition_key, []).append(identifier)
        found: dict[EventName, list[Delivery]] = {}
        async with self._parts.reading("deliveries"):
            for partition_key, ids in keys.items():
                for delivery in await self._topic.deliveries(partition_key, ids):
                    found.setdefault((partition_key, delivery.message_id), []).append(delivery)
        return found

    def _committed_at(self, event: Committed, now: float) -> float:
        """When it was committed, as close as can be said.

        A clock of whole seconds leaves a second. What was not there when all had been read was committed later;
        and within what is left, the writer's own clock is believed.
        """
        stored = event.committed_at
        if not float(stored).is_integer():
            return min(stored, now)
        latest = min(stored + 1, now)
        earliest = min(max(stored, self._read_up_to or stored), latest)
        made = _moment(event.created_at)
        if made is not None and earliest <= made <= latest:
            return made
        return earliest if self._read_up_to is None else (earliest + latest) / 2


class Rate:
    """Number of events a second over the last ten seconds."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, at: float) -> None:
        self._counts[math.floor(at)] += 1

    def per_second(self, now: float) -> float:
        for second in [each for each in self._counts if each <= now - _RATE_S]:
            del self._counts[second]
        return round(self._counts.total() / _RATE_S, 1)


class Latencies:
    """Percentiles of the latencies of the last minute, in milliseconds."""

    def __init__(self) -> None:
        self._kept: deque[tuple[float, float]] = deque(maxlen=_LATENCIES)

    def add(self, latency_s: float, now: float) -> None:
        self._kept.append((now, max(0.0, latency_s)))

    def percentiles(self, now: float) -> tuple[float | None, float | None]:
        """p50 and p99; None if there is none."""
        while self._kept and self._kept[0][0] < now - _LATENCY_S:
            self._kept.popleft()
        ordered = sorted(latency for _, latency in self._kept)
        if not ordered:
            return None, None
        return _nearest(ordered, 0.50), _nearest(ordered, 0.99)


def _nearest(ordered: list[float], share: float) -> float:
    return round(1000 * ordered[max(0, math.ceil(share * len(ordered)) - 1)], 1)


def _moment(text: str | None) -> float | None:
    """Seconds since 1970 of a time in ISO 8601 with a zone; None for anything else."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return None if moment.tzinfo is None else moment.timestamp()


def _age_s(since: float, now: float) -> float:
    """An age in seconds: tenths up to ten seconds, then whole ones, so that a page changes once a second."""
    age = max(0.0, now - since)
    return round(age, 1) if age < 10 else float(int(age))


def _by_number(name: str) -> tuple[int, str]:
    return (int(name), "") if name.isdecimal() else (1 << 62, name)
