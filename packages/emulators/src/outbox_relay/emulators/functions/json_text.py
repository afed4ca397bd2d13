"""The JSON text that the host makes of documents: parsed and written again by Newtonsoft.Json.

The rules were read from JamesNK/Newtonsoft.Json, which the Cosmos DB extension parses a page with
(JsonTextReader) and writes it with (JsonTextWriter), and seen on Functions host 4.1037.
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import Any

MAX_DEPTH = 64
"""JsonReader.MaxDepth, which host.json cannot change; the array around the page counts as one level."""
MAX_INTEGER_CHARACTERS = 380
"""JsonTextReader.MaximumJavascriptIntegerCharacterLength; a minus sign counts."""

# Numbers that Python and .NET write differently, or that .NET does not read. A string that looks like one merely
# takes the slower way.
_SPELLED_OTHERWISE = re.compile(r"[:,\[]-?(?:Infinity|[0-9]{16}\.0|[0-9]{380}|[0-9][0-9.]*e)")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_DECIMAL_DIGITS = 15
_SMALLEST_SCALE = -3


class PageWithheld(Exception):
    """The host cannot parse a page of changes, and delivers none of it; the message says why."""


def written(documents: list[dict[str, Any]]) -> str:
    """Write the documents as one compact JSON array. Raises PageWithheld.

    Integers are whole; floats are spelled as .NET does (`1E+22`), those beyond a double are the strings
    "Infinity" and "-Infinity"; half a surrogate pair is U+FFFD, by which gRPC replaces it.
    """
    _check_depth(documents)
    text = json.dumps(documents, ensure_ascii=False, separators=(",", ":"))
    if _SPELLED_OTHERWISE.search(text):
        text = _exact(documents)
    return text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)


def _check_depth(documents: list[dict[str, Any]]) -> None:
    level: list[Any] = [documents]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for node in level
            for child in (node.values() if node.__class__ is dict else node)
            if child.__class__ is dict or child.__class__ is list
        ]
        if not level:
            return
    raise PageWithheld(f"The reader's MaxDepth of {MAX_DEPTH} has been exceeded.")


def _exact(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{_exact(name)}:{_exact(member)}" for name, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_exact, value)) + "]"
    if isinstance(value, float):
        return _float(value)
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, int) and len(text) > MAX_INTEGER_CHARACTERS:
        raise PageWithheld(f"JSON integer of {len(text)} characters is too large to parse.")
    return text


def _float(value: float) -> str:
    """Write a number as double.ToString("R") of .NET does, with the decimal place that JsonConvert adds."""
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    digits, scale = _digits(value)
    if _SMALLEST_SCALE <= scale <= max(len(digits), _DECIMAL_DIGITS):
        return f"{value:.{max(1, len(digits) - scale)}f}"
    sign = "-" if value < 0 else ""
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}E{scale - 1:+03d}"


def _digits(value: float) -> tuple[str, int]:
    """Return the shortest digits d that represent the value, and its scale s.

    The value is 0.d times ten to the s.
    """
    _, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    return text.rstrip("0") or "0", len(text) + exponent if text else 1
