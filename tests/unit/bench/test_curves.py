"""Curves, and the page that has them."""

from __future__ import annotations

import pytest

from bench.curves import Curve, rendered
from bench.pages import published
from local.stack.parts import ROOT


def curve(*points: tuple[float, float]) -> Curve:
    return Curve("keys", "keys", "events/s", points)


@pytest.mark.parametrize(
    ("points", "bend"),
    [
        pytest.param(((1, 100), (10, 1000), (100, 10_000)), None, id="proportional"),
        pytest.param(((1, 100), (2, 145), (4, 210)), None, id="1.45 times for each doubling"),
        pytest.param(((1, 100), (2, 135), (4, 270)), 1, id="1.35 times for the first doubling"),
        pytest.param(((1, 100), (10, 1000), (100, 2500), (1000, 2400)), 10, id="level from ten on"),
        pytest.param(((1, 100), (10, 90)), 1, id="falling"),
    ],
)
def test_a_curve_bends_where_a_doubling_brings_less_than_the_root_of_two(
    points: tuple[tuple[float, float], ...], bend: float | None
) -> None:
    assert curve(*points).bend == bend


def test_a_curve_is_described_by_its_points_and_one_sentence() -> None:
    described = curve((1, 98.76), (1000, 12_345.6), (10_000, 12_345.6)).described()

    assert described.splitlines() == [
        "| keys | events/s |",
        "| --: | --: |",
        "| 1 | 99 |",
        "| 1,000 | 12,300 |",
        "| 10,000 | 12,300 |",
        "",
        "The curve bends at 1,000.",
    ]
    assert curve((1, 1), (16, 16)).described().endswith("\n\nThe curve does not bend from 1 to 16 keys.")


def test_only_what_is_between_the_markers_is_written_again() -> None:
    page = "Before.\n\n<!-- curve: keys -->\nold\n<!-- end -->\n\nAfter.\n"

    once = rendered(page, [curve((1, 1), (2, 2))])

    assert once.startswith("Before.\n\n<!-- curve: keys -->\n| keys |")
    assert once.endswith("keys.\n<!-- end -->\n\nAfter.\n")
    assert rendered(once, [curve((1, 1), (2, 2))]) == once


def test_a_curve_that_was_not_measured_is_an_error() -> None:
    with pytest.raises(KeyError, match="size"):
        rendered("<!-- curve: size -->\n<!-- end -->", [curve((1, 1))])


def test_the_capacity_page_has_the_published_curves() -> None:
    text = (ROOT / "docs" / "capacity.md").read_text(encoding="utf-8")

    assert rendered(text, published().curves) == text
    assert all(text.count(f"<!-- curve: {each.name} -->") == 1 for each in published().curves)
