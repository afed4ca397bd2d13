"""Faults without a wire: what matches, how often, for how long; and acknowledgements that come late."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from proton import Delivery

from emulators.tests.servicebus.fakes import FakeClock
from outbox_emulators.servicebus.acknowledgements import Acknowledgements, Outcome
from outbox_emulators.servicebus.fault_plans import FaultKind, FaultPlan, Role
from outbox_emulators.servicebus.faults import Faults, partition_of

BUSY = FaultKind.SERVER_BUSY


def a_plan(**body: Any) -> FaultPlan:
    return FaultPlan.from_object({"kind": "server-busy", "entity": "t", **body})


def test_a_fault_strikes_the_next_matching_ones_and_no_more(clock: FakeClock) -> None:
    faults = Faults(clock.timers)
    fault = faults.add(a_plan(count=2))

    struck = [faults.strike(BUSY, path) is not None for path in ("T", "other", "t", "t")]

    assert struck == [True, False, True, False]
    assert (fault.ended, fault.applied, faults.applied[BUSY]) == (True, 2, 2)


def test_a_fault_strikes_until_its_time_is_over(clock: FakeClock) -> None:
    faults = Faults(clock.timers)
    faults.add(a_plan(for_ms=100))

    clock.advance(99)
    assert faults.strike(BUSY, "t")
    assert faults.strike(BUSY, "t")
    clock.now_ms += 1  # the timers has not run yet
    assert not faults.strike(BUSY, "t")
    assert not faults.pending
    clock.timers.run_due()


def test_a_fault_says_once_when_it_says_nothing(clock: FakeClock) -> None:
    assert a_plan().count == 1
    assert a_plan(for_ms=5).count is None
    assert FaultPlan.from_object({"kind": "partition-unavailable", "entity": "t"}).count is None


def test_the_oldest_of_several_strikes_first(clock: FakeClock) -> None:
    faults = Faults(clock.timers)
    first, second = faults.add(a_plan()), faults.add(a_plan())

    faults.strike(BUSY, "t")

    assert (first.applied, second.applied) == (1, 0)


@pytest.mark.parametrize(
    ("path", "covered"),
    [("events", True), ("Events/Subscriptions/all", True), ("events2", False), ("event", False)],
)
def test_an_entity_covers_what_is_below_it(path: str, covered: bool) -> None:
    assert a_plan(entity="events").covers(path) is covered


def test_a_fault_that_ends_is_undone_once(clock: FakeClock) -> None:
    undone: list[int] = []
    faults = Faults(clock.timers)
    fault = faults.add(a_plan(for_ms=10))
    fault.undo = lambda: undone.append(fault.id)

    faults.end(fault)
    faults.end_all()
    clock.advance(20)

    assert undone == [fault.id]


def test_options_of_another_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="role is not a known property"):
        a_plan(role="sender")
    assert FaultPlan.from_object({"kind": "detach-link", "entity": "t", "role": "receiver"}).role is Role.RECEIVER


def test_partitions_are_told_by_a_hash_that_does_not_change() -> None:
    assert [partition_of(key, 16) for key in ("", "a", "key-7", "鍵")] == [0, 3, 15, 8]


async def test_acknowledgements_are_given_in_order_however_late_each_is() -> None:
    given: list[int] = []
    done = asyncio.Event()

    def give(delivery: Delivery, outcome: Outcome) -> None:
        given.append(cast(int, delivery))
        if len(given) == 5:
            done.set()

    acknowledgements = Acknowledgements(give, lambda: None)
    for number, delay_ms in enumerate((0, 60, 0, 20, 0)):
        acknowledgements.owe(cast(Delivery, number), Outcome(), delay_ms)
    assert given == [0]
    await asyncio.wait_for(done.wait(), 5)

    assert given == [0, 1, 2, 3, 4]


async def test_acknowledgements_of_a_link_that_is_gone_are_not_given() -> None:
    given: list[Delivery] = []
    acknowledgements = Acknowledgements(lambda delivery, outcome: given.append(delivery), lambda: None)
    acknowledgements.owe(cast(Delivery, 1), Outcome(), 1)

    acknowledgements.cancel()
    await asyncio.sleep(0.02)

    assert given == []
