"""NCRONTAB expressions: which local times they have, as the library NCrontab reads them for timer triggers."""

from __future__ import annotations

import calendar
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

# Number of years after which the weekdays of a month repeat in the Gregorian calendar.
_YEARS_OF_A_CYCLE = 400
_MONTHS = "january february march april may june july august september october november december"
_WEEKDAYS = "sunday monday tuesday wednesday thursday friday saturday"
_NUMBER = re.compile(r"[0-9]+")
_STEP = re.compile(r"\s*[+-]?[0-9]+\s*")


class CronError(ValueError):
    """The expression is not NCRONTAB; the message says which field, and why."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    minimum: int
    maximum: int
    names: Sequence[str] = ()

    def values(self, text: str) -> Sequence[int]:
        """Return the values of an expression such as `1-5,*/10`, in ascending order. Raises CronError."""
        found: set[int] = set()
        for part in text.split(","):
            found |= self._of_part(part)
        return sorted(found)

    def _of_part(self, part: str) -> set[int]:
        bounds, slash, step = part.partition("/")
        if slash and not _STEP.fullmatch(step):
            raise CronError(f"{part!r} is not a valid {self.name}: the step is no number")
        # A step of 0 or below counts as 1.
        every = max(1, int(step)) if slash else 1
        if bounds == "*":
            return set(range(self.minimum, self.maximum + 1, every))
        first, dash, last = bounds.partition("-")
        start = self._value(first)
        if dash:
            start, end = sorted((start, self._value(last)))
        else:
            end = self.maximum if slash else start
        return set(range(start, end + 1, every))

    def _value(self, text: str) -> int:
        if _NUMBER.fullmatch(text):
            value = int(text)
            if not self.minimum <= value <= self.maximum:
                raise CronError(f"{value} is not a valid {self.name}: write {self.minimum} to {self.maximum}")
            return value
        # The beginning of a name is enough, and the first name that begins so is meant.
        for index, name in enumerate(self.names):
            if text and name.startswith(text.casefold()):
                return self.minimum + index
        raise CronError(f"{text!r} is not a valid {self.name}: write {self.minimum} to {self.maximum}")


_SECONDS = _Field("second", 0, 59)
_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, _MONTHS.split()),
    _Field("day of the week", 0, 6, _WEEKDAYS.split()),
)


@dataclass(frozen=True, slots=True)
class CronExpression:
    """Seconds, minutes, hours, days, months and days of the week (0 is Sunday) on which a timer is due."""

    seconds: Sequence[int]
    minutes: Sequence[int]
    hours: Sequence[int]
    days: Sequence[int]
    months: Sequence[int]
    weekdays: Sequence[int]

    @classmethod
    def parse(cls, text: str) -> CronExpression:
        """Read six fields, or five without seconds. Raises CronError."""
        words = [word for word in text.split(" ") if word]
        if len(words) not in (5, 6):
            raise CronError(f"{text!r} has {len(words)} fields: write 6, or 5 without seconds")
        seconds = _SECONDS.values(words.pop(0)) if len(words) == 6 else [0]
        return cls(seconds, *(field.values(word) for field, word in zip(_FIELDS, words, strict=True)))

    @property
    def is_interval(self) -> bool:
        """True if the time of day has neighbouring values, and not only points in time.

        CronSchedule of Azure/azure-webjobs-sdk-extensions looks for `*` and `-` in the first fields as NCrontab
        writes them, which is with `-` for neighbours.
        """
        return any(
            later - earlier == 1
            for values in (self.seconds, self.minutes, self.hours)
            for earlier, later in pairwise(values)
        )

    def after(self, moment: datetime) -> datetime | None:
        """Return the first time after a local time without zone, or None if there is none, as on 30 February."""
        time = (moment.hour, moment.minute, moment.second)
        today = (moment.year, moment.month, moment.day)
        for year in range(moment.year, min(moment.year + _YEARS_OF_A_CYCLE, datetime.max.year) + 1):
            for month in self.months:
                for day in self._days_of(year, month):
                    if (year, month, day) < today:
                        continue
                    found = self._time_after(time) if (year, month, day) == today else self._first_time
                    if found is not None:
                        return datetime(year, month, day, *found)
        return None

    @property
    def _first_time(self) -> tuple[int, int, int]:
        return self.hours[0], self.minutes[0], self.seconds[0]

    def _days_of(self, year: int, month: int) -> list[int]:
        first_weekday, length = calendar.monthrange(year, month)
        # Python's weeks begin with Monday as 0.
        return [day for day in self.days if day <= length and (first_weekday + day) % 7 in self.weekdays]

    def _time_after(self, time: tuple[int, int, int]) -> tuple[int, int, int] | None:
        hour, minute, second = time
        for candidate in self.hours:
            if candidate < hour:
                continue
            if candidate > hour:
                return candidate, self.minutes[0], self.seconds[0]
            for at in self.minutes:
                if at > minute:
                    return candidate, at, self.seconds[0]
                if at == minute and (later := [value for value in self.seconds if value > second]):
                    return candidate, at, later[0]
        return None

    def __str__(self) -> str:
        """Return the six fields in NCrontab's notation, without names."""
        fields = (_SECONDS, *_FIELDS)
        values = (self.seconds, self.minutes, self.hours, self.days, self.months, self.weekdays)
        return " ".join(_written(field, value) for field, value in zip(fields, values, strict=True))


def _written(field: _Field, values: Sequence[int]) -> str:
    if len(values) == field.maximum - field.minimum + 1:
        return "*"
    runs: list[list[int]] = []
    for value in values:
        if runs and runs[-1][-1] == value - 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
