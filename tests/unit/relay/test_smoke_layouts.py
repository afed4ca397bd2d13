"""The event that `smoke` writes in an outbox with other fields."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from outbox_relay.operator.examples import Unplaceable, example
from relay.backends.canary import ACTION, canary
from relay.backends.cosmos.source import event_of
from relay.core.events import Event
from relay.routes.file import parse
from relay.routes.selection import Selection

CANARY = canary("domainEvent", datetime(2026, 11, 20, 15, 0, 0, 123456, UTC))
KEY, ID = CANARY["partitionKey"], CANARY["id"]


def selection_of(file: dict[str, Any], destination: str = "default") -> Selection:
    """The only outbox's, for one destination."""
    found = parse(file)
    [source] = found.sources.values()
    types = ("domainEvent",) if source.types is None else source.types
    return Selection(types, source.events, found.routes_of(source.name), destination, fields=source.fields)


def test_a_cloudevent_has_what_its_specification_asks_for() -> None:
    found = example(CANARY, selection_of({"layout": "cloudevents"}))

    assert found is not None
    assert found.stored.pop("data") == CANARY["data"]
    assert found.stored == {
        "id": ID, "source": "smoke-test", "specversion": "1.0", "type": ACTION, "partitionkey": KEY,
        "time": CANARY["data"]["createdAt"], "traceparent": CANARY["traceparent"], "ttl": 3600,
    }  # fmt: skip
    assert (found.document.fields["id"], found.document.fields["partitionKey"]) == (f"smoke-test {ID}", KEY)


def test_nested_fields_and_what_a_rule_asks_for_are_put_where_the_file_says() -> None:
    file = {
        "types": ["order"],
        "fields": {
            "key": "/tenant",
            "type": "/meta/kind",
            "action": "/meta/event/name",
            "data": "/body/payload",
            "time": "/meta/at",
        },
        "properties": {"region": "/meta/region"},
        "routes": [
            {
                "when": {"/meta/region": "eu", "action": {"prefix": "Order"}, "key": {"prefix": "t-"}},
                "to": ["default"],
            }
        ],
    }

    found = example(CANARY, selection_of(file))

    assert found is not None
    assert found.stored == {
        "id": ID, "ttl": 3600, "tenant": f"t-{KEY}", "traceparent": CANARY["traceparent"],
        "body": {"payload": CANARY["data"]},
        "meta": {
            "kind": "order", "event": {"name": f"Order{ACTION}"}, "at": CANARY["data"]["createdAt"], "region": "eu"
        },
    }  # fmt: skip
    event = event_of(found.document)
    assert isinstance(event, Event)
    assert (event.id, event.partition_key, event.data) == (ID, f"t-{KEY}", CANARY["data"])


def test_a_row_has_the_columns_of_its_layout() -> None:
    file = {"layout": "debezium", "properties": {"aggregatetype": "/aggregatetype"}}

    found = example(CANARY, selection_of(file), is_row=True)

    assert found is not None
    # A table need not have the columns that the layout does not name.
    assert found.stored.items() >= {
        "id": ID, "aggregateid": KEY, "type": ACTION, "payload": CANARY["data"], "aggregatetype": "smoke-test"
    }.items()  # fmt: skip
    assert found.stored["created_at"] == "2026-11-20T15:00:00Z"


def test_a_row_has_its_id_in_the_column_that_the_file_names() -> None:
    found = example(CANARY, selection_of({"layout": "debezium", "fields": {"id": "/event_id"}}), is_row=True)

    assert found is not None
    assert (found.stored["event_id"], "id" in found.stored, found.document.fields["id"]) == (ID, False, ID)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"key": "/data", "data": "/data"}, "/data is also the place of another field, or within one"),
        ({"action": "/partitionKey/action"}, "/partitionKey/action is also the place of another field"),
    ],
)
def test_what_no_event_can_have_is_said(fields: dict[str, str], says: str) -> None:
    with pytest.raises(Unplaceable, match=says):
        example(CANARY, selection_of({"fields": fields}))


def test_an_event_that_would_be_set_aside_is_not_written() -> None:
    file = {"properties": {"dates": "/data/dates"}}

    with pytest.raises(Unplaceable, match=r"properties.dates: /data/dates is an object"):
        example(CANARY, selection_of(file))


@pytest.mark.parametrize("name", ["action", "/meta/name", "key", "/tenant", "id", "/meta"])
def test_no_event_gets_the_action_or_the_key_of_real_ones(name: str) -> None:
    file = {
        "fields": {"key": "/tenant", "action": "/meta/name"},
        "routes": [{"when": {name: "real"}, "to": ["default"]}],
    }

    assert example(CANARY, selection_of(file)) is None
