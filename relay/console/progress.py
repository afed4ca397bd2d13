"""How far the relay is: events as they are committed, and what becomes of each when a position passes it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from relay.console.backlog import Backlog, Waiting
from relay.console.model import Delivery, Partition, QuarantineRecord, Stage, Tracked
from relay.console.ports import Attempt
from relay.console.quarantined import Quarantined
from relay.console.tally import Latencies, Rate
from relay.events import EventName, Reason
from relay.outbox import Committed, Position
from relay.place import PlaceInFeed

RECENT = 50

# Maximum number of newly passed events that are looked up at the topic.
_SAMPLE = 200

# Events that the relay has passed are remembered this long, so that one that comes again is not counted again.
_REMEMBERED = 100_000


@dataclass(slots=True)
class _Latest:
    """One of the latest events: how far it is."""

    event: Committed
    stage: Stage = Stage.COMMITTED
    published_at: float | None = None
    quarantined: QuarantineRecord | None = None
    deliveries: tuple[Delivery, ...] = ()


class Progress:
    """What was read, in bounded memory: no more of an event than its place, once it is among neither those that
    wait nor the latest.

    Attributes:
        committed, published, quarantined: Events that were read, and what became of them.
        following: Whether all news were read a moment ago, so that what comes now is new.
    """

    def __init__(self, quarantine: Quarantined, clock: Callable[[], float]) -> None:
        self._quarantine = quarantine
        self._clock = clock
        self.backlog = Backlog()
        self.committed = self.published = self.quarantined = 0
        self.commits, self.publications, self.latencies = Rate(), Rate(), Latencies()
        self.following = False
        self._read_up_to = 0.0
        self._passed: list[Waiting] = []
        self._remembered: OrderedDict[int, None] = OrderedDict()
        self._latest: OrderedDict[EventName, _Latest] = OrderedDict()
        self._positions: dict[str, Position] = {}
        self._moved_at: dict[str, float] = {}

    @property
    def held(self) -> int:
        """How many events are kept because it is not known yet what becomes of them."""
        return len(self.backlog) + len(self._passed)

    def begin(self, paused_s: float) -> None:
        """Ignore rates and latencies across a pause in reading."""
        self.following = self.following and paused_s < 5

    def caught_up(self, started_at: float) -> None:
        """All that was committed before `started_at` has been read."""
        self._read_up_to = started_at
        self.following = True

    def add(self, events: Sequence[Committed]) -> None:
        """Take over events that were read."""
        now = self._clock()
        for event in events:
            name = event.partition_key, event.id
            if hash(name) in self._remembered:
                continue
            committed_at = self._committed_at(event, now)
            new = self.backlog.add(event, committed_at)
            latest = self._latest.get(name)
            if latest is not None:
                latest.event = event
            if not new:
                continue
            self.committed += 1
            self.commits.add(committed_at, now)
            self._latest[name] = _Latest(event)
            if len(self._latest) > RECENT:
                self._latest.popitem(last=False)

    def move(self, positions: Sequence[Position]) -> None:
        """Take over the relay's positions."""
        now = self._clock()
        for position in positions:
            before = self._positions.get(position.name)
            if before is not None and before.position != position.position:
                self._moved_at[position.name] = now
            if position.place is not None:
                self._pass(position.name, position.place, now)
        self._positions = {position.name: position for position in positions}
        self._moved_at = {name: at for name, at in self._moved_at.items() if name in self._positions}

    def lost(self) -> list[Waiting]:
        """What waits under a name that no position has any more, where there are positions."""
        if not self._positions:
            return []
        gone = self.backlog.partitions - self._positions.keys()
        return [event for name in gone for event in self.backlog.within(name)]

    @property
    def unjudged(self) -> bool:
        """Whether events were passed, of which it is not known yet whether they are in quarantine."""
        return bool(self._passed)

    def sample(self) -> list[EventName]:
        """Some of the events that were passed, the last ones, for the topic to say when it accepted them."""
        return [event.name for event in self._passed[-_SAMPLE:]]

    def judge(self, accepted_at: Mapping[EventName, float]) -> None:
        """Count what was passed; quarantine has been read to its end since.

        Args:
            accepted_at: When the topic accepted an event, as far as it says so.
        """
        for event in self._passed:
            event.passed_at = accepted_at.get(event.name, event.passed_at)
            in_quarantine = self._quarantine.has(event)
            latest = self._latest.get(event.name)
            if in_quarantine:
                self.quarantined += 1
            else:
                self.published += 1
                self._publish(event)
            self._remember(event.name)
            if latest is not None:
                self._settle(latest, event, in_quarantine)
        self._passed.clear()

    def delivered(self, found: Mapping[EventName, Sequence[Delivery]]) -> None:
        """Take over what the topic says of the latest events."""
        for name, latest in self._latest.items():
            deliveries = tuple(found.get(name, ()))
            if deliveries:
                latest.deliveries = deliveries
                accepted = [each.accepted_at for each in deliveries if each.accepted_at is not None]
                if accepted and latest.stage is not Stage.COMMITTED:
                    latest.published_at = min(accepted)

    def names(self) -> list[EventName]:
        """The names of the latest events."""
        return list(self._latest)

    def recent(self) -> list[Tracked]:
        """The latest events, the newest first."""
        return [
            Tracked(
                each.event.id,
                each.stage,
                each.event,
                published_at=each.published_at,
                quarantined=each.quarantined,
                deliveries=each.deliveries,
            )
            for each in reversed(self._latest.values())
        ]

    def partitions(self, attempts: Mapping[str, Attempt]) -> list[Partition]:
        """Each partition that the relay has a position in, or in which something waits."""
        now = self._clock()
        names = sorted(self._positions.keys() | self.backlog.partitions, key=_by_number)
        found = []
        for name in names:
            position = self._positions.get(name, Position(name, None, None, None))
            oldest, attempt = self.backlog.oldest(name), attempts.get(name)
            found.append(
                Partition(
                    name,
                    position.owner,
                    position.position,
                    self.backlog.behind(name),
                    0.0 if oldest is None else age_s(oldest, now),
                    self._moved_at.get(name),
                    None if attempt is None or attempt.number < 2 else attempt.number,
                    None if attempt is None else attempt.error,
                )
            )
        return found

    def _pass(self, name: str, place: PlaceInFeed, now: float) -> None:
        for event in self.backlog.passed(name, place):
            event.passed_at = now
            self._passed.append(event)

    def _publish(self, event: Waiting) -> None:
        # What was passed before the console looked was published some time before.
        if self.following:
            self.publications.add(event.passed_at, event.passed_at)
            self.latencies.add(event.passed_at - event.committed_at, event.passed_at)

    def _settle(self, latest: _Latest, event: Waiting, in_quarantine: bool) -> None:
        if not in_quarantine:
            latest.stage, latest.published_at = Stage.PUBLISHED, event.passed_at
            return
        latest.quarantined = record = self._quarantine.record(event)
        parked = record is not None and record.reason == Reason.KEY_PARKED
        latest.stage = Stage.PARKED if parked else Stage.QUARANTINED

    def _remember(self, name: EventName) -> None:
        self._remembered[hash(name)] = None
        if len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)

    def _committed_at(self, event: Committed, now: float) -> float:
        """When it was committed, as close as can be said.

        A clock of whole seconds leaves a second. What was not there when all had been read was committed later;
        and within what is left, the writer's own clock is believed.
        """
        stored = event.committed_at
        if not float(stored).is_integer():
            return min(stored, now)
        latest = min(stored + 1, now)
        earliest = min(max(stored, self._read_up_to) if self.following else stored, latest)
        made = _moment(event.created_at)
        if made is not None and earliest <= made <= latest:
            return made
        return (earliest + latest) / 2 if self.following else earliest


def _moment(text: str | None) -> float | None:
    """Seconds since 1970 of a time in ISO 8601 with a zone; None for anything else."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return None if moment.tzinfo is None else moment.timestamp()


def age_s(since: float, now: float) -> float:
    """An age in seconds: tenths up to ten seconds, then whole ones, so that a page changes once a second."""
    age = max(0.0, now - since)
    return round(age, 1) if age < 10 else float(int(age))


def _by_number(name: str) -> tuple[int, str]:
    return (int(name), "") if name.isdecimal() else (1 << 62, name)
