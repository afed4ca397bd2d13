"""What is not guaranteed is left out before a universe is judged, and nothing else."""

from __future__ import annotations

from typing import Any

from journal import entries
from journal.entries import Entry
from simulation.excuses import without_parked_again


def history(claimed_at: float) -> list[Entry]:
    """An event that is parked and released, twice; its lease moves once."""
    event: Any = {"key": "k", "id": "e"}
    found: list[Entry] = [
        entries.Committed(at=1, position=(1, 0), digest="", place="2F", **event),
        entries.Parked(at=3, **event),
        entries.Accepted(at=4, digest="", number=1, **event),
        entries.Released(at=5, **event),
        entries.Parked(at=7, **event),
        entries.Released(at=8, **event),
        entries.Claimed(at=claimed_at, lease="0", owner="host-2", covers=("", "FF")),
    ]
    return sorted(found, key=lambda entry: entry.at)


def test_what_is_parked_again_is_excused_if_the_lease_has_moved() -> None:
    kept = without_parked_again(history(claimed_at=6))

    assert [entry.at for entry in kept] == [1, 3, 4, 5, 6]


def test_it_is_not_excused_if_the_lease_has_not_moved_meanwhile() -> None:
    assert without_parked_again(history(claimed_at=2)) == history(claimed_at=2)
