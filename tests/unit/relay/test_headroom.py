from __future__ import annotations

from typing import Any

import pytest

from relay.cosmos.source import event_of
from relay.events import Event, Reason, Rejected
from relay.telemetry.gauges import Batch, Headroom


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def document(identifier: str, committed: Any = 1000, ttl: Any = 600) -> dict[str, Any]:
    fields = {"_ts": committed, "ttl": ttl}
    return {"id": identifier, "partitionKey": "a", "type": "t", "data": {"action": "A"}, **fields}


def event(document: dict[str, Any]) -> Event:
    made = event_of(document)
    assert isinstance(made, Event)
    return made


def rejected(document: dict[str, Any]) -> Rejected:
    return Rejected.of(event(document), Reason.MESSAGE_REFUSED, "")


def batch(*documents: dict[str, Any], accepted: tuple[str, ...] = ()) -> Batch:
    return Batch([event(each) for each in documents], [], lambda event: event.id in accepted)


@pytest.mark.parametrize(
    ("committed", "ttl", "expected"),
    [
        (1000, 600, 1600),
        (1000, 1, 1001),
        (1000, 0, None),
        (1000, -1, None),
        (1000, None, None),
        (None, 600, None),
        (1000, True, None),
        ("1", 5, None),
    ],
)
def test_only_an_own_time_to_live_above_zero_expires(committed: Any, ttl: Any, expected: int | None) -> None:
    assert event(document("1", committed, ttl)).expires_at == expected


def test_the_least_of_all_batches_in_flight_is_reported_and_falls_as_time_passes() -> None:
    clock = Clock(1100)
    headroom = Headroom(clock, Clock(0))
    headroom.begin(batch(document("1"), document("2", ttl=300)))
    headroom.begin(batch(document("3", ttl=200)))

    first, clock.now = headroom.least(), 1250

    assert (first, headroom.least()) == (100, -50)


def test_nothing_in_flight_has_no_headroom() -> None:
    headroom = Headroom(Clock(1100), Clock(0))
    delivered = batch(document("1"))
    headroom.begin(delivered)
    headroom.end(delivered, delivered=True)
    headroom.begin(batch())

    assert headroom.least() is None


def test_a_failed_batch_counts_until_its_next_attempt_is_delivered() -> None:
    headroom = Headroom(Clock(1100), Clock(0))
    first, second = batch(document("1"), document("2")), batch(document("1"), document("2"))
    headroom.begin(first)
    headroom.end(first, delivered=False)
    between = headroom.least()
    headroom.begin(second)
    during = headroom.least()
    headroom.end(second, delivered=True)

    assert (between, during, headroom.least()) == (500, 500, None)


def test_a_failed_batch_that_never_comes_again_is_forgotten() -> None:
    monotonic = Clock(0)
    headroom = Headroom(Clock(1100), monotonic)
    failed = batch(document("1"))
    headroom.begin(failed)
    headroom.end(failed, delivered=False)

    reported = []
    # Its next attempt comes within a minute.
    for monotonic.now in (0, 299.5, 300):
        reported.append(headroom.least())

    assert reported == [500, 500, None]


@pytest.mark.parametrize("invalid", [False, True])
def test_a_failed_batch_that_comes_again_with_more_behind_it_is_one(invalid: bool) -> None:
    headroom = Headroom(Clock(1100), Clock(0))
    documents = [document("1"), document("2"), document("3")]
    first, second = (
        Batch([], [rejected(each) for each in taken], lambda event: False) if invalid else batch(*taken)
        for taken in (documents[:2], documents)
    )
    headroom.begin(first)
    headroom.end(first, delivered=False)
    headroom.begin(second)
    headroom.end(second, delivered=True)

    assert headroom.least() is None


def test_what_was_accepted_meanwhile_has_no_part_but_what_is_rejected_has() -> None:
    headroom = Headroom(Clock(1100), Clock(0))
    headroom.begin(batch(document("1", ttl=200), document("2"), accepted=("1",)))
    events_alone = headroom.least()
    headroom.begin(Batch([], [rejected(document("x", ttl=150))], lambda event: True))

    assert (events_alone, headroom.least()) == (500, 50)
