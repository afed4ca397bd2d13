"""Partial updates: what each operation does, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import CosmosAccessConditionFailedError, CosmosHttpResponseError

from outbox_relay.emulators.testing import RawClient

ITEM = {"id": "1", "pk": "a", "n": 1, "list": [1, 2, 3], "deep": {"x": {"y": "z"}}, "a/b~c": 0, "big": 2**80}


@pytest.fixture
async def patched(container: ContainerProxy) -> ContainerProxy:
    await container.create_item(ITEM)
    return container


@pytest.mark.parametrize(
    ("operation", "changed"),
    [
        ({"op": "add", "path": "/new", "value": {"a": 1}}, {"new": {"a": 1}}),
        ({"op": "add", "path": "/n", "value": 5}, {"n": 5}),
        ({"op": "add", "path": "/list/1", "value": 9}, {"list": [1, 9, 2, 3]}),
        ({"op": "add", "path": "/list/3", "value": 9}, {"list": [1, 2, 3, 9]}),
        ({"op": "add", "path": "/list/-", "value": 9}, {"list": [1, 2, 3, 9]}),
        ({"op": "set", "path": "/list/1", "value": 9}, {"list": [1, 9, 3]}),
        ({"op": "set", "path": "/list/-", "value": 9}, {"list": [1, 2, 3, 9]}),
        ({"op": "set", "path": "/deep/x/y", "value": None}, {"deep": {"x": {"y": None}}}),
        ({"op": "replace", "path": "/deep/x", "value": 1}, {"deep": {"x": 1}}),
        ({"op": "replace", "path": "/list/0", "value": 0}, {"list": [0, 2, 3]}),
        ({"op": "replace", "path": "/a~1b~0c", "value": 1}, {"a/b~c": 1}),
        ({"op": "remove", "path": "/list/0"}, {"list": [2, 3]}),
        ({"op": "incr", "path": "/n", "value": 2.5}, {"n": 3.5}),
        ({"op": "incr", "path": "/new", "value": -1}, {"new": -1}),
        ({"op": "incr", "path": "/list/2", "value": 1}, {"list": [1, 2, 4]}),
        ({"op": "move", "from": "/deep/x", "path": "/moved"}, {"deep": {}, "moved": {"y": "z"}}),
    ],
)
async def test_each_operation_changes_its_place_and_nothing_else(
    patched: ContainerProxy, operation: dict[str, Any], changed: dict[str, Any]
) -> None:
    result = await patched.patch_item("1", "a", [operation])

    assert {key: value for key, value in result.items() if not key.startswith("_")} == ITEM | changed
    assert await patched.read_item("1", "a") == result


async def test_operations_apply_in_order_and_removed_properties_are_gone(patched: ContainerProxy) -> None:
    result = await patched.patch_item(
        "1",
        "a",
        [
            {"op": "add", "path": "/t", "value": [1]},
            {"op": "incr", "path": "/t/0", "value": 1},
            {"op": "remove", "path": "/n"},
        ],
    )

    assert result["t"] == [2]
    assert "n" not in result


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "replace", "path": "/none", "value": 1},
        {"op": "remove", "path": "/none"},
        {"op": "add", "path": "/none/x", "value": 1},
        {"op": "add", "path": "/n/x", "value": 1},
        {"op": "add", "path": "/list/7", "value": 1},
        {"op": "set", "path": "/list/x", "value": 1},
        {"op": "incr", "path": "/deep", "value": 1},
        {"op": "incr", "path": "/n", "value": "1"},
        {"op": "move", "from": "/none", "path": "/x"},
        {"op": "move", "from": "/deep", "path": "/deep/x"},
        {"op": "set", "path": "/id", "value": "2"},
        {"op": "set", "path": "/pk", "value": "b"},
        {"op": "remove", "path": "/pk"},
        {"op": "set", "path": "/_ts", "value": 1},
        {"op": "set", "path": "/ttl", "value": 0},
        {"op": "set", "path": "no-slash", "value": 1},
        {"op": "set", "path": "/n"},
        {"op": "other", "path": "/n", "value": 1},
        "nonsense",
    ],
)
async def test_what_cannot_be_applied_leaves_the_item_alone(patched: ContainerProxy, operation: Any) -> None:
    before = await patched.read_item("1", "a")

    with pytest.raises(CosmosHttpResponseError) as caught:
        await patched.patch_item("1", "a", [{"op": "set", "path": "/touched", "value": True}, operation])

    assert caught.value.status_code == 400
    assert await patched.read_item("1", "a") == before


async def test_a_condition_decides(patched: ContainerProxy) -> None:
    operation = {"op": "incr", "path": "/n", "value": 1}

    with pytest.raises(CosmosAccessConditionFailedError):
        await patched.patch_item(
            "1", "a", [operation], filter_predicate="FROM x WHERE x.n = 2 AND x.deep.x.y = 'z'"
        )
    await patched.patch_item("1", "a", [operation], filter_predicate="from c where c.n = 1 and c.deep.x.y = 'z'")
    with pytest.raises(CosmosHttpResponseError) as caught:
        await patched.patch_item("1", "a", [operation], filter_predicate="c.n = 2")

    assert caught.value.status_code == 400
    assert (await patched.read_item("1", "a"))["n"] == 2


async def test_ten_operations_are_accepted_and_eleven_are_not(patched: ContainerProxy) -> None:
    operation = {"op": "incr", "path": "/n", "value": 1}

    assert (await patched.patch_item("1", "a", [operation] * 10))["n"] == 11
    for operations in ([operation] * 11, []):
        with pytest.raises(CosmosHttpResponseError) as caught:
            await patched.patch_item("1", "a", operations)
        assert caught.value.status_code == 400


async def test_operations_can_come_without_an_object_around_them(patched: ContainerProxy, raw: RawClient) -> None:
    answer = await raw.send(
        "PATCH",
        "/dbs/outbox/colls/data/docs/1",
        headers={"x-ms-documentdb-partitionkey": '["a"]'},
        body='[{"op":"incr","path":"/n","value":1}]',
    )

    assert (answer.status, answer.body["n"]) == (200, 2)
    assert (await patched.read_item("1", "a"))["n"] == 2


@pytest.mark.usefixtures("patched")
@pytest.mark.parametrize("body", ["1", "null", "{}", "[]", '{"operations":{}}'])
async def test_a_patch_that_has_no_operations_is_refused(raw: RawClient, body: str) -> None:
    answer = await raw.send(
        "PATCH",
        "/dbs/outbox/colls/data/docs/1",
        headers={"x-ms-documentdb-partitionkey": '["a"]'},
        body=body,
    )

    assert answer.status == 400
