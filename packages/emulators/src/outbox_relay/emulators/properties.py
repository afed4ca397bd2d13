"""Reading named properties of a JSON object, noting everything that is wrong with them instead of stopping."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeVar, overload

Problems = list[str]
C = TypeVar("C", bound=StrEnum)

MAX_INTEGER = 2**31 - 1

_DURATION = re.compile(
    r"P(?!$)(?:(?P<days>\d{1,15})D)?"
    r"(?:T(?!$)(?:(?P<hours>\d{1,15})H)?(?:(?P<minutes>\d{1,15})M)?(?:(?P<seconds>\d{1,15}(?:\.\d+)?)S)?)?"
)
_UNITS_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


def parse_duration(text: str) -> int:
    """Return an ISO 8601 duration of days and less in milliseconds. Raises ValueError."""
    match = _DURATION.fullmatch(text)
    if not match:
        raise ValueError(f"'{text}' is no ISO 8601 duration such as PT1M or P7D")
    return round(sum(float(match[unit] or 0) * factor for unit, factor in _UNITS_MS.items()))


def parse_ticks(text: str) -> int:
    """Return an ISO 8601 duration of days and less in ticks of 100 ns; it may be negative. Raises ValueError."""
    match = _DURATION.fullmatch(text.removeprefix("-"))
    if not match:
        raise ValueError(f"'{text}' is no ISO 8601 duration such as PT1M or P7D")
    ms = sum(Decimal(match[unit] or 0) * factor for unit, factor in _UNITS_MS.items())
    return int(ms * 10_000) * (-1 if text.startswith("-") else 1)


class Reader:
    """An object of the document and its place in it. Names are matched without regard to case.

    `done` records the names that were never requested.
    """

    def __init__(self, value: Any, path: str, problems: Problems) -> None:
        self._path = path
        self._problems = problems
        if not isinstance(value, Mapping):
            self._note(f"{path or 'the document'} must be an object")
            value = {}
        self._names = {str(name).lower(): name for name in value}
        self._values = {str(name).lower(): each for name, each in value.items()}

    def wrong(self, name: str, what: str) -> None:
        """Note that a property is wrong."""
        self._note(f"{self._at(name)} {what}")

    def done(self) -> None:
        """Note what was not read as unknown."""
        for name in self._values:
            self.wrong(self._names[name], "is not a known property")
        self._values = {}

    def allow(self, *names: str) -> None:
        """Read over properties that mean nothing here."""
        for name in names:
            self._values.pop(name.lower(), None)

    def child(self, name: str, *, required: bool = False) -> Reader:
        value = self._pop(name, required)
        return Reader({} if value is None else value, self._at(name), self._problems)

    def children(self, name: str, *, required: bool = False) -> list[Reader]:
        value = self._pop(name, required)
        if value is None:
            return []
        if not isinstance(value, list):
            self.wrong(name, "must be a list")
            return []
        return [Reader(each, f"{self._at(name)}[{n}]", self._problems) for n, each in enumerate(value)]

    def string(self, name: str, *, required: bool = False) -> str:
        value = self._pop(name, required)
        if value is None:
            return ""
        if not isinstance(value, str):
            self.wrong(name, "must be a string")
            return ""
        return value

    def strings(self, name: str) -> list[str]:
        value = self._pop(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            self.wrong(name, "must be a list of strings")
            return []
        return list(value)

    def boolean(self, name: str, *, default: bool = False) -> bool:
        value = self._pop(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.wrong(name, "must be true or false")
        return value is True

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        value = self._pop(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.wrong(name, f"must be a whole number from {low} to {high}")
            return default
        return value

    def limit(self, name: str) -> int | None:
        """Read a whole number above 0; None when it is not there."""
        return self.integer(name, 0, 1, MAX_INTEGER) or None

    @overload
    def choice(self, name: str, choices: type[C], default: C) -> C: ...

    @overload
    def choice(self, name: str, choices: type[C], default: None) -> C | None: ...

    def choice(self, name: str, choices: type[C], default: C | None) -> C | None:
        """Read one of several strings; without a default it is required, and None if it is wrong."""
        value = self.string(name, required=default is None)
        if not value:
            return default
        try:
            return choices(value)
        except ValueError:
            self.wrong(name, f"is '{value}'; it must be one of {', '.join(str(each.value) for each in choices)}")
            return default

    def duration(self, name: str, low_ms: int, high_ms: int | None) -> int | None:
        """Read an ISO 8601 duration in milliseconds; None when it is not there."""
        value = self._pop(name)
        if value is None:
            return None
        try:
            milliseconds = parse_duration(value if isinstance(value, str) else repr(value))
        except ValueError as error:
            self.wrong(name, f"is wrong: {error}")
            return None
        if milliseconds < low_ms or (high_ms is not None and milliseconds > high_ms):
            limit = "" if high_ms is None else f" and at most {high_ms / 1000:g} seconds"
            self.wrong(name, f"is '{value}'; it must be more than nothing{limit}")
            return None
        return milliseconds

    def mapping(self, name: str) -> Mapping[str, Any]:
        value = self._pop(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.wrong(name, "must be an object")
            return {}
        return dict(value)

    def _pop(self, name: str, required: bool = False) -> Any:
        value = self._values.pop(name.lower(), None)
        if value is None and required:
            self.wrong(name, "is missing")
        return value

    def _at(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path and name else self._path or name

    def _note(self, problem: str) -> None:
        self._problems.append(problem)
