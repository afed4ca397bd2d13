"""host.json and the durations in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from outbox_emulators.functions.errors import HostError
from outbox_emulators.functions.host_json import HostConfiguration
from outbox_emulators.functions.singleton import LockTimings
from outbox_emulators.functions.timespan import parse_timespan


def _read(directory: Path, content: dict[str, Any]) -> HostConfiguration:
    (directory / "host.json").write_text(json.dumps({"version": "2.0", **content}))
    return HostConfiguration.from_directory(directory)


def _with_dates(handling: str) -> dict[str, Any]:
    return {"extensions": {"cosmosDB": {"serializerSettings": {"dateParseHandling": handling}}}}


def test_the_defaults_are_half_an_hour_and_rewritten_dates(tmp_path: Path) -> None:
    assert _read(tmp_path, {}) == HostConfiguration(1800.0, rewrite_dates=True, has_extension_bundle=False)


@pytest.mark.parametrize(
    ("handling", "rewritten"), [("None", False), ("none", False), ("Default", True), ("default", True)]
)
def test_date_handling_decides_whether_dates_are_rewritten(tmp_path: Path, handling: str, rewritten: bool) -> None:
    assert _read(tmp_path, _with_dates(handling)).rewrite_dates is rewritten


@pytest.mark.parametrize(
    ("version", "rewritten"),
    [
        ("[4.28.0, 5.0.0)", False),
        ("[4.23.1, 5.0.0)", False),
        ("4.24.0", False),
        ("[4.23.0, 5.0.0)", True),
        ("[4.*, 5.0.0)", True),
        ("[3.3.0, 4.0.0)", True),
        ("(, 5.0.0)", HostError),
    ],
)
def test_an_extension_that_may_be_too_old_rewrites_dates_whatever_the_setting_says(
    tmp_path: Path, version: str, rewritten: bool | type[HostError]
) -> None:
    content = {**_with_dates("None"), "extensionBundle": {"id": "any", "version": version}}
    if rewritten is HostError:
        with pytest.raises(HostError, match="write a range"):
            _read(tmp_path, content)
    else:
        assert _read(tmp_path, content).rewrite_dates is rewritten


def test_an_extension_that_is_too_old_does_not_know_a_wrong_setting_either(tmp_path: Path) -> None:
    content = {**_with_dates("DateTime"), "extensionBundle": {"id": "any", "version": "[4.0.0, 4.21.0)"}}
    assert _read(tmp_path, content).rewrite_dates is True


@pytest.mark.parametrize(("timeout", "seconds"), [("00:05:00", 300.0), ("1.00:00:00", 86_400.0), ("-1", None)])
def test_the_function_timeout_is_read(tmp_path: Path, timeout: str, seconds: float | None) -> None:
    assert _read(tmp_path, {"functionTimeout": timeout}).function_timeout_s == seconds


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (_with_dates("DateTime"), "DateTime"),
        (_with_dates("DateTimeOffset"), "DateTimeOffset"),
        ({"functionTimeout": "00:00:00"}, "functionTimeout"),
        ({"functionTimeout": "five"}, "functionTimeout"),
        ({"functionTimeout": "24:00:00"}, "functionTimeout"),
        ({"version": "1.0"}, "version"),
    ],
)
def test_what_cannot_be_honoured_is_refused(tmp_path: Path, content: dict[str, Any], named: str) -> None:
    with pytest.raises(HostError, match=named):
        _read(tmp_path, content)


def test_a_directory_without_host_json_is_no_function_app(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="no function app"):
        HostConfiguration.from_directory(tmp_path)


def test_broken_json_is_reported(tmp_path: Path) -> None:
    (tmp_path / "host.json").write_text("{")
    with pytest.raises(HostError, match="is not JSON"):
        HostConfiguration.from_directory(tmp_path)


@pytest.mark.parametrize(
    ("text", "seconds"), [("01:02", 3_720.0), ("00:00:01.5", 1.5), ("-00:00:01", -1.0), ("2", 172_800.0)]
)
def test_timespans_are_read_as_dotnet_reads_them(text: str, seconds: float) -> None:
    assert parse_timespan(text, name="x") == seconds


def test_the_lock_of_a_timer_lasts_as_the_singleton_section_says(tmp_path: Path) -> None:
    assert _read(tmp_path, {}).locks == LockTimings(60.0, 60.0)
    section = {"listenerLockPeriod": "00:00:15", "listenerLockRecoveryPollingInterval": "00:02:00"}
    assert _read(tmp_path, {"singleton": section}).locks == LockTimings(15.0, 120.0)


@pytest.mark.parametrize(
    "section",
    [{"listenerLockPeriod": "00:00:14"}, {"listenerLockPeriod": "00:01:01"}, {"listenerLockPeriod": "x"}],
)
def test_a_lock_that_a_blob_cannot_have_is_refused(tmp_path: Path, section: dict[str, str]) -> None:
    with pytest.raises(HostError, match="listenerLockPeriod"):
        _read(tmp_path, {"singleton": section})
