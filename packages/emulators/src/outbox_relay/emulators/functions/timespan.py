"""The two notations of durations in a function app."""

from __future__ import annotations

import re

from outbox_relay.emulators.functions.errors import HostError

_TIMESPAN = re.compile(
    r"(?P<sign>-?)(?:(?P<whole_days>\d+)|(?:(?P<days>\d+)\.)?"
    r"(?P<hours>\d{1,2}):(?P<minutes>\d{1,2})(?::(?P<seconds>\d{1,2}(?:\.\d{1,7})?))?)"
)
_INTERVAL = re.compile(r"(?P<hours>\d{1,2}):(?P<minutes>\d{1,2}):(?P<seconds>\d{1,2})")


def parse_timespan(text: str, *, name: str) -> float:
    """Parse the seconds of a .NET TimeSpan in host.json: `hh:mm:ss`, `d.hh:mm:ss`, or a whole number of days.

    `name` is the name of the value in the error. Raises HostError.
    """
    match = _TIMESPAN.fullmatch(text.strip())
    if match is None:
        raise HostError(f"{name} is {text!r}: write it as hh:mm:ss or d.hh:mm:ss")
    part = match.groupdict(default="0")
    hours, minutes, seconds = int(part["hours"]), int(part["minutes"]), float(part["seconds"])
    if hours > 23 or minutes > 59 or seconds >= 60:
        raise HostError(
            f"{name} is {text!r}: hours end at 23, minutes and seconds at 59 (days come first: 1.00:00:00)"
        )
    days = int(part["whole_days"]) + int(part["days"])
    total = days * 86_400 + hours * 3_600 + minutes * 60 + seconds
    return -total if part["sign"] else total


def parse_retry_interval(text: str, *, name: str) -> float:
    """Parse the seconds of an interval in a retry policy: only `hh:mm:ss`.

    The Python worker reads it with strptime('%H:%M:%S') (azure-functions-runtime, loader.convert_to_seconds), so
    the `d.hh:mm:ss` that other languages may write makes it fail to index the app. Raises HostError.
    """
    match = _INTERVAL.fullmatch(text)
    hours, minutes, seconds = (int(part) for part in match.groups()) if match else (24, 0, 0)
    if hours > 23 or minutes > 59 or seconds > 61:
        raise HostError(f"{name} is {text!r}: the Python worker takes hh:mm:ss below 24 hours, and nothing else")
    return float(hours * 3_600 + minutes * 60 + seconds)
