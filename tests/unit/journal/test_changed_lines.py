"""A journal with one line changed, dropped, doubled or moved is refused, unless it says as much as before.

The journals were recorded by campaigns: one of Cosmos DB with `park`, a split, a merge, a kill, freezes and stolen
leases; one of PostgreSQL with a kill, a freeze and claims that were taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from verification.journal import entries
from verification.journal.checker import Policy, check
from verification.journal.entries import Entry, load
from verification.journal.specification import validate

JOURNALS = {
    policy: load(Path(__file__).parent / "recorded" / name)
    for policy, name in {Policy.PARK: "cosmos.jsonl.gz", Policy.SKIP: "sql.jsonl.gz"}.items()
}
QUICKLY = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)
OF_PROCESSES = (entries.Killed, entries.Frozen, entries.Resumed)

journal_and_line = st.sampled_from(list(JOURNALS)).flatmap(
    lambda policy: st.tuples(st.just(policy), st.integers(0, len(JOURNALS[policy]) - 1))
)


def is_refused(journal: Sequence[Entry], policy: Policy) -> bool:
    steps = validate(journal, policy, window_s=300, slack_s=1)
    return bool(steps.counts.total()) or not check(journal, policy).is_right


def event_of(entry: Entry) -> tuple[str, str] | None:
    return (entry.key, entry.id) if isinstance(entry, entries.OfEvent) else None


def is_last_of_its_lease(journal: Sequence[Entry], line: int) -> bool:
    lease = getattr(journal[line], "lease", None)
    return all(getattr(entry, "lease", None) != lease for entry in journal[line + 1 :])


@pytest.mark.parametrize("policy", JOURNALS)
def test_a_recorded_journal_is_right(policy: Policy) -> None:
    kinds = {entry.kind for entry in JOURNALS[policy]}

    assert not is_refused(JOURNALS[policy], policy)
    assert kinds >= {
        "committed",
        "accepted",
        "duplicate",
        "handled",
        "set_aside",
        "claimed",
        "lost",
        "checkpointed",
    }


def may_be_dropped(journal: Sequence[Entry], line: int) -> bool:
    """Return True if nobody can miss the line: it had no effect, or is the end of a story."""
    match journal[line]:
        case entries.Duplicate() | entries.Killed() | entries.Resumed():
            return True
        case entries.Checkpointed() | entries.Claimed() | entries.Lost() as entry:
            # Without a position, a lease is where it was before; without an owner it moves no more.
            return isinstance(entry, entries.Checkpointed) or is_last_of_its_lease(journal, line)
        case entries.Discarded() as discarded:
            # If nothing of its key came afterwards, nothing was held back for it.
            later = [each for each in journal[line:] if isinstance(each, entries.Accepted)]
            return all(each.key != discarded.key for each in later)
        case entries.Parked() | entries.SetAside() as stored:
            # One record is enough.
            return sum(event_of(each) == event_of(stored) for each in journal if _is_record(each)) > 1
    return False


def _is_record(entry: Entry) -> bool:
    return isinstance(entry, entries.Parked | entries.SetAside)


@given(journal_and_line)
@QUICKLY
def test_a_line_that_is_dropped_is_missed(chosen: tuple[Policy, int]) -> None:
    policy, line = chosen
    journal = list(JOURNALS[policy])
    del journal[line]

    assert is_refused(journal, policy) is not may_be_dropped(JOURNALS[policy], line)


REPEATABLE = (
    entries.Duplicate,
    entries.SetAside,
    entries.Parked,
    entries.Ordered,
    entries.Discarded,
    entries.Released,
)


@given(journal_and_line)
@QUICKLY
def test_a_line_that_is_doubled_is_one_too_many(chosen: tuple[Policy, int]) -> None:
    """Double a line: a record may be there, a message dropped, a process frozen or killed more than once."""
    policy, line = chosen
    journal = list(JOURNALS[policy])
    entry = journal[line]
    journal.insert(line, entry)

    assert is_refused(journal, policy) is not isinstance(entry, (*REPEATABLE, entries.Killed, entries.Frozen))


CHANGES: dict[str, list[dict[str, Any]]] = {
    "committed": [{"digest": "0"}, {"id": "other"}, {"key": "other"}, {"sound": False}],
    "accepted": [{"digest": "0"}, {"id": "other"}, {"key": "other"}, {"number": 10**6}],
    "duplicate": [{"digest": "0"}, {"id": "other"}, {"key": "other"}],
    "handled": [{"digest": "0"}, {"id": "other"}, {"key": "other"}, {"number": 10**6}, {"consumer": "other"}],
    "set_aside": [{"id": "other"}, {"key": "other"}],
    "parked": [{"id": "other"}, {"key": "other"}],
    "released": [{"id": "other"}, {"key": "other"}],
    "discarded": [{"id": "other"}, {"key": "other"}],
    "claimed": [{"owner": "other"}, {"epoch": 10**6}],
    "lost": [{"owner": "other"}, {"epoch": 10**6}],
    "checkpointed": [{"owner": "other"}, {"epoch": 10**6}, {"position": (-1,)}, {"lease": "other"}],
    "resumed": [{"by": "other"}],
}


@given(journal_and_line, st.data())
@QUICKLY
def test_a_line_that_is_changed_is_noticed(chosen: tuple[Policy, int], data: st.DataObject) -> None:
    policy, line = chosen
    journal = list(JOURNALS[policy])
    entry = journal[line]
    change = data.draw(st.sampled_from([*CHANGES.get(entry.kind, []), {"at": 0.0}]))
    journal[line] = replace(entry, **change)

    assert is_refused(journal, policy) is not says_the_same(JOURNALS[policy], line, change)


def says_the_same(journal: Sequence[Entry], line: int, change: dict[str, Any]) -> bool:
    """The first line may be older; what poison carried, who had a lease that nobody uses, where one began."""
    entry = journal[line]
    if change == {"at": 0.0}:
        return line == 0
    if isinstance(entry, entries.Committed) and not entry.sound:
        return "digest" in change or "sound" in change
    if isinstance(entry, entries.Claimed) and change.keys() & {"owner", "epoch"}:
        return is_last_of_its_lease(journal, line)
    if isinstance(entry, entries.Checkpointed) and _is_first_position(journal, line):
        # A split made it, so that nobody has it yet.
        return "position" in change or (not entry.owner and bool(change.keys() & {"epoch", "lease"}))
    return False


def _is_first_position(journal: Sequence[Entry], line: int) -> bool:
    lease = getattr(journal[line], "lease", None)
    before = [each for each in journal[:line] if isinstance(each, entries.Checkpointed)]
    return all(each.lease != lease for each in before)


def are_in_order(first: Entry, second: Entry) -> bool | None:
    """Return True if the second has to come after the first, or None if that depends on more than the two."""
    match first, second:
        case (entries.OfLease(), entries.OfLease()):
            return first.lease == second.lease
        case (entries.OfLease(), entries.OfEvent()) | (entries.OfEvent(), entries.OfLease()):
            # A position passes some events, and depends on these.
            return None
        case (entries.OfEvent(), entries.OfEvent()):
            return _of_key(first, second) if first.key == second.key else False
        case _:
            return None if isinstance(first, OF_PROCESSES) and isinstance(second, OF_PROCESSES) else False


def _of_key(first: entries.OfEvent, second: entries.OfEvent) -> bool | None:
    ordered = {("committed", "accepted"), ("accepted", "handled"), ("accepted", "duplicate")}
    if first.id == second.id:
        return True if (first.kind, second.kind) in ordered else None
    if first.kind == second.kind and first.kind in ("accepted", "handled"):
        return True
    return None


@given(journal_and_line, st.integers(1, 20))
@QUICKLY
def test_a_line_that_moves_is_noticed_if_it_passes_one_that_it_depends_on(
    chosen: tuple[Policy, int], steps: int
) -> None:
    """Lines of different keys, and of different leases, may change places."""
    policy, line = chosen
    journal = list(JOURNALS[policy])
    passed = journal[line + 1 : line + 1 + steps]
    journal[line : line + 1 + steps] = [*passed, journal[line]]
    times = [entry.at for entry in JOURNALS[policy]]
    moved = [replace(entry, at=at) for entry, at in zip(journal, times, strict=True)]

    relations = {are_in_order(JOURNALS[policy][line], each) for each in passed}

    if True in relations:
        assert is_refused(moved, policy)
    elif None not in relations:
        assert not is_refused(moved, policy)
