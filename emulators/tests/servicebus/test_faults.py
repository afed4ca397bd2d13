"""Faults without a network: what they match, and their limits; and delayed acknowledgements."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from proton import Delivery

from emulators.tests.servicebus.fakes import FakeClock
from outbox_emulators.faults import Fault, Faults
from outbox_emulators.servicebus.acknowledgements import Acknowledgements, Outcome
from outbox_emulators.servicebus.fault_plans import FaultKind, FaultPlan
from outbox_emulators.servicebus.partitions import partition_of
from outbox_emulators.servicebus.role import Role

BUSY = FaultKind.SERVER_BUSY


def a_plan(**body: Any) -> FaultPlan:
    return FaultPlan.from_json({"kind": "server-busy", "entity": "t", **body})


def injected_into(clock: FakeClock) -> Faults[FaultPlan]:
    return Faults(clock.timers.now, clock.timers.call_at)


def applied(faults: Faults[FaultPlan], path: str) -> Fault[FaultPlan] | None:
    return faults.apply(lambda plan: plan.matches(BUSY, path))


def test_a_fault_is_applied_until_its_time_is_over(clock: FakeClock) -> None:
    faults = injected_into(clock)
    faults.inject(a_plan(for_ms=100))

    clock.advance(99)
    assert applied(faults, "t")
    assert applied(faults, "t")
    clock.now_ms += 1  # the timer queue has not run yet
    assert not applied(faults, "t")
    assert not faults.any_pending
    clock.timers.run_due()


def test_a_fault_without_limits_is_applied_once(clock: FakeClock) -> None:
    assert a_plan().count == 1
    assert a_plan(for_ms=5).count is None
    assert FaultPlan.from_json({"kind": "partition-unavailable", "entity": "t"}).count is None


@pytest.mark.parametrize(
    ("path", "covered"),
    [("events", True), ("Events/Subscriptions/all", True), ("events2", False), ("event", False)],
)
def test_an_entity_covers_what_is_below_it(path: str, covered: bool) -> None:
    assert a_plan(entity="events").covers(path) is covered


def test_options_of_another_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="role is not a known property"):
        a_plan(role="sender")
    assert FaultPlan.from_json({"kind": "detach-link", "entity": "t", "role": "receiver"}).role is Role.RECEIVER


def test_a_fault_of_chosen_messages_lasts_until_it_is_ended() -> None:
    def plan(**body: Any) -> FaultPlan:
        return FaultPlan.from_json({"kind": "end-on-transfer", "entity": "t", **body})

    assert plan().count == 1
    assert plan(for_ms=5).count is None
    assert plan(message_id="x").count is None
    assert plan(property="harmful", count=2).count == 2


@pytest.mark.parametrize("body", [{}, {"step": "later"}, {"step": "open", "how": "link"}])
def test_a_silent_handshake_needs_its_step(body: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"step|how"):
        FaultPlan.from_json({"kind": "silent-handshake", **body})


def test_the_partition_of_a_key_does_not_change() -> None:
    assert [partition_of(key, 16) for key in ("", "a", "key-7", "鍵")] == [0, 3, 15, 8]


async def test_acknowledgements_are_sent_in_order_however_late_each_is() -> None:
    given: list[int] = []
    done = asyncio.Event()

    def send(delivery: Delivery, outcome: Outcome) -> None:
        given.append(cast(int, delivery))
        if len(given) == 5:
            done.set()

    acknowledgements = Acknowledgements(send, lambda: None)
    for number, delay_ms in enumerate((0, 60, 0, 20, 0)):
        acknowledgements.send(cast(Delivery, number), Outcome(), delay_ms)
    assert given == [0]
    await asyncio.wait_for(done.wait(), 5)

    assert given == [0, 1, 2, 3, 4]


async def test_acknowledgements_of_a_link_that_is_gone_are_not_sent() -> None:
    given: list[Delivery] = []
    acknowledgements = Acknowledgements(lambda delivery, outcome: given.append(delivery), lambda: None)
    acknowledgements.send(cast(Delivery, 1), Outcome(), 1)

    acknowledgements.cancel()
    await asyncio.sleep(0.02)

    assert given == []
