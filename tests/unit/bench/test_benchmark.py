"""Figures and targets."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.benchmark import TIMES, Bound, Figure, Plan, Target


def test_a_figure_tells_its_median_and_its_quartiles() -> None:
    figure = Figure("x", "ms", (4.0, 1.0, 3.0, 2.0, 5.0))

    assert (figure.median, figure.spread) == (3.0, (2.0, 4.0))


def test_of_few_repeats_the_spread_is_from_lowest_to_highest() -> None:
    assert Figure("x", "ms", (3.0, 1.0)).spread == (1.0, 3.0)
    assert Figure("x", "ms", (3.0,)).spread == (3.0, 3.0)


@pytest.mark.parametrize(
    ("bound", "measured", "met"),
    [
        (Bound.AT_LEAST, 19.9, False),
        (Bound.AT_LEAST, 20.0, True),
        (Bound.AT_MOST, 20.0, True),
        (Bound.AT_MOST, 20.1, False),
    ],
)
def test_a_target_is_judged_by_the_median(bound: Bound, measured: float, met: bool) -> None:
    target = Target("fast", Figure("x", TIMES, (0.0, measured, 100.0)), bound, 20.0)

    assert target.met is met
    assert target.target == f"{bound.value} 20 {TIMES}"


def test_a_plan_gives_what_the_run_calls_for() -> None:
    assert Plan(full=False, seed=1, scratch=Path()).pick(quick=2, full=20) == 2
    assert Plan(full=True, seed=1, scratch=Path()).pick(quick=2, full=20) == 20
