"""The relay on an SQL outbox in a simulated world: nothing is lost, doubled or out of order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from simulation import runner
from simulation.sql import universe
from simulation.sql.controls import CONTROLS
from tests.support.universes import digest_elsewhere

UNIVERSES = 5


@pytest.fixture(autouse=True)
def prepared() -> Iterator[None]:
    with runner.prepared():
        yield


def test_every_event_is_published_once_and_in_order() -> None:
    for seed in range(UNIVERSES):
        result = runner.run(universe, universe.plan(seed))

        assert not result.violations, f"seed {seed}"
        kinds = {entry.kind for entry in result.journal}
        assert {"committed", "accepted", "claimed", "lost", "checkpointed"} <= kinds


def test_a_seed_gives_the_same_journal_in_every_process() -> None:
    assert digest_elsewhere("sql", 3, hash_seed=1) == digest_elsewhere("sql", 3, hash_seed=2)


@pytest.mark.parametrize("name", CONTROLS)
def test_without_a_safeguard_or_an_assumption_a_violation_is_found(name: str) -> None:
    control = CONTROLS[name]

    with control.without():
        found = any(
            violation.startswith(control.wrong)
            for seed in control.seeds
            for violation in runner.run(universe, universe.plan(seed)).violations
        )

    assert found
