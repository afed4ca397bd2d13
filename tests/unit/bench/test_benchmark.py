"""Targets and plans."""

from __future__ import annotations

import random
import statistics
from pathlib import Path

import pytest

from bench.benchmark import TIMES, Bound, Plan, Target, interval


def test_the_interval_of_few_values_is_from_lowest_to_highest() -> None:
    assert interval([3.0]) == (3.0, 3.0)
    assert interval([3.0, 1.0]) == (1.0, 3.0)
    assert interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == (1.0, 6.0)


def test_the_interval_of_twenty_values_leaves_out_five_on_each_side() -> None:
    # P(B(20, 1/2) < 6) is 0.0207, and P(B(20, 1/2) < 7) is 0.0577.
    values = [float(number) for number in range(1, 21)]
    random.Random(1).shuffle(values)

    assert interval(values) == (6.0, 15.0)


def test_the_interval_contains_the_true_median_95_times_of_100() -> None:
    draw = random.Random(1)
    true_median = statistics.NormalDist().median

    found = 0
    for _ in range(2000):
        low, high = interval([draw.gauss() for _ in range(20)])
        found += low <= true_median <= high

    assert found / 2000 == pytest.approx(0.9586, abs=0.015)


@pytest.mark.parametrize(
    ("bound", "measured", "met"),
    [
        (Bound.AT_LEAST, 19.9, False),
        (Bound.AT_LEAST, 20.0, True),
        (Bound.AT_MOST, 20.0, True),
        (Bound.AT_MOST, 20.1, False),
    ],
)
def test_a_target_is_judged_by_its_median(bound: Bound, measured: float, met: bool) -> None:
    target = Target("fast", (0.0, measured, 100.0), TIMES, bound, 20.0)

    assert target.met is met
    assert not target.certain
    assert target.wanted == f"{bound.value} 20 {TIMES}"


def test_a_target_is_certain_when_its_whole_interval_is_on_one_side() -> None:
    turns = (19.0, *(21.0 + number for number in range(19)))

    assert Target("fast", turns, TIMES, Bound.AT_LEAST, 20.0).certain
    assert Target("fast", turns, TIMES, Bound.AT_LEAST, 50.0).certain
    assert not Target("fast", turns, TIMES, Bound.AT_LEAST, 26.0).certain


def test_a_plan_picks_by_the_kind_of_run() -> None:
    assert Plan(full=False, seed=1, scratch=Path()).pick(quick=2, full=20) == 2
    assert Plan(full=True, seed=1, scratch=Path()).pick(quick=2, full=20) == 20
