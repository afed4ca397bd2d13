"""`python -m bench`, with benchmarks that measure nothing."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import __main__ as command
from bench import capacity_page
from bench.benchmark import Benchmark, Findings, Live, Plan
from bench.report import Report
from tests.unit.bench.support import findings, report


class MadeUp:
    """Returns made-up findings at once."""

    about = "nothing is measured"

    def __init__(self, name: str) -> None:
        self.name = name

    async def run(self, plan: Plan, live: Live) -> Findings:
        assert plan.scratch.is_dir()
        live.step(f"{self.name}, {'full' if plan.full else 'quick'}")
        return findings()


@pytest.fixture(autouse=True)
def relay_logger() -> Iterator[None]:
    """The command silences this logger, which other tests in this process use."""
    yield
    logging.getLogger("relay").setLevel(logging.NOTSET)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the command writes; results in which the second target is missed are published there."""
    benchmarks: list[Benchmark] = [MadeUp("one"), MadeUp("two")]
    monkeypatch.setattr(command, "all_benchmarks", lambda: benchmarks)
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command, "_QUICK_RESULTS", tmp_path / "quick")
    monkeypatch.setattr(command, "_RESULTS", tmp_path / "results")
    monkeypatch.setattr(command, "_PAGE", tmp_path / "benchmarks.md")
    monkeypatch.setattr(
        capacity_page, "write", lambda found: (tmp_path / "capacity.md").write_text(found.to_json())
    )
    publish(tmp_path, report())
    return tmp_path


def publish(folder: Path, found: Report) -> None:
    (folder / "results").mkdir(exist_ok=True)
    (folder / "results" / "latest.json").write_text(found.to_json())


def written(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} - {
        "results/latest.json"
    }


def test_a_quick_run_leaves_the_published_results_alone(folder: Path) -> None:
    command.main([])

    assert written(folder) == {"quick/latest.json", "quick/latest.svg", "quick/benchmarks.md"}


def test_a_full_run_publishes_results_and_both_pages(folder: Path) -> None:
    command.main(["--full"])

    assert written(folder) == {"results/latest.svg", "benchmarks.md", "capacity.md"}
    assert json.loads((folder / "results" / "latest.json").read_text())["run"]["full"] is True


def test_a_full_run_of_one_benchmark_is_not_published(folder: Path) -> None:
    command.main(["--full", "--only", "two"])

    assert not {"results/latest.svg", "benchmarks.md", "capacity.md"} & written(folder)


def test_a_miss_fails_the_run_only_if_the_published_results_met_the_target(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([]) == 0

    publish(folder, report(cost=14.0))

    assert command.main([]) == 1
    assert "missed, but met in the published results: no dearer" in capsys.readouterr().out


def test_every_benchmark_has_its_own_name_and_is_in_the_help() -> None:
    names = [each.name for each in command.all_benchmarks()]

    assert len(set(names)) == len(names)
    assert all(f"  {name} " in command.parser().format_help() for name in names)
