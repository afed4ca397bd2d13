"""Transactional batches: all or nothing, in one logical partition."""

from __future__ import annotations

from typing import Any

import pytest
from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosHttpResponseError


def create(item_id: str, **properties: Any) -> tuple[str, tuple[Any, ...]]:
    return "create", ({"id": item_id, "pk": "a", **properties},)


async def ids_in(container: ContainerProxy) -> list[str]:
    return sorted([item["id"] async for item in container.query_items("SELECT c.id FROM c", partition_key="a")])


async def test_every_kind_of_operation_runs_in_one_commit(container: ContainerProxy) -> None:
    for item_id in ("read", "replace", "patch", "delete", "upsert"):
        await container.create_item({"id": item_id, "pk": "a"})

    results = await container.execute_item_batch(
        [
            create("created"),
            ("read", ("read",)),
            ("replace", ("replace", {"id": "replace", "pk": "a", "n": 1})),
            (
                "patch",
                ("patch", [{"op": "add", "path": "/n", "value": 2}]),
                {"filter_predicate": "FROM c WHERE c.pk='a'"},
            ),
            ("upsert", ({"id": "upsert", "pk": "a", "n": 3},)),
            ("upsert", ({"id": "upserted", "pk": "a"},)),
            ("delete", ("delete",)),
        ],
        "a",
    )

    assert [result["statusCode"] for result in results] == [201, 200, 200, 200, 200, 201, 204]
    assert [result.get("resourceBody", {}).get("n") for result in results] == [None, None, 1, 2, 3, None, None]
    assert all(result["eTag"] == result["resourceBody"]["_etag"] for result in results[:-1])
    assert all(result["requestCharge"] > 0 for result in results)
    assert await ids_in(container) == ["created", "patch", "read", "replace", "upsert", "upserted"]
    feed = [item async for item in container.query_items_change_feed(start_time="Beginning", partition_key="a")]
    assert len({item["_lsn"] for item in feed if item["id"] != "read"}) == 1


async def test_one_failure_undoes_all_names_the_culprit_and_leaves_no_trace_in_the_feed(
    container: ContainerProxy,
) -> None:
    await container.create_item({"id": "taken", "pk": "a"})

    with pytest.raises(CosmosBatchOperationError) as caught:
        await container.execute_item_batch([create("1"), create("2"), create("taken"), create("3")], "a")

    statuses = [response["statusCode"] for response in caught.value.operation_responses]
    assert statuses == [424, 424, 409, 424]
    assert caught.value.error_index == 2
    assert caught.value.status_code == 409
    await container.create_item({"id": "2", "pk": "a"})
    feed = [item async for item in container.query_items_change_feed(start_time="Beginning", partition_key="a")]
    assert [(item["id"], item["_lsn"]) for item in feed] == [("taken", 1), ("2", 2)]


@pytest.mark.parametrize(
    ("operations", "status"),
    [
        ([create("1"), ("replace", ("none", {"id": "none", "pk": "a"}))], 404),
        ([create("1"), ("replace", ("1", {"id": "1", "pk": "a"}), {"if_match_etag": '"other"'})], 412),
        ([create("1"), ("delete", ("1",), {"if_match_etag": '"other"'})], 412),
        ([create("1"), ("patch", ("1", [{"op": "remove", "path": "/none"}]))], 400),
        (
            [
                create("1"),
                (
                    "patch",
                    ("1", [{"op": "add", "path": "/n", "value": 1}]),
                    {"filter_predicate": "from c where false"},
                ),
            ],
            412,
        ),
        ([create("1"), ("create", ({"id": "2", "pk": "other"},))], 400),
        ([create("1"), ("create", ({"id": "2", "pk": "a", "ttl": 0},))], 400),
    ],
)
async def test_each_way_to_fail_has_its_status(container: ContainerProxy, operations: Any, status: int) -> None:
    with pytest.raises(CosmosBatchOperationError) as caught:
        await container.execute_item_batch(operations, "a")

    assert [response["statusCode"] for response in caught.value.operation_responses] == [424, status]
    assert await ids_in(container) == []


async def test_an_etag_that_holds_lets_the_batch_pass(container: ContainerProxy) -> None:
    current = await container.create_item({"id": "1", "pk": "a"})

    results = await container.execute_item_batch(
        [("replace", ("1", {"id": "1", "pk": "a", "n": 2}), {"if_match_etag": current["_etag"]}), create("event")],
        "a",
    )

    assert [result["statusCode"] for result in results] == [200, 201]


@pytest.mark.parametrize("condition", ["if_none_match_etag", "if_match_etag"])
async def test_a_read_of_a_version_one_has_does_not_fail_the_batch(
    container: ContainerProxy, condition: str
) -> None:
    """`If-Match` too, as BatchSinglePartitionKeyTests.cs of azure-cosmos-dotnet-v3 expects of the service."""
    current = await container.create_item({"id": "1", "pk": "a"})

    results = await container.execute_item_batch(
        [("read", ("1",), {condition: current["_etag"]}), create("2")], "a"
    )

    assert [result["statusCode"] for result in results] == [304, 201]


async def test_a_hundred_operations_are_accepted_and_a_hundred_and_one_are_not(container: ContainerProxy) -> None:
    await container.execute_item_batch([create(str(number)) for number in range(100)], "a")

    with pytest.raises(CosmosHttpResponseError) as caught:
        await container.execute_item_batch([create(str(number)) for number in range(200, 301)], "a")

    assert caught.value.status_code == 400
    assert len(await ids_in(container)) == 100


async def test_an_empty_batch_is_refused(container: ContainerProxy) -> None:
    with pytest.raises(CosmosHttpResponseError) as caught:
        await container.execute_item_batch([], "a")

    assert caught.value.status_code == 400


async def test_a_batch_beyond_two_megabytes_is_refused(container: ContainerProxy) -> None:
    with pytest.raises(CosmosHttpResponseError) as caught:
        await container.execute_item_batch([create(str(number), text="x" * 700_000) for number in range(3)], "a")

    assert caught.value.status_code == 413
    assert await ids_in(container) == []


async def test_items_keep_their_text_in_a_batch(container: ContainerProxy) -> None:
    await container.execute_item_batch([create("1", big=2**90, text="é\u2028😀", nested={"a": [1.10, "]}"]})], "a")

    read = await container.read_item("1", "a")

    assert (read["big"], read["text"], read["nested"]) == (2**90, "é\u2028😀", {"a": [1.10, "]}"]})
