"""Tables for a terminal: aligned columns, bounded widths, and no character that a terminal obeys."""

from __future__ import annotations

from collections.abc import Sequence
from unicodedata import combining, east_asian_width

WIDEST = 44
"""The columns of a terminal that a cell takes at most: a UUID (36) fits."""


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table; none without rows."""
    if not rows:
        return []
    cells = [list(header), *([bounded(cell) for cell in row] for row in rows)]
    widths = [max(_width(line[column]) for line in cells) for column in range(len(header))]
    return ["  ".join(map(_padded, line, widths)).rstrip() for line in cells]


def bounded(text: str) -> str:
    """`text` without control characters, at most `WIDEST` wide; what is cut off is an ellipsis."""
    beginning = text[: 8 * WIDEST]
    shown = printable(beginning)
    if beginning == text and _width(shown) <= WIDEST:
        return shown
    while _width(shown) >= WIDEST:
        shown = shown[:-1]
    return f"{shown}…"


def printable(text: str) -> str:
    """`text` with what does not print, such as escape sequences, as Python writes it: `\\x1b`."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def _padded(cell: str, width: int) -> str:
    return cell + " " * (width - _width(cell))


def _width(text: str) -> int:
    return sum(0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in text)
