"""Old events are compared with the lease before they are sent, young ones are not."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from relay.core.errors import LostOwnershipError, SourceError, StaleClearanceError
from relay.core.events import Event, Reason, Received, Rejected
from relay.core.fence import Clearance, Fence
from tests.support import virtual_time
from tests.support.outbox import plain
from tests.support.waiting import forever

WINDOW_S = 600.0


class Checkpoint:
    """Has passed an LSN, and knows nothing of the key `unknown`; counts how often it was read."""

    def __init__(self, passed: int) -> None:
        self._passed = passed
        self.reads = 0

    async def passed_positions(self, items: Sequence[Event | Rejected]) -> frozenset[int]:
        self.reads += 1
        return frozenset(item.position for item in items if item.document.stored["lsn"] <= self._passed)


def event(identifier: str, *, age_s: float | None, lsn: int = 1, key: str = "k") -> Event:
    committed_at = None if age_s is None else int(time.time() - age_s)
    return Event(identifier, key, "domainEvent", "A", {}, plain({"lsn": lsn}), committed_at=committed_at)


async def superseded(checkpoint: Checkpoint, *events: Event) -> set[str]:
    events = tuple(each._replace(position=position) for position, each in enumerate(events))
    clearance = await Fence(WINDOW_S, checkpoint.passed_positions).clear(Received(list(events)))
    return {events[position].id for position in clearance.passed}


async def test_young_events_cost_no_look_at_the_leases() -> None:
    checkpoint = Checkpoint(passed=10)

    assert await superseded(checkpoint, event("e1", age_s=290), event("e2", age_s=0)) == set()
    assert checkpoint.reads == 0


async def test_old_events_that_the_lease_has_passed_are_not_sent_again() -> None:
    checkpoint = Checkpoint(passed=10)
    old = [event(f"e{lsn}", age_s=310, lsn=lsn) for lsn in (9, 10, 11)]

    assert await superseded(checkpoint, *old) == {"e9", "e10"}
    assert checkpoint.reads == 1


async def test_beside_an_old_event_the_young_ones_are_compared_too() -> None:
    checkpoint = Checkpoint(passed=10)
    batch = [event("old", age_s=310, lsn=11), event("young", age_s=10, lsn=5), event("later", age_s=10, lsn=12)]

    assert await superseded(checkpoint, *batch) == {"young"}


@pytest.mark.parametrize("age_s", [299, 100, 10])
async def test_a_young_event_may_be_sent_until_half_the_window_after_its_commit_or_after_it_was_compared(
    age_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.time()
    young, old = event("young", age_s=age_s, lsn=11), event("old", age_s=310, lsn=11)
    alone = await Fence(WINDOW_S, Checkpoint(passed=10).passed_positions).clear(Received([young]))
    compared = await Fence(WINDOW_S, Checkpoint(passed=10).passed_positions).clear(Received([old, young]))

    monkeypatch.setattr(time, "time", lambda: began + 302 - age_s)
    with pytest.raises(StaleClearanceError):
        alone.check(young)
    compared.check(young)
    monkeypatch.setattr(time, "time", lambda: began + 302)
    with pytest.raises(StaleClearanceError):
        compared.check(young)


async def test_a_batch_with_a_document_that_is_not_published_is_compared_however_young_it_is() -> None:
    checkpoint = Checkpoint(passed=10)
    fence = Fence(WINDOW_S, checkpoint.passed_positions)
    rejected = Rejected(plain({"lsn": 10}), Reason.DATA_NOT_OBJECT, "", 1, "k")

    clearance = await fence.clear(Received([event("young", age_s=1, lsn=11)], [rejected]), compare=True)

    assert clearance.passed == {1}


async def test_what_is_to_be_set_aside_is_compared_right_before() -> None:
    checkpoint = Checkpoint(passed=10)
    fence = Fence(WINDOW_S, checkpoint.passed_positions)
    items = [Rejected(plain({"lsn": lsn}), Reason.DATA_NOT_OBJECT, "", lsn, "k") for lsn in (9, 10, 11)]

    clearance = await fence.clear_storing(items, lambda: True)

    assert clearance.passed == {9, 10}
    clearance.check_storing()
    with pytest.raises(LostOwnershipError):
        (await fence.clear_storing(items, lambda: False)).check_storing()


async def test_what_was_compared_before_the_process_stood_still_is_not_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    item = Rejected(plain({"lsn": 11}), Reason.DATA_NOT_OBJECT, "", 0, "k")
    clearance = await Fence(WINDOW_S, Checkpoint(passed=10).passed_positions).clear_storing([item], lambda: True)

    now += 60
    clearance.check_storing()
    now += 1

    with pytest.raises(StaleClearanceError, match="not quarantined"):
        clearance.check_storing()


def test_a_checkpoint_that_cannot_be_read_ends_the_attempt_in_time() -> None:
    async def passed_positions(items: Sequence[Event | Rejected]) -> frozenset[int]:
        await forever()

    async def attempt() -> float:
        fence = Fence(WINDOW_S, passed_positions)
        with pytest.raises(SourceError, match="comparing with the checkpoint"):
            await fence.clear(Received([event("old", age_s=None)]))
        return time.monotonic()

    assert virtual_time.run(attempt()) == 25


async def test_an_event_without_a_time_counts_as_old() -> None:
    checkpoint = Checkpoint(passed=10)

    assert await superseded(checkpoint, event("e1", age_s=None)) == {"e1"}


async def test_a_clearance_ends_after_half_the_window() -> None:
    clearance = Clearance(time.time() - 301, WINDOW_S / 2)

    with pytest.raises(StaleClearanceError, match="RELAY_DUPLICATE_WINDOW_S"):
        clearance.check(event("old", age_s=1000))


async def test_a_young_event_that_grew_old_while_the_process_stood_still_is_compared_again() -> None:
    checkpoint = Checkpoint(passed=10)
    young = event("e1", age_s=299)
    clearance = await Fence(WINDOW_S, checkpoint.passed_positions).clear(Received([young]))
    clearance.check(young)
    late = event("e1", age_s=302)

    with pytest.raises(StaleClearanceError):
        clearance.check(late)


def test_an_event_may_be_sent_up_to_the_end_of_its_clearance(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)

    Clearance(now - 300, 300).check(event("e1", age_s=None))
    with pytest.raises(StaleClearanceError):
        Clearance(now - 300.5, 300).check(event("e1", age_s=None))


async def test_the_clearance_of_old_events_begins_when_they_were_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    clearance = await Fence(WINDOW_S, Checkpoint(passed=0).passed_positions).clear(
        Received([event("e1", age_s=None)])
    )

    assert clearance.given == now
    assert clearance.lasts_s == WINDOW_S / 2


async def test_a_clearance_counts_from_before_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)

    async def passed_positions(items: Sequence[Event | Rejected]) -> frozenset[int]:
        nonlocal now
        now += 20
        return frozenset()

    old = event("e1", age_s=None)
    clearance = await Fence(WINDOW_S, passed_positions).clear(Received([old]))
    clearance.check(old)
    now += WINDOW_S / 2 - 10

    # What the leases said was read at the beginning of the comparison.
    with pytest.raises(StaleClearanceError):
        clearance.check(old)


async def test_nothing_is_sent_of_what_another_process_may_own_by_now() -> None:
    owned = [True]
    received = Received([event("e1", age_s=0), event("old", age_s=WINDOW_S)], owned=lambda: owned[0])
    clearance = await Fence(WINDOW_S, Checkpoint(passed=0).passed_positions).clear(received)
    young = await Fence(WINDOW_S, Checkpoint(passed=0).passed_positions).clear(
        Received([received.events[0]], owned=received.owned)
    )

    clearance.check(received.events[0])
    young.check(received.events[0])
    owned[0] = False

    for each in (clearance, young):
        with pytest.raises(LostOwnershipError):
            each.check(received.events[0])
