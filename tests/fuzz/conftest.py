"""Reports how much was tried."""

from __future__ import annotations

import pytest

from tests.fuzz.budget import tried


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if tried:
        counts = ", ".join(f"{count} {what}" for what, count in sorted(tried.items()))
        terminalreporter.write_line(f"fuzz: {counts}")
