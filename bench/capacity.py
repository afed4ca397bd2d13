"""The capacity model held against measured points, as a benchmark and as a command.

`python -m bench.capacity --check` measures the costs of the steps and compares what the model makes of them with
what is measured, `--full` on the whole stack too; `--write` renders the tables of docs/capacity.md anew.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from bench import capacity_doc, capacity_stack
from bench.benchmark import Bound, Figure, Findings, Live, Plan, Table, Target
from bench.capacity_flow import Costs
from bench.capacity_points import FULL_POINTS, QUICK_POINTS, Bench, Compared

_TOLERANCE = 15.0


class Capacity:
    """The benchmark."""

    name = "capacity"
    about = "The capacity model's predictions beside measured points."

    async def run(self, plan: Plan, live: Live) -> Findings:
        """Measure the costs, predict, measure."""
        costs, found = await check(plan, live)
        errors = tuple(compared.error * 100 for compared in found)
        worst = Figure("capacity/worst error", "%", (max(errors),), f"of {len(found)} points")
        name = f"capacity model, worst error of {len(found)} points"
        return Findings(
            figures=[Figure(f"capacity/{compared.name}", compared.unit, compared.measured) for compared in found],
            targets=[Target(name, worst, Bound.AT_MOST, _TOLERANCE, key="capacity")],
            tables=[_points_table(found), _costs_table(costs)],
        )


async def check(plan: Plan, live: Live) -> tuple[Costs, list[Compared]]:
    """The costs as measured now, and every point beside its prediction."""
    points = plan.pick(quick=QUICK_POINTS, full=FULL_POINTS)
    live.step("capacity: opening brokers and relays")
    async with Bench(points, plan, live) as bench:
        costs, found = await bench.compare(plan.pick(quick=3, full=7))
    if plan.full:
        costs = await capacity_stack.page_costs(costs, plan, live)
        found += await capacity_stack.compare_hosts(costs, plan, live)
        found.append(await capacity_stack.compare_latency(costs, plan, live))
    return costs, found


def _points_table(found: list[Compared]) -> Table:
    rows = [
        (
            compared.name,
            f"{statistics.median(compared.predicted):.0f}",
            f"{statistics.median(compared.measured):.0f}",
            compared.unit,
            f"{compared.error * 100:.1f} %",
        )
        for compared in found
    ]
    return Table(
        "The capacity model's predictions",
        ("point", "predicted", "measured", "unit", "error"),
        tuple(rows),
        "The model knows what a send, an event, a byte and (on the whole stack) a page cost, from runs of "
        "100 x 1, 50 x 2 and 1 x 100 just before. What it makes of other delays, shapes, senders, sizes and hosts "
        "stands beside what was then measured.",
    )


def _costs_table(costs: Costs) -> Table:
    rows = tuple((name, f"{seconds * 1e6:.3f}") for name, seconds in asdict(costs).items())
    return Table("What the steps cost", ("step", "µs"), rows)


class _Lines:
    """Tells how it goes on standard error."""

    def step(self, what: str) -> None:
        print(what, file=sys.stderr)

    def rate(self, value: float, unit: str) -> None:
        print(f"    {value:.1f} {unit}", file=sys.stderr)


def main() -> int:
    """0; 1 when a prediction is off by more than 15 %."""
    parser = argparse.ArgumentParser(prog="python -m bench.capacity", description=__doc__)
    parser.add_argument("--check", action="store_true", help="measure, and compare with predictions")
    parser.add_argument("--full", action="store_true", help="check on the whole stack too")
    parser.add_argument("--write", action="store_true", help="render the tables of docs/capacity.md")
    arguments = parser.parse_args()
    if not (arguments.check or arguments.write):
        parser.error("give --check, --write, or both")
    if arguments.write:
        capacity_doc.write()
    return _check(full=arguments.full) if arguments.check else 0


def _check(*, full: bool) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        costs, found = asyncio.run(check(Plan(full=full, seed=1, scratch=Path(scratch)), _Lines()))
    for table in (_costs_table(costs), _points_table(found)):
        print("\n".join(capacity_doc.markdown(table.columns, table.rows)), end="\n\n")
    worst = max(compared.error for compared in found) * 100
    print(f"The worst of {len(found)} predictions is {worst:.1f} % off; at most {_TOLERANCE:.0f} % is the target.")
    return 0 if worst <= _TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
