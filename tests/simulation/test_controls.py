"""Without a safeguard, or an assumption, universes are found that violate a guarantee."""

from __future__ import annotations

import pytest

from simulation import runner
from simulation.core import controls, universe


@pytest.mark.parametrize("name", controls.CONTROLS)
def test_what_is_taken_out_is_missed(name: str) -> None:
    control = controls.CONTROLS[name]

    with runner.prepared(), control.without():
        for seed in range(control.within):
            violations = runner.run(universe, universe.plan(seed)).violations
            if any(violation.startswith(f"{control.wrong}:") for violation in violations):
                return

    pytest.fail(f"{control.within} universes without {name}, and none has {control.wrong}")
