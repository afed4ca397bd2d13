"""What a benchmark is: given a plan, it measures, and returns targets and tables.

Each benchmark is a class in its own module, listed in `bench.__main__`. It measures the relay in turns with its
baselines. How findings are shown, stored and drawn is not its concern.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol, TypeVar

T = TypeVar("T")

TIMES = "\u00d7"
"""The unit of a ratio."""


class Bound(StrEnum):
    """On which side of its limit a target is met."""

    AT_LEAST = "≥"
    AT_MOST = "≤"


@dataclass(frozen=True, slots=True)
class Target:
    """A measured quantity whose median has a limit.

    Attributes:
        name: Unique in a run, such as `against the article's handler, 10 ms, 100x1`.
        values: One per repeat, in the order measured; at least one.
        unit: `ms`, `TIMES`, `µs`, `%`, ….
        bound: On which side of `limit` the target is met.
        limit: In `unit`.
        note: What a reader must know about the values, if anything.
    """

    name: str
    values: tuple[float, ...]
    unit: str
    bound: Bound
    limit: float
    note: str = ""

    @property
    def measured(self) -> float:
        """The median."""
        return statistics.median(self.values)

    @property
    def spread(self) -> tuple[float, float]:
        """The lower and the upper quartile; lowest and highest for fewer than four values."""
        if len(self.values) < 4:
            return min(self.values), max(self.values)
        lower, _, upper = statistics.quantiles(self.values, n=4, method="inclusive")
        return lower, upper

    @property
    def met(self) -> bool:
        return self.measured >= self.limit if self.bound is Bound.AT_LEAST else self.measured <= self.limit

    @property
    def wanted(self) -> str:
        """The limit as text, such as `≥ 20 ms`."""
        return f"{self.bound} {self.limit:g} {self.unit}"


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the report: cells are text, the first column names the row.

    Attributes:
        title: Its heading in `docs/benchmarks.md`.
        columns: The header.
        rows: Each as long as `columns`.
        prose: Markdown above the table; may be empty.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    prose: str = ""


@dataclass(slots=True)
class Findings:
    """Everything that one benchmark found."""

    targets: list[Target] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure.

    Attributes:
        full: Everything, instead of what the targets need, in a few minutes in total.
        seed: The seed of workloads and arrivals.
        scratch: An existing folder for databases and logs; the caller removes it.
    """

    full: bool
    seed: int
    scratch: Path

    def pick(self, *, quick: T, full: T) -> T:
        """The one of the two that this run calls for."""
        return full if self.full else quick


class Live(Protocol):
    """Where a benchmark reports its progress."""

    def step(self, what: str) -> None:
        """A new step begins: `what` names it, such as `10 ms 100x1: article, repeat 3 of 7`."""

    def rate(self, value: float, unit: str) -> None:
        """The latest measurement, shown beside the step."""


class Benchmark(Protocol):
    """A benchmark, constructed without arguments. It ends everything it starts, also when cancelled."""

    @property
    def name(self) -> str:
        """One word, as `--only` takes it."""

    @property
    def about(self) -> str:
        """One line for `--help`."""

    async def run(self, plan: Plan, live: Live) -> Findings:
        """Measure. Raises only where no measurement was possible; a missed target is a finding."""


def shown(value: float) -> str:
    """A number with as many digits as anyone needs."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def median(values: Sequence[float]) -> float:
    """The median; NaN of nothing."""
    return statistics.median(values) if values else float("nan")


def percent(share: float) -> str:
    """A share of 1 as text, such as `45 %`."""
    return f"{share * 100:.0f} %"
