from __future__ import annotations

from typing import Any

import azure.functions as func

from relay.backends.cosmos.source import event_of, select
from relay.core.events import by_partition_key
from relay.routes.selection import BY_DEFAULT
from tests.support.outbox import plain


def document(identifier: str, partition_key: str, kind: str = "domainEvent") -> dict[str, Any]:
    return {"id": identifier, "partitionKey": partition_key, "type": kind, "data": {"action": "A"}}


def test_documents_of_other_types_and_empty_places_are_ignored_and_counted() -> None:
    selection = select(
        [document("1", "a"), None, document("2", "a", "contact"), {"id": "3"}, {"type": 7}], BY_DEFAULT
    )

    assert [event.id for event in selection.events] == ["1"]
    assert selection.ignored == 4
    assert selection.rejected == []


def test_a_malformed_event_is_set_aside_whole_while_its_neighbours_go_on() -> None:
    malformed = document("2", "a") | {"data": "text"}

    selection = select([document("1", "a"), malformed, document("3", "a")], BY_DEFAULT)

    assert [event.id for event in selection.events] == ["1", "3"]
    assert [(item.document.stored, str(item.reason)) for item in selection.rejected] == [
        (malformed, "data-not-object")
    ]


def test_the_triggers_own_documents_are_taken() -> None:
    documents = func.DocumentList([func.Document.from_dict(document("1", "a")), None])

    assert [event.id for event in select(documents, BY_DEFAULT).events] == ["1"]


def test_events_are_grouped_by_partition_key_in_the_order_of_the_feed() -> None:
    events = select(
        [document(identifier, key) for identifier, key in (("1", "b"), ("2", "a"), ("3", "b"), ("4", "a"))],
        BY_DEFAULT,
    ).events

    grouped = {key: [event.id for event in partition] for key, partition in by_partition_key(events).items()}

    assert grouped == {"b": ["1", "3"], "a": ["2", "4"]}


def of_commit(identifier: str, lsn: int | None, order: Any = None, partition_key: str = "a") -> dict[str, Any]:
    made = document(identifier, partition_key) | {"_lsn": lsn, "order": order}
    return {name: value for name, value in made.items() if value is not None}


def ids(*documents: dict[str, Any]) -> list[str]:
    return [event.id for event in select(documents, BY_DEFAULT).events]


def test_the_events_of_a_transaction_are_put_into_the_order_in_which_they_happened() -> None:
    business = {"id": "contact", "partitionKey": "a", "type": "contact", "_lsn": 7}

    assert ids(
        of_commit("1", 6, 0), of_commit("4", 7, 2), business, of_commit("2", 7, 0), of_commit("3", 7, 1)
    ) == ["1", "2", "3", "4"]


def test_transactions_stay_in_the_order_of_the_feed_whatever_their_events_say() -> None:
    assert ids(of_commit("1", 6, 5), of_commit("2", 7, 0), of_commit("3", 7, 1)) == ["1", "2", "3"]


def test_a_transaction_with_an_event_that_has_no_order_keeps_the_order_of_the_feed() -> None:
    assert ids(of_commit("2", 7, 1), of_commit("1", 7, 0), of_commit("3", 7)) == ["2", "1", "3"]


def numbered(identifier: str, sequence: Any, **members: Any) -> dict[str, Any]:
    return of_commit(identifier, 7) | {"sequence": sequence} | members


def test_without_order_the_events_of_a_transaction_are_in_the_order_of_their_sequence() -> None:
    assert ids(numbered("3", 12), numbered("1", 9), numbered("2", 10), of_commit("4", 8)) == ["1", "2", "3", "4"]
    # An order that only some have says nothing.
    assert ids(numbered("2", 2, order=0), numbered("1", 1)) == ["1", "2"]


def test_what_has_no_sequence_keeps_its_place_among_those_that_have_one() -> None:
    events = (numbered("2", 2), of_commit("a", 7), numbered("b", "1"), numbered("1", 1), numbered("c", True))

    assert ids(*events) == ["1", "a", "b", "2", "c"]


def test_where_all_have_an_order_the_sequence_does_not_count() -> None:
    assert ids(numbered("2", 1, order=1), numbered("1", 5, order=0)) == ["1", "2"]


def test_a_commit_of_another_key_with_the_same_lsn_does_not_count() -> None:
    """In a partition that was merged, items keep the numbers of the partitions before."""
    events = (of_commit("2", 7, 1), of_commit("x", 7, partition_key="b"), of_commit("1", 7, 0))
    assert ids(*events) == ["1", "x", "2"]

    both = (numbered("2", 1, order=1), numbered("x", 9, partitionKey="b"), numbered("1", 5, order=0))
    assert ids(*both) == ["1", "x", "2"]


def test_documents_without_an_lsn_keep_their_order() -> None:
    unplaced = of_commit("2", None, 1), of_commit("1", None, 0)

    assert ids(*unplaced) == ["2", "1"]
    assert ids(of_commit("b", 7, 1), of_commit("a", 7, 0), *unplaced) == ["a", "b", "2", "1"]


def test_a_malformed_event_has_its_place_in_its_transaction() -> None:
    malformed = of_commit("2", 7, 1) | {"data": 1}

    selection = select([malformed, of_commit("3", 7, 2), of_commit("1", 7, 0)], BY_DEFAULT)

    assert [(event.id, event.position) for event in selection.events] == [("1", 0), ("3", 2)]
    assert [item.position for item in selection.rejected] == [1]


def test_every_document_counts_whatever_it_is() -> None:
    malformed = document("2", "a") | {"data": "text"}

    selection = select([document("1", "a"), malformed, None, document("3", "a", "contact")], BY_DEFAULT)

    assert selection.documents == 4


def test_a_document_that_came_alone_is_the_first_of_what_came() -> None:
    event = event_of(plain(document("1", "a")))

    assert event.position == 0
