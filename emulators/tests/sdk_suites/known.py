"""Tests of the suites that fail or are not run here, by a pattern of their names, with the reason.

The first pattern that fits counts. What fails and is not listed fails the run; what is listed and passes is shown.
"""

from __future__ import annotations

NOT_RUN: dict[str, dict[str, str]] = {
    "cosmos": {},
    "servicebus": {
        "*perf_tests*": "measures, and tests nothing",
    },
}
"""Tests that need what no emulator has, or that would wait for it."""

FAILING: dict[str, dict[str, str]] = {
    "cosmos": {},
    "servicebus": {},
}
"""Tests that are run and may fail."""
