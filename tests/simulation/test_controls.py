"""Without a safeguard, or an assumption, universes are found that violate a guarantee."""

from __future__ import annotations

import pytest

from verification.simulation import runner
from verification.simulation.controls import Control
from verification.simulation.core import controls
from verification.simulation.sql import controls as sql_controls

KINDS: dict[str, dict[str, Control]] = {"core": controls.CONTROLS, "sql": sql_controls.CONTROLS}
"""The controls of each kind of universe."""

pytestmark = [pytest.mark.slow, pytest.mark.weekly, pytest.mark.usefixtures("prepared")]


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in KINDS for name in KINDS[kind]])
def test_what_is_taken_out_is_missed(kind: str, name: str) -> None:
    control = KINDS[kind][name]
    universe = runner.kind_named(kind)

    with control.without():
        for seed in range(control.first, control.first + control.within):
            violations = runner.run(universe, universe.plan(seed)).violations
            if any(violation.startswith(f"{control.wrong}:") for violation in violations):
                return

    pytest.fail(f"{control.within} universes without {name}, and none has {control.wrong}")
