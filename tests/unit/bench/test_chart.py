"""The chart."""

from __future__ import annotations

from xml.etree import ElementTree

from bench import chart
from bench.__main__ import published
from local.stack.parts import ROOT
from tests.unit.bench.support import findings

SVG = "{http://www.w3.org/2000/svg}"
KEYS_OF_THE_LEGEND = 5


def bars(picture: str) -> list[float]:
    """The widths of all bars."""
    rectangles = ElementTree.fromstring(picture).findall(f"{SVG}rect")
    return [float(each.attrib["width"]) for each in rectangles[KEYS_OF_THE_LEGEND:]]


def test_each_rate_of_a_baseline_is_a_bar_with_its_number() -> None:
    picture = chart.drawn(findings().tables)

    texts = list(ElementTree.fromstring(picture).itertext())
    assert {"relay", "article", "100x1", "1,986", "86"} <= set(texts)
    assert "Some table" not in texts
    article, relay, built, *_ = bars(picture)
    assert article < relay < built


def test_a_workload_that_a_baseline_cannot_carry_has_no_bar() -> None:
    picture = chart.drawn(findings().tables)

    assert len(bars(picture)) == 2 * 3 - 1
    assert "cannot" not in picture


def test_the_published_chart_shows_the_published_results() -> None:
    picture = (ROOT / "bench" / "results" / "latest.svg").read_text(encoding="utf-8")

    assert chart.drawn(published().tables) == picture
