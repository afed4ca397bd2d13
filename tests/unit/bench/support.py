"""Made-up findings of a run."""

from __future__ import annotations

from dataclasses import dataclass, field

from verification.bench.benchmark import TIMES, Bound, Findings, Table, Target
from verification.bench.machine import Usage
from verification.bench.report import Report


@dataclass(slots=True)
class RecordedProgress:
    """A Live that keeps what was reported to it."""

    steps: list[str] = field(default_factory=list)
    rates: list[tuple[float, str]] = field(default_factory=list)

    def step(self, what: str) -> None:
        self.steps.append(what)

    def rate(self, value: float, unit: str) -> None:
        self.rates.append((value, unit))


def findings(*, cost: float = 17.0) -> Findings:
    """A target that is met, one that is not unless `cost` is 15 or less, and a table."""
    return Findings(
        targets=[
            Target("much faster", (21.0, 22.0, 23.0), TIMES, Bound.AT_LEAST, 20.0, headline=True),
            Target("no dearer", (cost - 1, cost, cost + 1), "µs", Bound.AT_MOST, 15.0, note="the worst of two"),
        ],
        tables=[
            Table("Some table", ("what", "how many"), (("a", "1"), ("b", "2")), "Prose above it."),
        ],
    )


def report(*, full: bool = False, cost: float = 17.0) -> Report:
    """A report of them."""
    return Report.of([findings(cost=cost)], full=full, seed=1, since=Usage.now())
