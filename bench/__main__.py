"""`python -m bench`: run the benchmarks, show what they found, and write it down."""

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

from bench import chart
from bench.benchmark import Benchmark, Findings, Plan
from bench.capacity import Capacity
from bench.ceiling import BrokerCeiling
from bench.contention import Usage
from bench.counted import CountedWork
from bench.hosts import Hosts
from bench.imports import Imports
from bench.latency import Latency
from bench.live import Progress
from bench.memory import Memory
from bench.processor import Processor
from bench.report import Report, shown
from bench.sweep import Sweep
from bench.throughput import Throughput
from local.stack.parts import ROOT
from outbox_emulators.process import Stopped, until_done

_QUICK_RESULTS = ROOT / ".local" / "bench"
_RESULTS = ROOT / "bench" / "results"
_PAGE = ROOT / "docs" / "benchmarks.md"


def all_benchmarks() -> list[Benchmark]:
    """Every benchmark, in the order in which they are run and reported."""
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
        Capacity(),
    ]


def parser() -> argparse.ArgumentParser:
    """The options."""
    listed = "\n".join(f"  {each.name:<12} {each.about}" for each in all_benchmarks())
    top = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure the relay beside its rivals, on the local stack.",
        epilog=f"benchmarks:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [each.name for each in all_benchmarks()]
    top.add_argument("--full", action="store_true", help="everything, in about 25 minutes")
    top.add_argument(
        "--only", nargs="+", choices=names, metavar="NAME", default=names, help="these benchmarks alone"
    )
    top.add_argument("--seed", type=int, default=1, help="of workloads and arrivals (%(default)s)")
    return top


async def run(benchmarks: Sequence[Benchmark], *, full: bool, seed: int) -> Report:
    """Run these benchmarks, one after another."""
    started = Usage.now()
    findings: dict[str, Findings] = {}
    with tempfile.TemporaryDirectory(prefix="outbox-relay-bench-") as scratch, Progress() as progress:
        for benchmark in benchmarks:
            progress.step(benchmark.name)
            findings[benchmark.name] = await benchmark.run(Plan(full, seed, Path(scratch)), progress)
    return Report.of(findings, full=full, seed=seed, since=started)


def show(report: Report, console: Console) -> None:
    """The tables, the targets last."""
    for each in report.tables:
        table = Table(title=each.title, title_justify="left", title_style="bold")
        for number, column in enumerate(each.columns):
            table.add_column(column, justify="right" if number else "left")
        for row in each.rows:
            table.add_row(*row)
        console.print(table)
    targets = Table(title="Targets", title_justify="left", title_style="bold")
    for column in ("what", "target", "measured", "met"):
        targets.add_column(column)
    for target in report.targets:
        measured = f"{shown(target.measured)} {target.figure.unit}"
        targets.add_row(target.name, target.target, measured, "yes" if target.met else "[bold red]no[/]")
    console.print(targets)


def write(report: Report, *, whole: bool) -> list[Path]:
    """Write the report, its chart and its page; returns where.

    Only a full run of every benchmark goes where results are kept: a quick one must not replace them.
    """
    folder, page = (
        (_RESULTS, _PAGE) if whole and report.full else (_QUICK_RESULTS, _QUICK_RESULTS / "benchmarks.md")
    )
    folder.mkdir(parents=True, exist_ok=True)
    results, picture = folder / "latest.json", folder / "latest.svg"
    results.write_text(report.to_json())
    chart.draw(report.figures, report.targets, picture)
    page.write_text(report.to_markdown(chart="../bench/results/latest.svg" if page == _PAGE else "latest.svg"))
    return [results, picture, page]


def main(arguments: Sequence[str]) -> int:
    """0 when every target was met or its miss is explained, 1 when not, 130 when stopped."""
    chosen = parser().parse_args(arguments)
    # The relay's line for each invocation would be thousands.
    logging.getLogger("relay").setLevel(logging.ERROR)
    benchmarks = [each for each in all_benchmarks() if each.name in chosen.only]
    try:
        report = asyncio.run(until_done(run(benchmarks, full=chosen.full, seed=chosen.seed)))
    except Stopped:
        return 130
    console = Console(width=None if sys.stdout.isatty() else 160)
    show(report, console)
    for path in write(report, whole=len(benchmarks) == len(all_benchmarks())):
        console.print(f"written: {path.relative_to(ROOT)}", highlight=False)
    console.print(report.busy, highlight=False)
    for target in report.unexplained:
        console.print(f"missed, and not explained: {target.name}", style="bold red", highlight=False)
    return 1 if report.unexplained else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
