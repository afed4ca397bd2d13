"""Write the files of a run. `python -m verification.bench.pages` makes the published ones of `latest.json`."""

from __future__ import annotations

from pathlib import Path

from local.stack.parts import ROOT
from verification.bench.report import Report


def write(report: Report, folder: Path) -> list[Path]:
    """Write a run's results and their page into a folder; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    results, page = folder / "latest.json", folder / "benchmarks.md"
    results.write_text(report.to_json(), encoding="utf-8")
    page.write_text(report.to_markdown(), encoding="utf-8")
    return [results, page]


def publish(report: Report, root: Path = ROOT) -> list[Path]:
    """Write what a full run publishes: its results, docs/benchmarks.md and the headlines of README.md.

    Returns:
        The files.
    """
    results, page, readme = _results(root), root / "docs" / "benchmarks.md", root / "README.md"
    readme.write_text(report.headlined(readme.read_text(encoding="utf-8")), encoding="utf-8")
    results.write_text(report.to_json(), encoding="utf-8")
    page.write_text(report.to_markdown(), encoding="utf-8")
    return [results, page, readme]


def published(root: Path = ROOT) -> Report:
    """Return the results of the last full run."""
    return Report.from_json(_results(root).read_text(encoding="utf-8"))


def _results(root: Path) -> Path:
    return root / "verification" / "bench" / "results" / "latest.json"


if __name__ == "__main__":
    publish(published())
