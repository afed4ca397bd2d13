"""Patterns of a client, matched within bounds: those of LIKE, in the SQL of either service, and of REGEXMATCH.

A pattern can take time that is exponential in the text's length, and memory that is the product of its counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import regex

_LONGEST = 1_024
# As in PCRE, the service's.
_LARGEST_COUNT = 65_535
_MOST_CHARACTERS = 1_000_000
_TIMEOUT_S = 1.0

_COUNTS = regex.compile(r"(\)?)\{(\d*),?(\d*)\}")


class InvalidPatternError(Exception):
    """It is no pattern."""


class PatternTooLargeError(Exception):
    """It is larger than is served here, or takes longer."""


class Pattern:
    """A regular expression. Raises InvalidPatternError and PatternTooLargeError."""

    def __init__(self, expression: str, flags: regex.RegexFlag) -> None:
        if len(expression) > _LONGEST:
            raise PatternTooLargeError(f"The pattern is {len(expression)} characters long; {_LONGEST} are served.")
        counts = [(ends_group, int(most or least or 1)) for ends_group, least, most in _COUNTS.findall(expression)]
        if any(count > _LARGEST_COUNT for _, count in counts):
            raise InvalidPatternError(f"A count is above {_LARGEST_COUNT}.")
        if (size := _size(expression, counts)) > _MOST_CHARACTERS:
            raise PatternTooLargeError(
                f"With its counts, the pattern has up to {size} characters; {_MOST_CHARACTERS} are served."
            )
        try:
            self._compiled = regex.compile(expression, flags)
        except (regex.error, OverflowError, RecursionError) as error:
            raise InvalidPatternError(str(error)) from error

    def is_in(self, text: str) -> bool:
        """Return True if a part of the text matches. Raises PatternTooLargeError."""
        try:
            return self._compiled.search(text, timeout=_TIMEOUT_S) is not None
        except (TimeoutError, MemoryError) as error:
            raise _too_slow() from error

    def is_all_of(self, text: str) -> bool:
        """Return True if the whole text matches. Raises PatternTooLargeError."""
        try:
            return self._compiled.fullmatch(text, timeout=_TIMEOUT_S) is not None
        except (TimeoutError, MemoryError) as error:
            raise _too_slow() from error


def like_pattern(pieces: Iterable[str | None]) -> Pattern:
    """Return the pattern of a LIKE. Raises the errors of `Pattern`.

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
        return Pattern(first, regex.DOTALL)
    *middle, last = others
    # The first place of each segment is as good as any later one, so none is tried again: the groups are atomic.
    found = "".join(f"(?>.*?{segment})" for segment in middle if segment)
    return Pattern(f"{first}{found}.*{last}", regex.DOTALL)


def _too_slow() -> PatternTooLargeError:
    return PatternTooLargeError(f"A text was not matched with the pattern within {_TIMEOUT_S:g} s.")


def _size(expression: str, counts: Iterable[tuple[str, int]]) -> int:
    """Return a bound on the characters of the expression, each as often as it is counted.

    Counts of groups multiply.
    """
    groups, characters = [1], [1]
    for ends_group, count in counts:
        (groups if ends_group else characters).append(count)
    return math.prod(groups) * max(characters) * len(expression)
