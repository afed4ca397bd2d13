"""From rows of an event table to events, with every type that a driver may give for a column."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from changefeed.statements import Entry
from changefeed.ulid import to_text
from relay.events import Event, Reason, Rejected, read_event
from relay.servicebus.messages import plain
from relay.sql.rows import document_of, event_of, select

NOON_MS = 1_770_000_000_000
ULID = NOON_MS.to_bytes(6, "big") + bytes(10)


def entry(**columns: Any) -> Entry:
    row = {"id": "e1", "partition_key": "k", "data": '{"action": "Made"}'} | columns
    return Entry(ULID, row, {})


def test_a_row_becomes_a_document_of_the_shape_that_every_outbox_has() -> None:
    document = document_of(
        entry(
            data='{"name": "Jane"}',
            action="Renamed",
            created_at=datetime(2026, 2, 9, 9, 37, 37, 302290, tzinfo=UTC),
            sequence=7,
            traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            type="domainEvent",
        ),
        3,
        "domainEvent",
    )

    assert document == {
        "id": "e1",
        "partitionKey": "k",
        "type": "domainEvent",
        "data": {"action": "Renamed", "createdAt": "2026-02-09T09:37:37.302290Z", "name": "Jane"},
        "sequence": 7,
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "_shard": 3,
        "_ulid": to_text(ULID),
        "_dataText": '{"action":"Renamed","createdAt":"2026-02-09T09:37:37.302290Z","name": "Jane"}',
    }


def test_what_the_writer_stored_in_data_wins_over_the_columns() -> None:
    document = document_of(
        entry(
            data='{"action": "A", "createdAt": "2026-02-09T11:37:37.3022907+02:00"}',
            action="B",
            created_at=datetime(2026, 1, 1),
        ),
        0,
        "domainEvent",
    )

    assert document["data"] == {"action": "A", "createdAt": "2026-02-09T11:37:37.3022907+02:00"}


def test_columns_that_a_table_does_not_have_are_not_needed() -> None:
    event = event_of(entry(), 0, "domainEvent")

    assert isinstance(event, Event)
    assert (event.id, event.partition_key, event.type, event.action) == ("e1", "k", "domainEvent", "Made")
    assert (event.sequence, event.traceparent, event.expires_at) == (None, None, None)
    assert event.committed_at == NOON_MS // 1000


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (datetime(2026, 2, 9, 11, 0, tzinfo=timezone(timedelta(hours=2))), "2026-02-09T09:00:00.000000Z"),
        (datetime(2026, 2, 9, 9, 0, 0, 5), "2026-02-09T09:00:00.000005Z"),
        ("2026-02-09T11:37:37.3022907+02:00", "2026-02-09T11:37:37.3022907+02:00"),
    ],
)
def test_times_are_written_in_utc_and_text_stays_as_it_is(value: object, text: str) -> None:
    assert document_of(entry(created_at=value), 0, "domainEvent")["data"]["createdAt"] == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (UUID("0af76519-16cd-43dd-8448-eb211c80319c"), "0af76519-16cd-43dd-8448-eb211c80319c"),
        (UUID("0af76519-16cd-43dd-8448-eb211c80319c").bytes, "0af76519-16cd-43dd-8448-eb211c80319c"),
        (b"\x01\xff", "01ff"),
        (Decimal("12.50"), "12.50"),
        (7, "7"),
    ],
)
def test_identifiers_of_other_types_become_text(value: object, text: str) -> None:
    document = document_of(entry(id=value, partition_key=value), 0, "domainEvent")

    assert (document["id"], document["partitionKey"]) == (text, text)
    assert document_of(Entry(ULID, None, {"id": value}), 0, "domainEvent")["id"] == text


@pytest.mark.parametrize("data", [{"action": "Made"}, '{"action": "Made"}'])
def test_data_may_come_as_text_or_as_an_object(data: object) -> None:
    assert document_of(entry(data=data), 0, "domainEvent")["data"] == {"action": "Made"}


@pytest.mark.parametrize(
    "text",
    [
        '{"action": "Made", "n": 12345678901234567890123}',
        '{"action":"Made","n":0.1234567890123456789}',
        '{"action":"Made","n":1.10}',
        '{"action":"Made","n":1e400}',
        '{"action":"Made","n":' + "9" * 400 + "}",
        '{"action":"Made","n":1,"n":2}',
        '{"action":"Made","text":"\\ud800"}',
        ' {"action":"Made"} ',
        '{"action":"Made","deep":' + "[" * 500 + "]" * 500 + "}",
    ],
)
def test_the_body_is_the_text_that_was_committed(text: str) -> None:
    event = event_of(entry(data=text), 0, "domainEvent")

    assert isinstance(event, Event)
    assert plain(event).body == text.encode()


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ('{"n":1e400}', '{"action":"Made","n":1e400}'),
        (" { } ", '{"action":"Made" } '),
        ("{}", '{"action":"Made"}'),
    ],
)
def test_columns_are_put_before_the_members_of_the_text(text: str, body: str) -> None:
    event = event_of(entry(data=text, action="Made"), 0, "domainEvent")

    assert isinstance(event, Event)
    assert event.action == "Made"
    assert plain(event).body == body.encode()


def test_what_is_released_from_quarantine_has_the_same_body() -> None:
    first = event_of(entry(data='{"action":"Made","n":1e400}'), 0, "domainEvent")
    assert isinstance(first, Event)

    again = read_event(dict(first.document))

    assert isinstance(again, Event)
    assert plain(again).body == plain(first).body


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"data": "no JSON"}, Reason.DATA_NOT_OBJECT),
        ({"data": "[" * 5000}, Reason.DATA_NOT_OBJECT),
        ({"data": "7"}, Reason.DATA_NOT_OBJECT),
        ({"data": None}, Reason.DATA_NOT_OBJECT),
        ({"data": "{}"}, Reason.ACTION_NOT_STRING),
        ({"partition_key": None}, Reason.PARTITION_KEY_NOT_STRING),
        ({"id": None}, Reason.ID_NOT_STRING),
    ],
)
def test_what_can_never_be_a_message_is_rejected_with_its_reason(columns: dict[str, Any], reason: Reason) -> None:
    rejected = event_of(entry(**columns), 0, "domainEvent")

    assert isinstance(rejected, Rejected)
    assert rejected.reason is reason


def test_a_row_that_does_not_exist_is_rejected_under_its_primary_key() -> None:
    rejected = event_of(Entry(ULID, None, {"id": "gone"}), 2, "domainEvent", position=5)

    assert isinstance(rejected, Rejected)
    assert (rejected.id, rejected.reason, rejected.position) == ("gone", Reason.PARTITION_KEY_MISSING, 5)
    assert rejected.document == {"id": "gone", "type": "domainEvent", "_shard": 2, "_ulid": to_text(ULID)}


def test_rows_of_another_type_are_ignored_and_places_count_the_rest() -> None:
    received = select([entry(), entry(id="c1", type="contact"), entry(id="e2"), entry(id="")], 0, "domainEvent")

    assert [(event.id, event.position) for event in received.events] == [("e1", 0), ("e2", 1)]
    assert [(item.id, item.position) for item in received.rejected] == [("", 2)]
    assert received.ignored == 1


def test_no_event_was_committed_in_the_future_whatever_its_position_says() -> None:
    ahead = (int(time.time() * 1000) + 3_600_000).to_bytes(6, "big") + bytes(10)

    event = event_of(Entry(ahead, dict(entry().row or {}), {}), 0, "domainEvent")

    assert isinstance(event, Event)
    assert event.committed_at is not None
    assert event.committed_at <= time.time()
