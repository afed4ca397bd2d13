"""JSON text of what came as JSON text, value for value."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

# Maximum depth of a value that is kept as one. The standard library takes 1000 levels or so, fewer if it is called
# from deep within, and the number differs between versions of Python.
_MAX_DEPTH = 512
_TOO_DEEP = f"(nested deeper than {_MAX_DEPTH} levels: see the stored text)"
_NESTING = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)

_LONE = re.compile("[\ud800-\udfff]")

# Maximum number of digits of an integer; int() refuses more than 4300.
_MAX_DIGITS = 400


def encode(value: Any, *, sort_keys: bool = False) -> bytes:
    """Compact UTF-8 JSON.

    orjson nests 254 levels at most. Cosmos DB takes 128, so that is the rule; a document that comes deeper all
    the same is encoded by the standard library or, from about a thousand levels, by the loop below.
    """
    try:
        # A copy of the right size: orjson (3.13) gives its text in the buffer it wrote to, often ten times as
        # large, and the bodies of all batches under way are held at once.
        return bytes(memoryview(orjson.dumps(value, option=orjson.OPT_SORT_KEYS if sort_keys else None)))
    except orjson.JSONEncodeError:
        # In ASCII, as a lone surrogate has an escape in JSON and no bytes in UTF-8.
        try:
            return _dumps(value, sort_keys).encode()
        except RecursionError:
            return "".join(_deep(value, sort_keys)).encode()


def _dumps(value: Any, sort_keys: bool) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"), sort_keys=sort_keys)


def _deep(value: Any, sort_keys: bool) -> Iterator[str]:
    """Yield the same text without recursion, whose limit differs between versions of Python."""
    waiting: list[Any] = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, _Text):
            yield each
        elif isinstance(each, dict):
            waiting.append(_Text("}"))
            members = sorted(each.items(), reverse=True) if sort_keys else reversed(each.items())
            for number, (name, member) in enumerate(members, 1):
                comma = "," if number < len(each) else ""
                waiting += (member, _Text(f"{comma}{json.dumps(name)}:"))
            yield "{"
        elif isinstance(each, list):
            waiting.append(_Text("]"))
            for number, member in enumerate(reversed(each), 1):
                waiting += (member, _Text("," if number < len(each) else ""))
            yield "["
        else:
            yield _dumps(each, sort_keys)


class _Text(str):
    """A part of the text, which a value of type str is not."""

    __slots__ = ()


def escaped(text: str) -> str:
    """Return JSON text in which half of a surrogate pair is an escape, as JSON can have it."""
    return text if text.isascii() else _LONE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def read_object(text: str) -> tuple[dict[str, Any], str] | None:
    """Return the object in JSON text, without what is nested too deeply, and the text; None if it is no object."""
    text = escaped(text)
    found = parsed(text)
    if not isinstance(found, dict):
        return None
    return shallow(found) if is_deep(found, text) else found, text


def member(text: str, names: Sequence[str]) -> str | None:
    """Return the text of a value within the objects of JSON text, or None if it cannot be told from the rest."""
    start, end = 0, len(text)
    try:
        for name in names:
            # As the parser does, the last of several members with one name counts.
            start, end = [(start, end) for found, start, end in _members(text, start) if found == name][-1]
    except (ValueError, IndexError, RecursionError):
        return None
    return text[start:end]


def _members(text: str, start: int) -> Iterator[tuple[str, int, int]]:
    """Yield the members of the object whose text starts there: names, and where their values start and end."""
    at = _next(text, start)
    while text[at] in ("{", ","):
        at = _next(text, at + 1)
        if text[at] == "}":
            return
        name, at = _PLACES.raw_decode(text, at)
        value = _next(text, _next(text, at) + 1)
        at = _PLACES.raw_decode(text, value)[1]
        yield name, value, at
        at = _next(text, at)


def _next(text: str, at: int) -> int:
    """Return the place of the next character that is no space."""
    while text[at] in " \t\n\r":
        at += 1
    return at


# No number is read, which could have too many digits.
_PLACES = json.JSONDecoder(parse_int=str, parse_float=str)


def parsed(text: str) -> Any:
    """Return the value of the text, or None if it cannot be parsed. Numbers may lose digits, or be text."""
    try:
        return orjson.loads(text)
    except ValueError:
        # It is no JSON, or has a number, half of a surrogate pair or a depth that orjson refuses.
        try:
            return json.loads(text, parse_int=_whole, parse_float=_finite, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return None


def _whole(digits: str) -> int | str:
    return int(digits) if len(digits) <= _MAX_DIGITS else digits


def _finite(digits: str) -> float | str:
    number = float(digits)
    return number if math.isfinite(number) else digits


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def is_deep(value: Any, text: str) -> bool:
    """Return True if a value is nested too deeply to be handled as one; `text` is its text."""
    if text.count("[") + text.count("{") <= _MAX_DEPTH:
        return False
    try:
        # It nests 254 levels at most, and counts them far faster than the loop below.
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        depth = deepest = 0
        for token in _NESTING.finditer(text):
            depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
            deepest = max(deepest, depth)
        return deepest > _MAX_DEPTH
    return False


def shallow(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object without its nested values; the document has its text."""
    return {name: _TOO_DEEP if isinstance(value, dict | list) else value for name, value in data.items()}
