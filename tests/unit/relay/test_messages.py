from __future__ import annotations

from typing import Any

import orjson
import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch

from relay.cosmos.source import event_of
from relay.events import Event, read_event
from relay.servicebus import encoding, messages


def event(**changes: Any) -> Event:
    document = {
        "id": "e1",
        "partitionKey": "c1",
        "type": "domainEvent",
        "_ts": 1_700_000_000,
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "data": {"action": "ContactNameUpdatedEvent", "createdAt": "2026-02-09T11:37:37.3022907+02:00", "Ä": 1.0},
    }
    made = event_of(document | changes)
    assert isinstance(made, Event)
    return made


def on_the_wire(message: ServiceBusMessage) -> list[bytes]:
    batch = ServiceBusMessageBatch()
    batch.add_message(message)
    # What the SDK (7.15.0) sends of a batch: its data sections, each an encoded message.
    return list(batch._message[5])


@pytest.mark.parametrize("timestamp", [1_700_000_000, 2**31])
def test_the_message_follows_the_contract(timestamp: int) -> None:
    source = event(_ts=timestamp)
    long: Any = {"TYPE": "LONG", "VALUE": timestamp}

    message = messages.plain(source)

    assert [encoding.encode(message)] == on_the_wire(
        ServiceBusMessage(
            orjson.dumps(source.data),
            message_id="e1",
            session_id="c1",
            partition_key="c1",
            subject="ContactNameUpdatedEvent",
            content_type="application/json",
            application_properties={
                "type": "domainEvent",
                "cosmosTimestamp": long if timestamp >= 2**31 else timestamp,
                "createdAt": "2026-02-09T11:37:37.3022907+02:00",
                "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            },
        )
    )


@pytest.mark.parametrize("absent", [{"_ts": None}, {"_ts": True}, {"_ts": "1"}])
def test_a_timestamp_that_is_no_whole_number_is_left_out(absent: dict[str, Any]) -> None:
    assert "cosmosTimestamp" not in messages.plain(event(**absent)).application_properties


def test_an_event_of_another_source_than_cosmos_db_has_no_timestamp_of_it() -> None:
    document = {name: value for name, value in event().document.items() if name != "_ts"}
    made = read_event(document, committed_at=1_700_000_000)
    assert isinstance(made, Event)

    assert "cosmosTimestamp" not in messages.plain(made).application_properties


def test_properties_that_are_no_strings_are_left_out() -> None:
    message = messages.plain(event(traceparent=7, data={"action": "A", "createdAt": 20260101}))

    assert message.application_properties == {"type": "domainEvent", "cosmosTimestamp": 1_700_000_000}


def test_cloudevents_stand_beside_the_contract() -> None:
    message = messages.cloudevents("/contacts")(event())

    assert message.application_properties == messages.plain(event()).application_properties | {
        "cloudEvents:specversion": "1.0",
        "cloudEvents:id": "e1",
        "cloudEvents:source": "/contacts",
        "cloudEvents:type": "ContactNameUpdatedEvent",
        "cloudEvents:partitionkey": "c1",
        "cloudEvents:time": "2026-02-09T11:37:37.3022907+02:00",
        "cloudEvents:traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    }


@pytest.mark.parametrize("no_time", ["yesterday", "2026-02-09", "2026-02-09T11:37:37", "2026-02-09 11:37:37Z"])
def test_cloudevents_time_is_left_out_where_it_is_no_rfc_3339_timestamp(no_time: str) -> None:
    message = messages.cloudevents("/contacts")(event(data={"action": "A", "createdAt": no_time}))

    assert "cloudEvents:time" not in message.application_properties


@pytest.mark.parametrize("number", [0, 1, -1, 2**30, 2**31 - 1, -(2**31)])
def test_integers_of_32_bits_are_sent_as_they_are(number: int) -> None:
    assert messages.plain(event(sequence=number)).application_properties["sequence"] == number


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**62, -(2**62), 2**63 - 1, -(2**63)])
def test_integers_of_64_bits_are_sent_as_longs(number: int) -> None:
    message = messages.plain(event(sequence=number))

    assert message.application_properties["sequence"] == number
    assert b"\x81" + number.to_bytes(8, "big", signed=True) in encoding.encode(message)


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**30])
def test_integers_that_amqp_has_no_type_for_are_left_out(number: int) -> None:
    assert "sequence" not in messages.plain(event(sequence=number)).application_properties


def test_the_format_is_that_of_the_settings() -> None:
    assert "cloudEvents:id" not in messages.contract(None)(event()).application_properties
    assert messages.contract("/shop")(event()).application_properties["cloudEvents:source"] == "/shop"


def test_an_event_sent_under_a_new_id_has_its_original_id_beside_the_contract() -> None:
    renamed = event()._replace(id="new")

    message = messages.with_original_id(messages.plain)(renamed)

    assert message.application_properties == messages.plain(event()).application_properties | {"originalId": "e1"}


def test_cloudevents_leave_out_what_the_event_does_not_have() -> None:
    message = messages.cloudevents("/contacts")(event(traceparent=None, data={"action": "A"}))

    assert {"cloudEvents:time", "cloudEvents:traceparent"}.isdisjoint(message.application_properties)
