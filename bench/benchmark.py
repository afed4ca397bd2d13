"""What a benchmark is: given a plan, it measures and hands back figures and targets.

Each benchmark is a class in a module of its own, listed in `bench.__main__`. It measures what it is about beside
its rival, in turns, and says what it found; how that is shown, stored and drawn is not its concern.
"""

from __future__ import annotations

import statistics
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
class Figure:
    """One measured quantity: every repeat's value, so that median and spread can be told.

    Attributes:
        name: Unique in a run, path-like, such as `throughput/article 10 ms 100x1`.
        unit: Of the values: `events/s`, `ms`, `TIMES`, `µs/event`, `MB`, `%`, ….
        values: One a repeat, in the order measured; at least one.
        note: What a reader must know to read it, or nothing.
    """

    name: str
    unit: str
    values: tuple[float, ...]
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> tuple[float, float]:
        """The lower and the upper quartile; lowest and highest where there are fewer than four values."""
        if len(self.values) < 4:
            return min(self.values), max(self.values)
        lower, _, upper = statistics.quantiles(self.values, n=4, method="inclusive")
        return lower, upper


@dataclass(frozen=True, slots=True)
class Target:
    """A figure's median held against a limit.

    Attributes:
        name: Unique in a run, a reader's words, such as `against the article's handler, 10 ms, 100 x 1`.
        figure: What is judged, by its median.
        bound: On which side of `limit` it is met.
        limit: In the figure's unit.
        key: What an explanation of a miss is looked up by (`bench.explanations`); the name where left empty.
    """

    name: str
    figure: Figure
    bound: Bound
    limit: float
    key: str = ""

    @property
    def measured(self) -> float:
        return self.figure.median

    @property
    def met(self) -> bool:
        return self.measured >= self.limit if self.bound is Bound.AT_LEAST else self.measured <= self.limit

    @property
    def target(self) -> str:
        """The limit in words, such as `≥ 20 ms`."""
        return f"{self.bound} {self.limit:g} {self.figure.unit}"


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the report: cells are text, the first column names the row.

    Attributes:
        title: Its heading in `docs/benchmarks.md`.
        columns: The header.
        rows: As long as `columns`, each.
        prose: What stands above the table, markdown; may be empty.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    prose: str = ""


@dataclass(slots=True)
class Findings:
    """All that one benchmark found. Figures that a target judges need not be listed among `figures` again."""

    figures: list[Figure] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure.

    Attributes:
        full: The whole, or what the targets need in two minutes in all.
        seed: What workloads and arrivals are drawn from.
        scratch: An existing folder for databases, logs and the like; the caller removes what it need not keep.
    """

    full: bool
    seed: int
    scratch: Path

    def pick(self, *, quick: T, full: T) -> T:
        """The one of the two that this run calls for."""
        return full if self.full else quick


class Live(Protocol):
    """Where a benchmark tells how it goes, while it goes."""

    def step(self, what: str) -> None:
        """A new stretch of work begins: `what` names it, such as `10 ms 100x1: article, repeat 3 of 7`."""

    def rate(self, value: float, unit: str) -> None:
        """What was just measured, or goes on: shown beside the step."""


class Benchmark(Protocol):
    """A benchmark, constructed without arguments. Whatever it starts, it ends, also when cancelled."""

    @property
    def name(self) -> str:
        """One word, what `--only` takes."""

    @property
    def about(self) -> str:
        """One sentence for `--help` and the report."""

    async def run(self, plan: Plan, live: Live) -> Findings:
        """Measure. Raises only where no measurement was possible; a missed target is a finding."""
