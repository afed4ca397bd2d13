"""From the commit of a service to the effects at two consumers, in one simulated world."""

from __future__ import annotations

from collections import Counter

import pytest

from verification.simulation import runner
from verification.simulation.whole import universe

UNIVERSES = 4
FAULTS = 40


pytestmark = [pytest.mark.slow, pytest.mark.weekly, pytest.mark.usefixtures("prepared")]


def test_each_event_that_a_service_commits_has_its_effect_once_and_in_order() -> None:
    for seed in range(UNIVERSES):
        result = runner.run(universe, universe.plan(seed, faults=FAULTS))

        assert not result.violations, f"seed {seed}"
        happened = Counter(entry.kind for entry in result.journal)
        assert happened["committed"] > 100
        assert happened["handled"] >= 2 * happened["accepted"] - 2 * result.excused
