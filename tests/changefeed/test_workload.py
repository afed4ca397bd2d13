"""Many writers and readers at once, and the checker of their history, which sees each kind of fault."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.changefeed.backends import Backend
from tests.changefeed.history import Event, Observation, Seen, Transaction, faults, kinds
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


# The checker sees each kind of fault, and none if there is none


A1, A2, B1, B2 = Event(0, "a", 1, 1), Event(0, "a", 2, 2), Event(0, "b", 1, 3), Event(0, "b", 2, 4)


def committed(began: int, ended: int, *events: Event) -> Transaction:
    return Transaction(began, ended, "committed", events)


def saw(*events: Event, reader: str = "r", complete: bool = True) -> Observation:
    return Observation(reader, {0: positioned(events)}, complete)


def positioned(events: Sequence[Event]) -> list[Seen]:
    return [Seen(bytes([number]), event) for number, event in enumerate(events, 1)]


def test_a_right_history_has_no_fault() -> None:
    transactions = [committed(1, 2, A1, A2), committed(3, 4, B1), Transaction(5, None, "rolled back", [B2])]

    assert faults(transactions, [saw(A1, A2, B1), saw(A1, A2, B1), saw(A1, reader="early", complete=False)]) == []


def test_parallel_transactions_may_come_in_any_order() -> None:
    transactions = [committed(1, 3, A1), committed(2, 4, B1)]

    assert faults(transactions, [saw(A1, B1)]) == []
    assert faults(transactions, [saw(B1, A1)]) == []


def test_parallel_transactions_may_be_mixed() -> None:
    assert faults([committed(1, 3, A1, A2), committed(2, 4, B1, B2)], [saw(A1, B1, A2, B2)]) == []


def test_it_sees_a_lost_event() -> None:
    assert kinds(faults([committed(1, 2, A1, A2)], [saw(A1)])) == {"lost"}


def test_a_reader_that_saw_nothing_has_lost_everything() -> None:
    assert kinds(faults([committed(1, 2, A1)], [Observation("r", {})])) == {"lost"}


def test_a_reader_that_has_not_come_to_the_head_has_lost_nothing() -> None:
    assert faults([committed(1, 2, A1, A2)], [saw(A1, complete=False)]) == []


def test_it_sees_an_event_that_is_there_twice() -> None:
    assert "twice" in kinds(faults([committed(1, 2, A1)], [saw(A1, A1)]))


def test_it_sees_an_event_that_was_rolled_back() -> None:
    assert kinds(faults([Transaction(1, None, "rolled back", [A1])], [saw(A1)])) == {"rolled back"}


def test_it_tells_a_version_that_was_rolled_back_from_its_successor() -> None:
    again = A1._replace(write=9)
    transactions = [Transaction(1, None, "rolled back", [A1]), committed(2, 3, again)]

    assert faults(transactions, [saw(again)]) == []
    assert kinds(faults(transactions, [saw(A1)])) == {"rolled back", "lost"}


def test_it_sees_an_event_that_nobody_wrote() -> None:
    assert kinds(faults([], [saw(A1)])) == {"rolled back"}


def test_it_sees_a_part_of_a_transaction() -> None:
    unknown = Transaction(1, None, "unknown", [A1, A2])

    assert kinds(faults([unknown], [saw(A1)])) == {"torn"}
    assert faults([unknown], [saw(A1, A2)]) == []
    assert faults([unknown], [saw()]) == []


def test_it_sees_a_breach_of_the_commit_order() -> None:
    assert kinds(faults([committed(1, 2, A1), committed(3, 4, B1)], [saw(B1, A1)])) == {"commit order"}


def test_it_sees_a_breach_of_the_commit_order_across_others() -> None:
    long = committed(1, 9, B2)
    transactions = [committed(2, 3, A1), committed(4, 5, B1), long]

    assert kinds(faults(transactions, [saw(B1, B2, A1)])) == {"commit order"}


def test_it_sees_a_breach_of_the_order_of_an_aggregate() -> None:
    assert kinds(faults([committed(1, 3, A1), committed(2, 4, A2)], [saw(A2, A1)])) == {"aggregate order"}


def test_it_sees_positions_that_do_not_ascend() -> None:
    seen = [Seen(b"\2", A1), Seen(b"\1", A2)]

    assert kinds(faults([committed(1, 2, A1, A2)], [Observation("r", {0: seen})])) == {"position order"}


def test_it_sees_readers_that_disagree_on_the_order() -> None:
    transactions = [committed(1, 3, A1), committed(2, 4, B1)]

    assert kinds(faults(transactions, [saw(A1, B1), saw(B1, A1, reader="s")])) == {"disagreement"}


def test_it_sees_readers_that_disagree_on_a_position() -> None:
    moved = Observation("s", {0: [Seen(b"\7", A1)]})

    assert kinds(faults([committed(1, 2, A1)], [saw(A1), moved])) == {"disagreement"}


def test_it_sees_an_order_that_changed_later() -> None:
    transactions = [committed(1, 3, A1), committed(2, 4, B1)]

    assert kinds(faults(transactions, [saw(B1, reader="early", complete=False), saw(A1, B1)])) == {"disagreement"}


def test_it_sees_an_event_in_a_wrong_shard() -> None:
    assert "lost" in kinds(faults([committed(1, 2, A1)], [Observation("r", {1: [Seen(b"\1", A1)]})]))
