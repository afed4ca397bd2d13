"""The comparison of `smoke`."""

from __future__ import annotations

import json
import math
import re
import sys
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus._pyamqp._decode import decode_payload

from outbox_relay.emulators.functions.documents import rewritten
from outbox_relay.operator.cli.smoke_diff import (
    BODY_REMEDY,
    DATE_REMEDY,
    PROPERTY_REMEDY,
    Difference,
    compare,
    differences,
)
from relay.backends.canary import TTL_S, canary
from relay.servicebus import encoding, messages
from tests.support.outbox import plain, sound

NOW = datetime(2026, 11, 20, 15, 0, 0, 123456, UTC)


@pytest.mark.parametrize(
    ("stored", "arrived"),
    [
        (1, 1.0),
        (1.0, 1),
        (1, True),
        (0, False),
        (0.0, -0.0),
        ("1", 1),
        (None, False),
        ([], {}),
        ([1], [1, 1]),
        ("é", "e\u0301"),
    ],
)
def test_values_that_only_look_alike_differ(stored: Any, arrived: Any) -> None:
    (difference,) = differences({"a": [stored]}, {"a": [arrived]}, "data")

    assert difference.path == "data.a[0]"
    assert difference.remedy == BODY_REMEDY


def test_what_is_missing_and_what_was_added_are_reported() -> None:
    shown = [(each.path, each.stored, each.arrived) for each in differences({"a": 1}, {"b": 2}, "data")]

    assert shown == [("data.a", "1", "nothing"), ("data.b", "nothing", "2")]


def test_the_order_of_members_is_no_difference() -> None:
    assert differences({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}, "data") == []


def test_the_canary_is_a_sound_event_that_survives_both_json_encoders() -> None:
    document = canary("domainEvent", NOW)

    event = sound(document)

    assert (event.action, document["ttl"]) == ("SmokeTest", TTL_S)
    assert event.partition_key.startswith("smoke-")
    assert event.data["createdAt"] == "2026-11-20T17:00:00.1234560+02:00"
    assert differences(event.data, orjson.loads(orjson.dumps(event.data)), "data") == []
    assert differences(event.data, json.loads(json.dumps(event.data)), "data") == []
    assert len(orjson.dumps(document)) < 64 * 1024


def test_each_canary_has_a_partition_key_of_its_own() -> None:
    one, other = canary("domainEvent", NOW), canary("domainEvent", NOW)

    assert one["partitionKey"] != other["partitionKey"]
    assert one["id"] != other["id"]


def test_dates_that_the_host_rewrites_are_reported_with_the_setting_that_keeps_it_from_that() -> None:
    data = canary("domainEvent", NOW)["data"]

    shown = differences(data, rewritten(data), "data")

    assert len(shown) > 10
    assert {difference.remedy for difference in shown} == {DATE_REMEDY}


def stored() -> dict[str, Any]:
    return canary("domainEvent", NOW) | {"_ts": 1}


def received(document: dict[str, Any], source: str | None = None) -> ServiceBusReceivedMessage:
    """A document's message as a subscriber's SDK gives it."""
    return _decoded(encoding.encode(messages.contract(source)(sound(document))))


def _decoded(message: bytes) -> ServiceBusReceivedMessage:
    return ServiceBusReceivedMessage(decode_payload(memoryview(message)), receiver=None)


def paths(found: list[Difference]) -> list[str]:
    return [difference.path for difference in found]


@pytest.mark.parametrize("source", [None, "/contacts"])
def test_what_the_relay_makes_of_a_document_is_no_difference(source: str | None) -> None:
    document = stored()

    assert compare(plain(document), received(document, source), source) == []


def test_each_property_that_is_not_the_documents_is_reported() -> None:
    document = stored()
    other = {**stored(), "type": "other", "_ts": 2, "data": {**document["data"], "action": "A", "createdAt": "x"}}

    found = compare(plain({**document, "data": other["data"]}), received(other), None)

    assert paths(found) == [
        *("message.message_id", "message.session_id", "message.partition_key"),
        *(f"application_properties.{name}" for name in ("type", "cosmosTimestamp", "traceparent")),
    ]
    assert {difference.remedy for difference in found} == {PROPERTY_REMEDY}
    found = compare(plain(document), received({**document, "data": other["data"]}), None)
    assert paths(found)[:2] == ["message.subject", "application_properties.createdAt"]


def test_messages_of_the_other_format_are_reported() -> None:
    document = stored()

    lacking = compare(plain(document), received(document), "/contacts")
    other = compare(plain(document), received(document, "/orders"), "/contacts")
    unasked = compare(plain(document), received(document, "/contacts"), None)

    names = ("specversion", "id", "source", "type", "partitionkey", "time", "traceparent")
    assert paths(lacking) == paths(unasked) == [f"application_properties.cloudEvents:{name}" for name in names]
    assert [(each.path, each.stored, each.arrived) for each in other] == [
        ("application_properties.cloudEvents:source", '"/contacts"', '"/orders"')
    ]


def test_a_message_without_properties_and_without_json_is_reported() -> None:
    document = stored()
    bare = _decoded(b"\x00Su\xa0\x07no JSON")

    found = compare(plain(document), bare, None)

    assert {"message.message_id", "application_properties.type", "body"} < set(paths(found))
    assert (found[-1].arrived, found[-1].remedy) == ("7 bytes that are not", BODY_REMEDY)


def test_long_values_are_cut_and_characters_that_look_alike_are_distinguished() -> None:
    whole, long = "x" * 58, "x" * 59

    shown = [(each.stored, each.arrived) for each in differences([whole, "é"], [long, "e\u0301"], "data")]

    cut = '"' + "x" * 59 + "… (61 characters)"
    assert shown == [(f'"{whole}"', cut), ('"\\u00e9"', '"e\\u0301"')]


def test_the_canary_has_what_a_careless_reader_alters() -> None:
    data = canary("domainEvent", NOW)["data"]

    floats, integers = data["floats"], data["integers"]
    assert any(number == 0 and math.copysign(1, number) < 0 for number in floats)
    assert any(number != 0 and number / 2 == 0 for number in floats)
    assert any(number > sys.float_info.max / 2 for number in floats)
    assert any(number.is_integer() for number in floats)
    # More than 32 bits, more than a double holds exactly, and no more than 64 bits.
    assert any(2**31 <= number < 2**53 for number in integers)
    assert any(number < -(2**31) for number in integers)
    assert any(float(number) != number for number in integers)
    assert all(-(2**63) <= number < 2**63 for number in integers)
    assert data["literals"] == [True, False, None]
    assert len(data["long"]) > 10_000
    assert all(type(number) is float for number in floats)
    assert all(type(number) is int for number in integers)


def test_the_canary_is_gone_the_same_day_though_not_while_a_slow_deployment_is_waited_for() -> None:
    assert 1800 <= canary("domainEvent", NOW)["ttl"] <= 86_400


def test_the_canary_says_when_it_was_written_and_which_trace_it_is_of() -> None:
    document = canary("domainEvent", NOW)

    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-00", document["traceparent"])
    assert datetime.fromisoformat(document["data"]["createdAt"]) == NOW
