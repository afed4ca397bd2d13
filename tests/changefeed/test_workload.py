"""Many writers and readers at once: nothing lost, nothing twice, in order, and all readers agree."""

from __future__ import annotations

import pytest

from tests.changefeed.backends import Backend
from tests.changefeed.history import Transaction
from tests.changefeed.journal import Journal
from tests.changefeed.reading import observer
from tests.changefeed.workload import Workload


@pytest.mark.parametrize("seed", [1, 2])
def test_concurrent_writers_and_readers(backend: Backend, journal: Journal, seed: int) -> None:
    Workload(seed).run(backend, journal, observer)

    assert journal.faults() == []
    outcomes = [transaction.outcome for transaction in journal.transactions]
    assert outcomes.count("rolled back") > 5
    assert outcomes.count("committed") > 200
    assert overlapping(journal.transactions) > 100
    assert len([one for one in journal.observations if not one.complete]) > 5


def overlapping(transactions: list[Transaction]) -> int:
    """How many transactions began before another one ended that had begun before."""
    committed = sorted(
        (one for one in transactions if one.ended is not None and one.events[0].aggregate != "slow"),
        key=lambda one: one.began,
    )
    ends, count = 0, 0
    for one in committed:
        assert one.ended is not None
        count += one.began < ends
        ends = max(ends, one.ended)
    return count
