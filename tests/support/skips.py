"""Tests that are skipped: those for which a run has no time left, and the summary of all of them."""

from __future__ import annotations

import time
from collections import Counter

import pytest

_NO_TIME = "no time was left in this run: `make test-all` runs it"


def add_options(parser: pytest.Parser) -> None:
    """Add `--start-until`, for a run that must end soon on a slow machine too."""
    help_text = "skip the tests that would start after TIME, in seconds since 1970"
    parser.addoption("--start-until", metavar="TIME", type=float, help=help_text)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that would start too late."""
    until = item.config.getoption("start_until", None)
    if until is not None and time.time() > until:
        pytest.skip(_NO_TIME)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the number of tests that were skipped for each reason, the most first, unless `-r` leaves them out."""
    if "s" not in terminalreporter.reportchars:
        return
    # What pytest itself writes of them afterwards.
    terminalreporter.reportchars = terminalreporter.reportchars.replace("s", "")
    reasons = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", ()))
    if reasons:
        terminalreporter.section("skipped")
    for reason, count in reasons.most_common():
        terminalreporter.line(f"{count:5}  {reason}")


def _reason(report: pytest.TestReport) -> str:
    _, _, message = report.longrepr if isinstance(report.longrepr, tuple) else ("", 0, report.longreprtext)
    return message.removeprefix("Skipped: ").partition("\n")[0]
