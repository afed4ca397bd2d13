"""Functions of date and time: strings in ISO 8601, and ticks of 100 ns since 1970, all in UTC."""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from outbox_relay.emulators.cosmos.query.functions.definitions import Function, integer_of, of_strings
from outbox_relay.emulators.cosmos.query.values import UNDEFINED

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND, _MILLISECOND, _MICROSECOND = 10_000_000, 10_000, 10
_FIRST_BIN = -116_444_736_000_000_000  # 1601, where Windows counts from
_YEARS = range(1, 10_000)

# https://learn.microsoft.com/azure/cosmos-db/nosql/query/is-datetime
_ISO = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})(?:[T ](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,7}))?)?Z?",
    re.ASCII,
)
_PARTS = {
    "year": ("year", "yyyy", "yy"),
    "month": ("month", "mm", "m"),
    "day": ("day", "dd", "d"),
    "hour": ("hour", "hh"),
    "minute": ("minute", "mi", "n"),
    "second": ("second", "ss", "s"),
    "millisecond": ("millisecond", "ms"),
    "microsecond": ("microsecond", "mcs"),
    "nanosecond": ("nanosecond", "ns"),
}
_PART_OF = {name: part for part, names in _PARTS.items() for name in names}
_NANOSECONDS = {
    "day": 86_400 * 10**9,
    "hour": 3_600 * 10**9,
    "minute": 60 * 10**9,
    "second": 10**9,
    "millisecond": 10**6,
    "microsecond": 10**3,
    "nanosecond": 1,
}


def _ticks(text: str) -> int | None:
    """Return the moment that a text names, or None if it names none."""
    match = _ISO.fullmatch(text)
    if match is None:
        return None
    numbers = [int(group or 0) for group in match.groups()[:6]]
    try:
        moment = datetime(*numbers, tzinfo=UTC)  # type: ignore[arg-type,misc]
    except ValueError:
        return None
    return _seconds(moment) * _SECOND + int((match[7] or "").ljust(7, "0"))


def _seconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(seconds=1)


def _moment(ticks: int) -> tuple[datetime, int] | None:
    """Return the second, and the ticks within it, or None outside of the years that there are."""
    seconds, rest = divmod(ticks, _SECOND)
    try:
        return _EPOCH + timedelta(seconds=seconds), rest
    except OverflowError:
        return None


def text_of_ticks(ticks: int) -> Any:
    """Return the text that the service writes, with seven digits after the second.

    It is undefined beyond the year 9999.
    """
    found = _moment(ticks)
    return UNDEFINED if found is None else f"{found[0]:%Y-%m-%dT%H:%M:%S}.{found[1]:07d}Z".rjust(28, "0")


def _add(part: Any, number: Any, text: Any) -> Any:
    ticks = _ticks(text) if isinstance(text, str) else None
    return UNDEFINED if ticks is None else _added(part, number, ticks)


def _added(part: Any, number: Any, ticks: int) -> Any:
    unit, count = _PART_OF.get(part) if isinstance(part, str) else None, integer_of(number)
    if unit is None or count is None:
        return UNDEFINED
    if unit in _NANOSECONDS:
        return text_of_ticks(ticks + count * _NANOSECONDS[unit] // 100)
    moment = _moment(ticks)
    assert moment is not None
    months = moment[0].year * 12 + moment[0].month - 1 + count * (12 if unit == "year" else 1)
    year, month = months // 12, months % 12 + 1
    if year not in _YEARS:
        return UNDEFINED
    day = min(moment[0].day, calendar.monthrange(year, month)[1])
    return text_of_ticks(_seconds(moment[0].replace(year=year, month=month, day=day)) * _SECOND + moment[1])


def _bin(text: Any, part: Any, size: Any = 1, start: Any = "1970-01-01") -> Any:
    unit = _PART_OF.get(part) if isinstance(part, str) else None
    ticks, first = (_ticks(each) if isinstance(each, str) else None for each in (text, start))
    count = integer_of(size)
    if unit not in _NANOSECONDS or ticks is None or first is None or count is None:
        return UNDEFINED
    if count <= 0 or first < _FIRST_BIN:
        return UNDEFINED
    nanoseconds, width = (ticks - first) * 100, count * _NANOSECONDS[unit]
    return text_of_ticks(first + nanoseconds // width * width // 100)


def _diff(part: str, start: str, end: str) -> Any:
    """Return the number of boundaries between the two, not the time."""
    unit, first, last = _PART_OF.get(part), _ticks(start), _ticks(end)
    if unit is None or first is None or last is None:
        return UNDEFINED
    return _boundaries(unit, last) - _boundaries(unit, first)


def _boundaries(unit: str, ticks: int) -> int:
    if unit in _NANOSECONDS:
        return ticks * 100 // _NANOSECONDS[unit]
    moment = _moment(ticks)
    assert moment is not None
    return moment[0].year if unit == "year" else moment[0].year * 12 + moment[0].month


def _part(part: str, text: str) -> Any:
    unit, ticks = _PART_OF.get(part), _ticks(text)
    if unit is None or ticks is None:
        return UNDEFINED
    moment = _moment(ticks)
    assert moment is not None
    fractions = {"millisecond": moment[1] // _MILLISECOND, "microsecond": moment[1] // _MICROSECOND}
    fractions["nanosecond"] = moment[1] * 100
    return fractions[unit] if unit in fractions else getattr(moment[0], unit)


def _from_parts(*parts: Any) -> Any:
    numbers = [number for part in parts if (number := integer_of(part)) is not None]
    if len(numbers) < len(parts):
        return UNDEFINED
    numbers += [0] * (7 - len(numbers))
    fraction = numbers.pop()
    try:
        moment = datetime(*numbers, tzinfo=UTC)  # type: ignore[arg-type,misc]
    except (ValueError, OverflowError):
        return UNDEFINED
    return text_of_ticks(_seconds(moment) * _SECOND + fraction) if 0 <= fraction < _SECOND else UNDEFINED


def _of_date(convert: Callable[[int], Any]) -> Function:
    def checked(text: str) -> Any:
        ticks = _ticks(text)
        return UNDEFINED if ticks is None else convert(ticks)

    return of_strings(checked, 1)


def _to_date(ticks_each: int) -> Function:
    def checked(number: Any) -> Any:
        count = integer_of(number)
        return UNDEFINED if count is None else text_of_ticks(count * ticks_each)

    return Function(checked, 1, 1)


def _now(convert: Callable[[int], Any]) -> Function:
    return Function(convert, 0, 0, needs_moment=True)


def _ago(moment: int, part: Any, number: Any) -> Any:
    count = integer_of(number)
    return UNDEFINED if count is None else _added(part, -count, moment)


def is_datetime(value: Any) -> bool:
    return isinstance(value, str) and _ticks(value) is not None


def _milliseconds(ticks: int) -> int:
    return ticks // _MILLISECOND


DATES: dict[str, Function] = {
    "AGO": Function(_ago, 2, 2, needs_moment=True),
    "DATETIMEADD": Function(_add, 3, 3),
    "DATETIMEBIN": Function(_bin, 2, 4),
    "DATETIMEDIFF": of_strings(_diff, 3),
    "DATETIMEFROMPARTS": Function(_from_parts, 3, 7),
    "DATETIMEPART": of_strings(_part, 2),
    "DATETIMETOTICKS": _of_date(lambda ticks: ticks),
    "DATETIMETOTIMESTAMP": _of_date(_milliseconds),
    "DAY": of_strings(lambda text: _part("day", text), 1),
    "GETCURRENTDATETIME": _now(text_of_ticks),
    "GETCURRENTDATETIMESTATIC": _now(text_of_ticks),
    "GETCURRENTTICKS": _now(lambda ticks: ticks),
    "GETCURRENTTICKSSTATIC": _now(lambda ticks: ticks),
    "GETCURRENTTIMESTAMP": _now(_milliseconds),
    "GETCURRENTTIMESTAMPSTATIC": _now(_milliseconds),
    "MONTH": of_strings(lambda text: _part("month", text), 1),
    "NOW": _now(text_of_ticks),
    "TICKSTODATETIME": _to_date(1),
    "TIMESTAMPTODATETIME": _to_date(_MILLISECOND),
    "YEAR": of_strings(lambda text: _part("year", text), 1),
}
