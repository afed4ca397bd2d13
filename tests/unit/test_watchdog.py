"""The limit of a test's time, in a session of pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import ROOT
from tests.support.watchdog import WATCHDOG_S

pytestmark = pytest.mark.slow

PROJECT = '''
import asyncio
import time

import pytest

import tests.support.watchdog
tests.support.watchdog._AGAIN_S = 0.2

pytestmark = pytest.mark.timeout(0.5)


async def test_hangs_while_only_callbacks_run():
    """The first failures are raised in a callback, where asyncio logs them."""
    loop = asyncio.get_running_loop()
    swallowed = []
    loop.set_exception_handler(lambda loop, context: swallowed.append(context))

    def run_again():
        until = time.monotonic() + 0.1
        while time.monotonic() < until and len(swallowed) < 2:
            pass
        if len(swallowed) < 2:
            loop.call_soon(run_again)

    loop.call_soon(run_again)
    await asyncio.Event().wait()


@pytest.fixture
def endless():
    yield
    while True:
        time.sleep(1)


def test_fails_before_its_teardown_hangs(endless):
    assert False


def test_has_a_report_that_takes_longer():
    pass
'''

REPORTING = """
import time

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report):
    if "takes_longer" in report.nodeid and report.when == "teardown":
        time.sleep(0.9)
"""


def test_what_hangs_is_ended_whenever_it_does_and_reports_are_not(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(PROJECT)
    (tmp_path / "conftest.py").write_text(REPORTING)
    plugins = ("-ptests.support.watchdog", "-pno:cacheprovider", "-pno:xdist")
    settings = ("-c", str(ROOT / "pyproject.toml"), f"--rootdir={tmp_path}", "-rfE", "-q")

    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, *settings, str(tmp_path / "test_hanging.py")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
        check=False,
    )

    assert "2 failed, 1 passed, 1 error" in ended.stdout, ended.stdout
    assert ended.stdout.count("Failed: Timeout (>0.5s)") >= 2
