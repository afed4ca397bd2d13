"""Simulated services that write with `outbox`: no failure leaves them misinformed about a commit."""

from __future__ import annotations

import pytest

from tests.simulation.weakened_outbox import CONTROLS
from verification.simulation import runner
from verification.simulation.writing import universe

UNIVERSES = 5
# Without a safeguard, a violation is found within this number of universes.
FOUND_WITHIN = 15


pytestmark = pytest.mark.usefixtures("prepared")


def test_what_a_writer_is_told_of_a_commit_is_so() -> None:
    for seed in range(UNIVERSES):
        result = runner.run(universe, universe.plan(seed))

        assert not result.violations, f"seed {seed}"
        assert len(result.journal) > 100


@pytest.mark.parametrize("safeguard", CONTROLS)
@pytest.mark.slow
@pytest.mark.weekly
def test_without_a_safeguard_a_violation_is_found(safeguard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, replacement, violation = CONTROLS[safeguard]
    monkeypatch.setattr(owner, name, replacement)

    assert any(
        violation in each
        for seed in range(FOUND_WITHIN)
        for each in runner.run(universe, universe.plan(seed)).violations
    )
