"""`python -m verification.bench`: run the benchmarks, show the results, and write them to files."""

from __future__ import annotations

import argparse
import asyncio
import logging
import re
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from local.stack.parts import ROOT
from outbox_relay.emulators.process import Stopped, until_done
from verification.bench import benchmark, pages
from verification.bench.benchmark import Benchmark, Plan
from verification.bench.coldstart import ColdStart
from verification.bench.counted import CountedWork
from verification.bench.feed import Feed
from verification.bench.imports import Imports
from verification.bench.latency import Latency
from verification.bench.live import Progress
from verification.bench.machine import Usage
from verification.bench.processor import Processor
from verification.bench.receiving import Receiving
from verification.bench.report import Report, compared_table, targets_table
from verification.bench.steady import Steady
from verification.bench.throughput import Throughput

_MARKED = re.compile(r"\*\*(.+?)\*\*")


def all_benchmarks() -> list[Benchmark]:
    """Return every benchmark, in the order in which they run and are reported."""
    return [
        Throughput(),
        CountedWork(),
        Processor(),
        Imports(),
        ColdStart(),
        Latency(),
        Feed(),
        Steady(),
        Receiving(),
    ]


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    listed = "\n".join(f"  {each.name:<12} {each.about}" for each in all_benchmarks())
    top = argparse.ArgumentParser(
        prog="python -m verification.bench",
        description="Measure the relay against its baselines, on the local stack.",
        epilog=f"benchmarks:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [each.name for each in all_benchmarks()]
    top.add_argument("--full", action="store_true", help="more turns, which make the intervals narrower")
    top.add_argument(
        "--only", nargs="+", choices=names, metavar="NAME", default=names, help="only these benchmarks"
    )
    top.add_argument("--seed", type=int, default=1, help="seed of workloads and arrivals (default: %(default)s)")
    return top


async def run(benchmarks: Sequence[Benchmark], *, full: bool, seed: int) -> tuple[Report, list[str]]:
    """Run these benchmarks, one after another; returns also the names of those that could not measure."""
    started = Usage.now()
    findings, failed = [], []
    with tempfile.TemporaryDirectory(prefix="outbox-relay-bench-") as scratch, Progress() as progress:
        for each in benchmarks:
            progress.step(each.name)
            try:
                findings.append(await each.run(Plan(full, seed, Path(scratch)), progress))
            except Exception:  # noqa: BLE001 - the others can still be measured
                traceback.print_exc()
                failed.append(each.name)
    return Report.of(findings, full=full, seed=seed, since=started), failed


def show(report: Report, before: Report, console: Console) -> None:
    """Print the tables, the targets last, and how they compare with a run before."""
    compared = compared_table(report.targets, before.targets)
    for each in (*report.tables, compared, targets_table(report.targets)):
        if each.rows:
            console.print(_rich(each))


def _rich(table: benchmark.Table) -> Table:
    shown = Table(title=table.title, title_justify="left", title_style="bold")
    for number, column in enumerate(table.columns):
        shown.add_column(column, justify="right" if number else "left")
    for row in table.rows:
        shown.add_row(*(_MARKED.sub(r"[bold red]\1[/]", cell) for cell in row))
    return shown


def main(arguments: Sequence[str]) -> int:
    """Run the benchmarks, and return the exit code.

    It is 0, whether targets are met or not; 1 when something could not be measured; 130 when stopped.
    """
    chosen = parser().parse_args(arguments)
    # The relay logs a line for each invocation: thousands.
    logging.getLogger("relay").setLevel(logging.ERROR)
    benchmarks = [each for each in all_benchmarks() if each.name in chosen.only]
    try:
        report, failed = asyncio.run(until_done(run(benchmarks, full=chosen.full, seed=chosen.seed)))
    except Stopped:
        return 130
    console = Console(width=None if sys.stdout.isatty() else 160)
    show(report, pages.published(ROOT), console)
    whole = chosen.full and len(benchmarks) == len(all_benchmarks()) and not failed
    # Only a full run of every benchmark replaces the published results.
    for path in pages.publish(report, ROOT) if whole else pages.write(report, ROOT / ".local" / "bench"):
        console.print(f"written: {path.relative_to(ROOT)}", highlight=False)
    console.print(report.busy, highlight=False)
    for name in failed:
        console.print(f"could not be measured: {name}", style="bold red", highlight=False)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
