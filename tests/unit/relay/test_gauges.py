"""The values read when metrics are collected: the time left to deliver batches, and the ages of shards."""

from __future__ import annotations

from typing import Any

import pytest

from outbox_relay.emulators.testing import ManualClock
from relay.backends.cosmos.source import event_of
from relay.core.documents import SourceDocument
from relay.core.events import Event, Reason, Rejected
from relay.telemetry import instruments
from relay.telemetry.gauges import Batch, Headroom, LeaseAges, ShardAges
from tests.support.telemetry import Telemetry


def document(identifier: str, committed: Any = 1000, ttl: Any = 600) -> dict[str, Any]:
    fields = {"_ts": committed, "ttl": ttl}
    return {"id": identifier, "partitionKey": "a", "type": "t", "data": {"action": "A"}, **fields}


def event(document: dict[str, Any]) -> Event:
    made = event_of(SourceDocument.plain(document))
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
    clock = ManualClock(1100)
    headroom = Headroom(clock, ManualClock(0))
    headroom.begin(batch(document("1"), document("2", ttl=300)))
    headroom.begin(batch(document("3", ttl=200)))

    first, clock.now = headroom.least(), 1250

    assert (first, headroom.least()) == (100, -50)


def test_nothing_in_flight_has_no_headroom() -> None:
    headroom = Headroom(ManualClock(1100), ManualClock(0))
    delivered = batch(document("1"))
    headroom.begin(delivered)
    headroom.end(delivered, delivered=True)
    headroom.begin(batch())

    assert headroom.least() is None


def test_a_failed_batch_counts_until_its_next_attempt_is_delivered() -> None:
    headroom = Headroom(ManualClock(1100), ManualClock(0))
    first, second = batch(document("1"), document("2")), batch(document("1"), document("2"))
    headroom.begin(first)
    headroom.end(first, delivered=False)
    between = headroom.least()
    headroom.begin(second)
    during = headroom.least()
    headroom.end(second, delivered=True)

    assert (between, during, headroom.least()) == (500, 500, None)


def test_a_failed_batch_that_never_comes_again_is_forgotten() -> None:
    monotonic = ManualClock(0)
    headroom = Headroom(ManualClock(1100), monotonic)
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
    headroom = Headroom(ManualClock(1100), ManualClock(0))
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
    headroom = Headroom(ManualClock(1100), ManualClock(0))
    headroom.begin(batch(document("1", ttl=200), document("2"), accepted=("1",)))
    events_alone = headroom.least()
    headroom.begin(Batch([], [rejected(document("x", ttl=150))], lambda event: True))

    assert (events_alone, headroom.least()) == (500, 50)


# The ages that are reported for the shards that this process reads


def test_a_shard_is_reported_while_it_is_read(reported: Telemetry) -> None:
    ages = ShardAges()
    instruments.observe(Headroom(), ages)
    with ages.watched(0, lambda: 0.0), ages.watched(7, lambda: 12.5):
        meanwhile = reported.metrics()

    ages_s: Any = meanwhile.by("relay.feed.age", "shard")
    assert ages_s == {0: 0.0, 7: 12.5}
    assert meanwhile.units["relay.feed.age"] == "s"
    assert reported.metrics().names == set()


def test_two_readers_of_one_shard_report_the_greater_age() -> None:
    ages = ShardAges()
    with ages.watched(1, lambda: 3.0):
        with ages.watched(1, lambda: 2.0):
            both = ages.ages_s()
        assert ages.ages_s() == both == {1: 3.0}


def test_a_reader_that_fails_is_not_reported_any_more() -> None:
    ages = ShardAges()
    with pytest.raises(RuntimeError), ages.watched(1, lambda: 3.0):
        raise RuntimeError

    assert ages.ages_s() == {}


# The ages that were seen for the leases of a Cosmos DB outbox


def test_the_leases_are_reported_as_they_were_last_seen(reported: Telemetry) -> None:
    ages = LeaseAges()
    instruments.observe_leases(ages)
    before_any_look = reported.metrics().names
    ages.seen({"0": 0.0, "1": 70.5})
    ages.seen({"0": 1.0, "1": 131.5})

    ages_s: Any = reported.metrics().by("relay.feed.age", "lease")
    assert before_any_look == set()
    assert ages_s == {"0": 1.0, "1": 131.5}


def test_ages_grow_from_the_first_look_that_fails_until_one_succeeds() -> None:
    clock = ManualClock(1000)
    ages = LeaseAges(clock)
    ages.seen({"0": 0.0, "1": 5.0})
    clock.now += 60
    before_it_failed = ages.ages_s()
    ages.missed()
    clock.now += 30
    failing = ages.ages_s()
    ages.seen({"0": 2.0})

    assert before_it_failed == {"0": 0.0, "1": 5.0}
    assert failing == {"0": 90.0, "1": 95.0}
    assert ages.ages_s() == {"0": 2.0}


def test_a_process_that_no_longer_looks_reports_nothing() -> None:
    clock = ManualClock(1000)
    ages = LeaseAges(clock)
    ages.seen({"0": 4.0})
    clock.now += 120
    ages.missed()
    clock.now += 150
    still = ages.ages_s()
    clock.now += 1

    assert still == {"0": 274.0}
    assert ages.ages_s() == {}


def test_a_look_that_never_succeeded_reports_nothing() -> None:
    ages = LeaseAges(ManualClock(0))
    ages.missed()

    assert ages.ages_s() == {}


def test_the_oldest_ten_of_many_leases_are_reported() -> None:
    ages = LeaseAges(ManualClock(0))
    ages.seen({str(number): float(number) for number in range(300)})

    assert ages.ages_s() == {str(number): float(number) for number in range(290, 300)}
