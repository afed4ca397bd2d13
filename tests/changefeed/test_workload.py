"""Many writers and readers at once, and the checker of their history, which sees each kind of fault."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.changefeed.backends import Backend
from tests.changefeed.history import Event, Observation, Seen, Transaction, faults, kinds
from tests.changefeed.journal import Journal
from tests.changefeed.reading import observer
from tests.changefeed.workload import Workload


def test_concurrent_writers_and_readers(backend: Backend, journal: Journal) -> None:
    Workload(seed=1).run(backend, journal, observer)

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


# The checker sees each kind of fault, and none if there is none


A1, A2, B1, B2 = Event(0, "a", 1, 1), Event(0, "a", 2, 2), Event(0, "b", 1, 3), Event(0, "b", 2, 4)


def committed(began: int, ended: int, *events: Event) -> Transaction:
    return Transaction(began, ended, "committed", events)


def saw(*events: Event, reader: str = "r", complete: bool = True) -> Observation:
    return Observation(reader, {0: positioned(events)}, complete)


def positioned(events: Sequence[Event]) -> list[Seen]:
    return [Seen(bytes([number]), event) for number, event in enumerate(events, 1)]


ROLLED_BACK, UNKNOWN = Transaction(1, None, "rolled back", [A1]), Transaction(1, None, "unknown", [A1, A2])
PARALLEL = [committed(1, 3, A1), committed(2, 4, B1)]
AGAIN = A1._replace(write=9)


@pytest.mark.parametrize(
    ("transactions", "observations"),
    [
        pytest.param(
            [committed(1, 2, A1, A2), committed(3, 4, B1), Transaction(5, None, "rolled back", [B2])],
            [saw(A1, A2, B1), saw(A1, A2, B1), saw(A1, reader="early", complete=False)],
            id="in order",
        ),
        pytest.param(PARALLEL, [saw(A1, B1)], id="parallel transactions"),
        pytest.param(PARALLEL, [saw(B1, A1)], id="parallel transactions in another order"),
        pytest.param([committed(1, 3, A1, A2), committed(2, 4, B1, B2)], [saw(A1, B1, A2, B2)], id="mixed"),
        pytest.param([committed(1, 2, A1, A2)], [saw(A1, complete=False)], id="not at the head yet"),
        pytest.param([ROLLED_BACK, committed(2, 3, AGAIN)], [saw(AGAIN)], id="version of a rollback again"),
        pytest.param([UNKNOWN], [saw(A1, A2)], id="unknown outcome, committed"),
        pytest.param([UNKNOWN], [saw()], id="unknown outcome, rolled back"),
    ],
)
def test_a_right_history_has_no_fault(transactions: list[Transaction], observations: list[Observation]) -> None:
    assert faults(transactions, observations) == []


@pytest.mark.parametrize(
    ("transactions", "observations", "found"),
    [
        pytest.param([committed(1, 2, A1, A2)], [saw(A1)], {"lost"}, id="lost"),
        pytest.param([committed(1, 2, A1)], [Observation("r", {})], {"lost"}, id="nothing seen"),
        pytest.param([committed(1, 2, A1)], [saw(A1, A1)], {"twice"}, id="twice"),
        pytest.param([ROLLED_BACK], [saw(A1)], {"rolled back"}, id="rolled back"),
        pytest.param(
            [ROLLED_BACK, committed(2, 3, AGAIN)], [saw(A1)], {"rolled back", "lost"}, id="of a rollback"
        ),
        pytest.param([], [saw(A1)], {"rolled back"}, id="written by nobody"),
        pytest.param([UNKNOWN], [saw(A1)], {"torn"}, id="part of a transaction"),
        pytest.param([committed(1, 2, A1), committed(3, 4, B1)], [saw(B1, A1)], {"commit order"}, id="commits"),
        pytest.param(
            [committed(2, 3, A1), committed(4, 5, B1), committed(1, 9, B2)],
            [saw(B1, B2, A1)],
            {"commit order"},
            id="commits across others",
        ),
        pytest.param(
            [committed(1, 3, A1), committed(2, 4, A2)], [saw(A2, A1)], {"aggregate order"}, id="versions"
        ),
        pytest.param(
            [committed(1, 2, A1, A2)],
            [Observation("r", {0: [Seen(b"\2", A1), Seen(b"\1", A2)]})],
            {"position order"},
            id="positions",
        ),
        pytest.param(PARALLEL, [saw(A1, B1), saw(B1, A1, reader="s")], {"disagreement"}, id="two orders"),
        pytest.param(
            [committed(1, 2, A1)],
            [saw(A1), Observation("s", {0: [Seen(b"\7", A1)]})],
            {"disagreement"},
            id="two positions",
        ),
        pytest.param(
            PARALLEL,
            [saw(B1, reader="early", complete=False), saw(A1, B1)],
            {"disagreement"},
            id="order changed later",
        ),
        pytest.param(
            [committed(1, 2, A1)], [Observation("r", {1: [Seen(b"\1", A1)]})], {"lost"}, id="in a wrong shard"
        ),
    ],
)
def test_the_checker_sees_each_kind_of_fault(
    transactions: list[Transaction], observations: list[Observation], found: set[str]
) -> None:
    assert kinds(faults(transactions, observations)) == found
