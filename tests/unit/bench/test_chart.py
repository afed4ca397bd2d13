"""The chart."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from bench import chart
from bench.pages import published
from local.stack.parts import ROOT
from tests.unit.bench.support import report

SVG = "{http://www.w3.org/2000/svg}"


def texts(picture: str) -> list[str]:
    return list(ElementTree.fromstring(picture).itertext())


def bars(picture: str) -> list[float]:
    """The widths of all bars; the first rectangle is the background."""
    return [float(each.attrib["width"]) for each in ElementTree.fromstring(picture).findall(f"{SVG}rect")[1:]]


def test_each_rate_is_a_bar_as_long_as_it_is_high() -> None:
    article, relay, prebuilt, wire, *_ = bars(chart.drawn(report()))

    assert relay / article == pytest.approx(1986 / 86, rel=0.02)
    assert (prebuilt / relay, wire / relay) == pytest.approx((2062 / 1986, 2.0), rel=0.01)


def test_the_axis_begins_at_zero_and_ends_above_the_highest_rate() -> None:
    labels = [text for text in texts(chart.drawn(report())) if text.replace(",", "").isdigit()]

    assert (labels[0], labels[-1]) == ("0", "10,000")
    assert int(labels[-1].replace(",", "")) >= 7004


def test_it_says_what_it_shows_when_and_on_what_machine() -> None:
    made = report()

    shown = texts(chart.drawn(made))

    assert {"100 keys with an event each", "relay: 1,986", "article: 86"} <= set(shown)
    assert any(made.date in text and "cores" in text for text in shown)
    assert "Some table" not in shown


def test_what_was_not_measured_has_no_bar() -> None:
    picture = chart.drawn(report())

    assert len(bars(picture)) == 4 + 3
    assert sum(text.startswith("wire") for text in texts(picture)) == 1


def test_the_published_chart_shows_the_published_results() -> None:
    picture = (ROOT / "bench" / "results" / "latest.svg").read_text(encoding="utf-8")

    assert chart.drawn(published()) == picture
