"""Made-up findings of a run."""

from __future__ import annotations

from dataclasses import dataclass, field

from bench.benchmark import TIMES, Bound, Findings, Table, Target
from bench.contention import Usage
from bench.curves import Curve
from bench.report import Report
from bench.throughput import title


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
    """A target that is met, one that is not unless `cost` is 15 or less, two tables and a curve."""
    return Findings(
        targets=[
            Target("much faster", (21.0, 22.0, 23.0), TIMES, Bound.AT_LEAST, 20.0, headline=True),
            Target("no dearer", (cost - 1, cost, cost + 1), "µs", Bound.AT_MOST, 15.0, note="the worst of two"),
        ],
        tables=[
            Table("Some table", ("what", "how many"), (("a", "1"), ("b", "2")), "Prose above it."),
            Table(
                title(10),
                ("workload", "article", "relay", "SDK, prebuilt", "wire", "relay, µs/event"),
                (
                    ("100x1", "86", "1,986", "2,062", "3,972", "9"),
                    ("1x100", "4,075", "4,474", "7,004", "-", "9"),
                ),
            ),
        ],
        curves=[Curve("keys", "keys in an invocation", "events/s", ((1, 100), (10, 900), (100, 1000)))],
    )


def report(*, full: bool = False, cost: float = 17.0) -> Report:
    """A report of them."""
    return Report.of([findings(cost=cost)], full=full, seed=1, since=Usage.now())
