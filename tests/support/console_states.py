"""Every state that the console's page has, with names as long as they may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from outbox_relay.operator.console.freshness import FIGURES, Part
from outbox_relay.operator.console.model import (
    Arrival,
    DeadLetter,
    DeadLetterGroup,
    Flow,
    Known,
    MessageContent,
    Partition,
    Problem,
    QuarantineGroup,
    Snapshot,
    Stage,
    Subscription,
    Timeline,
)
from outbox_relay.operator.entity_status import set_active
from relay.backends.findings import Finding
from relay.config.settings import Settings
from relay.core.remedy import set_aside
from tests.support.console_view import NOON, busy, committed, current, delivered, record, tracked

LONG = "x" * 120
LONG_KEY = f"contact-{LONG}"
LONG_KEY_COMMAND = set_aside(LONG_KEY, f"event-{LONG}")
_REFUSED = (
    "PublishError: 1 event(s) of 1 partition key(s) were not accepted by Service Bus; 0 event(s) of this "
    f"invocation were. The retry policy sends the rest again.\n  {LONG_KEY!r}: 1 event(s): the message exceeds "
    f"what the topic takes\n  The event 'event-{LONG}' alone holds up {LONG_KEY!r} while others go through. "
    f"To set it aside: {LONG_KEY_COMMAND}"
)
_WITHHELD = f"The reader's MaxDepth of 64 has been exceeded. Path '[0].data{'.a' * 62}', line 1, position 1000."


def _of_topic(name: str) -> Settings:
    names = {
        "COSMOS__accountEndpoint": "https://a.documents.azure.com:443/",
        "SERVICEBUS__fullyQualifiedNamespace": "sbns-relay.servicebus.windows.net",
    }
    settings = Settings.from_environment(names)
    return replace(settings, servicebus=replace(settings.servicebus, entity=name))


def _partition(**changes: Any) -> Partition:
    return replace(
        Partition("0", f"instance-{LONG}", "01JJJJJJJJJJJJJJJJJJJJJJJJ", 12_345, 4000.0, NOON - 400), **changes
    )


def _stale(snapshot: Snapshot) -> Mapping[str, Known]:
    gone = [figure for figure, part in FIGURES.items() if part in (Part.OUTBOX, Part.RELAY, Part.RECENT)]
    return {**snapshot.known, **dict.fromkeys(gone, Known(NOON - 10))}


def states() -> Mapping[str, Snapshot]:
    """Each state by its name, as a change of a relay at work."""
    calm = busy()
    flow = replace(calm.flow, waiting=12_345, lag_s=4000.0)
    records = [record(number, LONG_KEY, document_id=LONG, detail=f"{LONG} {LONG}") for number in range(3)]
    content = MessageContent(f'{{"{LONG}": "{LONG}"}}', LONG * 40)
    letter = DeadLetter(LONG, LONG_KEY, LONG, "MaxDeliveryCountExceeded", f"{LONG} failed", NOON, content)
    events = [committed(number, LONG_KEY, action=LONG, sequence=10**15 + number) for number in range(1, 9)]
    gone = Problem("outbox", f"the container '{LONG}' cannot be read: ServiceRequestError: {LONG} Check COSMOS.")
    lock = Finding.error(
        f"COSMOS_LEASE_CONTAINER 'leases' has the lock '{LONG}.lock', 75 s old: its host was killed",
        "Delete that document, then set time to live to on without a default (defaultTtl: -1).",
    )
    return {
        "at work": calm,
        "unread": Snapshot(0, NOON, Flow(NOON)),
        "nothing at all": Snapshot(
            2, NOON, Flow(NOON, 0, 0, 0, 0, 0, 0.0, 0.0, None, None, 0.0), known=current(NOON)
        ),
        "the source is down": replace(calm, known=_stale(calm), problems=[gone]),
        "everything is unread": replace(calm, known=dict.fromkeys(FIGURES, Known(NOON - 7200))),
        "late": replace(calm, flow=flow, partitions=[_partition()]),
        "deleted soon": replace(calm, flow=replace(flow, headroom_s=1800.0)),
        "a blocked key": replace(calm, flow=flow, partitions=[_partition(retry=7, error=_REFUSED)]),
        "a page withheld": replace(calm, flow=flow, partitions=[_partition(owner=None, withheld=_WITHHELD)]),
        "nobody reads": replace(calm, flow=flow, partitions=[_partition(name=LONG, owner=None, position=None)]),
        "a stale lock": replace(calm, obstacles=[lock]),
        "a topic disabled": replace(
            calm, obstacles=[Finding.error(f"the topic '{LONG}' is Disabled", set_active(_of_topic(LONG)))]
        ),
        "long names": replace(
            calm,
            partitions=[_partition(name=LONG)],
            subscriptions=[Subscription("s" * 50, 1_000_000, 1_000_000, 123_456_789)],
            quarantine=[QuarantineGroup("partition-key-not-string", 1_000_000, records)],
            dead_letters=[DeadLetterGroup("s" * 50, LONG, 1_000_000, [letter])],
            recent=[tracked(each, Stage.QUARANTINED, id=LONG) for each in events],
            parked_keys=[f"{LONG_KEY}{number}" for number in range(20)],
        ),
    }


def long_timeline() -> Timeline:
    """A key with all that a timeline may have, and long names."""
    events = [committed(number, LONG_KEY, action=LONG, id=f"{LONG}{number}") for number in (1, 2, 5, 6)]
    dead = replace(
        delivered(events[1], "s" * 50), arrival=Arrival.DEAD_LETTERED, at=NOON, deliveries=10, reason=LONG
    )
    waiting = replace(delivered(events[3], "billing"), arrival=Arrival.WAITING, at=None)
    parked = record(5, LONG_KEY, reason="key-parked", detail=LONG)
    return Timeline(
        LONG_KEY,
        [
            tracked(events[0], deliveries=[delivered(events[0])], data=f'{{"name":\n\t"{LONG}"}}'),
            tracked(events[1], deliveries=[delivered(events[1]), dead]),
            tracked(events[2], Stage.PARKED, missing_before=2, quarantined=parked),
            tracked(events[3], Stage.COMMITTED, deliveries=[waiting]),
        ],
        more=True,
        parked_since="2026-02-09T11:00:00+00:00",
        partition=LONG,
        problems=[Problem("topic", f"the topic '{LONG}' cannot be read. Check SERVICEBUS.")],
    )
