"""The due times of a timer: by an NCRONTAB expression in the app's time zone, or after a constant interval."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from outbox_relay.emulators.functions.cron import CronError, CronExpression
from outbox_relay.emulators.functions.errors import HostError

_MINUTE = timedelta(minutes=1)
_TIMESPAN = re.compile(
    r"\s*(?P<sign>-?)(?:(?P<alone>\d+)|(?:(?P<days>\d+)(?:\.|:(?=\d+:\d+:\d)))?(?P<first>\d+):(?P<second>\d+)"
    r"(?::(?P<third>\d+)(?P<fraction>\.\d{1,7})?)?)\s*"
)


def time_zone(name: str | None) -> tzinfo:
    """Return a time zone by its name in the tz database, which the setting has on Linux; UTC without one.

    "NCRONTAB time zones" in https://learn.microsoft.com/azure/azure-functions/functions-bindings-timer.

    Raises:
        HostError: There is no such zone.
    """
    if not name or name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise HostError(
            f"the time zone '{name}' is not in the tz database of this machine: set WEBSITE_TIME_ZONE to "
            "a name as 'Europe/Berlin', which Linux expects, or install the package tzdata"
        ) from error


def localized(moment: datetime, zone: tzinfo) -> datetime:
    """Return the same moment with the offset that the zone has then."""
    local = moment.astimezone(zone)
    return local.replace(tzinfo=timezone(_offset(local)))


class Schedule(Protocol):
    """The occurrences of a timer, as moments with an offset from UTC.

    Attributes:
        zone: The app's time zone.
        adjusts_for_dst: The value in the function's argument.
        is_frequent: Whether the timer is due more than once a minute; then no status is stored.
    """

    @property
    def zone(self) -> tzinfo: ...

    @property
    def adjusts_for_dst(self) -> bool: ...

    @property
    def is_frequent(self) -> bool: ...

    def after(self, moment: datetime) -> datetime | None:
        """Return the first occurrence after a moment, or None if there is none."""


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """Occurrences by an expression, in a time zone.

    When clocks go back, an interval continues through both hours, and a point in time occurs in the first of them
    only (CronSchedule of Azure/azure-webjobs-sdk-extensions).
    """

    expression: CronExpression
    zone: tzinfo = UTC

    adjusts_for_dst = True

    @property
    def is_frequent(self) -> bool:
        cron = self.expression
        every_minute = all(
            len(values) == number
            for values, number in (
                (cron.minutes, 60),
                (cron.hours, 24),
                (cron.days, 31),
                (cron.months, 12),
                (cron.weekdays, 7),
            )
        )
        return every_minute and len(cron.seconds) > 1

    def after(self, moment: datetime) -> datetime | None:
        zone, now = self.zone, localized(moment, self.zone)
        following = self.expression.after(now.replace(tzinfo=None))
        if following is None:
            return None
        found = _located(following, zone)
        moved = _offset(found) - _offset(now)
        if self.expression.is_interval:
            crosses = moved and (_is_ambiguous(now, zone) or _is_ambiguous(found, zone))
            return localized(found + moved, zone) if crosses else found
        if not _is_ambiguous(found, zone):
            return found
        if moved:
            return localized(found + moved, zone)
        # It has occurred in the hour before, which had the same name.
        while following is not None and _is_ambiguous(_located(following, zone), zone):
            following = self.expression.after(following)
        return None if following is None else _located(following, zone)

    def __str__(self) -> str:
        return f"Cron: '{self.expression}'"


@dataclass(frozen=True, slots=True)
class ConstantSchedule:
    """An occurrence each time that the interval has passed."""

    interval: timedelta
    zone: tzinfo = UTC

    adjusts_for_dst = False

    @property
    def is_frequent(self) -> bool:
        return self.interval < _MINUTE

    def after(self, moment: datetime) -> datetime:
        return localized(moment.astimezone(UTC) + self.interval, self.zone)

    def __str__(self) -> str:
        return f"Constant: {self.interval}"


def parse_schedule(text: str, zone: tzinfo = UTC) -> Schedule:
    """Parse an NCRONTAB expression of six or five fields, or else a .NET TimeSpan. Raises HostError."""
    try:
        return CronSchedule(CronExpression.parse(text), zone)
    except CronError as error:
        interval = _timespan(text)
        if interval is None:
            raise HostError(
                f"The schedule expression '{text}' was not recognized as a valid cron expression or timespan "
                f"string: {error}"
            ) from None
        return ConstantSchedule(interval, zone)


def _timespan(text: str) -> timedelta | None:
    """Parse a TimeSpan as .NET does: `hh:mm:ss` from 24 on for the first number is `d:hh:mm`."""
    match = _TIMESPAN.fullmatch(text)
    if match is None:
        return None
    if match["alone"]:
        days, hours, minutes, seconds = int(match["alone"]), 0, 0, 0
    else:
        days = int(match["days"] or 0)
        hours, minutes, seconds = int(match["first"]), int(match["second"]), int(match["third"] or 0)
        if hours > 23 and match["days"] is None and match["third"] and not match["fraction"]:
            days, hours, minutes, seconds = hours, minutes, seconds, 0
    if hours > 23 or minutes > 59 or seconds > 59:
        return None
    fraction = float(match["fraction"] or 0)
    try:
        length = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds + fraction)
    except OverflowError:
        return None
    return -length if match["sign"] else length


def _located(local: datetime, zone: tzinfo) -> datetime:
    """Return a local time with its offset.

    It is the later of two, and after a gap as many minutes as it is within the gap.
    """
    return _read(local, zone, fold=1 if _is_repeated(local, zone) else 0)


def _is_ambiguous(moment: datetime, zone: tzinfo) -> bool:
    return _is_repeated(moment.replace(tzinfo=None), zone)


def _is_repeated(local: datetime, zone: tzinfo) -> bool:
    first, second = _read(local, zone, fold=0), _read(local, zone, fold=1)
    # Both readings of a time within a gap move out of it.
    return first != second and first.replace(tzinfo=None) == second.replace(tzinfo=None)


def _read(local: datetime, zone: tzinfo, *, fold: int) -> datetime:
    # By way of UTC: a time within a gap moves out of it.
    return localized(local.replace(tzinfo=zone, fold=fold).astimezone(UTC), zone)


def _offset(moment: datetime) -> timedelta:
    return moment.utcoffset() or timedelta()
