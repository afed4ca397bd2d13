"""Puts together what is known of a partition key: events, quarantine, deliveries and positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from relay.console.model import Delivery, Problem, QuarantineRecord, Stage, Timeline, Tracked
from relay.console.quarantined import record_of
from relay.events import Reason
from relay.outbox import Committed, Position
from relay.place import PlaceInFeed
from relay.quarantine.items import RecordSummary


@dataclass(frozen=True, slots=True)
class Known:
    """What was read of a key.

    Attributes:
        partition_key: The key.
        committed: Its last events, in the order of the feed.
        more: Whether the outbox has older ones.
        positions: The relay's positions by name, read after the events.
        records: Its quarantine records, read after the positions.
        judged: Whether these are all of them: without them, nothing is said to be published.
        deliveries: What the topic knows of its messages.
        published_at: When the relay was seen to pass an event, by id.
        data: The events' data as JSON text, by id.
        parked_since: Since when it is parked.
        partition: The name of its position, where it has no event.
        problems: What could not be read.
    """

    partition_key: str
    committed: Sequence[Committed] = ()
    more: bool = False
    positions: Mapping[str, Position] = field(default_factory=dict)
    records: Sequence[RecordSummary] = ()
    judged: bool = True
    deliveries: Sequence[Delivery] = ()
    published_at: Mapping[str, float] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)
    parked_since: str | None = None
    partition: str | None = None
    problems: Sequence[Problem] = ()


def timeline(known: Known, limit: int) -> Timeline:
    """The last events of a key, at most `limit`, the oldest first.

    An event that is gone from the outbox stands where its quarantine record says that it was committed; where the
    record does not say so, and for a message, before the first event that was committed later.
    """
    deliveries: dict[str, list[Delivery]] = {}
    for delivery in known.deliveries:
        deliveries.setdefault(delivery.message_id, []).append(delivery)
    records = _by_event(known)
    events = [_tracked(event, known, records.get(event.id), deliveries) for event in known.committed]
    more = known.more
    for gone in _gone(known, records, deliveries):
        index = _index(events, gone)
        # Before the first of many, it is one of the older ones.
        if index or not known.more:
            events.insert(index, gone.tracked)
        else:
            more = True
    more = more or len(events) > limit
    last = events[-1].event if events else None
    return Timeline(
        known.partition_key,
        tuple(_with_gaps(events)[-limit:]),
        more,
        known.parked_since,
        known.partition if last is None else last.partition,
        tuple(known.problems),
    )


@dataclass(frozen=True, slots=True)
class _Gone:
    """An event that the outbox does not have: its place, or about when it was there."""

    tracked: Tracked
    place: PlaceInFeed | None
    at: float | None


def _by_event(known: Known) -> dict[str, RecordSummary]:
    """The records by the id of their event. One in parts has no id, but a place."""
    places = {event.place: event.id for event in known.committed}
    found = {}
    for record in known.records:
        identifier = record.document_id
        if identifier is None and record.committed is not None:
            identifier = places.get(record.committed)
        # The latest record counts: an event that was released may be refused again.
        found[identifier or record.id] = record
    return found


def _tracked(
    event: Committed, known: Known, record: RecordSummary | None, deliveries: Mapping[str, Sequence[Delivery]]
) -> Tracked:
    arrived = tuple(deliveries.get(event.id, ()))
    position = known.positions.get(event.partition)
    passed = position is not None and position.place is not None and event.place <= position.place
    if record is not None:
        stage = _stage_of(record_of(record))
    else:
        stage = Stage.PUBLISHED if (passed and known.judged) or arrived else Stage.COMMITTED
    return Tracked(
        event.id,
        stage,
        event,
        published_at=_accepted_at(arrived)
        or (known.published_at.get(event.id) if stage is Stage.PUBLISHED else None),
        quarantined=None if record is None else record_of(record),
        deliveries=arrived,
        data=known.data.get(event.id),
    )


def _gone(
    known: Known, records: Mapping[str, RecordSummary], deliveries: Mapping[str, Sequence[Delivery]]
) -> list[_Gone]:
    there = {event.id for event in known.committed}
    found = []
    for identifier, record in records.items():
        if identifier not in there:
            arrived = tuple(deliveries.get(identifier, ()))
            shown = record_of(record)
            tracked = Tracked(identifier, _stage_of(shown), None, quarantined=shown, deliveries=arrived)
            at = datetime.fromisoformat(record.quarantined_at).timestamp()
            found.append(_Gone(tracked, record.committed, at))
    for identifier, several in deliveries.items():
        if identifier not in there and identifier not in records:
            accepted_at = _accepted_at(several)
            tracked = Tracked(
                identifier, Stage.PUBLISHED, None, published_at=accepted_at, deliveries=tuple(several)
            )
            found.append(_Gone(tracked, None, accepted_at))
    return sorted(found, key=lambda gone: gone.at or 0.0)


def _index(events: Sequence[Tracked], gone: _Gone) -> int:
    """Where it stands: behind everything that was committed before it."""
    for index, each in enumerate(events):
        if each.event is None:
            continue
        if gone.place is not None and type(gone.place[0]) is type(each.event.place[0]):
            if each.event.place > gone.place:
                return index
        elif gone.at is None or each.event.committed_at > gone.at:
            return index
    return len(events)


def _with_gaps(events: Sequence[Tracked]) -> list[Tracked]:
    """The events with `missing_before`; an event of an unknown number fills a gap."""
    found = []
    last, unknown = None, 0
    for each in events:
        sequence = None if each.event is None else each.event.sequence
        if sequence is None:
            unknown += 1
            found.append(each)
            continue
        missing = 0 if last is None else max(0, sequence - last - 1 - unknown)
        found.append(replace(each, missing_before=missing))
        last, unknown = sequence if last is None else max(last, sequence), 0
    return found


def _accepted_at(deliveries: Sequence[Delivery]) -> float | None:
    return min((each.accepted_at for each in deliveries if each.accepted_at is not None), default=None)


def _stage_of(record: QuarantineRecord) -> Stage:
    return Stage.PARKED if record.reason == Reason.KEY_PARKED else Stage.QUARANTINED
