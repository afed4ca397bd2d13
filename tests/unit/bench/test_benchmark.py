"""Targets and plans."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.benchmark import TIMES, Bound, Plan, Target


def test_a_target_has_the_median_and_quartiles_of_its_values() -> None:
    target = Target("x", (4.0, 1.0, 3.0, 2.0, 5.0), "ms", Bound.AT_MOST, 1.0)

    assert (target.measured, target.spread) == (3.0, (2.0, 4.0))


def test_the_spread_of_few_values_is_from_lowest_to_highest() -> None:
    assert Target("x", (3.0, 1.0), "ms", Bound.AT_MOST, 1.0).spread == (1.0, 3.0)
    assert Target("x", (3.0,), "ms", Bound.AT_MOST, 1.0).spread == (3.0, 3.0)


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
    assert target.wanted == f"{bound.value} 20 {TIMES}"


def test_a_plan_picks_by_the_kind_of_run() -> None:
    assert Plan(full=False, seed=1, scratch=Path()).pick(quick=2, full=20) == 2
    assert Plan(full=True, seed=1, scratch=Path()).pick(quick=2, full=20) == 20
