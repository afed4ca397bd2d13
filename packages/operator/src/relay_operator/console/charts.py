"""The last hour as lines of SVG, which stand still within a slot, and are absent where nothing was observed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from relay_operator.console.formatting import count, rate, span
from relay_operator.console.history import SLOTS, History

HEIGHT = 40
"""Height of a chart, in units of its view box, whose width is one unit for each slot."""

Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Chart:
    """A line over the last hour.

    Attributes:
        most: The largest value in words, which is at the top of the chart; empty if nothing is known.
        unobserved: For how long nothing was observed, in words; empty if never.
        line, gaps: Path data of SVG: the values, and the times at which nothing was observed.
    """

    title: str
    most: str
    unobserved: str
    line: str
    gaps: str


def charts(history: History) -> Sequence[Chart]:
    """Return the charts of rate, lag and failures."""
    return [
        _chart("Accepted a second", history.published_s, history.slot_s, rate),
        _chart("Lag", history.lag_s, history.slot_s, span),
        _chart("In quarantine", history.quarantined, history.slot_s, _whole),
        _chart("Dead letters", history.dead_lettered, history.slot_s, _whole),
    ]


def _chart(title: str, known: Values, slot_s: int, write: Callable[[float], str]) -> Chart:
    values = [*[None] * (SLOTS - len(known)), *known]
    most = max((each for each in values if each is not None), default=None)
    missing = values.count(None) * slot_s
    return Chart(
        title,
        "" if most is None else write(most),
        span(missing) if missing else "",
        "".join(_line(start, run, most or 1.0) for start, run in _runs(values) if run[0] is not None),
        "".join(f"M{start} 0h{len(run)}v{HEIGHT}h-{len(run)}z" for start, run in _runs(values) if run[0] is None),
    )


def _runs(values: Values) -> Iterator[tuple[int, Values]]:
    """Yield the runs of known and of unknown values, each with its first slot."""
    start = 0
    for _, group in groupby(values, key=lambda each: each is None):
        run = list(group)
        yield start, run
        start += len(run)


def _line(start: int, run: Values, most: float) -> str:
    """Return the path of a run: level in each slot, so that nothing between two values is made up."""
    heights = [HEIGHT - round(HEIGHT * max(each or 0.0, 0.0) / most, 1) for each in run]
    steps, slot = [f"M{start} {heights[0]:g}"], start
    for height, group in groupby(heights):
        slot += len(list(group))
        steps.append(f"V{height:g}H{slot}")
    return "".join(steps)


def _whole(number: float) -> str:
    return count(round(number))
