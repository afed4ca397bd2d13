"""Sorted queries of clients that merge physical partitions themselves, as the .NET and JavaScript SDKs do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from azure.cosmos.aio import ContainerProxy

from outbox_emulators.testing import RawClient


async def ids_resumed(raw: RawClient, order: str, resume: dict[str, Any]) -> list[str]:
    """The results of a sorted query, one partition at a time, for a client that merges and continues them."""
    found = []
    for number in range(4):
        answer = await raw.send(
            "POST",
            "/dbs/outbox/colls/data/docs",
            headers={
                "content-type": "application/query+json",
                "x-ms-documentdb-isquery": "True",
                "x-ms-documentdb-query-enablecrosspartition": "True",
                "x-ms-documentdb-partitionkeyrangeid": str(number),
            },
            body=json.dumps({"query": f"SELECT * FROM c ORDER BY c.rank {order}", "resumeFilter": resume}),
        )
        assert answer.status == 200, answer.text
        found += [item["id"] for item in answer.body["Documents"]]
    return found


async def test_a_sorted_query_resumes_at_a_value_behind_it_or_at_an_item(
    container: ContainerProxy, raw: RawClient
) -> None:
    rids = {}
    for number in range(12):
        item = await container.create_item({"id": f"{number:02}", "pk": "a", "rank": number // 3})
        rids[item["id"]] = item["_rid"]

    assert await ids_resumed(raw, "ASC", {"value": [2], "exclude": False}) == ["06", "07", "08", "09", "10", "11"]
    assert await ids_resumed(raw, "ASC", {"value": [2], "exclude": True}) == ["09", "10", "11"]
    assert await ids_resumed(raw, "ASC", {"value": [2], "rid": rids["07"], "exclude": False}) == [
        *("07", "08", "09", "10", "11")
    ]
    assert await ids_resumed(raw, "ASC", {"value": [3], "rid": rids["09"], "exclude": True}) == ["10", "11"]
    assert await ids_resumed(raw, "ASC", {"value": [[]], "exclude": True}) == [f"{each:02}" for each in range(12)]


async def test_equal_items_follow_their_rid_in_the_direction_of_the_first_key(
    container: ContainerProxy, raw: RawClient
) -> None:
    rids = {}
    for number in range(6):
        item = await container.create_item({"id": str(number), "pk": "a", "rank": number // 3})
        rids[item["id"]] = item["_rid"]

    everything = container.query_items("SELECT * FROM c ORDER BY c.rank DESC", partition_key="a")
    assert [item["id"] async for item in everything] == ["5", "4", "3", "2", "1", "0"]
    assert await ids_resumed(raw, "DESC", {"value": [0], "rid": rids["1"], "exclude": False}) == ["1", "0"]


@pytest.mark.usefixtures("container")
@pytest.mark.parametrize("resume", [[], {}, {"value": 1}, {"value": [1, 2]}])
async def test_a_malformed_resume_filter_is_a_bad_request(raw: RawClient, resume: Any) -> None:
    body = json.dumps({"query": "SELECT * FROM c ORDER BY c.rank", "resumeFilter": resume})
    headers = {
        "content-type": "application/query+json",
        "x-ms-documentdb-isquery": "True",
        "x-ms-documentdb-partitionkeyrangeid": "0",
    }

    assert (await raw.send("POST", "/dbs/outbox/colls/data/docs", headers=headers, body=body)).status == 400
