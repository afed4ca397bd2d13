"""A View in memory, and a state of a relay to show: what a test sets is what the page gets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from outbox_relay.operator.console.freshness import FIGURES
from outbox_relay.operator.console.history import History
from outbox_relay.operator.console.model import (
    Arrival,
    DeadLetter,
    DeadLetterGroup,
    Delivery,
    Flow,
    Known,
    MessageContent,
    Partition,
    QuarantineGroup,
    QuarantineRecord,
    Removal,
    RemovedRecord,
    Snapshot,
    Stage,
    Subscription,
    Timeline,
    Tracked,
)
from outbox_relay.operator.outcomes import Outcome
from relay.backends.findings import Finding, Level
from relay.backends.outbox import Committed
from relay.core.errors import ServiceError

# 2026-02-09 11:30:00 UTC
NOON = 1_770_636_600.0
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


class InMemoryView:
    """The values that a test sets, as a View."""

    def __init__(self, snapshot: Snapshot, timelines: Sequence[Timeline] = ()) -> None:
        self._snapshot = snapshot
        self.timelines = {each.partition_key: each for each in timelines}
        self.fails = False
        self._news = asyncio.Condition()

    @property
    def latest(self) -> Snapshot:
        return self._snapshot

    async def changed(self, number: int, /) -> Snapshot:
        async with self._news:
            await self._news.wait_for(lambda: self._snapshot.number > number)
            return self._snapshot

    async def current(self, timeout_s: float, /) -> Snapshot:
        return self._snapshot

    @contextmanager
    def follow(self, partition_key: str, /) -> Iterator[Callable[[], int]]:
        yield lambda: self._snapshot.number

    async def timeline(self, partition_key: str, limit: int, /, *, data: bool) -> Timeline:
        if self.fails:
            raise ServiceError("the outbox cannot be read: it is away")
        found = self.timelines.get(partition_key, Timeline(partition_key, ()))
        shown = [each if data else replace(each, data=None) for each in found.events[-limit:]]
        return replace(found, events=shown, more=found.more or len(found.events) > limit)

    async def set(self, **changes: Any) -> None:
        """Change the snapshot."""
        async with self._news:
            self._snapshot = replace(self._snapshot, number=self._snapshot.number + 1, **changes)
            self._news.notify_all()

    async def show(self, snapshot: Snapshot) -> None:
        """Another snapshot."""
        async with self._news:
            self._snapshot = replace(snapshot, number=self._snapshot.number + 1 if snapshot.number else 0)
            self._news.notify_all()

    async def count(self, **changes: Any) -> None:
        """Change the flow of the snapshot."""
        await self.set(flow=replace(self._snapshot.flow, **changes))


def current(at: float) -> dict[str, Known]:
    """Every figure, known at this time."""
    return dict.fromkeys(FIGURES, Known(at, stale=False))


def committed(number: int, key: str = "contact-1", **changes: Any) -> Committed:
    """An event of this sequence number, committed that many seconds after eleven thirty."""
    made = Committed(
        id=f"8f14e45f-ceea-467f-a0e6-{number:012}",
        partition_key=key,
        action=("ContactAdded", "ContactRenamed", "ContactMoved", "EmailVerified")[(number - 1) % 4],
        committed_at=NOON + number,
        created_at=None,
        sequence=number,
        traceparent=f"00-{TRACE}-00f067aa0ba902b7-01",
        partition="0",
        place=(100 + number, 0),
    )
    return replace(made, **changes)


def delivered(event: Committed, subscription: str = "all", **changes: Any) -> Delivery:
    """Its message, delivered by this subscription 60 ms after the commit."""
    made = Delivery(
        event.id, subscription, Arrival.DELIVERED, event.committed_at + 0.036, event.committed_at + 0.06, 1
    )
    return replace(made, **changes)


def tracked(event: Committed, stage: Stage = Stage.PUBLISHED, **changes: Any) -> Tracked:
    """An event at this stage, accepted after 36 ms if it is published."""
    at = event.committed_at + 0.036 if stage is Stage.PUBLISHED else None
    return replace(Tracked(event.id, stage, event, at), **changes)


def record(number: int, key: str = "contact-7", **changes: Any) -> QuarantineRecord:
    """A record in quarantine."""
    made = QuarantineRecord(
        id=f"3f1c0a92b7d4{number:028}",
        partition_key=key,
        document_id=f"8f14e45f-ceea-467f-a0e6-{number:012}",
        reason="message-too-large",
        detail="The message has 312 000 bytes, and the namespace takes 256 KB: use Premium, or a smaller event.",
        quarantined_at="2026-02-09T11:20:07.250000+00:00",
    )
    return replace(made, **changes)


def removed(number: int, outcome: Outcome, key: str = "contact-7", why: str = "") -> RemovedRecord:
    """A record that an operator has removed from quarantine."""
    gone = record(number, key)
    removal = Removal(outcome, f"2026-02-09T11:2{number}:07.250000+00:00", gone.reason, "jo", why)
    return RemovedRecord(gone.id, key, gone.document_id, removal)


def last_hour(until: float) -> History:
    """An hour in which nothing was observed for a while."""
    slots = range(360)
    away = range(120, 165)
    return History(
        until - 3600,
        published_s=[None if slot in (*away, 165) else 18.0 + slot * 7919 % 13 for slot in slots],
        lag_s=[None if slot in away else 41.0 if slot == 90 else 0.4 + slot % 5 / 10 for slot in slots],
        quarantined=[None if slot in away else float(slot // 95) for slot in slots],
        dead_lettered=[None if slot in away else float(slot > 200) for slot in slots],
    )


def busy() -> Snapshot:
    """A relay at work, with a little of everything that can go wrong."""
    recent = []
    for number in range(50, 0, -1):
        event = committed(number, f"contact-{number * 37 % 400}", committed_at=NOON + 20 - (50 - number) * 0.04)
        arrived = [delivered(event), delivered(event, "billing")]
        if number > 48:
            recent.append(tracked(event, Stage.COMMITTED))
        elif number > 44:
            recent.append(tracked(event))
        elif number == 38:
            recent.append(tracked(event, Stage.QUARANTINED))
        elif number == 31:
            dead = replace(arrived[1], arrival=Arrival.DEAD_LETTERED, reason="MaxDeliveryCountExceeded")
            recent.append(tracked(event, deliveries=[arrived[0], dead]))
        else:
            recent.append(tracked(event, deliveries=arrived))
    return Snapshot(
        number=1,
        at=NOON + 20,
        flow=Flow(
            since=NOON - 5400,
            committed=48_213,
            published=48_207,
            waiting=2,
            quarantined=4,
            parked=1,
            committed_s=24.8,
            published_s=24.6,
            latency_p50_ms=34,
            latency_p99_ms=212,
            lag_s=0.09,
            headroom_s=863_990,
        ),
        partitions=[
            Partition("0", "instance-7c41", "48213", 1, 0.09, NOON + 19.9),
            Partition("1", "instance-7c41", "47990", 1, 0.05, NOON + 19.9),
            Partition("2", "instance-9d02", "48102", 0, 0, NOON + 19.2),
            Partition("3", "instance-9d02", "47761", 0, 0, NOON + 18.7),
        ],
        subscriptions=[
            Subscription("all", 3, 0, 48_204),
            Subscription("billing", 12, 1, 11_907),
            Subscription("search", 0, 0, 48_207),
        ],
        quarantine=[
            QuarantineGroup("message-too-large", 3, [record(1), record(2), record(3, "contact-12")]),
            QuarantineGroup(
                "message-refused",
                1,
                [record(4, "contact-99", reason="message-refused", detail="Service Bus: amqp:invalid-field")],
            ),
        ],
        dead_letters=[
            DeadLetterGroup(
                "billing",
                "MaxDeliveryCountExceeded",
                1,
                [
                    DeadLetter(
                        "8f14e45f-ceea-467f-a0e6-000000000031",
                        "contact-347",
                        "ContactMoved",
                        "MaxDeliveryCountExceeded",
                        "Message could not be consumed after 10 delivery attempts.",
                        NOON + 19.3,
                        MessageContent(
                            '{"applicationProperties": {"sequence": 31}}',
                            '{"street": "12 Elm Street"}',
                        ),
                    )
                ],
            )
        ],
        recent=recent,
        known=current(NOON + 20),
        history=last_hour(NOON + 20),
        removals=[
            removed(4, Outcome.DISCARDED, "contact-12", why="a test order"),
            removed(3, Outcome.RELEASED, "contact-7"),
        ],
        parked_keys=["contact-99"],
    )


def history(key: str = "contact-1") -> Timeline:
    """A key to which everything has happened."""
    events = [committed(number, key, committed_at=NOON - 900 + number * 61.25) for number in (1, 2, 5, 6, 7, 8)]
    first, second, fifth, sixth, seventh, eighth = events
    dead = replace(
        delivered(sixth, "billing"),
        arrival=Arrival.DEAD_LETTERED,
        at=sixth.committed_at + 41,
        deliveries=10,
        reason="MaxDeliveryCountExceeded",
    )
    waiting = replace(delivered(seventh, "billing"), arrival=Arrival.WAITING, at=None, deliveries=None)
    return Timeline(
        key,
        [
            tracked(first, deliveries=[delivered(first), delivered(first, "billing")], data='{"name":"Jane"}'),
            tracked(second, deliveries=[delivered(second), delivered(second, "billing")]),
            tracked(
                fifth,
                Stage.QUARANTINED,
                missing_before=2,
                quarantined=record(5, key, detail="The message has 312 000 bytes, and the namespace takes 256 KB"),
            ),
            tracked(sixth, deliveries=[delivered(sixth), dead]),
            tracked(seventh, deliveries=[delivered(seventh), waiting]),
            tracked(eighth, Stage.COMMITTED),
        ],
        partition="0",
    )


FINDINGS = [
    Finding(Level.OK, "the settings are complete and well-formed"),
    Finding(
        Level.WARNING,
        "subscription billing: messages expire after 1:00:00, less than 1 day, 0:00:00",
        "raise defaultMessageTimeToLive to P14D",
    ),
    Finding(Level.OK, "topic domain-events drops duplicates within 1 day"),
    Finding(Level.OK, "container data: partition key /partitionKey"),
]
