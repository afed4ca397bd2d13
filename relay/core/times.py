"""Times and durations, on the command line and in events."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta

_SHORT = re.compile(
    r"(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?"
    r"(?:(?P<seconds>\d+(?:\.\d+)?)S)?"
)
_DURATION = re.compile(
    r"P(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)


# The grammar of RFC 3339, section 5.6, and the numbers that it allows; a month's days are the calendar's.
_RFC_3339 = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt]((?:[01]\d|2[0-3]):[0-5]\d):([0-5]\d|60)(\.\d+)?([Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)


def parse_rfc3339(text: str) -> datetime:
    """Parse a time in RFC 3339, to the microsecond; a leap second is the second behind it.

    Raises:
        ValueError: It is none, or is in the year 0, which Python does not have.
    """
    match = _RFC_3339.fullmatch(text)
    if match is None:
        raise ValueError("no time in RFC 3339")
    date, minute, second, fraction, zone = match.groups(default="")
    if second != "60":
        return datetime.fromisoformat(f"{date}T{minute}:{second}{fraction}{zone.upper()}")
    moment = datetime.fromisoformat(f"{date}T{minute}:59{zone.upper()}")
    ahead = (moment.utcoffset() or timedelta()) // timedelta(minutes=1)
    # A leap second is in the last minute of a day in UTC (section 5.7).
    if (moment.hour * 60 + moment.minute - ahead + 1) % (24 * 60) != 0:
        raise ValueError("no leap second")
    return moment + timedelta(seconds=1)


def parse_duration(text: str) -> timedelta:
    """Parse a duration in ISO 8601 (`PT10M`, `P1DT12H`), its short form (`10m`, `1d12h`) or in seconds (`600`).

    Raises:
        ValueError: It is neither, or has years or months, whose length depends on the calendar.
    """
    stripped = text.strip().upper()
    if re.fullmatch(r"\d+(\.\d+)?", stripped):
        return timedelta(seconds=float(stripped))
    match = (_DURATION if stripped.startswith("P") else _SHORT).fullmatch(stripped)
    if match is None or not stripped or stripped.endswith(("P", "T")):
        raise ValueError(f"{text!r} is not a duration: write it as PT10M, 10m, 1d12h, or in seconds")
    return timedelta(**{unit: float(amount) for unit, amount in match.groupdict(default="0").items()})


def format_duration(duration: timedelta) -> str:
    """Format a duration in ISO 8601, such as `PT10M`."""
    minutes, seconds = divmod(duration.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    exact = f"{seconds}.{duration.microseconds:06}".rstrip("0").rstrip(".")
    date = f"{duration.days}D" if duration.days else ""
    parts = ((str(hours), "H"), (str(minutes), "M"), (exact, "S"))
    time = "".join(amount + unit for amount, unit in parts if amount != "0")
    return f"P{date}T{time}" if time else f"P{date}" if date else "PT0S"


def parse_time(text: str) -> float:
    """Return the seconds since 1970 of a time in ISO 8601 (UTC by default) or in seconds. Raises ValueError."""
    stripped = text.strip()
    try:
        if re.fullmatch(r"\d+(\.\d+)?", stripped):
            moment = datetime.fromtimestamp(float(stripped), UTC)
        else:
            moment = datetime.fromisoformat(stripped)
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        seconds = moment.timestamp()
    except (ValueError, OverflowError, OSError):
        seconds = -1.0
    if seconds < 0:
        raise ValueError(f"{text!r} is not a time: write it as 2026-02-09T11:37:00Z, or in seconds since 1970")
    return seconds


def parse_moment(text: str) -> float | timedelta:
    """Parse a time in a form of `parse_time`, or a duration before now with its units (`1h30m`).

    Raises ValueError.
    """
    if not text.strip()[-1:].isdecimal():
        with suppress(ValueError):
            return parse_duration(text)
    try:
        return parse_time(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time: write it as 2026-02-09T11:37:00Z, in seconds since 1970, or as 1h30m for so "
            "long ago"
        ) from None


def format_time(seconds: int) -> str:
    """Format a time in ISO 8601 in UTC, such as `2026-02-09T11:37:00Z`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
