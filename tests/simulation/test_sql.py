"""The relay on an SQL outbox in a simulated world: nothing is lost, doubled or out of order."""

from __future__ import annotations

import pytest

from verification.simulation import runner
from verification.simulation.sql import universe

UNIVERSES = 5


pytestmark = pytest.mark.usefixtures("prepared")


def test_every_event_is_published_once_and_in_order() -> None:
    for seed in range(UNIVERSES):
        result = runner.run(universe, universe.plan(seed))

        assert not result.violations, f"seed {seed}"
        kinds = {entry.kind for entry in result.journal}
        assert {"committed", "accepted", "claimed", "lost", "checkpointed"} <= kinds
