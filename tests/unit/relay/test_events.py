from __future__ import annotations

from typing import Any

import pytest

from relay.core.events import Event, Reason, Received, Rejected, by_partition_key, read_event
from relay.servicebus import messages
from tests.support.outbox import plain


def document(**changes: Any) -> dict[str, Any]:
    base = {
        "id": "e1",
        "partitionKey": "c1",
        "type": "domainEvent",
        "data": {"action": "ContactCreatedEvent", "n": 1},
        "_ts": 1_700_000_000,
    }
    return {name: value for name, value in (base | changes).items() if value is not ...}


def event_of(document: dict[str, Any]) -> Event:
    event = read_event(plain(document))
    assert isinstance(event, Event)
    return event


def rejection_of(document: dict[str, Any]) -> Rejected:
    rejected = read_event(plain(document))
    assert isinstance(rejected, Rejected)
    return rejected


def test_a_sound_document_becomes_an_event_with_its_data_as_stored() -> None:
    source = document()

    event = event_of(source)

    assert (event.id, event.partition_key, event.action) == ("e1", "c1", "ContactCreatedEvent")
    assert event.data is source["data"]
    assert event.document.stored is source


@pytest.mark.parametrize("key", ["id", "partitionKey"])
@pytest.mark.parametrize("length", [1, 128])
def test_keys_of_up_to_128_characters_are_accepted_in_any_script(key: str, length: int) -> None:
    event = event_of(document(**{key: "美" * length}))

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
    assert rejection_of(document(**changes)).reason is reason


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("id", {"id": "e\ud800"}),
        ("partitionKey", {"partitionKey": "\udfffk"}),
        ("data.action", {"data": {"action": "Made \ud83d"}}),
        ("data.createdAt", {"data": {"action": "Made", "createdAt": "\udc00"}}),
        ("traceparent", {"traceparent": "00-\ud800"}),
    ],
)
def test_half_of_a_surrogate_pair_in_what_becomes_a_property_is_rejected(
    name: str, changes: dict[str, Any]
) -> None:
    rejected = rejection_of(document(**changes))

    assert rejected.reason is Reason.PROPERTY_NOT_UNICODE
    assert rejected.detail.startswith(f"{name} has half of a surrogate pair")
    assert rejected.detail.isascii()


def test_a_key_that_no_message_can_have_is_not_one_to_be_ordered_by() -> None:
    assert rejection_of(document(partitionKey="k\ud800")).partition_key is None
    assert rejection_of(document(id="\ud800")).partition_key is not None


def test_half_of_a_surrogate_pair_elsewhere_in_data_is_published() -> None:
    data = {"action": "Made", "createdAt": 7, "text": "\ud800"}

    event = read_event(plain(document(data=data, traceparent=["\ud800"])))

    assert isinstance(event, Event)
    assert messages.plain(event).body == b'{"action":"Made","createdAt":7,"text":"\\ud800"}'


def test_the_detail_names_what_was_found_without_the_payload() -> None:
    assert rejection_of(document(data={"action": ["secret"]})).detail == "data.action is an array, not a string"


@pytest.mark.parametrize("key", ["id", "partitionKey"])
def test_keys_are_measured_as_the_service_does_in_utf_16(key: str) -> None:
    event_of(document(**{key: "😀" * 64}))

    assert "130 characters" in rejection_of(document(**{key: "😀" * 65})).detail


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

    rejected = rejection_of(source)

    assert rejected.reason is Reason.PROPERTIES_TOO_LARGE
    assert "15000 at most" in rejected.detail


def test_properties_up_to_the_bound_are_taken() -> None:
    event_of(document(data={"action": "x" * 15_000}))
    event_of(document(data={"action": "美" * 5_000}))
    event_of(document(data={"action": "x", "createdAt": 5}, traceparent=["x" * 20_000]))


@pytest.mark.parametrize(
    ("key", "usable"),
    [("c1", "c1"), ("x" * 128, "x" * 128), ("x" * 129, None), ("", None), (7, None), (..., None)],
)
def test_a_document_is_ordered_by_the_key_that_it_would_have_been_published_under(
    key: Any, usable: str | None
) -> None:
    assert rejection_of(document(partitionKey=key, data=7)).partition_key == usable


def test_an_event_that_came_alone_is_the_first_of_what_came() -> None:
    event = event_of(document())

    assert event.position == 0
    assert Event("e1", "c1", "t", "A", {}, plain({})).position == 0
    assert Rejected(plain({}), Reason.ID_MISSING, "").position == 0


def test_an_error_says_what_is_wrong_in_words() -> None:
    assert str(rejection_of(document(id=""))) == "id-empty: id is the empty string"


def test_a_key_of_one_character_is_usable() -> None:
    assert rejection_of(document(partitionKey="x", data=7)).partition_key == "x"


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
def test_what_was_found_is_named_as_json_calls_it(value: Any, kind: str) -> None:
    assert rejection_of(document(data=value)).detail == f"data is {kind}, not an object"


def test_an_object_in_the_place_of_a_key_is_named_as_such() -> None:
    assert rejection_of(document(id={})).detail == "id is an object, not a string"


def test_what_only_the_source_knows_is_taken_from_it() -> None:
    event = read_event(plain(document(traceparent="00-a-b-01", sequence=7)), 3, committed_at=5, expires_at=9)
    rejected = read_event(plain(document(id="")), 4, committed_at=5, expires_at=9)

    assert isinstance(event, Event)
    assert (event.position, event.committed_at, event.expires_at) == (3, 5, 9)
    assert (event.traceparent, event.sequence, event.type) == ("00-a-b-01", 7, "domainEvent")
    assert isinstance(rejected, Rejected)
    assert (rejected.position, rejected.expires_at, rejected.condition) == (4, 9, None)


@pytest.mark.parametrize("value", [True, 1.5, "7", None])
def test_a_sequence_that_is_no_integer_is_left_out(value: object) -> None:
    assert event_of(document(sequence=value)).sequence is None


@pytest.mark.parametrize("value", [7, ["00-a-b-01"], None])
def test_a_trace_context_that_is_no_text_is_left_out(value: object) -> None:
    assert event_of(document(traceparent=value)).traceparent is None


def test_the_rejection_of_a_sound_event_carries_what_the_event_carried() -> None:
    event = read_event(plain(document()), 2, expires_at=9)
    assert isinstance(event, Event)

    rejected = Rejected.of(event, Reason.MESSAGE_REFUSED, "no", "amqp:not-allowed")

    assert (rejected.id, rejected.partition_key, rejected.position, rejected.expires_at) == ("e1", "c1", 2, 9)
    assert (rejected.document, rejected.condition) == (event.document, "amqp:not-allowed")


def test_events_are_grouped_by_partition_key_in_the_order_given() -> None:
    events = [event_of(document(id=identifier, partitionKey=key)) for identifier, key in ("1a", "2b", "3a")]

    grouped = by_partition_key(events)

    assert {key: [event.id for event in its] for key, its in grouped.items()} == {"a": ["1", "3"], "b": ["2"]}


def test_an_event_is_named_by_its_partition_key_and_its_id() -> None:
    assert event_of(document()).name == ("c1", "e1")


def test_what_was_received_is_counted_whatever_it_is() -> None:
    event, rejected = event_of(document()), rejection_of(document(id=""))
    received = Received([event] * 4, [rejected] * 2, ignored=1)

    assert received.documents == 7
    assert Received().documents == 0
    assert Received() != Received([event])
