"""The patterns of LIKE, in the SQL of either service, as regular expressions that take no exponential time."""

from __future__ import annotations

import re
from collections.abc import Iterable


def like_pattern(pieces: Iterable[str | None]) -> re.Pattern[str]:
    """A pattern that matches whole texts. Raises re.error.

    Args:
        pieces: Regular expressions of one character each; None for any number of any characters.
    """
    segments = [""]
    for piece in pieces:
        if piece is None:
            segments.append("")
        else:
            segments[-1] += piece
    first, *others = segments
    if not others:
        return re.compile(first, re.DOTALL)
    *middle, last = others
    # The first place of each segment is as good as any later one, so none is tried again: the groups are atomic.
    found = "".join(f"(?>.*?{segment})" for segment in middle if segment)
    return re.compile(f"{first}{found}.*{last}", re.DOTALL)
