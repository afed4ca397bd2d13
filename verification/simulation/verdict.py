"""Judges a universe by its journal, with the checker of all journals."""

from __future__ import annotations

from collections.abc import Sequence

from verification.journal import checker
from verification.journal.entries import Entry
from verification.journal.specification import validate
from verification.simulation import tolerated
from verification.simulation.plan import Plan, Result
from verification.simulation.tolerated import Learned


def judged(
    plan: Plan,
    journal: Sequence[Entry],
    *,
    window_s: float,
    learned: Learned,
    virtual_s: float,
    is_over: bool,
) -> Result:
    """Return the result of a universe.

    Args:
        window_s: The topic's duplicate detection window, in seconds.
        learned: When which process has learned of the acceptance of which event.
        virtual_s: How long the universe lasted.
        is_over: Whether everything was published and settled, some time after the last fault.
    """
    kept = tolerated.without_excused(journal, window_s, learned)
    report = checker.check(kept, checker.Policy(plan.policy), is_complete=is_over)
    violations = list(report.findings)
    violations += validate(kept, checker.Policy(plan.policy)).findings
    if not is_over:
        violations.append("stuck: not everything was published long after the last fault")
    elif report.quarantined != report.expected_quarantined:
        violations.append(f"{report.quarantined} events are set aside, instead of {report.expected_quarantined}")
    return Result(journal, violations, virtual_s, len(journal) - len(kept))
