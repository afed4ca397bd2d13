"""`python -m bench`, with benchmarks that measure nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="requirements-bench.txt is not installed")

from bench import __main__ as command
from bench import explanations
from bench.benchmark import Benchmark, Findings, Live, Plan
from tests.unit.bench.support import findings


class MadeUp:
    """Finds at once what it is given."""

    about = "nothing is measured"

    def __init__(self, name: str) -> None:
        self.name = name

    async def run(self, plan: Plan, live: Live) -> Findings:
        assert plan.scratch.is_dir()
        live.step(f"{self.name}, {'full' if plan.full else 'quick'}")
        return findings()


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The command in a folder of its own."""
    benchmarks: list[Benchmark] = [MadeUp("one"), MadeUp("two")]
    monkeypatch.setattr(command, "all_benchmarks", lambda: benchmarks)
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command, "_QUICK_RESULTS", tmp_path / "quick")
    monkeypatch.setattr(command, "_RESULTS", tmp_path / "results")
    monkeypatch.setattr(command, "_PAGE", tmp_path / "benchmarks.md")
    return tmp_path


def written(places: Path) -> set[str]:
    return {str(path.relative_to(places)) for path in places.rglob("*") if path.is_file()}


def test_a_quick_run_leaves_the_results_that_are_kept_alone(places: Path) -> None:
    command.main([])

    assert written(places) == {"quick/latest.json", "quick/latest.svg", "quick/benchmarks.md"}


def test_a_full_run_writes_the_results_and_the_page(places: Path) -> None:
    command.main(["--full"])

    assert written(places) == {"results/latest.json", "results/latest.svg", "benchmarks.md"}
    assert json.loads((places / "results" / "latest.json").read_text())["full"] is True


def test_a_full_run_of_one_benchmark_does_not_pass_for_the_whole(places: Path) -> None:
    command.main(["--full", "--only", "two"])

    assert "results/latest.json" not in written(places)
    assert "benchmarks.md" not in written(places)


def test_a_miss_that_nobody_explains_is_a_failure(
    places: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command.main([]) == 1
    assert "missed, and not explained: no dearer" in capsys.readouterr().out

    monkeypatch.setitem(explanations.EXPLANATIONS, "made-up", "It is dear because of that.")

    assert command.main([]) == 0


def test_every_benchmark_has_a_name_of_its_own_and_is_in_the_help() -> None:
    names = [each.name for each in command.all_benchmarks()]

    assert len(set(names)) == len(names)
    assert all(f"  {name} " in command.parser().format_help() for name in names)
