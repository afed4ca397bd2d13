"""The report of a run of the tests on those that it skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import ROOT
from tests.support.watchdog import WATCHDOG_S

TESTS = """
import pytest

@pytest.mark.parametrize("number", range(30))
def test_page(number):
    pytest.skip("there is no chromium on PATH")

@pytest.mark.skipif(True, reason="npm is not installed")
def test_package():
    pass

def test_passes():
    pass
"""


CONFTEST = """
from tests.support import skips

def pytest_addoption(parser):
    skips.add_options(parser)
"""
workers = pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "1")], ids=["alone", "with xdist"])


def summary(folder: Path, *arguments: str) -> list[str]:
    """Run the tests of a folder; returns the lines of the report's summary."""
    (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -ra -p tests.support.skips\n", encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={
            **os.environ,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        },
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = ended.stdout.splitlines()
    [title] = [number for number, line in enumerate(lines) if line.strip("= ") == "skipped"]
    return lines[title + 1 :]


@workers
def test_each_reason_is_one_line_with_the_number_of_its_tests(tmp_path: Path, workers: tuple[str, ...]) -> None:
    for name in ("test_one.py", "test_two.py"):
        (tmp_path / name).write_text(TESTS, encoding="utf-8")

    first, second, last = summary(tmp_path, *workers)

    assert [first, second] == ["   60  there is no chromium on PATH", "    2  npm is not installed"]
    assert last.startswith("2 passed, 62 skipped")


@workers
def test_no_test_starts_after_the_time_that_a_run_has(tmp_path: Path, workers: tuple[str, ...]) -> None:
    (tmp_path / "test_one.py").write_text(TESTS, encoding="utf-8")

    first, last = summary(tmp_path, "--start-until", "1", *workers)

    assert first == "   32  no time was left in this run: `make test-all` runs it"
    assert last.startswith("32 skipped")


def test_a_test_starts_while_the_run_has_time(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(TESTS, encoding="utf-8")

    *_, last = summary(tmp_path, "--start-until", "1e12")

    assert last.startswith("1 passed, 31 skipped")
