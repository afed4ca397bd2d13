"""Publication: the results as JSON and as a page, and the headlines of the README."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from local.stack.parts import ROOT
from tests.unit.bench.support import report
from verification.bench.benchmark import TIMES, Bound, Target
from verification.bench.machine import Usage
from verification.bench.pages import published
from verification.bench.report import Report, compared_table, headlines_table, targets_table


def test_a_report_can_be_read_back_from_its_json() -> None:
    written = report()

    read = Report.from_json(written.to_json())

    assert read.run == written.run
    assert read.targets == written.targets
    assert read.tables == written.tables


def test_the_json_has_one_line_per_target_and_row() -> None:
    lines = report().to_json().splitlines()

    assert sum('"name": "no dearer"' in line for line in lines) == 1
    assert sum('["a", "1"]' in line for line in lines) == 1
    assert max(map(len, lines)) < 1000


def test_the_json_says_of_each_target_whether_it_is_met() -> None:
    content = json.loads(report().to_json())

    judged = {each["name"]: (each["met"], each["median"], each["interval"]) for each in content["targets"]}
    assert judged == {"much faster": (True, 22.0, [21.0, 23.0]), "no dearer": (False, 17.0, [16.0, 18.0])}


def test_the_machine_is_described_without_its_name() -> None:
    machine = report().run["machine"]

    assert machine["cores"] >= 1
    assert {"python", "azure-servicebus"} <= set(machine)
    assert not {"node", "host", "hostname"} & set(machine)


def test_the_page_has_every_part_and_no_placeholder() -> None:
    page = report().to_markdown()

    assert "{{" not in page
    for part in (
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

    assert published().to_markdown() == page


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
