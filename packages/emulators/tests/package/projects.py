"""Projects of users, in which pytest runs as its own process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

# Each starts several processes, which takes its time where many tests run at once.
SLOW = pytest.mark.timeout(900)
WATCHDOG_S = 600

# Plugins that take a second to load, or would measure here too what `make test` measures, if they are installed.
_UNUSED = ("cacheprovider", "schemathesis", "hypothesispytest", "slipcover")
# As the entry point does where the distribution is installed.
PLUGIN = (
    "-p",
    "outbox_relay.emulators.pytest_plugin",
    *(word for name in _UNUSED for word in ("-p", f"no:{name}")),
)


def run_python(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments in a directory; returns what it wrote."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=WATCHDOG_S, check=False
    )


def run_pytest(directory: Path, source: str, *options: str) -> tuple[dict[str, int], str]:
    """Run the tests of a module; returns the counts of pytest's summary by outcome, and all that it wrote."""
    (directory / "test_project.py").write_text(source)
    (directory / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    ended = run_python(directory, "-m", "pytest", "--strict-markers", *PLUGIN, *options)
    output = ended.stdout + ended.stderr
    summary = ended.stdout.rstrip().splitlines()[-1]
    return {
        outcome: int(count) for count, outcome in re.findall(r"(\d+) (passed|failed|errors?)", summary)
    }, output
