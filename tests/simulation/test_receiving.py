"""Consumers with `inbox` in a simulated world: each effect once and in order, whatever is killed or lost."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.weakened_inbox import CONTROLS
from verification.simulation import runner
from verification.simulation.receiving import universe

UNIVERSES = 3
# Without a safeguard, a violation is found within this number of universes, from this one on.
FOUND_WITHIN = 12
FIRST = {"what is discarded counts as handled": 34, "a released key is parked until its last message": 2}


pytestmark = pytest.mark.usefixtures("prepared")


def test_each_effect_is_had_once_and_in_order() -> None:
    for seed in range(UNIVERSES):
        result = runner.run(universe, universe.plan(seed))

        assert not result.violations, f"seed {seed}"
        assert sum(entry.kind == "handled" for entry in result.journal) > 300


@pytest.mark.parametrize("safeguard", CONTROLS)
@pytest.mark.slow
@pytest.mark.weekly
def test_without_a_safeguard_a_violation_is_found(safeguard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, replacement, violation = CONTROLS[safeguard]
    monkeypatch.setattr(owner, name, replacement)

    first = FIRST.get(safeguard, 0)
    assert any(violation in each for seed in range(first, first + FOUND_WITHIN) for each in _violations(seed))


def _violations(seed: int) -> list[Any]:
    return runner.run(universe, universe.plan(seed)).violations
