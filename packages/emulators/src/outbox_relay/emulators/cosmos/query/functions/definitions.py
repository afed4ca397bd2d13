"""The type of a built-in function, and the checks that many share.

An argument of the wrong type makes the result undefined.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from outbox_relay.emulators.cosmos.errors import BadRequest
from outbox_relay.emulators.cosmos.query.values import UNDEFINED, Kind, kind_of

MANY = 200
"""Maximum number of arguments of a function that takes any number of them."""

_EXACT = 1 << 53
_INTEGERS = range(-(1 << 63), 1 << 63)

LARGEST = 4 * 1024 * 1024
"""Maximum size of a value that a query makes, in bytes: that of a response
(https://learn.microsoft.com/azure/cosmos-db/concepts-limits#per-request-limits)."""


@dataclass(frozen=True, slots=True)
class Function:
    """A built-in function and how many arguments it takes.

    `needs_moment` gives it the time of the query as its first argument, in ticks of 100 ns since 1970.
    """

    call: Callable[..., Any]
    fewest: int
    most: int
    needs_moment: bool = False


def of_kinds(call: Callable[..., Any], *kinds: Kind, optional: int = 0) -> Function:
    """Return a function of arguments of these types, of which the last `optional` may be left out."""

    def checked(*arguments: Any) -> Any:
        if any(kind_of(argument) is not kind for argument, kind in zip(arguments, kinds, strict=False)):
            return UNDEFINED
        return call(*arguments)

    return Function(checked, len(kinds) - optional, len(kinds))


def of_strings(call: Callable[..., Any], count: int, optional: int = 0) -> Function:
    return of_kinds(call, *[Kind.STRING] * count, optional=optional)


def of_numbers(call: Callable[..., Any], count: int, optional: int = 0) -> Function:
    """Return a function of numbers; undefined if the result is no finite number."""

    def calculated(*arguments: Any) -> Any:
        try:
            return as_number(call(*arguments))
        except (ValueError, OverflowError, ZeroDivisionError):
            return UNDEFINED

    return of_kinds(calculated, *[Kind.NUMBER] * count, optional=optional)


def as_number(number: Any) -> Any:
    """Return a number in JSON's form. Whole ones have no fraction, and those that are not finite are undefined."""
    if not isinstance(number, float):
        return within_64_bits(number)
    if not math.isfinite(number):
        return UNDEFINED
    return int(number) if number.is_integer() and abs(number) < _EXACT else number


def within_64_bits(number: Any) -> Any:
    """Return a number as the service holds it: integers of more than 64 bits become doubles.

    Raises OverflowError if it is beyond those too.
    """
    if isinstance(number, int) and number not in _INTEGERS:
        return float(number)
    if isinstance(number, float) and math.isinf(number):
        raise OverflowError
    return number


def check_size(size: int) -> None:
    """Raise BadRequest for a size in bytes above LARGEST, before the value is made."""
    if size > LARGEST:
        raise BadRequest(f"The query makes a value of {size} bytes or more: at most {LARGEST}.")


def sized(value: Any) -> Any:
    """Return a value made of others. Raises BadRequest if its JSON has more than LARGEST bytes.

    The same part may be in it many times: its JSON can be exponentially longer than what it takes in memory.
    """
    size = 0
    parts = [value] if isinstance(value, list | dict) else []
    while parts:
        part = parts.pop()
        # Brackets, commas, and at least a character for each element.
        size += 2 * len(part) + 1
        if isinstance(part, dict):
            size += sum(map(len, part)) + 3 * len(part)
        for each in part.values() if isinstance(part, dict) else part:
            if isinstance(each, list | dict):
                parts.append(each)
            elif isinstance(each, str):
                size += len(each) + 1
        if size > LARGEST:
            check_size(size)
    return value


def integer_of(number: Any) -> int | None:
    """Return the integer that a number is, or None if it has a fraction or is no number."""
    if kind_of(number) is not Kind.NUMBER:
        return None
    return int(number) if isinstance(number, int) or number.is_integer() else None
