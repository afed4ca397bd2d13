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


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "1")], ids=["alone", "with xdist"])
def test_each_reason_is_one_line_with_the_number_of_its_tests(tmp_path: Path, workers: tuple[str, ...]) -> None:
    for name in ("test_one.py", "test_two.py"):
        (tmp_path / name).write_text(TESTS, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -ra -p tests.support.skips\n", encoding="utf-8")

    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers],
        cwd=tmp_path,
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
    *_, title, first, second, last = ended.stdout.splitlines()
    assert title.strip("= ") == "skipped"
    assert [first, second] == ["   60  there is no chromium on PATH", "    2  npm is not installed"]
    assert last.startswith("2 passed, 62 skipped")
