"""Histories of leases with the relay's own code in every host, and the safeguards that it then misses."""

from __future__ import annotations

import pytest

from verification.simulation import runner
from verification.simulation.controls import Control
from verification.simulation.core.controls import CONTROLS as CORE
from verification.simulation.histories import universe
from verification.simulation.leases.controls import CONTROLS as LEASES

pytestmark = pytest.mark.usefixtures("prepared")

HISTORIES = 90

# The first universe of each that shows it; of RangesCountToo one in a thousand does.
CONTROLS: dict[str, tuple[Control, int]] = {
    "EveryLeaseCounts": (LEASES["EveryLeaseCounts"], 87),
    "RangesCountToo": (LEASES["RangesCountToo"], 783),
    "StopsWhatEveryLeaseHasPassed": (LEASES["StopsWhatEveryLeaseHasPassed"], 23),
    "ComparesOldEvents": (CORE["ComparesOldEvents"], 23),
}


def test_nothing_is_lost_repeated_or_reordered_by_the_relay() -> None:
    results = [runner.run(universe, universe.plan(seed)) for seed in range(HISTORIES)]

    assert [result.violations for result in results if result.violations] == []
    assert sum(result.excused for result in results) > HISTORIES // 4


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTROLS)
def test_a_safeguard_that_is_taken_out_is_missed(name: str) -> None:
    control, seed = CONTROLS[name]

    with control.without():
        violations = runner.run(universe, universe.plan(seed)).violations

    assert any(each.startswith(f"{control.wrong}:") for each in violations)
