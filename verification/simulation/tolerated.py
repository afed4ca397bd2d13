"""Violations that are tolerated because docs/guarantees.md excludes them from the guarantees.

An event comes once if it is checkpointed within half the duplicate detection window; beyond that, delivery is at
least once (the assumption WindowOutlastsOutage).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from verification.journal import entries
from verification.journal.entries import Entry

Name = tuple[str, str]

Learned = Mapping[tuple[str, str, str], float]
"""When a process has learned that an event was accepted, by its name, the key and the id."""


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
        if each.at >= event.at and _covers(each, event.place) and _reaches(each.position, event.position):
            return True
    return False


def _reaches(position: entries.Position, event: entries.Position | None) -> bool:
    return event is not None and position >= event[: len(position)]


def _covers(lease: entries.OfLease, place: str) -> bool:
    return lease.lease == place if lease.covers is None else lease.covers[0] <= place < lease.covers[1]
