"""Judges a universe by its journal, with the checker of all journals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from verification.journal import checker, entries
from verification.journal.entries import Entry
from verification.journal.specification import validate
from verification.simulation.plan import Plan, Result

Name = tuple[str, str]

Learned = Mapping[tuple[str, str, str], float]
"""Times at which processes have learned that an event was accepted, by the process, the key and the id."""


def without_excused(journal: Sequence[Entry], window_s: float, learned: Learned) -> list[Entry]:
    """Return the journal without further copies of events that were not checkpointed in time.

    A copy from a process that had learned of the event's acceptance in time is not excused.
    """
    first: dict[Name, entries.Accepted] = {}
    committed: dict[Name, entries.Committed] = {}
    kept: list[Entry] = []
    checkpoints = [each for each in journal if isinstance(each, entries.Checkpointed)]
    for entry in journal:
        if isinstance(entry, entries.Committed):
            committed[entry.key, entry.id] = entry
        elif isinstance(entry, entries.Accepted):
            name = entry.key, entry.id
            if name in first:
                in_time = first[name].at + window_s / 2
                was_known = learned.get((entry.by, *name), math.inf) <= in_time
                if not was_known and not _was_passed(committed[name], checkpoints, in_time):
                    continue
            first.setdefault(name, entry)
        kept.append(entry)
    return kept


def _was_passed(event: entries.Committed, checkpoints: Sequence[entries.Checkpointed], until: float) -> bool:
    """Return True if a lease has passed the event by that time."""
    for each in checkpoints:
        if each.at > until:
            return False
        if each.at >= event.at and each.has(event.place) and each.passed(event):
            return True
    return False


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
    kept = without_excused(journal, window_s, learned)
    report = checker.check(kept, checker.Policy(plan.policy), is_complete=is_over)
    violations = list(report.findings)
    violations += validate(kept, checker.Policy(plan.policy)).findings
    if not is_over:
        violations.append("stuck: not everything was published long after the last fault")
    elif report.quarantined != report.expected_quarantined:
        violations.append(f"{report.quarantined} events are set aside, instead of {report.expected_quarantined}")
    return Result(journal, violations, virtual_s, len(journal) - len(kept))
