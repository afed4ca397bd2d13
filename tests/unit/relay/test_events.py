from __future__ import annotations

from typing import Any

import pytest

from relay.events import DomainEvent, InvalidEvent, Reason, usable_key


def document(**changes: Any) -> dict[str, Any]:
    base = {
        "id": "e1",
        "partitionKey": "c1",
        "type": "domainEvent",
        "data": {"action": "ContactCreatedEvent", "n": 1},
        "_ts": 1_700_000_000,
    }
    return {name: value for name, value in (base | changes).items() if value is not ...}


def test_a_sound_document_becomes_an_event_with_its_data_as_stored() -> None:
    source = document()

    event = DomainEvent.from_document(source)

    assert (event.id, event.partition_key, event.action) == ("e1", "c1", "ContactCreatedEvent")
    assert event.data is source["data"]
    assert event.document is source


@pytest.mark.parametrize("key", ["id", "partitionKey"])
@pytest.mark.parametrize("length", [1, 128])
def test_keys_of_up_to_128_characters_are_taken_whatever_their_script(key: str, length: int) -> None:
    event = DomainEvent.from_document(document(**{key: "美" * length}))

    assert "美" * length in (event.id, event.partition_key)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"id": ...}, Reason.ID_MISSING),
        ({"id": 7}, Reason.ID_NOT_STRING),
        ({"id": None}, Reason.ID_NOT_STRING),
        ({"id": ""}, Reason.ID_EMPTY),
        ({"id": "x" * 129}, Reason.ID_TOO_LONG),
        ({"partitionKey": ...}, Reason.PARTITION_KEY_MISSING),
        ({"partitionKey": True}, Reason.PARTITION_KEY_NOT_STRING),
        ({"partitionKey": ["a"]}, Reason.PARTITION_KEY_NOT_STRING),
        ({"partitionKey": ""}, Reason.PARTITION_KEY_EMPTY),
        ({"partitionKey": "x" * 129}, Reason.PARTITION_KEY_TOO_LONG),
        ({"data": ...}, Reason.DATA_NOT_OBJECT),
        ({"data": None}, Reason.DATA_NOT_OBJECT),
        ({"data": "text"}, Reason.DATA_NOT_OBJECT),
        ({"data": [1]}, Reason.DATA_NOT_OBJECT),
        ({"data": {}}, Reason.ACTION_NOT_STRING),
        ({"data": {"action": None}}, Reason.ACTION_NOT_STRING),
        ({"data": {"action": 1.5}}, Reason.ACTION_NOT_STRING),
        ({"data": {"action": {}}}, Reason.ACTION_NOT_STRING),
    ],
)
def test_each_defect_has_its_own_reason(changes: dict[str, Any], reason: Reason) -> None:
    with pytest.raises(InvalidEvent) as raised:
        DomainEvent.from_document(document(**changes))

    assert raised.value.reason is reason


def test_the_detail_names_what_was_found_without_the_payload() -> None:
    with pytest.raises(InvalidEvent) as raised:
        DomainEvent.from_document(document(data={"action": ["secret"]}))

    assert raised.value.detail == "data.action is an array, not a string"


@pytest.mark.parametrize("key", ["id", "partitionKey"])
def test_keys_are_measured_as_the_service_does_in_utf_16(key: str) -> None:
    DomainEvent.from_document(document(**{key: "😀" * 64}))

    with pytest.raises(InvalidEvent, match="130 characters"):
        DomainEvent.from_document(document(**{key: "😀" * 65}))


@pytest.mark.parametrize(
    ("action", "created_at", "traceparent"),
    [
        ("x" * 15_001, "", ""),
        ("x", "x" * 15_000, ""),
        ("x" * 5_000, "x" * 5_000, "x" * 5_001),
        ("美" * 5_001, "", ""),
        ("😀" * 3_751, "", ""),
    ],
)
def test_what_becomes_properties_is_bounded_together(action: str, created_at: str, traceparent: str) -> None:
    source = document(data={"action": action, "createdAt": created_at}, traceparent=traceparent)

    with pytest.raises(InvalidEvent, match="15000 at most") as raised:
        DomainEvent.from_document(source)

    assert raised.value.reason is Reason.PROPERTIES_TOO_LARGE


def test_properties_up_to_the_bound_are_taken() -> None:
    DomainEvent.from_document(document(data={"action": "x" * 15_000}))
    DomainEvent.from_document(document(data={"action": "美" * 5_000}))
    DomainEvent.from_document(document(data={"action": "x", "createdAt": 5}, traceparent=["x" * 20_000]))


@pytest.mark.parametrize(
    ("key", "usable"),
    [("c1", "c1"), ("x" * 128, "x" * 128), ("x" * 129, None), ("", None), (7, None), (..., None)],
)
def test_a_document_is_ordered_by_the_key_that_it_would_have_been_published_under(
    key: Any, usable: str | None
) -> None:
    assert usable_key(document(partitionKey=key)) == usable


def test_an_event_that_came_alone_is_the_first_of_what_came() -> None:
    event = DomainEvent.from_document(document())

    assert event.position == 0
    assert DomainEvent("e1", "c1", "A", {}, {}).position == 0


def test_an_error_says_what_is_wrong_in_words() -> None:
    with pytest.raises(InvalidEvent, match=r"^id-empty: id is the empty string$"):
        DomainEvent.from_document(document(id=""))


def test_a_key_of_one_character_is_usable() -> None:
    assert usable_key(document(partitionKey="x")) == "x"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "null"),
        (True, "a boolean"),
        ("x", "a string"),
        (7, "a number"),
        (7.5, "a number"),
        ([], "an array"),
        (..., "missing"),
    ],
)
def test_what_was_found_is_told_as_json_calls_it(value: Any, kind: str) -> None:
    with pytest.raises(InvalidEvent) as raised:
        DomainEvent.from_document(document(data=value))

    assert raised.value.detail == f"data is {kind}, not an object"


def test_an_object_in_the_place_of_a_key_is_told_as_such() -> None:
    with pytest.raises(InvalidEvent, match="id is an object, not a string"):
        DomainEvent.from_document(document(id={}))
