"""`python -m bench`: run the benchmarks, show the results, and write them to files."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import benchmark, capacity_page, chart
from bench.benchmark import Benchmark, Plan
from bench.ceiling import BrokerCeiling
from bench.contention import Usage
from bench.counted import CountedWork
from bench.feed import Feed
from bench.hosts import Hosts
from bench.imports import Imports
from bench.latency import Latency
from bench.live import Progress
from bench.memory import Memory
from bench.processor import Processor
from bench.report import Report, targets_table
from bench.sources import Sources
from bench.sweep import Sweep
from bench.throughput import Throughput
from local.stack.parts import ROOT
from outbox_emulators.command_line import Parser
from outbox_emulators.process import Stopped, until_done

_QUICK_RESULTS = ROOT / ".local" / "bench"
_RESULTS = ROOT / "bench" / "results"
_PAGE = ROOT / "docs" / "benchmarks.md"


def all_benchmarks() -> list[Benchmark]:
    """Every benchmark, in the order in which they run and are reported."""
    return [
        Throughput(),
        Processor(),
        Imports(),
        Memory(),
        CountedWork(),
        BrokerCeiling(),
        Sweep(),
        Latency(),
        Hosts(),
        Feed(),
        Sources(),
    ]


def parser() -> argparse.ArgumentParser:
    """The options."""
    listed = "\n".join(f"  {each.name:<12} {each.about}" for each in all_benchmarks())
    top = Parser(
        prog="python -m bench",
        description="Measure the relay beside its baselines, on the local stack.",
        epilog=f"benchmarks:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [each.name for each in all_benchmarks()]
    top.add_argument("--full", action="store_true", help="every measurement, in about half an hour")
    top.add_argument(
        "--only", nargs="+", choices=names, metavar="NAME", default=names, help="only these benchmarks"
    )
    top.add_argument("--seed", type=int, default=1, help="seed of workloads and arrivals (default: %(default)s)")
    return top


async def run(benchmarks: Sequence[Benchmark], *, full: bool, seed: int) -> Report:
    """Run these benchmarks, one after another."""
    started = Usage.now()
    findings = []
    with tempfile.TemporaryDirectory(prefix="outbox-relay-bench-") as scratch, Progress() as progress:
        for each in benchmarks:
            progress.step(each.name)
            findings.append(await each.run(Plan(full, seed, Path(scratch)), progress))
    return Report.of(findings, full=full, seed=seed, since=started)


def show(report: Report, console: Console) -> None:
    """Print the tables, the targets last."""
    for each in (*report.tables, targets_table(report.targets)):
        console.print(_rich(each))


def _rich(table: benchmark.Table) -> Table:
    shown = Table(title=table.title, title_justify="left", title_style="bold")
    for number, column in enumerate(table.columns):
        shown.add_column(column, justify="right" if number else "left")
    for row in table.rows:
        shown.add_row(*(cell.replace("**no**", "[bold red]no[/]") for cell in row))
    return shown


def write(report: Report, *, whole: bool) -> list[Path]:
    """Write the results, their chart and their page; returns the files.

    Only a full run of every benchmark replaces the published results, on which the capacity page is based.
    """
    publish = whole and bool(report.run["full"])
    folder, page = (_RESULTS, _PAGE) if publish else (_QUICK_RESULTS, _QUICK_RESULTS / "benchmarks.md")
    folder.mkdir(parents=True, exist_ok=True)
    results, picture = folder / "latest.json", folder / "latest.svg"
    results.write_text(report.to_json(), encoding="utf-8")
    picture.write_text(chart.drawn(report.tables), encoding="utf-8")
    page.write_text(
        report.to_markdown(chart="../bench/results/latest.svg" if publish else "latest.svg"), encoding="utf-8"
    )
    if publish:
        capacity_page.write(report)
    return [results, picture, page]


def published() -> Report:
    """The results of the last full run."""
    return Report.from_json((_RESULTS / "latest.json").read_text(encoding="utf-8"))


def main(arguments: Sequence[str]) -> int:
    """0; 1 when a target is missed that the published results met; 130 when stopped."""
    chosen = parser().parse_args(arguments)
    # The relay logs a line for each invocation: thousands.
    logging.getLogger("relay").setLevel(logging.ERROR)
    benchmarks = [each for each in all_benchmarks() if each.name in chosen.only]
    try:
        report = asyncio.run(until_done(run(benchmarks, full=chosen.full, seed=chosen.seed)))
    except Stopped:
        return 130
    regressions = report.regressions(published())
    console = Console(width=None if sys.stdout.isatty() else 160)
    show(report, console)
    for path in write(report, whole=len(benchmarks) == len(all_benchmarks())):
        console.print(f"written: {path.relative_to(ROOT)}", highlight=False)
    console.print(report.busy, highlight=False)
    for target in regressions:
        console.print(
            f"missed, but met in the published results: {target.name}", style="bold red", highlight=False
        )
    return 1 if regressions else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
