"""The built-in functions.

Source: https://learn.microsoft.com/azure/cosmos-db/nosql/query/system-functions. An argument of the
wrong type makes the result undefined.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from outbox_emulators.cosmos.query.values import UNDEFINED, Kind, kind_of, same


@dataclass(frozen=True, slots=True)
class Function:
    """A built-in function and how many arguments it takes."""

    call: Callable[..., Any]
    fewest: int
    most: int


def _is(*kinds: Kind) -> Function:
    return Function(lambda value: kind_of(value) in kinds, 1, 1)


def _strings(call: Callable[..., Any], count: int) -> Function:
    """A function of strings."""

    def checked(*arguments: Any) -> Any:
        if any(kind_of(argument) is not Kind.STRING for argument in arguments):
            return UNDEFINED
        return call(*arguments)

    return Function(checked, count, count)


def _numbers(call: Callable[..., Any], count: int) -> Function:
    """A function of numbers; undefined if the result is not a number."""

    def checked(*arguments: Any) -> Any:
        if any(kind_of(argument) is not Kind.NUMBER for argument in arguments):
            return UNDEFINED
        try:
            return call(*arguments)
        except (ValueError, OverflowError, ZeroDivisionError):
            return UNDEFINED

    return Function(checked, count, count)


def _string_test(test: Callable[[str, str], bool]) -> Function:
    """A test of two strings, with an optional third argument to ignore case."""

    def checked(text: Any, part: Any, ignore_case: Any = False) -> Any:
        if kind_of(text) is not Kind.STRING or kind_of(part) is not Kind.STRING:
            return UNDEFINED
        if kind_of(ignore_case) is not Kind.BOOLEAN:
            return UNDEFINED
        return test(text.lower(), part.lower()) if ignore_case else test(text, part)

    return Function(checked, 2, 3)


def _array_contains(array: Any, wanted: Any, partial: Any = False) -> Any:
    if kind_of(array) is not Kind.ARRAY or wanted is UNDEFINED:
        return UNDEFINED
    if partial and isinstance(wanted, dict):
        return any(_holds_all_of(element, wanted) for element in array)
    return any(same(element, wanted) for element in array)


def _holds_all_of(element: Any, wanted: dict[str, Any]) -> bool:
    return isinstance(element, dict) and all(
        key in element and same(element[key], value) for key, value in wanted.items()
    )


def _array_length(array: Any) -> Any:
    return len(array) if kind_of(array) is Kind.ARRAY else UNDEFINED


def _concat(*parts: Any) -> Any:
    return "".join(parts) if all(kind_of(part) is Kind.STRING for part in parts) else UNDEFINED


def _substring(text: Any, start: Any, length: Any) -> Any:
    if (kind_of(text), kind_of(start), kind_of(length)) != (Kind.STRING, Kind.NUMBER, Kind.NUMBER):
        return UNDEFINED
    first = max(0, int(start))
    return text[first : max(first, int(start) + int(length))]


def _index_of(text: str, part: str) -> int:
    return text.find(part)


def _round(number: float) -> float:
    return math.floor(abs(number) + 0.5) * (1 if number >= 0 else -1)


_PRIMITIVES = (Kind.NULL, Kind.BOOLEAN, Kind.NUMBER, Kind.STRING)

FUNCTIONS: dict[str, Function] = {
    "IS_DEFINED": Function(lambda value: value is not UNDEFINED, 1, 1),
    "IS_NULL": _is(Kind.NULL),
    "IS_BOOL": _is(Kind.BOOLEAN),
    "IS_NUMBER": _is(Kind.NUMBER),
    "IS_STRING": _is(Kind.STRING),
    "IS_ARRAY": _is(Kind.ARRAY),
    "IS_OBJECT": _is(Kind.OBJECT),
    "IS_PRIMITIVE": _is(*_PRIMITIVES),
    "STARTSWITH": _string_test(str.startswith),
    "ENDSWITH": _string_test(str.endswith),
    "CONTAINS": _string_test(lambda text, part: part in text),
    "STRINGEQUALS": _string_test(lambda text, other: text == other),
    "LOWER": _strings(str.lower, 1),
    "UPPER": _strings(str.upper, 1),
    "LENGTH": _strings(len, 1),
    "LTRIM": _strings(str.lstrip, 1),
    "RTRIM": _strings(str.rstrip, 1),
    "TRIM": _strings(str.strip, 1),
    "REVERSE": _strings(lambda text: text[::-1], 1),
    "REPLACE": _strings(str.replace, 3),
    "INDEX_OF": _strings(_index_of, 2),
    "CONCAT": Function(_concat, 2, 200),
    "SUBSTRING": Function(_substring, 3, 3),
    "ARRAY_CONTAINS": Function(_array_contains, 2, 3),
    "ARRAY_LENGTH": Function(_array_length, 1, 1),
    "ABS": _numbers(abs, 1),
    "CEILING": _numbers(math.ceil, 1),
    "FLOOR": _numbers(math.floor, 1),
    "ROUND": _numbers(_round, 1),
    "SQRT": _numbers(math.sqrt, 1),
    "POWER": _numbers(math.pow, 2),
}
