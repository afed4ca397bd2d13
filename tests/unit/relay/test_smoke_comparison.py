from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from local.functions.dates import rewritten
from relay.events import DomainEvent
from relay.operations.canary import TTL_S, canary
from relay.operations.comparison import BODY_REMEDY, DATE_REMEDY, differences

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


def test_what_is_missing_and_what_was_added_are_told() -> None:
    told = [(each.path, each.stored, each.arrived) for each in differences({"a": 1}, {"b": 2}, "data")]

    assert told == [("data.a", "1", "nothing"), ("data.b", "nothing", "2")]


def test_the_order_of_members_is_no_difference() -> None:
    assert differences({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}, "data") == []


def test_the_canary_is_a_sound_event_that_survives_both_json_encoders() -> None:
    document = canary("domainEvent", NOW)

    event = DomainEvent.from_document(document)

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


def test_dates_that_the_host_rewrites_are_told_with_the_setting_that_keeps_it_from_that() -> None:
    data = canary("domainEvent", NOW)["data"]

    told = differences(data, rewritten(data), "data")

    assert len(told) > 10
    assert {difference.remedy for difference in told} == {DATE_REMEDY}
