"""Old events are compared with the lease before they are sent, young ones are not."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from relay.errors import LostOwnershipError, StaleClearanceError
from relay.events import Event, Received, Rejected
from relay.fence import Clearance, Fence

WINDOW_S = 600.0


class Checkpoint:
    """Has passed an LSN, and knows nothing of the key `unknown`; counts how often it was read."""

    def __init__(self, passed: int) -> None:
        self._passed = passed
        self.reads = 0

    async def settled(self, items: Sequence[Event | Rejected]) -> frozenset[int]:
        self.reads += 1
        return frozenset(item.position for item in items if item.document["lsn"] <= self._passed)


def event(identifier: str, *, age_s: float | None, lsn: int = 1, key: str = "k") -> Event:
    committed_at = None if age_s is None else int(time.time() - age_s)
    return Event(identifier, key, "domainEvent", "A", {}, {"lsn": lsn}, position=lsn, committed_at=committed_at)


async def superseded(checkpoint: Checkpoint, *events: Event) -> set[str]:
    clearance = await Fence(WINDOW_S, checkpoint.settled).clear(Received(list(events)))
    return {identifier for _, identifier in clearance.superseded}


async def test_young_events_cost_no_look_at_the_leases() -> None:
    checkpoint = Checkpoint(passed=10)

    assert await superseded(checkpoint, event("e1", age_s=290), event("e2", age_s=0)) == set()
    assert checkpoint.reads == 0


async def test_old_events_that_the_lease_has_passed_are_not_sent_again() -> None:
    checkpoint = Checkpoint(passed=10)
    old = [event(f"e{lsn}", age_s=310, lsn=lsn) for lsn in (9, 10, 11)]

    assert await superseded(checkpoint, *old, event("young", age_s=10, lsn=5)) == {"e9", "e10"}
    assert checkpoint.reads == 1


async def test_an_event_without_a_time_counts_as_old() -> None:
    checkpoint = Checkpoint(passed=10)

    assert await superseded(checkpoint, event("e1", age_s=None)) == {"e1"}


async def test_a_clearance_ends_after_half_the_window_and_counts_from_the_commit_of_a_young_event() -> None:
    given = time.time() - 301
    clearance = Clearance(given, WINDOW_S / 2)

    clearance.check(event("young", age_s=290))
    with pytest.raises(StaleClearanceError, match="RELAY_DUPLICATE_WINDOW_S"):
        clearance.check(event("old", age_s=1000))


async def test_a_young_event_that_grew_old_while_the_process_stood_still_is_compared_again() -> None:
    checkpoint = Checkpoint(passed=10)
    young = event("e1", age_s=299)
    clearance = await Fence(WINDOW_S, checkpoint.settled).clear(Received([young]))
    clearance.check(young)
    late = event("e1", age_s=302)

    with pytest.raises(StaleClearanceError):
        clearance.check(late)


def test_an_event_may_be_sent_up_to_the_end_of_its_clearance() -> None:
    given = time.time()

    Clearance(given - 299, 300).check(event("e1", age_s=None))
    with pytest.raises(StaleClearanceError):
        Clearance(given - 300.5, 300).check(event("e1", age_s=None))


async def test_the_clearance_of_old_events_begins_when_they_were_compared() -> None:
    clearance = await Fence(WINDOW_S, Checkpoint(passed=0).settled).clear(Received([event("e1", age_s=None)]))

    assert abs(clearance.given - time.time()) < 60
    assert clearance.lasts_s == WINDOW_S / 2


async def test_nothing_is_sent_of_what_another_process_may_own_by_now() -> None:
    owned = [True]
    received = Received([event("e1", age_s=0), event("old", age_s=WINDOW_S)], owned=lambda: owned[0])
    clearance = await Fence(WINDOW_S, Checkpoint(passed=0).settled).clear(received)
    young = await Fence(WINDOW_S, Checkpoint(passed=0).settled).clear(
        Received([received.events[0]], owned=received.owned)
    )

    clearance.check(received.events[0])
    young.check(received.events[0])
    owned[0] = False

    for each in (clearance, young):
        with pytest.raises(LostOwnershipError):
            each.check(received.events[0])
