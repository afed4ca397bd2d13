"""Numbers in paths, headers and queries."""

from __future__ import annotations

_MOST_DIGITS = 18


def whole_number(text: str) -> int | None:
    """Return the value of a text of up to 18 digits, or None for any other text.

    int() also reads the digits of other scripts, and raises for more than 4,300.
    """
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS else None
