"""Histories of leases: what the fence drops, and what the change feed processor itself loses."""

from __future__ import annotations

import pytest

from verification.simulation.leases import universe
from verification.simulation.leases.controls import CONTROLS
from verification.simulation.leases.universe import History
from verification.simulation.plan import Plan

pytestmark = pytest.mark.usefixtures("prepared")

HISTORIES = 600


def ran(plan: Plan) -> History:
    history = History(plan)
    history.run()
    return history


def changes(plan: Plan) -> list[str]:
    """The splits and merges of a history, in their order."""
    return [fault.kind for fault in plan.faults if fault.kind in ("split", "merge")]


@pytest.mark.timeout(300)
def test_nothing_is_dropped_or_reordered_by_the_fence_and_late_owners_are_stopped() -> None:
    histories = [ran(universe.plan(seed)) for seed in range(HISTORIES)]

    assert [history.violations for history in histories if history.violations] == []
    assert sum(history.repeats for history in histories) > HISTORIES
    assert sum(len(history.container.changes) for history in histories) == 24 * HISTORIES


# Of 40 000 histories, the processor loses events in 26. Each has at least three changes, one of them a merge.
@pytest.mark.parametrize("seed", [2136, 4796, 10232, 23746, 38129])
def test_the_processor_loses_events_by_three_changes_with_a_merge_among_them(seed: int) -> None:
    plan = universe.plan(seed)
    history = ran(plan)

    assert history.lost_by_processor
    assert history.violations == []
    assert len(changes(plan)) >= 3
    assert "merge" in changes(plan)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTROLS)
def test_a_rule_that_was_wrong_is_found_to_be(name: str) -> None:
    control = CONTROLS[name]

    with control.without():
        found = [ran(universe.plan(control.first + number)).violations for number in range(control.within)]

    assert any(each.startswith(f"{control.wrong}:") for violations in found for each in violations)
