"""The chart of docs/benchmarks.md: events a second of the relay and its baselines, on a linear scale from zero."""

from __future__ import annotations

import math
from collections.abc import Iterator
from xml.sax.saxutils import escape

from bench.benchmark import Table
from bench.report import Report
from bench.throughput import ARTICLE, IN_WORDS, PREBUILT, RELAY, WIRE, title

_DELAY_MS = 10
_COLOURS = {ARTICLE: "#9aa0a6", RELAY: "#d1495b", PREBUILT: "#2e6f95", WIRE: "#3d405b"}
_WIDTH, _LEFT, _RIGHT, _TOP, _BAR, _GAP, _LINE = 900, 200, 150, 56, 20, 18, 18
_TICKS = 5


def drawn(report: Report) -> str:
    """Draw an SVG with a bar for each of the colours' names in each shape; without bars if none were measured."""
    tables = [table for table in report.tables if table.title == title(_DELAY_MS)]
    groups = [(row[0], list(_rates(table, row))) for table in tables for row in table.rows]
    step = _round_up(max((rate for _, bars in groups for _, rate in bars), default=1.0) / _TICKS)
    scale = (_WIDTH - _LEFT - _RIGHT) / (_TICKS * step)
    bottom = _TOP + sum(len(bars) * _BAR + _GAP for _, bars in groups)
    parts = [*_header(report), *_axis(step, scale, bottom)]
    y = _TOP + _GAP // 2
    for shape, bars in groups:
        middle = y + len(bars) * _BAR / 2 + 4
        parts.append(f'<text x="{_LEFT - 10}" y="{middle:g}" text-anchor="end">{escape(IN_WORDS[shape])}</text>')
        for name, rate in bars:
            parts += _bar(y, name, rate, rate * scale)
            y += _BAR
        y += _GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {bottom + 2 * _LINE}" '
        'font-family="sans-serif" font-size="12">'
    )
    background = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return "\n".join([head, background, *parts, "</svg>"]) + "\n"


def _rates(table: Table, row: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    for name, cell in zip(table.columns, row, strict=True):
        if name in _COLOURS and cell != "-":
            yield name, float(cell.replace(",", ""))


def _header(report: Report) -> Iterator[str]:
    yield (
        f'<text x="8" y="18" font-size="14" font-weight="bold">Events a second, {_DELAY_MS} ms from a send to its '
        "acknowledgement</text>"
    )
    yield f'<text x="8" y="{18 + _LINE}" fill="#555555">{escape(f"{report.date}, {report.machine}")}</text>'


def _axis(step: float, scale: float, bottom: float) -> Iterator[str]:
    for number in range(_TICKS + 1):
        x = _LEFT + number * step * scale
        yield f'<line x1="{x:g}" y1="{_TOP}" x2="{x:g}" y2="{bottom}" stroke="#dddddd"/>'
        yield f'<text x="{x:g}" y="{bottom + _LINE}" text-anchor="middle">{number * step:,.0f}</text>'


def _bar(y: float, name: str, rate: float, width: float) -> Iterator[str]:
    yield f'<rect x="{_LEFT}" y="{y + 2}" width="{width:.1f}" height="{_BAR - 4}" fill="{_COLOURS[name]}"/>'
    label = f"{escape(name)}: {rate:,.0f}"
    yield f'<text x="{_LEFT + width + 6:.1f}" y="{y + 14}">{label}</text>'


def _round_up(value: float) -> float:
    """Round up to 1, 2 or 5 times a power of ten."""
    power: float = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= value)
