"""What is not guaranteed: an event comes once if it is checkpointed within half the duplicate detection window.

Beyond that, delivery is at least once: docs/guarantees.md, the assumption WindowOutlastsOutage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from journal import entries
from journal.entries import Entry

Name = tuple[str, str]

Learned = tuple[str, str, str]
"""A process, and the key and the id of an event of whose acceptance it has learned."""


def without_excused(journal: Sequence[Entry], window_s: float, learned: Mapping[Learned, float]) -> list[Entry]:
    """The journal without further copies of events that were not checkpointed in time.

    A copy from a process that had `learned` of the event's acceptance before is not excused.
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
            is_known = learned.get((entry.by, *name), math.inf) < entry.at
            if (
                name in first
                and not is_known
                and not _was_passed(committed[name], first[name], checkpoints, window_s / 2)
            ):
                continue
            first.setdefault(name, entry)
        kept.append(entry)
    return kept


def _was_passed(
    event: entries.Committed,
    accepted: entries.Accepted,
    checkpoints: Sequence[entries.Checkpointed],
    within_s: float,
) -> bool:
    """Whether a lease passed the event soon after it was accepted, or before."""
    for each in checkpoints:
        if each.at > accepted.at + within_s:
            return False
        if each.at >= event.at and _covers(each, event.place) and _reaches(each.position, event.position):
            return True
    return False


def _reaches(position: entries.Position, event: entries.Position | None) -> bool:
    return event is not None and position >= event[: len(position)]


def _covers(lease: entries.OfLease, place: str) -> bool:
    return lease.lease == place if lease.covers is None else lease.covers[0] <= place < lease.covers[1]
