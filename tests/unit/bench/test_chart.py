"""The chart."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib", reason="requirements-bench.txt is not installed")

from bench import chart
from tests.unit.bench.support import findings


def drawn(path: Path) -> str:
    found = findings()
    chart.draw(found.figures, found.targets, path)
    return path.read_text()


def test_it_shows_targets_rivals_and_senders_as_text(tmp_path: Path) -> None:
    picture = drawn(tmp_path / "chart.svg")

    texts = " ".join(ElementTree.fromstring(picture).itertext())
    for text in ("no dearer", "article", "relay", "broker answers after 10 ms", "RELAY_SENDERS"):
        assert text in texts


def test_the_same_figures_give_the_same_file(tmp_path: Path) -> None:
    assert drawn(tmp_path / "one.svg") == drawn(tmp_path / "other.svg")


def test_a_run_of_one_benchmark_has_a_chart_too(tmp_path: Path) -> None:
    found = findings()
    chart.draw([], found.targets, tmp_path / "targets.svg")
    chart.draw(found.figures, [], tmp_path / "figures.svg")

    assert ElementTree.parse(tmp_path / "targets.svg").getroot() is not None
    assert ElementTree.parse(tmp_path / "figures.svg").getroot() is not None
