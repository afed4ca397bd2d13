"""Histories of rules: every event goes to the destinations of its time, however deployments follow one another."""

from __future__ import annotations

import pytest

from verification.simulation.rules import universe
from verification.simulation.rules.controls import CONTROLS
from verification.simulation.rules.universe import History

pytestmark = pytest.mark.usefixtures("prepared")

HISTORIES = 30


def ran(seed: int) -> History:
    history = History(universe.plan(seed))
    history.run()
    return history


@pytest.mark.timeout(300)
def test_every_event_goes_to_the_destinations_of_its_time_once_in_order() -> None:
    histories = [ran(seed) for seed in range(HISTORIES)]

    assert [each.violations for each in histories if each.violations] == []
    # They are worth something: rules change often, and most stores are never set back.
    stored = [each.store.state.timeline for each in histories]
    assert sum(len(each.timeline.generations) for each in stored if each is not None) > 4 * HISTORIES
    assert 0 < sum(each.was_set_back for each in histories) < HISTORIES


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", CONTROLS)
def test_a_safeguard_that_is_taken_out_is_missed(name: str) -> None:
    control = CONTROLS[name]

    with control.without():
        found = (ran(control.first + number).violations for number in range(control.within))

        assert any(each.startswith(f"{control.wrong}:") for violations in found for each in violations)
