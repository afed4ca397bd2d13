"""Timers on whole hosts: one host of several, take-over after a kill, and what the function gets."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from packages.emulators.tests.integration.apps import eventually, write_app
from packages.emulators.tests.integration.processes import Process, Start
from tests.support.watchdog import WATCHDOG_S

pytestmark = pytest.mark.slow

_SCRIPT = """\
import os
import pathlib
import time

import azure.functions as func

app = func.FunctionApp()
out = pathlib.Path(os.environ["OUT"])


@app.timer_trigger(schedule="%EVERY%", arg_name="timer", {options})
def tick(timer: func.TimerRequest, context: func.Context) -> None:
    with out.open("a") as file:
        following = timer.schedule_status.get("Next", "no status")
        file.write(f"{{os.environ['WHO']}} {{timer.past_due}} {{following}}\\n")
    while out.with_name("hold").exists():
        time.sleep(0.01)
"""


@pytest.fixture
def start(tmp_path: Path, started: Start) -> Start:
    """Starts hosts that share a storage, with the schedule `every` and further arguments of the trigger."""

    async def start_one(
        who: str, every: str = "* * * * * *", *, trigger: str = "use_monitor=True", lock_ms: int = 1_000
    ) -> tuple[Process, dict[str, Any]]:
        return await started(
            *("--app", str(write_app(tmp_path / "app", script=_SCRIPT.format(options=trigger)))),
            *("--storage", str(tmp_path / "storage"), "--lock-ms", str(lock_ms), "--shutdown-timeout-s", "2"),
            WHO=who,
            OUT=str(tmp_path / "out.txt"),
            EVERY=every,
            # The machine's time zone does not matter.
            TZ="Pacific/Kiritimati",
        )

    return start_one


def ticks(folder: Path, who: str) -> list[str]:
    """The function's input: whether it was past due, and its next occurrence."""
    out = folder / "out.txt"
    lines = out.read_text().splitlines() if out.is_file() else []
    return [line.removeprefix(f"{who} ") for line in lines if line.startswith(f"{who} ")]


async def status(ready: dict[str, Any]) -> dict[str, Any]:
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{ready['port']}") as http,
        http.get("/admin/status") as response,
    ):
        (function,) = (await response.json())["functions"]
        return dict(function)


async def test_one_of_two_hosts_runs_the_timer_and_the_other_takes_it_over_from_a_killed_one(
    tmp_path: Path, start: Start
) -> None:
    first, _ = await start("first", lock_ms=1_000)
    _, ready = await start("second", lock_ms=1_000)
    await eventually(lambda: len(ticks(tmp_path, "first")) >= 2)
    assert ticks(tmp_path, "second") == []
    assert (await status(ready))["leases"] == []

    os.killpg(first.pid, signal.SIGKILL)

    await eventually(lambda: bool(ticks(tmp_path, "second")))
    assert (await status(ready))["leases"] == ["timer"]


async def test_a_host_that_stops_hands_the_timer_over_at_once(tmp_path: Path, start: Start) -> None:
    first, _ = await start("first", lock_ms=60_000)
    await eventually(lambda: bool(ticks(tmp_path, "first")))

    first.terminate()
    async with asyncio.timeout(WATCHDOG_S):
        assert await first.wait() == 0
    _, ready = await start("second", lock_ms=60_000)

    await eventually(lambda: bool(ticks(tmp_path, "second")))
    assert (await status(ready))["leases"] == ["timer"]


async def test_an_occurrence_that_nobody_was_there_for_is_past_due(tmp_path: Path, start: Start) -> None:
    first, _ = await start("first", "0 0 0 1 1 *")
    first.terminate()
    await first.wait()
    last_year(tmp_path)

    await start("second", "0 0 0 1 1 *")

    await eventually(lambda: bool(ticks(tmp_path, "second")))
    assert ticks(tmp_path, "second") == ["True 2026-01-01T00:00:00+00:00"]


def last_year(folder: Path) -> None:
    """Let the stored status be one of last year."""
    (stored,) = folder.glob("storage/timers/*/tick.status")
    status = json.loads(stored.read_text())
    assert status["Last"] is None
    status |= {"Next": "2026-01-01T00:00:00+00:00", "LastUpdated": "2025-06-01T00:00:00+00:00"}
    stored.write_text(json.dumps(status))


async def test_a_running_invocation_keeps_the_next_one_from_beginning(tmp_path: Path, start: Start) -> None:
    (tmp_path / "hold").touch()
    _, ready = await start("only", "00:00:00.1", trigger="run_on_startup=True, use_monitor=False")
    await eventually(lambda: bool(ticks(tmp_path, "only")))
    begun = await status(ready)
    assert begun["invoking"] == ["timer"]
    await asyncio.sleep(0.5)  # five intervals
    assert len(ticks(tmp_path, "only")) == 1

    (tmp_path / "hold").unlink()

    await eventually(lambda: len(ticks(tmp_path, "only")) >= 3)
    assert set(ticks(tmp_path, "only")) == {"False no status"}
