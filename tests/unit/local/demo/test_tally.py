"""The checker must detect every kind of error, or its zeros mean nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from local.demo.tally import Received, Tally


def event(number: int) -> dict[str, Any]:
    data = {"action": "A", "createdAt": "2021-09-22T11:07:37.3022907+02:00", "n": number}
    return {"id": f"e{number}", "partitionKey": "k", "type": "domainEvent", "data": data}


def message(number: int, **changes: Any) -> Received:
    source = event(number)
    fields = {
        "identifier": source["id"],
        "session": "k",
        "subject": "A",
        "body": json.dumps(source["data"]).encode(),
        "properties": {
            "type": "domainEvent",
            "createdAt": source["data"]["createdAt"],
            "cosmosTimestamp": 1,
        },
        "at": float(number) + 0.25,
    }
    return Received(**{**fields, **changes})


def tally_of(written: int, received: list[Received]) -> dict[str, Any]:
    tally = Tally()
    for number in range(written):
        tally.wrote(event(number), float(number))
    for one in received:
        tally.received(one)
    return tally.summary()


def test_a_correct_run_has_zero_errors_and_latencies() -> None:
    assert tally_of(3, [message(0), message(1), message(2)]) == {
        "written": 3,
        "delivered": 3,
        "missing": 0,
        "duplicated": 0,
        "out_of_order": 0,
        "altered": 0,
        "p50_ms": 250.0,
        "p99_ms": 250.0,
    }


@pytest.mark.parametrize(
    ("received", "counted"),
    [
        ([message(0), message(2)], {"missing": 1}),
        ([message(0), message(1), message(2), message(1)], {"duplicated": 1}),
        ([message(0), message(2), message(1)], {"out_of_order": 1}),
        ([message(0), message(1, body=b'{"n":1}'), message(2)], {"altered": 1}),
        (
            [message(0, body=json.dumps({**event(0)["data"], "n": 0.0}).encode()), message(1), message(2)],
            {"altered": 1},
        ),
        ([message(0), message(1, subject="B"), message(2)], {"altered": 1}),
        ([message(0), message(1, properties={}), message(2)], {"altered": 1}),
        ([message(0), message(1), message(2), message(3)], {"altered": 1}),
        ([message(0), message(1, session="other"), message(2)], {"altered": 1}),
    ],
)
def test_each_error_is_counted(received: list[Received], counted: dict[str, int]) -> None:
    summary = tally_of(3, received)

    faults = {name: summary[name] for name in ("missing", "duplicated", "out_of_order", "altered")}
    assert {name: count for name, count in faults.items() if count} == counted
