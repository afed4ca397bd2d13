"""How often and how long an injected fault is applied, and what the admin ports show of it, in either service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from outbox_relay.emulators.faults import Faults


@dataclass(frozen=True)
class ColourPlan:
    """A fault in everything of one colour."""

    colour: str
    count: int | None = None
    for_ms: int | None = None
    kind: str = "fade"

    def as_json(self) -> Mapping[str, Any]:
        return {"kind": self.kind, "colour": self.colour, "count": self.count, "for_ms": self.for_ms}


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def faults(clock: Clock) -> Faults[ColourPlan]:
    return Faults(clock)


def applied(faults: Faults[ColourPlan], colour: str = "red") -> int | None:
    """The id of the fault that is applied to something of this colour."""
    fault = faults.apply(lambda plan: plan.colour == colour)
    return None if fault is None else fault.id


def test_a_fault_is_applied_to_the_next_that_match_and_no_more(faults: Faults[ColourPlan]) -> None:
    fault = faults.inject(ColourPlan("red", count=2))

    assert [applied(faults, colour) for colour in ("red", "blue", "red", "red")] == [
        fault.id,
        None,
        fault.id,
        None,
    ]
    assert (fault.ended, fault.applied, faults.applied) == (True, 2, {"fade": 2})
    assert not faults.any_pending


def test_a_fault_is_applied_until_its_time_has_passed(faults: Faults[ColourPlan], clock: Clock) -> None:
    fault = faults.inject(ColourPlan("red", for_ms=1_500))

    clock.now_ms += 1_499
    assert [applied(faults), applied(faults)] == [fault.id, fault.id]
    clock.now_ms += 1
    assert applied(faults) is None
    assert not faults.any_pending


def test_whichever_limit_comes_first_ends_a_fault(faults: Faults[ColourPlan], clock: Clock) -> None:
    by_count, by_time = (faults.inject(ColourPlan(each, count=1, for_ms=1_000)) for each in ("red", "blue"))

    assert applied(faults, "red") == by_count.id
    assert applied(faults, "red") is None
    clock.now_ms += 1_000
    assert applied(faults, "blue") is None
    assert (by_count.applied, by_time.applied) == (1, 0)


def test_the_oldest_of_several_that_match_is_applied(faults: Faults[ColourPlan]) -> None:
    faults.inject(ColourPlan("blue", count=1))
    older, newer = faults.inject(ColourPlan("red", count=1)), faults.inject(ColourPlan("red", count=1))

    assert [applied(faults), applied(faults), applied(faults)] == [older.id, newer.id, None]


def test_a_fault_can_be_found_without_being_applied(faults: Faults[ColourPlan]) -> None:
    fault = faults.inject(ColourPlan("red", count=1))

    assert faults.find(lambda plan: True) is fault
    assert (fault.applied, faults.pending()) == (0, [fault])


def test_a_fault_that_ends_is_undone_once(clock: Clock) -> None:
    undone: list[int] = []
    timers: list[Any] = []
    faults: Faults[ColourPlan] = Faults(clock, lambda when, callback: timers.append((when, callback)))
    fault = faults.inject(ColourPlan("red", for_ms=10))
    fault.undo = lambda: undone.append(fault.id)

    [(when, end)] = timers
    end()
    faults.end(fault)
    faults.end_all()

    assert (when, undone) == (1_010, [fault.id])


def test_what_is_pending_and_what_was_applied_is_shown(faults: Faults[ColourPlan], clock: Clock) -> None:
    ended = faults.inject(ColourPlan("red", count=1))
    applied(faults)
    pending = faults.inject(ColourPlan("red", count=3, for_ms=100))
    applied(faults)
    clock.now_ms += 40

    asked = {"kind": "fade", "colour": "red", "count": 3, "for_ms": 100}
    shown = {"id": pending.id, **asked, "pending": True, "applied": 1, "count_left": 2, "ms_left": 60}
    assert faults.as_json() == {"pending": [shown], "applied": {"fade": 2}}
    assert faults.get(ended.id) is ended
    assert {"pending": False, "count_left": 0, "ms_left": None}.items() <= faults.describe(ended).items()
    assert faults.get(99) is None
