"""Publication: the results as JSON and as a page, the chart, and curves with the page that has them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from bench import chart
from bench.benchmark import TIMES, Bound, Target
from bench.contention import Usage
from bench.curves import Curve, rendered
from bench.pages import published
from bench.report import Report, compared_table, headlines_table, targets_table
from local.stack.parts import ROOT
from tests.unit.bench.support import report


def test_a_report_can_be_read_back_from_its_json() -> None:
    written = report()

    read = Report.from_json(written.to_json())

    assert read.run == written.run
    assert read.targets == written.targets
    assert read.tables == written.tables
    assert read.curves == written.curves


def test_the_json_has_one_line_per_target_and_row() -> None:
    lines = report().to_json().splitlines()

    assert sum('"name": "no dearer"' in line for line in lines) == 1
    assert sum('["a", "1"]' in line for line in lines) == 1
    assert max(map(len, lines)) < 1000


def test_the_json_says_of_each_target_whether_it_is_met() -> None:
    content = json.loads(report().to_json())

    judged = {each["name"]: (each["met"], each["median"], each["interval"]) for each in content["targets"]}
    assert judged == {"much faster": (True, 22.0, [21.0, 23.0]), "no dearer": (False, 17.0, [16.0, 18.0])}
    assert content["curves"][0]["bend"] == 10


def test_the_machine_is_described_without_its_name() -> None:
    machine = report().run["machine"]

    assert machine["cores"] >= 1
    assert {"python", "azure-servicebus"} <= set(machine)
    assert not {"node", "host", "hostname"} & set(machine)


def test_the_page_has_every_part_and_no_placeholder() -> None:
    page = report().to_markdown(chart="latest.svg")

    assert "{{" not in page
    for part in (
        "latest.svg",
        "| no dearer (the worst of two) |",
        "### Some table",
        "Prose above it.",
        "| b | 2 |",
    ):
        assert part in page
    assert "Quick run" in page
    assert "| ≤ 15 µs | 17.0 µs | 16.0 to 18.0 | **no** |" in page


def test_the_published_page_is_rendered_from_the_published_results() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")

    assert published().to_markdown(chart="../bench/results/latest.svg") == page


def test_headlines_are_few_and_stand_between_markers() -> None:
    targets = [Target(f"t{n}", (1.0,), TIMES, Bound.AT_LEAST, 1.0, headline=n > 0) for n in range(9)]
    page = "# Page\n\n<!-- headlines -->\nold\n<!-- end -->\n\nMore.\n"

    written = replace(report(), targets=tuple(targets)).headlined(page)

    assert written.startswith("# Page\n\n<!-- headlines -->\n| what | measured |\n")
    assert written.endswith("\n<!-- end -->\n\nMore.\n")
    assert re.findall(r"\| (t\d) \|", written) == ["t1", "t2", "t3", "t4"]
    assert "misses" not in written
    assert "old" not in written


def test_a_headline_that_misses_its_target_says_so() -> None:
    missed = Target("t1", (1.0,), "ms", Bound.AT_MOST, 0.5, headline=True)

    assert headlines_table([missed]).rows == (("t1", "1.00 ms, **misses ≤ 0.5 ms**"),)


def test_the_readme_has_the_published_headlines() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")

    assert page.count("<!-- headlines -->") == 1
    assert published().headlined(page) == page


@pytest.mark.parametrize(
    ("bound", "now", "change"),
    [
        (Bound.AT_MOST, 10.0, "better"),
        (Bound.AT_MOST, 17.5, "none that is certain"),
        (Bound.AT_MOST, 30.0, "**worse**"),
        (Bound.AT_LEAST, 10.0, "**worse**"),
        (Bound.AT_LEAST, 30.0, "better"),
    ],
)
def test_two_runs_differ_only_where_their_intervals_do_not_meet(bound: Bound, now: float, change: str) -> None:
    before, later = (Target("cost", (middle - 1, middle, middle + 1), "µs", bound, 15.0) for middle in (17.0, now))
    unknown = replace(later, name="new")

    table = compared_table([later, unknown], [before])

    assert [row[0] for row in table.rows] == ["cost"]
    assert table.rows[0][-1] == change


def test_a_count_has_no_decimals() -> None:
    table = targets_table([Target("connections", (32.0,), "", Bound.AT_MOST, 2)])

    assert table.rows == (("connections", "≤ 2", "32", "32", "**no**"),)


def test_a_busy_machine_is_reported() -> None:
    quiet, busy = Usage(0.0, 0.0, 0.0), Usage(1e9, 0.0, 10.0)

    assert busy.others_share(quiet) == 1.0
    assert Usage(0.5, 0.5, 10.0).others_share(quiet) == 0.0
    assert "measure again" in Report({"used_by_others": 1.0}, (), ()).busy
    assert "measure again" not in Report({"used_by_others": 0.05}, (), ()).busy


# The chart


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


# Curves, and the page that has them


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
