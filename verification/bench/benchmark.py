"""The interface of a benchmark: given a plan, it measures, and returns targets and tables.

Each benchmark is a class in its own module, listed in `verification.bench.__main__`. It measures the relay in
turns with its baselines. How findings are shown and stored is not its concern.
"""

from __future__ import annotations

import math
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
        name: Unique in a run, such as `100 keys with an event each, 10 ms: against the article's handler`.
        values: One per turn, in the order measured; at least one.
        unit: `ms`, `TIMES`, `µs`, `%`, …; may be empty.
        bound: On which side of `limit` the target is met.
        limit: In `unit`.
        note: Something that a reader must know about the values, if anything.
        headline: Whether it is one of the few on the README.
    """

    name: str
    values: tuple[float, ...]
    unit: str
    bound: Bound
    limit: float
    note: str = ""
    headline: bool = False

    @property
    def measured(self) -> float:
        """The median."""
        return statistics.median(self.values)

    @property
    def interval(self) -> tuple[float, float]:
        """See `interval`."""
        return interval(self.values)

    @property
    def met(self) -> bool:
        """True if the median meets the limit."""
        return self._meets(self.measured)

    @property
    def certain(self) -> bool:
        """True if the whole interval is on the median's side of the limit."""
        return all(self._meets(end) == self.met for end in self.interval)

    @property
    def wanted(self) -> str:
        """The limit as text, such as `≥ 20 ms`."""
        return f"{self.bound} {self.limit:g} {self.unit}".rstrip()

    def _meets(self, value: float) -> bool:
        return value >= self.limit if self.bound is Bound.AT_LEAST else value <= self.limit


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
        """Return the one of the two that this run calls for."""
        return full if self.full else quick


class Live(Protocol):
    """Where a benchmark reports its progress."""

    def step(self, what: str) -> None:
        """Begin a new step: `what` names it, such as `10 ms 100x1: article, 3 of 20`."""

    def rate(self, value: float, unit: str) -> None:
        """Show the latest measurement next to the step."""


class Benchmark(Protocol):
    """A benchmark, constructed without arguments. It ends everything it starts, also when cancelled."""

    @property
    def name(self) -> str:
        """One word, as `--only` takes it."""

    @property
    def about(self) -> str:
        """One line for `--help`."""

    async def run(self, plan: Plan, live: Live) -> Findings:
        """Measure. Raises only if no measurement was possible; a missed target is a finding."""


def shown(value: float) -> str:
    """Format a number with about three significant digits; numbers from 100 on have no fraction."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def median(values: Sequence[float]) -> float:
    """Return the median; NaN of nothing."""
    return statistics.median(values) if values else float("nan")


def percent(share: float) -> str:
    """Format a share of 1 as text, such as `45 %`."""
    return f"{share * 100:.0f} %"


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median, from order statistics.

    It has the lowest and highest for fewer than six values.

    The k-th lowest and the k-th highest of n values enclose the median of what they are drawn from, unless fewer
    than k of them fall on one side of it, with the binomial distribution B(n, 1/2), whatever theirs is.
    """
    ordered, outside, rank = sorted(values), 0.0, 0
    while 2 * (outside := outside + math.comb(len(ordered), rank) / 2 ** len(ordered)) <= 0.05:
        rank += 1
    lowest = max(rank, 1) - 1
    return ordered[lowest], ordered[-1 - lowest]
