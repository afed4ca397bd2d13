"""A run's findings, made up."""

from __future__ import annotations

from dataclasses import dataclass, field

from bench.benchmark import TIMES, Bound, Figure, Findings, Table, Target
from bench.contention import Usage
from bench.report import Report


@dataclass(slots=True)
class Told:
    """A Live that keeps what it is told."""

    steps: list[str] = field(default_factory=list)
    rates: list[tuple[float, str]] = field(default_factory=list)

    def step(self, what: str) -> None:
        self.steps.append(what)

    def rate(self, value: float, unit: str) -> None:
        self.rates.append((value, unit))


def findings() -> Findings:
    """Throughput of two rivals at two delays, a curve, a target met and one missed."""
    figures = [
        Figure(f"throughput/{delay} ms {workload}/{rival}", "events/s", (rate, rate * 1.1, rate * 0.9))
        for delay in (0, 10)
        for workload in ("100x1", "zipf 100")
        for rival, rate in (("article", 90.0), ("relay", 2000.0))
    ]
    figures += [Figure(f"sweep/10 ms, {senders} senders", "sends/s", (senders * 90.0,)) for senders in (1, 8, 32)]
    return Findings(
        figures=figures,
        targets=[
            Target("much faster", Figure("ratio/much", TIMES, (21.0, 22.0, 23.0)), Bound.AT_LEAST, 20.0),
            Target("no dearer", Figure("cost", "µs", (16.0, 18.0, 17.0)), Bound.AT_MOST, 15.0, key="made-up"),
        ],
        tables=[Table("Some table", ("what", "how many"), (("a", "1"), ("b", "2")), "Prose above it.")],
    )


def report(*, full: bool = False) -> Report:
    """A report of them."""
    return Report.of({"made-up": findings()}, full=full, seed=1, since=Usage.now())
