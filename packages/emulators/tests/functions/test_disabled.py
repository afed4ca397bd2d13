"""Functions that a setting disables."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from outbox_relay.emulators.functions.host import Host
from outbox_relay.emulators.functions.settings import Settings

_APP = """\
import azure.functions as func

app = func.FunctionApp()


@app.timer_trigger(schedule="0 0 0 1 1 *", arg_name="timer", use_monitor=False)
def first(timer: func.TimerRequest) -> None: ...


@app.timer_trigger(schedule="0 0 0 1 1 *", arg_name="timer", use_monitor=False)
def second(timer: func.TimerRequest) -> None: ...
"""


@pytest.mark.parametrize("name", ["AzureWebJobs.first.Disabled", "AzureWebJobs_first_Disabled"])
async def test_a_host_does_not_run_a_function_that_a_setting_disables(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "function_app.py").write_text(_APP)
    (tmp_path / "host.json").write_text('{"version": "2.0"}')
    host = Host(tmp_path, {name: "true"})
    with caplog.at_level(logging.INFO):
        await host.start()
        running = [each["name"] for each in host.status()["functions"]]
        await host.stop()

    assert running == ["second"]
    assert "Function 'Functions.first' is disabled" in caplog.text


@pytest.mark.parametrize(("value", "disabled"), [("true", True), ("1", True), ("false", False), ("0", False)])
def test_a_setting_disables_by_its_value(value: str, disabled: bool) -> None:
    assert Settings({"AzureWebJobs.first.Disabled": value}).disables("first") is disabled
    assert not Settings({"AzureWebJobs.first.Disabled": value}).disables("second")
