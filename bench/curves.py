"""How a rate grows with one quantity, and where it stops growing: the curves of docs/capacity.md."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

_ENOUGH = 0.5
_MARKED = re.compile(r"(<!-- curve: ([a-z]+) -->\n).*?(<!-- end -->)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Curve:
    """Measured points.

    Attributes:
        name: One word, by which a page refers to it.
        of: The quantity that is varied, in the plural, such as `keys in an invocation`.
        unit: Of the rate, such as `events/s`.
        points: The quantity and the median rate, both above zero; the quantity rises.
    """

    name: str
    of: str
    unit: str
    points: tuple[tuple[float, float], ...]

    @property
    def bend(self) -> float | None:
        """Where the rate stops following the quantity; None if it follows over the whole range.

        It follows where doubling the quantity multiplies the rate by 1.4, the root of 2, or more.
        """
        for (x, y), (further, higher) in pairwise(self.points):
            if math.log(higher / y) < _ENOUGH * math.log(further / x):
                return x
        return None

    def described(self) -> str:
        """Return a markdown table of the points, and a sentence about the bend."""
        lines = [f"| {self.of} | {self.unit} |", "| --: | --: |"]
        lines += [f"| {_number(x)} | {_number(y)} |" for x, y in self.points]
        return "\n".join([*lines, "", self._sentence()])

    def _sentence(self) -> str:
        first, last = (_number(self.points[end][0]) for end in (0, -1))
        if self.bend is None:
            return f"The curve does not bend from {first} to {last} {self.of}."
        return f"The curve bends at {_number(self.bend)}."


def rendered(page: str, curves: Iterable[Curve]) -> str:
    """Return the page with every curve between its markers written again.

    Raises:
        KeyError: The page names a curve that was not measured.
    """
    named = {curve.name: curve for curve in curves}
    return _MARKED.sub(lambda found: f"{found[1]}{named[found[2]].described()}\n{found[3]}", page)


def _number(value: float) -> str:
    """Format a number with three significant digits: more would claim too much."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"
