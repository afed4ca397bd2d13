from __future__ import annotations

from typing import Any

import pytest

from relay.events import DomainEvent, InvalidEvent, Reason


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
