"""What a run found, as JSON and as markdown."""

from __future__ import annotations

import json

import pytest

from bench import explanations
from bench.benchmark import Figure, Findings
from bench.contention import Usage
from bench.report import Report
from tests.unit.bench.support import report


def test_the_json_lists_targets_with_what_was_measured() -> None:
    targets = json.loads(report().to_json())["targets"]

    told = [(target["name"], target["target"], target["measured"], target["met"]) for target in targets]
    assert told == [("much faster", "≥ 20 ×", 22.0, True), ("no dearer", "≤ 15 µs", 17.0, False)]  # noqa: RUF001
    assert targets[0]["spread"] == [21.0, 23.0]
    assert targets[0]["repeats"] == 3


def test_every_figure_has_its_median_spread_and_repeats() -> None:
    content = json.loads(report().to_json())

    names = [figure["name"] for figure in content["figures"]]
    assert len(names) == len(set(names)) == 13
    assert all({"median", "spread", "repeats", "values", "unit"} <= set(figure) for figure in content["figures"])


def test_the_machine_is_told_without_a_name() -> None:
    machine = json.loads(report().to_json())["machine"]

    assert machine["cores"] >= 1
    assert {"python", "azure-servicebus"} <= set(machine)
    assert not {"node", "host", "hostname"} & set(machine)


def test_the_page_has_every_part_and_no_placeholder_left() -> None:
    page = report().to_markdown(chart="latest.svg")

    assert "{{" not in page
    for part in ("latest.svg", "| no dearer |", "### Some table", "Prose above it.", "| b | 2 |", "Quick run"):
        assert part in page


def test_a_miss_without_an_explanation_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [target.name for target in report().unexplained] == ["no dearer"]
    assert "Not explained yet." in report().to_markdown(chart="x")

    monkeypatch.setitem(explanations.EXPLANATIONS, "made-up", "It is dear because of that.")

    assert report().unexplained == []
    assert "**no dearer.** It is dear because of that." in report().to_markdown(chart="x")
    assert json.loads(report().to_json())["targets"][1]["explanation"] == "It is dear because of that."


def test_an_explanation_is_not_shown_once_the_target_is_met(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(explanations.EXPLANATIONS, "much faster", "A reason of old.")

    assert "A reason of old." not in report().to_markdown(chart="x")


def test_a_figure_that_is_judged_and_listed_stands_there_once() -> None:
    figure = Figure("same", "ms", (1.0,))
    found = Report.of({"a": Findings([figure, figure])}, full=False, seed=1, since=Usage.now())

    assert [each.name for each in found.figures] == ["same"]


def test_a_busy_machine_is_told() -> None:
    quiet, busy = Usage(0.0, 0.0, 0.0), Usage(1e9, 0.0, 10.0)

    assert busy.others_share(quiet) == 1.0
    assert Usage(0.5, 0.5, 10.0).others_share(quiet) == 0.0
