"""Occurrences of timers: NCRONTAB as Microsoft's documentation has it, time zones, and intervals."""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from outbox_relay.emulators.functions.cron import CronError, CronExpression
from outbox_relay.emulators.functions.errors import HostError
from outbox_relay.emulators.functions.host import Host
from outbox_relay.emulators.functions.schedules import ConstantSchedule, CronSchedule, parse_schedule, time_zone

LOS_ANGELES = ZoneInfo("America/Los_Angeles")


def after(expression: str, start: str, count: int) -> list[str]:
    """The next occurrences of an expression, in local time."""
    cron, moment, found = CronExpression.parse(expression), datetime.fromisoformat(start), []
    for _ in range(count):
        following = cron.after(moment)
        assert following is not None
        found.append(following.isoformat(sep=" "))
        moment = following
    return found


# The operators and examples of https://learn.microsoft.com/azure/azure-functions/functions-bindings-timer.
# 23 November 2026 is a Monday.
@pytest.mark.parametrize(
    ("expression", "occurrences"),
    [
        ("0 5 * * * *", ["2026-11-23 13:05:00", "2026-11-23 14:05:00"]),
        ("0 * 5 * * *", ["2026-11-24 05:00:00", "2026-11-24 05:01:00"]),
        ("5-7 * * * * *", ["2026-11-23 12:30:05", "2026-11-23 12:30:06", "2026-11-23 12:30:07"]),
        ("5,8,10 * * * * *", ["2026-11-23 12:30:05", "2026-11-23 12:30:08", "2026-11-23 12:30:10"]),
        ("0 */5 * * * *", ["2026-11-23 12:35:00", "2026-11-23 12:40:00"]),
        ("0 0 * * * *", ["2026-11-23 13:00:00", "2026-11-23 14:00:00"]),
        ("0 0 */2 * * *", ["2026-11-23 14:00:00", "2026-11-23 16:00:00"]),
        ("0 0 9-17 * * *", ["2026-11-23 13:00:00", "2026-11-23 14:00:00"]),
        ("0 30 9 * * *", ["2026-11-24 09:30:00", "2026-11-25 09:30:00"]),
        ("0 30 9 * * 1-5", ["2026-11-24 09:30:00", "2026-11-25 09:30:00"]),
        ("0 30 9 * Jan Mon", ["2027-01-04 09:30:00", "2027-01-11 09:30:00"]),
    ],
)
def test_expressions_of_the_documentation_occur_as_it_says(expression: str, occurrences: list[str]) -> None:
    assert after(expression, "2026-11-23T12:30:00", len(occurrences)) == occurrences


@pytest.mark.parametrize(
    ("expression", "occurrences"),
    [
        # Five fields have no seconds.
        ("59 11 * * 1-5", ["2026-11-24 11:59:00", "2026-11-25 11:59:00"]),
        ("  0  0 0 1 1 *  ", ["2027-01-01 00:00:00", "2028-01-01 00:00:00"]),
        # Months and years in which a day is missing are left out.
        ("0 0 0 31 * *", ["2026-12-31 00:00:00", "2027-01-31 00:00:00", "2027-03-31 00:00:00"]),
        ("0 0 0 29 2 1", ["2044-02-29 00:00:00", "2072-02-29 00:00:00"]),
        # Day of the month and day of the week must both match.
        ("0 0 0 13 * Fri", ["2027-08-13 00:00:00", "2028-10-13 00:00:00"]),
        # A number with a step begins a range up to the maximum; bounds may be in either order.
        ("0 50/3 * * * *", ["2026-11-23 12:50:00", "2026-11-23 12:53:00", "2026-11-23 12:56:00"]),
        ("0 40-34/2 * * * *", ["2026-11-23 12:34:00", "2026-11-23 12:36:00"]),
        ("0 1-9/4,40-44/2 * * * *", ["2026-11-23 12:40:00", "2026-11-23 12:42:00", "2026-11-23 12:44:00"]),
        ("0 */0 * * * *", ["2026-11-23 12:31:00", "2026-11-23 12:32:00"]),
        # The beginning of a name is enough, and the first such name is meant.
        ("0 0 0 1 j,ju,DECEMBER *", ["2026-12-01 00:00:00", "2027-01-01 00:00:00", "2027-06-01 00:00:00"]),
        ("0 0 0 * * s-T", ["2026-11-24 00:00:00", "2026-11-29 00:00:00", "2026-11-30 00:00:00"]),
    ],
)
def test_expressions_occur_as_in_ncrontab(expression: str, occurrences: list[str]) -> None:
    assert after(expression, "2026-11-23T12:30:00.5", len(occurrences)) == occurrences


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("* * * *", "has 4 fields"),
        ("* * * * * * *", "has 7 fields"),
        ("60 * * * * *", "60 is not a valid second"),
        ("0 * * 0 * *", "0 is not a valid day of the month"),
        ("0 * * * 13 *", "13 is not a valid month"),
        ("0 * * * * 7", "7 is not a valid day of the week"),
        ("0 Jan * * * *", "'Jan' is not a valid minute"),
        ("0 1, * * * *", "'' is not a valid minute"),
        ("0 5- * * * *", "'' is not a valid minute"),
        ("0 -5 * * * *", "'' is not a valid minute"),
        ("0 */x * * * *", "the step is no number"),
        ("0 5a * * * *", "'5a' is not a valid minute"),
        ("0 0 0 L * *", "'L' is not a valid day of the month"),
        ("0 0 0 ? * *", "'?' is not a valid day of the month"),
    ],
)
def test_an_expression_that_is_not_ncrontab_is_refused_with_the_field(expression: str, reason: str) -> None:
    with pytest.raises(CronError) as refused:
        CronExpression.parse(expression)
    assert reason in str(refused.value)


def test_a_day_that_never_comes_has_no_occurrence() -> None:
    assert CronExpression.parse("0 0 0 30 2 *").after(datetime(2026, 1, 1)) is None
    assert CronSchedule(CronExpression.parse("0 0 0 30 2 *")).after(datetime(2026, 1, 1, tzinfo=UTC)) is None


def test_an_expression_is_written_as_by_ncrontab() -> None:
    assert str(parse_schedule("0 59 11 * Jan Mon-Fri")) == "Cron: '0 59 11 * 1 1-5'"
    assert str(parse_schedule("*/20 0-59 1,2,4 * * *")) == "Cron: '0,20,40 * 1-2,4 * * *'"


# As in CronScheduleTests.IsInterval_ReturnsExpectedValue of Azure/azure-webjobs-sdk-extensions.
@pytest.mark.parametrize(
    ("expression", "is_interval"),
    [
        ("0 * * * * *", True),
        ("0 0-15 * * * *", True),
        ("0 0 1-3 * * 0", True),
        ("0 0 0 * * *", False),
        ("0 0 0 * * 1", False),
        ("0 0,30 9 * * *", False),
        ("0-15 * * * *", True),
        ("0 0 * * *", False),
    ],
)
def test_a_schedule_is_an_interval_or_a_point_in_time(expression: str, is_interval: bool) -> None:
    assert CronExpression.parse(expression).is_interval is is_interval


# The clocks of Los Angeles, in cases of CronScheduleTests in Azure/azure-webjobs-sdk-extensions.
@pytest.mark.parametrize(
    ("expression", "start", "occurrences"),
    [
        (
            "0 30 * * * *",
            "2018-03-11T00:30:00-08:00",
            ["2018-03-11 01:30:00-08:00", "2018-03-11 03:30:00-07:00", "2018-03-11 04:30:00-07:00"],
        ),
        (
            "0 30 1 * * *",
            "2018-03-11T00:00:00-08:00",
            ["2018-03-11 01:30:00-08:00", "2018-03-12 01:30:00-07:00"],
        ),
        (
            "0 30 2 * * *",
            "2018-03-10T03:00:00-08:00",
            ["2018-03-11 03:30:00-07:00", "2018-03-12 02:30:00-07:00"],
        ),
        (
            "0 */20 * * * *",
            "2018-11-04T00:50:00-07:00",
            [
                "2018-11-04 01:00:00-07:00",
                "2018-11-04 01:20:00-07:00",
                "2018-11-04 01:40:00-07:00",
                "2018-11-04 01:00:00-08:00",
                "2018-11-04 01:20:00-08:00",
                "2018-11-04 01:40:00-08:00",
                "2018-11-04 02:00:00-08:00",
            ],
        ),
        (
            "0 30 1 * * *",
            "2018-11-03T00:00:00-07:00",
            ["2018-11-03 01:30:00-07:00", "2018-11-04 01:30:00-07:00", "2018-11-05 01:30:00-08:00"],
        ),
        # Started within the second hour, it has occurred in the first.
        ("0 30 1 * * *", "2018-11-04T01:29:00-08:00", ["2018-11-05 01:30:00-08:00"]),
    ],
)
def test_clocks_that_change_move_intervals_and_points_in_time(
    expression: str, start: str, occurrences: list[str]
) -> None:
    schedule, moment, found = parse_schedule(expression, LOS_ANGELES), datetime.fromisoformat(start), []
    for _ in occurrences:
        following = schedule.after(moment)
        assert following is not None
        found.append(str(following))
        moment = following

    assert found == occurrences


# "When the first two digits are 24 or greater, the format is dd:hh:mm" in the same documentation.
@pytest.mark.parametrize(
    ("text", "interval"),
    [
        ("01:00:00", timedelta(hours=1)),
        ("00:01:00", timedelta(minutes=1)),
        ("25:00:00", timedelta(days=25)),
        ("1.00:00:00", timedelta(days=1)),
        ("24:10:05", timedelta(days=24, hours=10, minutes=5)),
        ("6:12:14:45", timedelta(days=6, hours=12, minutes=14, seconds=45)),
        ("00:00:00.2500000", timedelta(milliseconds=250)),
        ("00:30", timedelta(minutes=30)),
        ("2", timedelta(days=2)),
    ],
)
def test_a_timespan_is_a_constant_interval(text: str, interval: timedelta) -> None:
    schedule = parse_schedule(text)
    moment = datetime.fromisoformat("2026-11-23T12:30:07+00:00")

    assert schedule == ConstantSchedule(interval)
    assert schedule.after(moment) == moment + interval


def test_an_interval_is_as_long_when_clocks_change() -> None:
    following = parse_schedule("02:00:00", LOS_ANGELES).after(datetime.fromisoformat("2018-11-04T00:30:00-07:00"))

    assert str(following) == "2018-11-04 01:30:00-08:00"


@pytest.mark.parametrize("text", ["", "every minute", "25:61:00", "1.24:00:00", "00:60:00", "99999999999"])
def test_a_schedule_that_is_neither_is_refused(text: str) -> None:
    with pytest.raises(HostError, match="not recognized as a valid cron expression or timespan string"):
        parse_schedule(text)


@pytest.mark.parametrize(
    ("text", "is_frequent"),
    [
        ("0 * * * * *", False),
        ("*/10 * * * * *", True),
        ("*/10 0 * * * *", False),
        ("* * * * *", False),
        ("00:00:59", True),
        ("00:01:00", False),
    ],
)
def test_a_schedule_of_less_than_a_minute_is_frequent(text: str, is_frequent: bool) -> None:
    assert parse_schedule(text).is_frequent is is_frequent


def test_a_schedule_is_in_utc_unless_a_zone_is_named() -> None:
    moment = datetime.fromisoformat("2026-11-23T12:00:00+14:00")

    found = [parse_schedule("0 30 9 * * *", time_zone(name)).after(moment) for name in (None, "Asia/Tokyo")]

    assert [str(each) for each in found] == ["2026-11-23 09:30:00+00:00", "2026-11-23 09:30:00+09:00"]


@pytest.mark.parametrize("name", ["W. Europe Standard Time", "../etc/passwd", "Nowhere/Land"])
def test_a_zone_that_linux_does_not_know_is_refused(name: str) -> None:
    with pytest.raises(HostError, match="set WEBSITE_TIME_ZONE"):
        time_zone(name)


_APP = """\
import azure.functions as func

app = func.FunctionApp()


@app.timer_trigger(schedule="0 30 9 * * *", arg_name="timer", use_monitor=False)
def tick(timer: func.TimerRequest) -> None: ...
"""


@pytest.mark.parametrize(
    ("settings", "offset"),
    [
        ({}, "+0000"),
        ({"WEBSITE_TIME_ZONE": "Asia/Tokyo"}, "+0900"),
        ({"TZ": "Asia/Kolkata"}, "+0530"),
        ({"WEBSITE_TIME_ZONE": "Asia/Tokyo", "TZ": "Asia/Kolkata"}, "+0900"),
    ],
)
async def test_a_host_is_in_the_zone_of_the_apps_settings_and_not_in_that_of_its_machine(
    settings: dict[str, str],
    offset: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    (tmp_path / "function_app.py").write_text(_APP)
    (tmp_path / "host.json").write_text('{"version": "2.0"}')
    host = Host(tmp_path, settings)

    with caplog.at_level(logging.INFO):
        await host.start()
        await host.stop()

    assert re.findall(r" 09:30:00([+-]\d{4})$", caplog.text, re.MULTILINE) == [offset] * 5
