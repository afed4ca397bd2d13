"""The files that a run writes. `python -m bench.pages` makes the published ones again from `latest.json`."""

from __future__ import annotations

from pathlib import Path

from bench import chart, curves
from bench.report import Report
from local.stack.parts import ROOT


def write(report: Report, folder: Path) -> list[Path]:
    """Write a run's results, their chart and their page into a folder; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    results, page = folder / "latest.json", folder / "benchmarks.md"
    results.write_text(report.to_json(), encoding="utf-8")
    page.write_text(report.to_markdown(chart="latest.svg"), encoding="utf-8")
    return [results, _chart(report, folder), page]


def publish(report: Report, root: Path = ROOT) -> list[Path]:
    """Write what a full run publishes; returns the files.

    These are the results, the chart, docs/benchmarks.md, the curves of docs/capacity.md and the headlines of
    README.md.

    Raises:
        KeyError: A curve of docs/capacity.md was not measured.
    """
    folder, docs = root / "bench" / "results", root / "docs"
    page, capacity, readme = docs / "benchmarks.md", docs / "capacity.md", root / "README.md"
    drawn = curves.rendered(capacity.read_text(encoding="utf-8"), report.curves)
    capacity.write_text(drawn, encoding="utf-8")
    readme.write_text(report.headlined(readme.read_text(encoding="utf-8")), encoding="utf-8")
    results = folder / "latest.json"
    results.write_text(report.to_json(), encoding="utf-8")
    page.write_text(report.to_markdown(chart="../bench/results/latest.svg"), encoding="utf-8")
    return [results, _chart(report, folder), page, capacity, readme]


def published(root: Path = ROOT) -> Report:
    """Return the results of the last full run."""
    return Report.from_json((root / "bench" / "results" / "latest.json").read_text(encoding="utf-8"))


def _chart(report: Report, folder: Path) -> Path:
    path = folder / "latest.svg"
    path.write_text(chart.drawn(report), encoding="utf-8")
    return path


if __name__ == "__main__":
    publish(published())
