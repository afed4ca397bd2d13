"""The results of a run, as JSON and as a page."""

from __future__ import annotations

from bench.__main__ import published
from bench.contention import Usage
from bench.report import Report
from local.stack.parts import ROOT
from tests.unit.bench.support import report


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


def test_only_a_target_that_was_met_before_is_a_regression() -> None:
    assert [target.name for target in report().regressions(report(cost=14.0))] == ["no dearer"]
    assert report().regressions(report()) == []
    assert report(cost=14.0).regressions(report()) == []


def test_a_busy_machine_is_reported() -> None:
    quiet, busy = Usage(0.0, 0.0, 0.0), Usage(1e9, 0.0, 10.0)

    assert busy.others_share(quiet) == 1.0
    assert Usage(0.5, 0.5, 10.0).others_share(quiet) == 0.0
    assert "measure again" in Report({"used_by_others": 1.0}, (), ()).busy
    assert "measure again" not in Report({"used_by_others": 0.05}, (), ()).busy
