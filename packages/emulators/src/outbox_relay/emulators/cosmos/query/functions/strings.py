"""Functions of strings, and the conversions from and to them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import regex

from outbox_relay.emulators.cosmos import jsontext
from outbox_relay.emulators.cosmos.errors import BadRequest
from outbox_relay.emulators.cosmos.query.functions.definitions import (
    MANY,
    Function,
    check_size,
    of_kinds,
    of_strings,
)
from outbox_relay.emulators.cosmos.query.values import UNDEFINED, Kind, kind_of
from outbox_relay.emulators.patterns import InvalidPatternError, Pattern, PatternTooLargeError

_LONGEST_REPLICATE = 10_000
_MODIFIERS = {"m": regex.MULTILINE, "s": regex.DOTALL, "i": regex.IGNORECASE, "x": regex.VERBOSE}


def _test(test: Callable[[str, str], bool]) -> Function:
    """Return a test of two strings, with an optional third argument to ignore case."""

    def checked(text: str, part: str, ignore_case: bool = False) -> bool:
        return test(text.lower(), part.lower()) if ignore_case else test(text, part)

    return of_kinds(checked, Kind.STRING, Kind.STRING, Kind.BOOLEAN, optional=1)


def _contains_several(*, decisive: bool, ignore_case: bool) -> Function:
    """CONTAINS of each, combined with OR (`decisive` true) or AND: undefined unless one decides."""

    def checked(text: Any, *parts: Any) -> Any:
        if kind_of(text) is not Kind.STRING:
            return UNDEFINED
        whole = text.lower() if ignore_case else text
        found = [
            (part.lower() if ignore_case else part) in whole if isinstance(part, str) else UNDEFINED
            for part in parts
        ]
        if decisive in found:
            return decisive
        return UNDEFINED if UNDEFINED in found else not decisive

    return Function(checked, 2, MANY)


def _concat(*parts: Any) -> Any:
    return _join(list(parts), "")


def _substring(text: str, start: float, length: float) -> str:
    first = max(0, int(start))
    return text[first : max(first, int(start) + int(length))]


def _index_of(text: str, part: str, start: float = 0) -> int:
    return text.find(part, max(0, int(start)))


def _last_index_of(text: str, part: str, start: float = math.inf) -> int:
    end = len(text) if math.isinf(start) else int(start) + 1
    return text.rfind(part, 0, max(0, end))


def _left(text: str, count: float) -> str:
    return text[: max(0, int(count))]


def _right(text: str, count: float) -> str:
    return text[max(0, len(text) - max(0, int(count))) :]


def _replicate(text: str, count: float) -> Any:
    if count < 0 or len(text) * count > _LONGEST_REPLICATE:
        return UNDEFINED
    return text * int(count)


def _split(text: str, separator: str) -> list[str]:
    return text.split(separator) if separator else [text]


def _join(parts: list[Any], separator: str) -> Any:
    if not all(isinstance(part, str) for part in parts):
        return UNDEFINED
    check_size(sum(map(len, parts)) + len(separator) * len(parts))
    return separator.join(parts)


def _replace(text: str, old: str, new: str) -> str:
    check_size(len(text) + text.count(old) * max(0, len(new) - len(old)))
    return text.replace(old, new)


_EXPONENT_FROM = 1e15
"""Larger whole numbers keep the form of a double, with an exponent."""


def _to_string(value: Any) -> Any:
    if value is UNDEFINED or isinstance(value, str):
        return value
    return jsontext.dump(_shortest(value))


def _shortest(value: Any) -> Any:
    """The value with its whole numbers written without a fraction.

    `ToString` of 0.0 is "0" (LinqTranslationBaselineTests.TestStringFunctions of azure-cosmos-dotnet-v3).
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXPONENT_FROM:
        return int(value)
    if isinstance(value, list):
        return [_shortest(each) for each in value]
    return {name: _shortest(each) for name, each in value.items()} if isinstance(value, dict) else value


def _parsed(kind: Kind) -> Function:
    """Return a function that parses a string which is a JSON text of this type."""

    def parse(text: str) -> Any:
        try:
            value = jsontext.parse(text).value
        except BadRequest:
            return UNDEFINED
        return value if kind_of(value) is kind else UNDEFINED

    return of_strings(parse, 1)


def _regex_match(text: str, pattern: str, modifiers: str = "") -> Any:
    try:
        compiled = _compiled(pattern, modifiers)
        return UNDEFINED if compiled is None else compiled.is_in(text)
    except PatternTooLargeError as error:
        raise BadRequest(str(error)) from error


@functools.lru_cache(maxsize=256)
def _compiled(pattern: str, modifiers: str) -> Pattern | None:
    """Compile an expression, or return None if it or a modifier is not valid.

    The service's PCRE differs in a few constructs.
    """
    if not set(modifiers) <= _MODIFIERS.keys():
        return None
    flags = regex.RegexFlag(0)
    for modifier in modifiers:
        flags |= _MODIFIERS[modifier]
    try:
        return Pattern(pattern, flags)
    except InvalidPatternError:
        return None


STRINGS: dict[str, Function] = {
    "CONCAT": Function(_concat, 2, MANY),
    "CONTAINS": _test(lambda text, part: part in text),
    "CONTAINS_ALL_CI": _contains_several(decisive=False, ignore_case=True),
    "CONTAINS_ALL_CS": _contains_several(decisive=False, ignore_case=False),
    "CONTAINS_ANY_CI": _contains_several(decisive=True, ignore_case=True),
    "CONTAINS_ANY_CS": _contains_several(decisive=True, ignore_case=False),
    "ENDSWITH": _test(str.endswith),
    "INDEX_OF": of_kinds(_index_of, Kind.STRING, Kind.STRING, Kind.NUMBER, optional=1),
    "LASTINDEXOF": of_kinds(_last_index_of, Kind.STRING, Kind.STRING, Kind.NUMBER, optional=1),
    "LEFT": of_kinds(_left, Kind.STRING, Kind.NUMBER),
    "LENGTH": of_strings(len, 1),
    "LOWER": of_strings(str.lower, 1),
    "LTRIM": of_strings(str.lstrip, 2, optional=1),
    "REGEXMATCH": of_strings(_regex_match, 3, optional=1),
    "REPLACE": of_strings(_replace, 3),
    "REPLICATE": of_kinds(_replicate, Kind.STRING, Kind.NUMBER),
    "REVERSE": of_strings(lambda text: text[::-1], 1),
    "RIGHT": of_kinds(_right, Kind.STRING, Kind.NUMBER),
    "RTRIM": of_strings(str.rstrip, 2, optional=1),
    "STARTSWITH": _test(str.startswith),
    "STRINGEQUALS": _test(lambda text, other: text == other),
    "STRINGJOIN": of_kinds(_join, Kind.ARRAY, Kind.STRING),
    "STRINGSPLIT": of_strings(_split, 2),
    "STRINGTOARRAY": _parsed(Kind.ARRAY),
    "STRINGTOBOOLEAN": _parsed(Kind.BOOLEAN),
    "STRINGTONULL": _parsed(Kind.NULL),
    "STRINGTONUMBER": _parsed(Kind.NUMBER),
    "STRINGTOOBJECT": _parsed(Kind.OBJECT),
    "SUBSTRING": of_kinds(_substring, Kind.STRING, Kind.NUMBER, Kind.NUMBER),
    "TOSTRING": Function(_to_string, 1, 1),
    "TRIM": of_strings(str.strip, 2, optional=1),
    "UPPER": of_strings(str.upper, 1),
}
