"""The relay on an SQL outbox in a simulated world: nothing is lost, doubled or out of order."""

from __future__ import annotations

import random

import pytest

from outbox_relay.changefeed.ulid import milliseconds
from verification.simulation import runner
from verification.simulation.sql import universe
from verification.simulation.sql.tables import Tables, Waiting

UNIVERSES = 3


pytestmark = pytest.mark.usefixtures("prepared")


def test_every_event_is_published_once_and_in_order() -> None:
    for seed in range(UNIVERSES):
        result = runner.run(universe, universe.plan(seed))

        assert not result.violations, f"seed {seed}"
        kinds = {entry.kind for entry in result.journal}
        assert {"committed", "accepted", "claimed", "lost", "checkpointed"} <= kinds


def test_where_the_clock_of_the_database_is_set_back_positions_are_ahead_of_the_time() -> None:
    tables = Tables(random.Random(0), lambda: 1_700_000_000.0)
    tables.feed[0] = []

    tables.set_clock_back(60_000)

    [placed] = tables.numbered(0, [Waiting(1, 0, tables.now_ms(), "e")], rows=1)
    assert milliseconds(placed.ulid) == tables.now_ms() + 60_000


def test_each_third_universe_has_its_clock_set_back() -> None:
    chosen = [seed for seed in range(6) if "clock-back" in {each.kind for each in universe.plan(seed).faults}]

    assert chosen == [2, 5]
