"""Throughput as one picture: events a second of the relay and its baselines, on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from xml.sax.saxutils import escape

from bench.benchmark import Table

RATE = ", events/s"
"""The end of a column's name whose numbers are drawn, as bars named after the rest of it."""

_COLOURS = {
    "article": "#9aa0a6",
    "relay": "#d1495b",
    "SDK, built": "#66a182",
    "SDK, prebuilt": "#2e6f95",
    "wire": "#3d405b",
}
_WIDTH, _LEFT, _BAR, _GAP, _LINE = 900, 160, 7, 8, 18
_LOWEST, _HIGHEST = 10.0, 100_000.0
_SCALE = (_WIDTH - _LEFT - 60) / math.log10(_HIGHEST / _LOWEST)


def drawn(tables: Iterable[Table]) -> str:
    """An SVG with a bar for each workload and each of the colours' names, in the tables that have rates."""
    parts, y = [*_legend()], 2 * _LINE
    for table in tables:
        columns = {
            name: number
            for number, column in enumerate(table.columns)
            if (name := column.removesuffix(RATE)) in _COLOURS
        }
        if not columns:
            continue
        y += _LINE
        parts.append(f'<text x="4" y="{y}" font-weight="bold">{escape(table.title)}</text>')
        y += _GAP
        for row in table.rows:
            parts.append(f'<text x="{_LEFT - 8}" y="{y + 4 * _BAR}" text-anchor="end">{escape(row[0])}</text>')
            for name, column in columns.items():
                parts += _bar(y, row[column], _COLOURS[name])
                y += _BAR
            y += _GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y + _GAP}" font-family="sans-serif" '
        'font-size="11">'
    )
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def _legend() -> Iterator[str]:
    x = _LEFT
    for name, colour in _COLOURS.items():
        yield (
            f'<rect x="{x}" y="8" width="10" height="10" fill="{colour}"/><text x="{x + 14}" y="17">{name}</text>'
        )
        x += 110
    yield f'<text x="{x}" y="17">events/s, logarithmic</text>'


def _bar(y: int, cell: str, colour: str) -> Iterator[str]:
    try:
        rate = float(cell.replace(",", ""))
    except ValueError:
        return  # this baseline cannot carry the workload
    width = round(_SCALE * math.log10(max(rate, _LOWEST) / _LOWEST), 1)
    yield (
        f'<rect x="{_LEFT}" y="{y}" width="{width}" height="{_BAR - 1}" fill="{colour}"/>'
        f'<text x="{_LEFT + width + 3}" y="{y + _BAR - 1}" font-size="7">{cell}</text>'
    )
