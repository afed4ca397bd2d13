"""Which requests a fault is applied to, how often, and how long."""

from __future__ import annotations

from typing import Any

import pytest

from outbox_relay.emulators.cosmos.faults import FaultKind, FaultPlan, Match, Operation, Target
from outbox_relay.emulators.cosmos.messages import Request
from outbox_relay.emulators.faults import InvalidFault

ITEMS = ("dbs", "outbox", "colls", "data", "docs")


def _target(method: str, *segments: str, **headers: str) -> Target:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Target.of(Request(method, segments, named, b"", "activity"))


@pytest.mark.parametrize(
    ("method", "path", "headers", "operation"),
    [
        ("GET", ITEMS, {"a_im": "Incremental Feed"}, "read-feed"),
        ("GET", ITEMS, {}, "read-feed"),
        ("GET", (*ITEMS, "1"), {}, "read"),
        ("POST", ITEMS, {}, "create"),
        ("POST", ITEMS, {"x_ms_documentdb_is_upsert": "True"}, "upsert"),
        ("POST", ITEMS, {"x_ms_cosmos_is_batch_request": "True"}, "batch"),
        ("POST", ITEMS, {"x_ms_documentdb_isquery": "True"}, "query"),
        ("POST", ITEMS, {"content_type": "application/query+json"}, "query"),
        ("POST", ITEMS, {"x_ms_cosmos_is_query_plan_request": "True"}, "query"),
        ("PUT", (*ITEMS, "1"), {}, "replace"),
        ("PATCH", (*ITEMS, "1"), {}, "patch"),
        ("DELETE", (*ITEMS, "1"), {}, "delete"),
        ("POST", (*ITEMS[:4], "operations", "partitionkeydelete"), {}, "delete"),
        ("GET", (*ITEMS[:4], "pkranges"), {}, "metadata"),
        ("GET", ITEMS[:4], {}, "metadata"),
    ],
)
def test_the_operation_of_a_request_is_known_from_its_path_and_headers(
    method: str, path: tuple[str, ...], headers: dict[str, str], operation: str
) -> None:
    assert _target(method, *path, **headers) == Target("data", Operation(operation))


@pytest.mark.parametrize("path", [(), ("dbs",), ("dbs", "outbox"), ("dbs", "outbox", "colls"), ("offers",)])
def test_a_request_outside_of_any_container_is_metadata(path: tuple[str, ...]) -> None:
    assert _target("GET", *path) == Target(None, Operation.METADATA)


@pytest.mark.parametrize(
    ("operation", "covered"),
    [
        ("any", set(Operation) - {Operation.ANY, Operation.WRITE}),
        ("write", {"batch", "create", "upsert", "replace", "patch", "delete"}),
        ("batch", {"batch"}),
        ("read-feed", {"read-feed"}),
    ],
)
def test_a_fault_covers_the_operations_it_names(operation: str, covered: set[str]) -> None:
    match = Match(operation=Operation(operation))
    single = set(Operation) - {Operation.ANY, Operation.WRITE}
    assert {each for each in single if match.covers(Target("data", each))} == covered


@pytest.mark.parametrize(
    ("plan", "named"),
    [
        ([], "must be an object"),
        ({"count": 1}, "kind"),
        (
            {"kind": "flood", "count": 1},
            "throttle, unavailable, gone, timeout, drop, drop-after, silent, silent-midway",
        ),
        ({"kind": "drop"}, "count or for_ms"),
        ({"kind": "drop", "count": 0}, "count"),
        ({"kind": "drop", "count": True}, "count"),
        ({"kind": "drop", "for_ms": 1.5}, "for_ms"),
        ({"kind": "drop", "count": 1, "probability": 0.5}, "probability is not a known property"),
        ({"kind": "drop", "count": 1, "hang_ms": 5}, "hang_ms is not a known property"),
        ({"kind": "throttle", "count": 1, "retry_after_ms": -1}, "retry_after_ms"),
        ({"kind": "timeout", "count": 1, "applies": "yes"}, "applies"),
        ({"kind": "drop", "count": 1, "match": "data"}, "match"),
        ({"kind": "drop", "count": 1, "match": {"database": "outbox"}}, "match.database is not a known property"),
        ({"kind": "drop", "count": 1, "match": {"container": 5}}, "container"),
        ({"kind": "drop", "count": 1, "match": {"operation": "writes"}}, "operation"),
        ({"kind": "drop", "count": 1, "match": {"operation": []}}, "operation"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused_with_the_reason(plan: Any, named: str) -> None:
    with pytest.raises(InvalidFault, match=named):
        FaultPlan.from_json(plan)


def test_a_fault_in_full_is_understood() -> None:
    match = {"container": "data", "operation": "batch"}
    assert FaultPlan.from_json(
        {"kind": "timeout", "match": match, "count": 2, "for_ms": 9, "hang_ms": 5, "applies": True}
    ) == FaultPlan(FaultKind.TIMEOUT, Match("data", Operation.BATCH), 2, 9, hang_ms=5, applies=True)
    assert FaultPlan.from_json({"kind": "throttle", "for_ms": 1, "retry_after_ms": 7}).retry_after_ms == 7
