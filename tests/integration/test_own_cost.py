"""The relay's own computation for an event, in bytecode instructions: the same number on every machine.

docs/benchmarks.md has it in microseconds. A budget has room for a few instructions more, not for another function
call an event. What C functions do is not counted here; `python -m tests.support.own_cost instructions` counts it.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from local.stack.parts import ROOT
from tests.support.watchdog import WATCHDOG_S

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.implementation.name != "cpython", reason="only CPython traces bytecode instructions"),
]

# For each shape of an invocation, partition keys x events of each: instructions an event.
BUDGETS = {"100x1": 1635, "10x10": 1086, "1x100": 1014, "1x1": 4070}
BUDGETS_WITH_TELEMETRY = {"100x1": 2842, "10x10": 1606, "1x100": 1464, "1x1": 8990}
# An event is looked up among those that this process has set aside: their number makes no difference.
BUDGETS_AFTER_SETTING_ASIDE = {"100x1": 1689, "10x10": 1140, "1x100": 1068, "1x1": 4195}
# For the second stream of the sample's relay.toml, each event's action is looked up: docs/benchmarks.md has it in
# instructions of the processor. For the first stream its rules decide nothing, and cost nothing.
BUDGETS_WITH_ROUTES = {shape: budget + 94 for shape, budget in BUDGETS.items()}
# Where changed rules count for later events, each event's commit time is looked up as well. Its invocation
# compares the earliest and the latest with what is known of the generations, and asks nobody.
BUDGETS_WITH_GENERATIONS = {shape: budget + 36 for shape, budget in BUDGETS_WITH_ROUTES.items()} | {"1x1": 4380}


def counted(*options: str) -> dict[str, float]:
    """The numbers of a separate process, which has no other telemetry and is not traced."""
    command = [sys.executable, "-m", "tests.support.own_cost", "opcodes", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WATCHDOG_S, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("options", "budgets"),
    [
        ((), BUDGETS),
        (("--telemetry",), BUDGETS_WITH_TELEMETRY),
        (("--set-aside", "10000"), BUDGETS_AFTER_SETTING_ASIDE),
        (("--routes",), BUDGETS_WITH_ROUTES),
        (("--generations",), BUDGETS_WITH_GENERATIONS),
    ],
    ids=[
        "without telemetry",
        "with telemetry",
        "after 10 000 documents were set aside",
        "with the sample's rules",
        "with generations of the sample's rules",
    ],
)
def test_an_event_costs_no_more_than_its_budget(options: tuple[str, ...], budgets: dict[str, int]) -> None:
    found = counted(*options)

    assert found.keys() == budgets.keys()
    assert {shape: cost for shape, cost in found.items() if cost > budgets[shape]} == {}
