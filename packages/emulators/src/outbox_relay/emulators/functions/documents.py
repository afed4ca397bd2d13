"""From a page of the change feed to the function's argument, through the JSON text that the host sends.

The host parses documents and writes them again. The rules were read from JamesNK/Newtonsoft.Json, which the Cosmos
DB extension parses a page with (JsonTextReader) and writes it with (JsonTextWriter), and seen on Functions host
4.1037.

With its default settings the host also rewrites date-like strings (DateTimeUtils and DateTimeParser, with
DateParseHandling.DateTime, DateTimeZoneHandling.RoundtripKind and ISO output). A string that reads as a date and
time is written back normalised: `Z` stays UTC, an offset becomes the host's own zone, no zone stays none; the
fraction is cut to seven digits and loses its trailing zeros.
"""

from __future__ import annotations

import calendar
import json
import math
import re
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from azure.functions import DocumentList, get_binding_registry
from azure.functions.meta import Datum

_BINDING = "cosmosDBTrigger"

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

# Two digits after the fraction, without a sign, are a quirk of the parser: it takes them for the minutes of an
# offset and drops them. The possessive quantifier keeps the fraction from giving up digits to them.
_ISO = re.compile(
    r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
    r"T(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,7}+))?"
    r"(?:(?P<utc>[Zz])|(?:(?P<sign>[+-])(?P<hours>[0-9]{2}))?(?::(?P<minutes>[0-9]{2})?|(?P<bare_minutes>[0-9]{2}))?)"
)
_MICROSOFT = re.compile(r"/Date\((?P<milliseconds>-?[0-9]+)(?P<offset>[+-][0-9]{2}.*)?\)/", re.DOTALL)
_EPOCH = datetime(1970, 1, 1)
_FIRST_SECOND = int((datetime.min - _EPOCH).total_seconds())
_LAST_SECOND = int((datetime(9999, 12, 31, 23, 59, 59) - _EPOCH).total_seconds())
_ISO_LENGTHS = range(19, 41)

# DateTime counts ticks of 100 ns since the year 1; JavaScript's milliseconds are turned into them unchecked.
_INT64 = range(-(2**63), 2**63)
_TICKS_AT_EPOCH = 621_355_968_000_000_000
_TICKS_OF_DATES = range(3_155_378_976_000_000_000)


def to_text(documents: list[dict[str, Any]], *, rewrite_dates: bool) -> str:
    """Return the documents as one JSON array, compact, system properties included.

    Raises PageWithheld if the host cannot parse one of them.
    """
    return written(rewritten(documents) if rewrite_dates else documents)


def from_text(text: str) -> DocumentList:
    """Decode that text as the Python worker does, by the converter that is registered for the binding.

    It is azure-functions' own unless the app has registered another.
    """
    converter = get_binding_registry().get(_BINDING)  # type: ignore[no-untyped-call]
    documents: DocumentList = converter.decode(Datum(text, "string"), trigger_metadata={})
    return documents


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


def rewritten(value: Any) -> Any:
    """Return the JSON value with every date-like string in it, at any depth, as the host rewrites it.

    Raises PageWithheld for a `/Date(…)/` outside the years 1 to 9999, at which the parser throws.
    """
    if isinstance(value, str):
        return rewritten_string(value)
    if isinstance(value, dict):
        return {name: rewritten(member) for name, member in value.items()}
    if isinstance(value, list):
        return [rewritten(element) for element in value]
    return value


def rewritten_string(text: str) -> str:
    """Return the string itself unless it reads as a date; then the date as Newtonsoft.Json writes it.

    Raises PageWithheld as `rewritten` does.
    """
    if len(text) in _ISO_LENGTHS and text[10] == "T":
        return _rewritten_iso(text)
    if text.startswith("/Date("):
        return _rewritten_microsoft(text)
    return text


def _rewritten_iso(text: str) -> str:
    match = _ISO.fullmatch(text)
    if match is None:
        return text
    seconds = _seconds_since_epoch(match)
    if seconds is None:
        return text
    fraction = (match["fraction"] or "").rstrip("0")
    if match["sign"] is None:
        return _written(seconds, fraction, "Z" if match["utc"] else "")
    offset = int(match["hours"]) * 3_600 + int(match["minutes"] or match["bare_minutes"] or 0) * 60
    return _written_locally(seconds - (offset if match["sign"] == "+" else -offset), fraction)


def _seconds_since_epoch(match: re.Match[str]) -> int | None:
    """Return the date and time as written, zone aside, or None if there is no such date or time."""
    year, month, day = int(match["year"]), int(match["month"]), int(match["day"])
    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"])
    if not (year >= 1 and 1 <= month <= 12 and 1 <= day <= calendar.monthrange(year, month)[1]):
        return None
    if hour > 24 or minute > 59 or second > 59:
        return None
    if hour == 24 and (minute or second or (match["fraction"] or "").strip("0")):
        return None
    at_midnight = int((datetime(year, month, day) - _EPOCH).total_seconds())
    seconds = at_midnight + hour * 3_600 + minute * 60 + second
    return seconds if seconds <= _LAST_SECOND else None


def _rewritten_microsoft(text: str) -> str:
    match = _MICROSOFT.fullmatch(text)
    if match is None or int(match["milliseconds"]) not in _INT64:
        return text
    ticks = _wrapped(int(match["milliseconds"]) * 10_000 + _TICKS_AT_EPOCH)
    if ticks not in _TICKS_OF_DATES:
        raise PageWithheld("Ticks must be between DateTime.MinValue.Ticks and DateTime.MaxValue.Ticks.")
    seconds, rest = divmod(ticks - _TICKS_AT_EPOCH, 10_000_000)
    fraction = f"{rest:07d}".rstrip("0")
    return _written_locally(seconds, fraction) if match["offset"] else _written(seconds, fraction, "Z")


def _wrapped(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def _written_locally(seconds: int, fraction: str) -> str:
    """Return a moment (seconds since 1970 in UTC) in the host's zone, with its offset. TZ decides the zone."""
    # .NET's zones have offsets of whole minutes.
    offset = int(time.localtime(seconds).tm_gmtoff / 60)
    hours, minutes = divmod(abs(offset), 60)
    zone = f"{'-' if offset < 0 else '+'}{hours:02d}:{minutes:02d}"
    local = min(max(seconds + offset * 60, _FIRST_SECOND), _LAST_SECOND)
    return _written(local, fraction, zone)


def _written(seconds: int, fraction: str, zone: str) -> str:
    moment = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=UTC)
    written = moment.strftime("%m-%dT%H:%M:%S")
    # strftime's %Y does not pad years before 1000 everywhere.
    return f"{moment.year:04d}-{written}{'.' + fraction if fraction else ''}{zone}"
