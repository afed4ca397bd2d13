"""The timeline of one partition key: read, put together, and shared by all its viewers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from outbox_relay.operator.console.history import written_moment
from outbox_relay.operator.console.model import (
    Arrival,
    Delivery,
    Problem,
    QuarantineRecord,
    Removal,
    Stage,
    Timeline,
    Tracked,
    accepted_at,
    earliest,
)
from outbox_relay.operator.console.ports import Parts, Sources, View
from outbox_relay.operator.outcomes import OUTCOME_TYPE, Removed
from relay.backends.outbox import Committed, Outbox, Position, cut_text, id_name, key_name
from relay.core.events import EventName
from relay.core.holds import PARKED_TYPE
from relay.quarantine.items import Filter, Items, RecordSummary

# Maximum number of records of a key that are read; each costs a row of a query.
_RECORDS = 10_000

# Maximum number of characters of the data of one event, and of all events of a timeline; documents read at once.
_DATA = 20_000
_DATA_OF_ALL = 2_000_000
_DOCUMENTS = 20

# Maximum clock skew between the database and the hosts, in seconds.
_SKEW_S = 60


@dataclass(frozen=True, slots=True)
class Seen:
    """The events of a key as they were seen to pass, by id.

    Attributes:
        published_at: When the relay was seen to pass an event.
        expired: Events whose time to live ended before that: the outbox does not have them any more.
    """

    published_at: Mapping[str, float] = field(default_factory=dict)
    expired: Mapping[str, Committed] = field(default_factory=dict)


@dataclass(slots=True)
class KeyData:
    """The data read of a key.

    Attributes:
        committed: Its last events, in the order of the feed; `more` if the outbox has older ones.
        positions: The relay's positions by name, read after the events.
        records: Its quarantine records, read after the positions.
        removed: The records that operators have released or discarded, read after the records.
        judged: True if these are all of them: without them, nothing is said to be published.
        seen: What was seen while its events passed.
        data: The beginning of the data of events, by id.
        partition: The name of its position, if it has no event.
    """

    partition_key: str
    committed: Sequence[Committed] = ()
    more: bool = False
    positions: Mapping[str, Position] = field(default_factory=dict)
    records: Sequence[RecordSummary] = ()
    removed: Sequence[Removed] = ()
    judged: bool = True
    deliveries: Sequence[Delivery] = ()
    seen: Seen = field(default_factory=Seen)
    data: Mapping[str, str] = field(default_factory=dict)
    parked_since: str | None = None
    partition: str | None = None
    problems: Sequence[Problem] = ()


async def read_timeline(sources: Sources, partition_key: str, limit: int, seen: Seen, *, data: bool) -> Timeline:
    """Read the last events of a key, at most `limit`, from 1; a part that cannot be read is among its problems."""
    parts, known = Parts(), KeyData(partition_key, judged=False, seen=seen)
    # The events before the positions, and these before the quarantine: a record is stored before the position
    # passes its event.
    async with parts.reading("outbox"):
        known.committed, known.more = await sources.outbox.of_key(partition_key, limit)
    async with parts.reading("positions"):
        known.positions = {each.name: each for each in await sources.outbox.positions()}
        known.partition = None if known.committed else await sources.outbox.partition_of(partition_key)
    async with parts.reading("quarantine"):
        known.records = await _records(sources.items, known)
        for marker in await sources.items.of_type(PARKED_TYPE, partition_key):
            known.parked_since = marker["since"]
        # After the records: one is removed in the transaction that stores this.
        known.removed = list(map(Removed.of, await sources.items.of_type(OUTCOME_TYPE, partition_key)))
        known.judged = len(known.records) < _RECORDS
    ids = [event.id for event in known.committed]
    async with parts.reading("topic"):
        aside = [each.document_id for each in known.records] + [each.document_id for each in known.removed]
        set_aside = list(dict.fromkeys(each for each in aside if each))
        known.deliveries = await sources.topic.deliveries(partition_key, [*ids, *set_aside, *seen.expired])
    if data:
        async with parts.reading("data"):
            known.data = await _data(sources.outbox, partition_key, ids)
    known.problems = parts.problems
    if len(known.records) >= _RECORDS:
        text = (
            f"Only the first {_RECORDS:,} quarantine records were read; some published events may be shown as not "
            "yet published."
        )
        known.problems = [*known.problems, Problem("quarantine", text)]
    return timeline(known, limit)


async def _data(outbox: Outbox, partition_key: str, ids: Sequence[str]) -> Mapping[str, str]:
    """Return the beginning of the data of these events: a few documents at a time, as each may have megabytes."""
    found: dict[str, str] = {}
    most = min(_DATA, _DATA_OF_ALL // max(1, len(ids)))
    for start in range(0, len(ids), _DOCUMENTS):
        data = await outbox.data(partition_key, ids[start : start + _DOCUMENTS])
        found |= {identifier: cut_text(text, most) for identifier, text in data.items()}
    return found


async def _records(items: Items, known: KeyData) -> list[RecordSummary]:
    since = None
    if known.more and known.committed:
        # No event of these was set aside before it was committed.
        since = datetime.fromtimestamp(known.committed[0].committed_at - _SKEW_S, UTC).isoformat()
    return await items.summaries(Filter(partition_key=known.partition_key, since=since), _RECORDS)


def timeline(known: KeyData, limit: int) -> Timeline:
    """Return the last events of a key, at most `limit`, the oldest first.

    An event that is gone from the outbox is placed where it was seen there, or by its quarantine record; where
    neither says so, and for a message, before the first event that was committed later.
    """
    deliveries: dict[str, list[Delivery]] = {}
    for delivery in known.deliveries:
        deliveries.setdefault(delivery.message_id, []).append(delivery)
    records, removed, expired = _by_event(known), _removals(known), known.seen.expired
    events = [
        _tracked(known, each.id, each, records.get(each.id), deliveries.get(each.id, ()), removed.get(each.id))
        for each in known.committed
    ]
    there, more = {each.id for each in known.committed}, known.more
    gone = [
        _tracked(known, each, expired.get(each), records.get(each), deliveries.get(each, ()), removed.get(each))
        for each in {**expired, **records, **removed, **deliveries}
        if each not in there
    ]
    for each in sorted(gone, key=lambda each: _about(each) or 0.0):
        index = _index(events, each, records.get(each.id))
        # Before the first of many, it is one of the older ones.
        if index or not known.more:
            events.insert(index, each)
        else:
            more = True
    last = events[-1].event if events else None
    return Timeline(
        known.partition_key,
        tuple(_with_gaps(events)[-limit:]),
        more or len(events) > limit,
        known.parked_since,
        known.partition if last is None else last.partition,
        tuple(known.problems),
    )


def _by_event(known: KeyData) -> dict[str, RecordSummary]:
    """Return the records by the id of their event. One in parts has no id, but a place."""
    places = {event.place: event.id for event in known.committed}
    found = {}
    for record in known.records:
        identifier = None if record.document_id is None else id_name(record.document_id)
        if identifier is None and record.committed is not None:
            identifier = places.get(record.committed)
        # The latest record counts: an event that was released may be refused again.
        found[identifier or key_name(record.id)] = record
    return found


def _removals(known: KeyData) -> dict[str, Removal]:
    """The last removal of each event's record, by the id of the event."""
    places = {event.place: event.id for event in known.committed}
    found = {}
    for each in sorted(known.removed, key=lambda each: each.at):
        identifier = None if each.document_id is None else id_name(each.document_id)
        if identifier is None and each.committed is not None:
            identifier = places.get(each.committed)
        found[identifier or key_name(each.record_id)] = Removal.of(each)
    return found


def _tracked(
    known: KeyData,
    identifier: str,
    event: Committed | None,
    record: RecordSummary | None,
    deliveries: Sequence[Delivery],
    removed: Removal | None,
) -> Tracked:
    quarantined = None if record is None else QuarantineRecord.of(record)
    if quarantined is not None:
        stage = quarantined.stage
    elif removed is not None and not deliveries:
        stage = removed.stage
    elif identifier in known.seen.expired and not deliveries:
        stage = Stage.EXPIRED
    else:
        stage = Stage.PUBLISHED if deliveries or _has_passed(known, event) else Stage.COMMITTED
    published_at = accepted_at(deliveries)
    if stage is Stage.PUBLISHED:
        published_at = earliest(published_at, known.seen.published_at.get(identifier))
    arrived, data = tuple(deliveries), known.data.get(identifier)
    return Tracked(identifier, stage, event, published_at, quarantined, arrived, removed, data=data)


def _has_passed(known: KeyData, event: Committed | None) -> bool:
    position = None if event is None else known.positions.get(event.partition)
    if event is None or position is None or position.place is None:
        return False
    return known.judged and event.place <= position.place


def _about(gone: Tracked) -> float | None:
    """Estimate when an event that the outbox does not have was committed: when it was set aside or accepted."""
    if gone.event is not None:
        return gone.event.committed_at
    if gone.quarantined is None:
        return gone.published_at if gone.removed is None else written_moment(gone.removed.at)
    return datetime.fromisoformat(gone.quarantined.quarantined_at).timestamp()


def _index(events: Sequence[Tracked], gone: Tracked, record: RecordSummary | None) -> int:
    """Return the event's place: behind everything that was committed before it."""
    at, place = _about(gone), None if record is None else record.committed
    if gone.event is not None:
        place = gone.event.place
    for index, each in enumerate(events):
        if each.event is None:
            continue
        if place is not None and type(place[0]) is type(each.event.place[0]):
            if each.event.place > place:
                return index
        elif at is None or each.event.committed_at > at:
            return index
    return len(events)


def _with_gaps(events: Sequence[Tracked]) -> list[Tracked]:
    """Return the events with `missing_before`; an event of an unknown number fills a gap."""
    found = []
    last, unknown = None, 0
    for each in events:
        sequence, missing = None if each.event is None else each.event.sequence, 0
        if sequence is None:
            unknown += 1
        elif last is None:
            last, unknown = sequence, 0
        else:
            missing = max(0, sequence - last - 1 - unknown)
            last, unknown = max(last, sequence), 0
        found.append(replace(each, missing_before=missing))
    return found


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened to an event, or is still to happen.

    Attributes:
        kind: `committed`, `accepted`, or a value of Stage or Arrival; the page has a class for each.
        at: Time; None if unknown or not reached. A quarantine record has it as text, `written_at`.
        after_s: Seconds after the step before it; None if either time is unknown.
        where: The subscription.
        why: A reason and its detail.
    """

    kind: str
    label: str
    at: float | None = None
    written_at: str | None = None
    after_s: float | None = None
    where: str | None = None
    why: str | None = None
    done: bool = True


def steps(tracked: Tracked) -> Sequence[Step]:
    """Return every step of an event that the console knows of, from its commit, and the one that it waits for."""
    found = []
    if tracked.event is not None:
        found.append(Step("committed", "Committed", tracked.event.committed_at))
    if tracked.stage in (Stage.QUARANTINED, Stage.PARKED):
        record = tracked.quarantined
        found.append(
            Step(
                tracked.stage,
                tracked.stage.capitalize(),
                written_at=record.quarantined_at if record else None,
                why=f"{record.reason}: {record.detail}" if record else None,
            )
        )
    if tracked.removed is not None:
        found.append(_removed(tracked.removed))
    if tracked.stage is Stage.EXPIRED and tracked.event is not None:
        expired = "its time to live ended before the relay was seen to pass it"
        found.append(Step(tracked.stage, "Expired", tracked.event.expires_at, why=expired))
    # The broker's own time if a subscription has it.
    accepted = accepted_at(tracked.deliveries)
    if accepted is None:
        accepted = tracked.published_at
    if tracked.stage is Stage.PUBLISHED or accepted is not None:
        why = None if tracked.not_measured is None else f"not measured: {tracked.not_measured}"
        found.append(Step("accepted", "Accepted", accepted, after_s=tracked.took_s, why=why))
    elif tracked.stage is Stage.COMMITTED and not tracked.deliveries:
        found.append(Step("accepted", "Not yet accepted", done=False))
    return [*found, *(_arrived(each, accepted) for each in tracked.deliveries)]


def _removed(removal: Removal) -> Step:
    said = f": {removal.why}" if removal.why else ""
    return Step(
        removal.outcome,
        removal.outcome.capitalize(),
        written_at=removal.at,
        why=f"by {removal.by}{said} (it was set aside as {removal.reason})",
    )


def _arrived(delivery: Delivery, accepted: float | None) -> Step:
    tries = f"{delivery.deliveries} deliveries" if delivery.deliveries and delivery.deliveries > 1 else None
    return Step(
        delivery.arrival,
        delivery.arrival.capitalize(),
        delivery.at,
        after_s=_between(accepted, delivery.at),
        where=delivery.subscription,
        why=", ".join(each for each in (delivery.reason, tries) if each) or None,
        done=delivery.arrival is not Arrival.WAITING,
    )


def _between(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else max(second - first, 0.0)


# A timeline is read from the outbox, which costs request units. What could not be read is tried again.
_PAUSE_S = 0.75
_RETRY_S = 5.0


class OpenTimeline:
    """The timeline of one key, for all its viewers."""

    def __init__(
        self,
        state: Callable[[], Hashable],
        read: Callable[[], Awaitable[Timeline]],
        render: Callable[[Timeline], str],
    ) -> None:
        """Open a timeline; the result of `state` changes whenever the timeline may have changed."""
        self.viewers = 0
        self._state = state
        self._read = read
        self._render = render
        self._turn = asyncio.Lock()
        self._shown: Hashable = None
        self._due_at = float("inf")
        self._read_at = float("-inf")
        self._html = ""

    async def html(self) -> str:
        """Return the HTML of the timeline.

        It is as read last if its key has not changed since, or within less than a second.
        """
        async with self._turn:
            now, state = time.monotonic(), self._state()
            if (state != self._shown or now >= self._due_at) and now - self._read_at >= _PAUSE_S:
                timeline = await self._read()
                self._shown, self._read_at = state, time.monotonic()
                self._due_at = self._read_at + _RETRY_S if timeline.problems else float("inf")
                self._html = self._render(timeline)
            return self._html


class Timelines:
    """The timelines that are open, by their keys."""

    def __init__(
        self, view: View, read: Callable[[str], Awaitable[Timeline]], render: Callable[[Timeline], str]
    ) -> None:
        self._view = view
        self._read = read
        self._render = render
        self._open: dict[str, OpenTimeline] = {}

    @contextmanager
    def open(self, partition_key: str) -> Iterator[OpenTimeline]:
        with self._view.follow(partition_key) as state:
            found = self._open.get(partition_key)
            if found is None:
                found = OpenTimeline(state, lambda: self._read(partition_key), self._render)
                self._open[partition_key] = found
            found.viewers += 1
            try:
                yield found
            finally:
                found.viewers -= 1
                if not found.viewers:
                    del self._open[partition_key]


@dataclass(slots=True)
class _Key:
    """A key that is followed: by how many, how often it has changed, and what its timeline has."""

    viewers: int = 0
    changes: int = 0
    ids: Sequence[str] = ()
    deliveries: frozenset[Delivery] = frozenset()


class OpenTimelines:
    """Counts the changes of the keys that are followed, so that a timeline is read again for its own alone."""

    def __init__(self) -> None:
        self._keys: dict[str, _Key] = {}

    @contextmanager
    def follow(self, partition_key: str) -> Iterator[None]:
        key = self._keys.setdefault(partition_key, _Key())
        key.viewers += 1
        try:
            yield
        finally:
            key.viewers -= 1
            if not key.viewers:
                del self._keys[partition_key]

    def changes(self, partition_key: str) -> int:
        """Return the number of changes that were seen of a key while it was followed."""
        return self._keys[partition_key].changes

    def touch(self, partition_key: str) -> None:
        """Note that something of a key has changed."""
        if (key := self._keys.get(partition_key)) is not None:
            key.changes += 1

    def show(self, timeline: Timeline) -> None:
        """Remember what the timeline of a key shows."""
        key = self._keys.get(timeline.partition_key)
        # Others may ask for fewer of its events.
        if key is not None and len(timeline.events) >= len(key.ids):
            key.ids = [each.id for each in timeline.events]
            key.deliveries = frozenset(delivery for each in timeline.events for delivery in each.deliveries)

    def names(self) -> Iterator[EventName]:
        """Yield the events in the timelines that are open."""
        for partition_key, key in self._keys.items():
            for identifier in key.ids:
                yield partition_key, identifier

    def compare(self, found: Mapping[EventName, Sequence[Delivery]]) -> None:
        """Touch the keys whose messages are not where their timelines show them."""
        for partition_key, key in self._keys.items():
            now = frozenset(each for identifier in key.ids for each in found.get((partition_key, identifier), ()))
            if now != key.deliveries:
                key.deliveries = now
                key.changes += 1
