"""`python -m verification.bench`, with benchmarks that measure nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.bench.support import findings, report
from verification.bench import __main__ as command
from verification.bench.benchmark import Benchmark, Findings, Live, Plan
from verification.bench.report import Report


class MadeUp:
    """Returns made-up findings at once."""

    about = "nothing is measured"

    def __init__(self, name: str) -> None:
        self.name = name

    async def run(self, plan: Plan, live: Live) -> Findings:
        assert plan.scratch.is_dir()
        live.step(f"{self.name}, {'full' if plan.full else 'quick'}")
        return findings()


class Broken(MadeUp):
    """Cannot measure."""

    async def run(self, plan: Plan, live: Live) -> Findings:
        raise RuntimeError("no broker")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the command writes; results in which the second target is missed are published there."""
    benchmarks: list[Benchmark] = [MadeUp("one"), MadeUp("two")]
    monkeypatch.setattr(command, "all_benchmarks", lambda: benchmarks)
    monkeypatch.setattr(command, "ROOT", tmp_path)
    for name in ("verification/bench/results", "docs"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "README.md").write_text("<!-- headlines -->\n<!-- end -->\n")
    publish(tmp_path, report())
    return tmp_path


def publish(folder: Path, found: Report) -> None:
    (folder / "verification/bench/results" / "latest.json").write_text(found.to_json())


def written(folder: Path) -> set[str]:
    """In addition to the fixture's files."""
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return files - {"README.md", "verification/bench/results/latest.json"}


def test_a_quick_run_leaves_the_published_results_alone(folder: Path) -> None:
    command.main([])

    assert written(folder) == {f".local/bench/{name}" for name in ("latest.json", "benchmarks.md")}


def test_a_full_run_publishes_results_page_and_headlines(folder: Path) -> None:
    command.main(["--full"])

    assert written(folder) == {"docs/benchmarks.md"}
    assert "| what | measured |" in (folder / "README.md").read_text()
    assert json.loads((folder / "verification/bench/results" / "latest.json").read_text())["run"]["full"] is True


def test_a_full_run_of_one_benchmark_is_not_published(folder: Path) -> None:
    command.main(["--full", "--only", "two"])

    assert "docs/benchmarks.md" not in written(folder)
    assert "| what | measured |" not in (folder / "README.md").read_text()


def test_a_missed_target_is_shown_and_compared_and_is_no_failure(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(folder, report(cost=10.0))

    assert command.main([]) == 0

    shown = capsys.readouterr().out
    assert "Against the published results" in shown
    assert "worse" in shown


def test_a_benchmark_that_cannot_measure_fails_the_run_but_not_the_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmarks: list[Benchmark] = [Broken("one"), MadeUp("two")]
    monkeypatch.setattr(command, "all_benchmarks", lambda: benchmarks)

    assert command.main(["--full"]) == 1

    output = capsys.readouterr()
    assert "could not be measured: one" in output.out
    assert "RuntimeError: no broker" in output.err
    assert "much faster" in (folder / ".local" / "bench" / "benchmarks.md").read_text()
    assert "docs/benchmarks.md" not in written(folder)


def test_every_benchmark_has_its_own_name_and_is_in_the_help() -> None:
    names = [each.name for each in command.all_benchmarks()]

    assert len(set(names)) == len(names)
    assert all(f"  {name} " in command.parser().format_help() for name in names)
