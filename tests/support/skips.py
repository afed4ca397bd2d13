"""The summary of what was skipped: a line for each reason, where pytest has one for each place in the code."""

from __future__ import annotations

from collections import Counter

import pytest


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
