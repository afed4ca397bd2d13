"""The validator of journals agrees with TLC: it accepts behaviours that hold, and refuses each counterexample.

`python -m tests.unit.journal.record_traces` records the behaviours anew, after a change of a specification.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.unit.journal.behaviours import behaviours, journals
from tests.unit.journal.record_traces import (
    MODULES,
    RECORDED_OF,
    SIMULATED,
    TRACES,
    digest_of_specification,
    trace_of,
)
from verification.journal.specification import Step, validate
from verification.spec.runs import CONTROLS, Run

SHOWN = {"G1": {Step.PASSED}, "G2": {Step.AHEAD}, "G3": {Step.AGAIN}}
NOT_SHOWN = {
    # That a row was deleted is not in a journal. What follows from it is: the event is never published.
    "PruneWaitsForConsumers",
    "PruneCountsTheAbsent",
    # Something that never happens is in no journal: that everything ends in time is for the run to say.
    "EveryWaitEnds",
    "DeadClaimsAreTaken",
    # The validator knows of one version of an event only. The checker finds that it was committed again.
    "EventsAreImmutable",
}
TRACED = [run for run in CONTROLS if run.module in MODULES]


def steps_of(run: Run) -> list[set[object]]:
    """For each behaviour of a world, the kinds of steps that are refused."""
    with gzip.open(trace_of(run), "rt", encoding="utf-8") as trace:
        found = behaviours(trace.read())
    # Only Relay has a clock, in ticks.
    window_s = float(run.sizes["Window"]) if run.module == "Relay" else None
    refused = [
        [validate(journal, window_s=window_s).counts for journal in journals(run, states)] for states in found
    ]
    return [set().union(*each) for each in refused]


@pytest.mark.parametrize("run", SIMULATED, ids=lambda run: run.name)
def test_behaviours_that_hold_are_accepted(run: Run) -> None:
    refused = steps_of(run)

    assert len(refused) >= 40
    assert refused == [set()] * len(refused)


@pytest.mark.parametrize("run", TRACED, ids=lambda run: run.name)
def test_the_counterexample_of_each_control_is_refused(run: Run) -> None:
    [refused] = steps_of(run)

    assert run.violated is not None
    if run.without in NOT_SHOWN:
        assert refused == set()
    else:
        assert refused >= SHOWN[run.violated]


def test_the_behaviours_are_those_of_the_specifications() -> None:
    recorded = json.loads(RECORDED_OF.read_text(encoding="utf-8"))

    assert recorded == {module: digest_of_specification(module) for module in MODULES}, (
        "a specification has changed: run python -m tests.unit.journal.record_traces"
    )
    assert {path.name for path in Path(TRACES).glob("*.gz")} == {
        trace_of(run).name for run in (*SIMULATED, *TRACED)
    }
