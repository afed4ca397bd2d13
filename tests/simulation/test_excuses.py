"""What is not guaranteed is left out before a universe is judged, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from journal import entries
from journal.entries import Entry
from simulation.excuses import without_set_aside_again


def history(removed: type[Entry], checkpointed_at: float) -> list[Entry]:
    """An event that is parked and removed, twice; its lease passes it once."""
    event: Any = {"key": "k", "id": "e"}
    lease: Any = {"lease": "0", "owner": "host", "covers": ("", "FF")}
    found: list[Entry] = [
        entries.Committed(at=1, position=(1, 0), digest="", place="2F", **event),
        entries.Parked(at=3, **event),
        removed(at=5, **event),
        entries.Parked(at=7, **event),
        removed(at=8, **event),
        entries.Checkpointed(at=checkpointed_at, position=(1,), **lease),
    ]
    return sorted(found, key=lambda entry: entry.at)


@pytest.mark.parametrize("removed", [entries.Released, entries.Discarded])
def test_what_is_parked_again_is_excused_until_its_page_is_checkpointed(removed: type[Entry]) -> None:
    kept = without_set_aside_again(history(removed, checkpointed_at=9))

    assert [entry.at for entry in kept] == [1, 3, 5, 9]


@pytest.mark.parametrize("removed", [entries.Released, entries.Discarded])
def test_it_is_not_excused_afterwards(removed: type[Entry]) -> None:
    assert without_set_aside_again(history(removed, checkpointed_at=6)) == history(removed, checkpointed_at=6)
