from __future__ import annotations

from typing import Any

import azure.functions as func

from relay.pipeline import group, select


def document(identifier: str, partition_key: str, kind: str = "domainEvent") -> dict[str, Any]:
    return {"id": identifier, "partitionKey": partition_key, "type": kind, "data": {"action": "A"}}


def test_documents_of_other_types_and_empty_places_are_ignored_and_counted() -> None:
    selection = select(
        [document("1", "a"), None, document("2", "a", "contact"), {"id": "3"}, {"type": 7}], "domainEvent"
    )

    assert [event.id for event in selection.events] == ["1"]
    assert selection.ignored == 4
    assert selection.rejected == []


def test_a_malformed_event_is_set_aside_whole_while_its_neighbours_go_on() -> None:
    malformed = document("2", "a") | {"data": "text"}

    selection = select([document("1", "a"), malformed, document("3", "a")], "domainEvent")

    assert [event.id for event in selection.events] == ["1", "3"]
    assert [(item.document, str(item.reason)) for item in selection.rejected] == [(malformed, "data-not-object")]


def test_the_triggers_own_documents_are_taken() -> None:
    documents = func.DocumentList([func.Document.from_dict(document("1", "a")), None])

    assert [event.id for event in select(documents, "domainEvent").events] == ["1"]


def test_events_are_grouped_by_partition_key_in_the_order_of_the_feed() -> None:
    events = select(
        [document(identifier, key) for identifier, key in (("1", "b"), ("2", "a"), ("3", "b"), ("4", "a"))],
        "domainEvent",
    ).events

    grouped = {key: [event.id for event in partition] for key, partition in group(events).items()}

    assert grouped == {"b": ["1", "3"], "a": ["2", "4"]}
