"""The benchmark of consumers: what it makes of its turns, and that a consumer measures itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from verification.bench import receiving
from verification.bench.broker import Broker
from verification.bench.consumer import BY_HAND, IN_TURN, INBOX, SUBSCRIPTION
from verification.bench.effects import Effects
from verification.bench.receiving import Load, Samples, findings_of

pytestmark = [pytest.mark.slow, pytest.mark.weekly]

FEW = Load("few sessions", keys=2, events=3, sessions=2)


def samples(*rates: float) -> Samples:
    return Samples(list(rates), [100.0], [0.5])


def test_each_target_is_a_ratio_of_adjacent_turns() -> None:
    many = Load("many sessions", keys=200, events=5, sessions=64)
    found = {
        FEW: {INBOX: samples(90, 200), BY_HAND: samples(100, 100)},
        many: {INBOX: samples(10, 20), BY_HAND: samples(10, 10), IN_TURN: samples(1, 1)},
    }

    findings = findings_of(found)

    assert [each.values for each in findings.targets] == [(0.9, 2.0), (1.0, 2.0), (10.0, 20.0)]
    (table,) = findings.tables
    assert [row[:5] for row in table.rows] == [
        ("few sessions, SQLite", "-", "100", "145", "1.45"),
        ("many sessions, SQLite", "1.00", "10", "15", "1.50"),
    ]


def test_an_effect_that_is_missing_or_comes_twice_makes_a_measurement_invalid() -> None:
    for numbers in ((1, 3), (1, 1), (2,)):
        effects = Effects(9)
        for number in numbers:
            effects.add("k", number)

        assert effects.wrong
        assert effects.done.is_set()


@pytest.mark.parametrize("kind", [INBOX, BY_HAND])
async def test_a_consumer_measures_what_it_receives(kind: str, tmp_path: Path) -> None:
    async with Broker(tmp_path, subscriptions=[SUBSCRIPTION]) as broker:
        found = Samples()
        await receiving.turn(broker, FEW, kind, tmp_path, found)

        assert await broker.waiting(SUBSCRIPTION) == 0
    assert (len(found.rates), found.processor_us[0] > 0) == (1, True)
