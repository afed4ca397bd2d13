"""JSON, parsed with the place of each value, so that items can be stored as they were sent.

Numbers are those that Cosmos DB stores. IEEE 754 doubles are documented, so nothing beyond their range, neither
infinity nor NaN (https://learn.microsoft.com/azure/cosmos-db/concepts-limits#per-item-limits). Integers of 64 bits
come back whole, as was observed (https://github.com/Azure/azure-sdk-for-js/issues/13645): the service stores a
number as an integer of 64 bits or a double (Number64.cs in azure-cosmos-dotnet-v3). Any other number becomes the
nearest double silently.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn

from outbox_relay.emulators.cosmos.errors import BadRequest

MAX_NESTING = 128  # https://learn.microsoft.com/azure/cosmos-db/concepts-limits#per-item-limits

_BINARY = b"\x80"
_HYBRID_ROW = b"\x81"
_INTEGERS = range(-(1 << 63), 1 << 63)
_SAFE_DIGITS = 15  # decimal digits that every double preserves
_LEAST_NORMAL = 2.2250738585072014e-308

_CONTROL = re.compile(r"[\x00-\x1f]")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SPACE = re.compile(r"[ \t\r\n]*")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)


@dataclass(frozen=True, slots=True)
class Part:
    """A value within a JSON text, and how it was written."""

    value: Any
    text: str


class _Numbers:
    """Reads numbers as the service stores them, and notes whether any of them changed."""

    def __init__(self) -> None:
        self.changed = False

    def integer(self, digits: str) -> int | float:
        if len(digits) <= _SAFE_DIGITS or (value := int(digits)) in _INTEGERS:
            return int(digits)
        self.changed = True
        try:
            return float(value)
        except OverflowError as error:
            raise ValueError("a number is outside the range of IEEE 754 doubles") from error

    def fraction(self, digits: str) -> float:
        value = float(digits)
        if math.isinf(value):
            raise ValueError("a number is outside the range of IEEE 754 doubles")
        may_change = len(digits) > _SAFE_DIGITS or abs(value) < _LEAST_NORMAL
        if may_change and Decimal(digits) != Decimal(repr(value)):
            self.changed = True
        return value


def decode(body: bytes) -> str:
    """Return the text of a request body. Raises BadRequest unless it is UTF-8."""
    if body[:1] == _BINARY:
        raise BadRequest(
            "The request body is in binary JSON, which is not supported. Have the client write text: set "
            "AZURE_COSMOS_BINARY_ENCODING_ENABLED=False in the environment of the .NET SDK."
        )
    if body[:1] == _HYBRID_ROW:
        raise BadRequest("An item in HybridRow, of a container with a schema, is not supported. Send it as JSON.")
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadRequest(f"The request body is not valid UTF-8: {error}.") from error


def parse(text: str) -> Part:
    """Parse a whole JSON text, without surrounding blanks. Encodes it again if a number or a string was changed.

    As the service does, it takes control characters within strings that are not escaped, which JSON forbids.
    Raises BadRequest if it is not JSON, is nested too deeply, or has a number out of range.
    """
    numbers = _Numbers()
    decoder = json.JSONDecoder(
        parse_constant=_refuse_constant, parse_int=numbers.integer, parse_float=numbers.fraction, strict=False
    )
    try:
        start = _skip_space(text, 0)
        value, end = decoder.raw_decode(text, start)
        if _skip_space(text, end) != len(text):
            raise ValueError("there is more after the value")
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"The request payload is invalid. Ensure to provide a valid JSON: {error}.") from error
    _check_nesting(value, text)
    has_changed = numbers.changed or _has_raw_control_characters(text)
    return Part(value, dump(value) if has_changed else text[start:end])


def members(text: str) -> dict[str, Part]:
    """Return the members of a text already known to be a JSON object."""
    return dict(_members(text))


def elements(text: str) -> list[Part]:
    """Return the elements of a text already known to be a JSON array."""
    parts = []
    position = _skip_space(text, 1)
    while text[position] != "]":
        value, end = _decoder.raw_decode(text, position)
        parts.append(Part(value, text[position:end]))
        position = _after_comma(text, end)
    return parts


def dump(value: Any) -> str:
    """Compact JSON in UTF-8. Raises BadRequest if a number became infinite."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise BadRequest("A number is outside the range of IEEE 754 doubles.") from error
    # Lone surrogates are legal in JSON, but only as escapes.
    return text.encode("utf-8", "backslashreplace").decode()


def _members(text: str) -> Iterator[tuple[str, Part]]:
    position = _skip_space(text, 1)
    while text[position] != "}":
        key, end = _decoder.raw_decode(text, position)
        start = _skip_space(text, _skip_space(text, end) + 1)
        value, end = _decoder.raw_decode(text, start)
        yield key, Part(value, text[start:end])
        position = _after_comma(text, end)


def _has_raw_control_characters(text: str) -> bool:
    """Return True if a valid text has any within a string; between values it can only have blanks."""
    if not _CONTROL.search(text):
        return False
    return any(_CONTROL.search(string) for string in _STRING.findall(text))


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    assert match is not None
    return match.end()


def _after_comma(text: str, position: int) -> int:
    position = _skip_space(text, position)
    return _skip_space(text, position + 1) if text[position] == "," else position


def _check_nesting(value: Any, text: str) -> None:
    if text.count("{") + text.count("[") <= MAX_NESTING:
        return
    level, depth = [value], 0
    while level := [part for part in level if isinstance(part, dict | list)]:
        depth += 1
        if depth > MAX_NESTING:
            raise BadRequest(f"The document is nested more than {MAX_NESTING} levels deep.")
        level = [inner for part in level for inner in (part.values() if isinstance(part, dict) else part)]
