"""GROUP BY, JOIN and aggregates: within a partition key, and as clients plan and merge them across partitions.

The JavaScript SDK, which merges all of this itself, runs the rest (packages/emulators/tests/languages/cosmos).
"""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import CosmosHttpResponseError

from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.testing import Answer, RawClient

DOCS = "/dbs/outbox/colls/data/docs"
FEATURES = (
    "Aggregate,Distinct,GroupBy,ListAndSetAggregate,MultipleAggregates,NonValueAggregate,OffsetAndLimit,OrderBy,"
    "Top"
)
ITEMS: list[dict[str, Any]] = [
    {"id": "1", "team": "red", "n": 1, "tags": ["a", "b"]},
    {"id": "2", "team": "blue", "n": 2, "tags": ["b"]},
    {"id": "3", "team": "red", "n": 3, "tags": []},
    {"id": "4", "n": 4, "tags": "none"},
    {"id": "5", "team": None},
]


@pytest.fixture
async def filled(container: ContainerProxy) -> ContainerProxy:
    await container.execute_item_batch([("create", (item | {"pk": "a"},)) for item in ITEMS], "a")
    return container


async def within(container: ContainerProxy, query: str) -> list[Any]:
    return [item async for item in container.query_items(query, partition_key="a", max_item_count=2)]


async def ask(raw: RawClient, query: str, **headers: str) -> Answer:
    kind = {
        "content-type": "application/query+json",
        "x-ms-documentdb-isquery": "True",
        "x-ms-documentdb-query-enablecrosspartition": "True",
        "x-ms-cosmos-supported-query-features": FEATURES,
    }
    return await raw.send("POST", DOCS, headers=kind | headers, body=json.dumps({"query": query}))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "SELECT c.team, COUNT(1) AS n, SUM(c.n) AS sum FROM c GROUP BY c.team",
            [
                {"team": "red", "n": 2, "sum": 4},
                {"team": "blue", "n": 1, "sum": 2},
                {"n": 1, "sum": 4},
                {"team": None, "n": 1, "sum": 0},
            ],
        ),
        ("SELECT VALUE MAX(c.n) FROM c WHERE IS_DEFINED(c.n) GROUP BY c.team OFFSET 1 LIMIT 1", [2]),
        (
            "SELECT UPPER(c.team) AS team FROM c WHERE c.n < 3 GROUP BY UPPER(c.team)",
            [{"team": "RED"}, {"team": "BLUE"}],
        ),
        ("SELECT VALUE t FROM c JOIN t IN c.tags", ["a", "b", "b"]),
        (
            "SELECT t AS tag, COUNT(1) AS n FROM c JOIN t IN c.tags GROUP BY t",
            [{"tag": "a", "n": 1}, {"tag": "b", "n": 2}],
        ),
        (
            "SELECT c.team, COUNT(1) AS n FROM c GROUP BY c.team ORDER BY c.team DESC",
            [{"team": "red", "n": 2}, {"team": "blue", "n": 1}, {"team": None, "n": 1}, {"n": 1}],
        ),
        ("SELECT VALUE c.team FROM c GROUP BY c.team ORDER BY c.team OFFSET 2 LIMIT 5", ["red"]),
        ("SELECT VALUE MAKELIST(c.team) FROM c", [["red", "blue", "red", None]]),
        ("SELECT VALUE MAKESET(c.team) FROM c", [["red", "blue", None]]),
        (
            "SELECT c.team, MAKELIST(c.n) AS all FROM c WHERE IS_DEFINED(c.team) GROUP BY c.team",
            [{"team": "red", "all": [1, 3]}, {"team": "blue", "all": [2]}, {"team": None, "all": []}],
        ),
        ("SELECT VALUE MAX(c) FROM c", []),
        ("SELECT VALUE MIN(c.tags) FROM c", []),
        (
            "SELECT c.team, MAX(c.id = '1' ? c.tags : c.n) AS most FROM c WHERE c.n > 0 GROUP BY c.team",
            [{"team": "red"}, {"team": "blue", "most": 2}, {"most": 4}],
        ),
        ("SELECT * FROM t IN c.tags", ["a", "b", "b"]),
        ("SELECT DISTINCT VALUE t FROM t IN c.tags", ["a", "b"]),
        (
            "SELECT VALUE {n: c.n, t: t} FROM c JOIN t IN c.tags ORDER BY c.n DESC",
            [{"n": 2, "t": "b"}, {"n": 1, "t": "b"}, {"n": 1, "t": "a"}],
        ),
    ],
)
async def test_queries_within_a_partition_key(filled: ContainerProxy, query: str, expected: list[Any]) -> None:
    assert await within(filled, query) == expected


@pytest.mark.parametrize(
    ("query", "rewritten", "aliases"),
    [
        (
            "SELECT c.team, COUNT(1) AS n FROM c GROUP BY c.team",
            'SELECT [{"item": c.team}] AS groupByItems, {"team": c.team, "n": {"item": COUNT(1)}} AS payload '
            "FROM c GROUP BY c.team",
            {"team": None, "n": "Count"},
        ),
        ("SELECT COUNT(1) AS n FROM c", 'SELECT {"n": {"item": COUNT(1)}} AS payload FROM c', {"n": "Count"}),
        (
            "SELECT MAKELIST(c.n) AS all, MAKESET(c.n) AS each FROM c",
            'SELECT {"all": {"item": MAKELIST(c.n)}, "each": {"item": MAKESET(c.n)}} AS payload FROM c',
            {"all": "MakeList", "each": "MakeSet"},
        ),
        (
            "SELECT VALUE MIN(c.n) FROM c",
            'SELECT VALUE [{"item": MIN(c.n), "item2": {"min": MIN(c.n), "count": COUNT(c.n)}}] FROM c',
            {},
        ),
    ],
)
async def test_a_plan_says_how_to_merge_the_groups_of_the_partitions(
    filled: ContainerProxy, raw: RawClient, query: str, rewritten: str, aliases: dict[str, Any]
) -> None:
    plan = (await ask(raw, query, **{"x-ms-cosmos-is-query-plan-request": "True"})).body["queryInfo"]
    parts = [await ask(raw, rewritten, **{"x-ms-documentdb-partitionkeyrangeid": str(n)}) for n in range(4)]

    assert (plan["rewrittenQuery"], plan["groupByAliasToAggregateType"]) == (rewritten, aliases)
    assert plan["groupByAliases"] == list(aliases)
    assert [part.status for part in parts] == [200] * 4


async def test_distinct_changes_nothing_of_an_aggregate_across_partitions(filled: ContainerProxy) -> None:
    """CosmosUndefinedQueryTests.cs of azure-cosmos-dotnet-v3 has such a query."""
    for number, each in enumerate(ITEMS):
        await filled.upsert_item(each | {"pk": str(number)})
        await filled.delete_item(each["id"], "a")

    for aggregate, expected in (("SUM(c.n)", 10), ("COUNT(c.team)", 4), ("MAX(c.n)", 4)):
        found: list[Any] = [
            value async for value in filled.query_items(f"SELECT DISTINCT VALUE {aggregate} FROM c")
        ]
        assert found == [expected]


async def test_an_aggregate_in_an_expression_is_refused_across_partitions(
    filled: ContainerProxy, raw: RawClient
) -> None:
    query = "SELECT COUNT(1) + 1 AS n FROM c"

    answer = await ask(raw, query, **{"x-ms-cosmos-is-query-plan-request": "True"})

    # SanityQueryTests.cs of azure-cosmos-dotnet-v3 looks for the whole sentence.
    sentence = "Compositions of aggregates and other expressions are not allowed."
    assert (answer.status, sentence in answer.body["message"]) == (400, True)


@pytest.mark.parametrize(
    "scope",
    [
        {},
        {"x-ms-read-key-type": "EffectivePartitionKeyRange", "x-ms-start-epk": "", "x-ms-end-epk": "FF"},
    ],
    ids=["partition key range", "feed range"],
)
async def test_groups_are_sorted_within_one_partition_only(
    filled: ContainerProxy, raw: RawClient, scope: dict[str, str]
) -> None:
    """QueryFeedRangeTest.cs of azure-cosmos-dotnet-v3 has such a query; no plan of it is recorded there."""
    query = "SELECT c.team, COUNT(1) AS n FROM c GROUP BY c.team ORDER BY c.team"

    answer = await ask(raw, query, **scope, **{"x-ms-cosmos-is-query-plan-request": "True"})
    parts = [await ask(raw, query, **scope, **{"x-ms-documentdb-partitionkeyrangeid": str(n)}) for n in range(4)]

    assert (answer.status, "across physical partitions" in answer.body["message"]) == (400, True)
    groups = [{"n": 1}, {"team": None, "n": 1}, {"team": "blue", "n": 1}, {"team": "red", "n": 2}]
    assert sorted((part.body["Documents"] for part in parts), key=len) == [[], [], [], groups]


async def test_a_container_with_one_physical_partition_needs_no_plan_to_sort_groups() -> None:
    async with (
        CosmosServer(physical_partitions=1) as server,
        CosmosClient.from_connection_string(server.connection_string) as client,
        aiohttp.ClientSession() as session,
    ):
        database = await client.create_database("outbox")
        await database.create_container("data", PartitionKey(path="/pk"))
        raw = RawClient(session, server.endpoint, server.key)
        query = "SELECT c.team FROM c GROUP BY c.team ORDER BY c.team"

        plan = (await ask(raw, query, **{"x-ms-cosmos-is-query-plan-request": "True"})).body["queryInfo"]

    assert (plan["rewrittenQuery"], plan["orderBy"], plan["groupByExpressions"]) == ("", [], [])


@pytest.mark.parametrize("function", ["MAX", "MIN"])
async def test_the_extreme_of_arrays_and_objects_is_undefined_for_each_partition_that_has_one(
    container: ContainerProxy, raw: RawClient, function: str
) -> None:
    """MinMaxAggregator.cs of azure-cosmos-dotnet-v3 tells it by the count from a partition without values."""
    for number, value in enumerate([["x"], 2, {"k": 1}, 3, "text", 5, 6, 7]):
        await container.create_item({"id": "1", "pk": str(number), "v": value})
    query = f"SELECT VALUE {function}(c.v) FROM c"
    plan = await ask(raw, query, **{"x-ms-cosmos-is-query-plan-request": "True"})
    outcomes = set()

    for scope in [{"x-ms-documentdb-partitionkeyrangeid": str(n)} for n in range(4)]:
        values = (await ask(raw, "SELECT VALUE c.v FROM c", **scope)).body["Documents"]
        [[partial]] = (await ask(raw, plan.body["queryInfo"]["rewrittenQuery"], **scope)).body["Documents"]
        has_complex = any(isinstance(value, list | dict) for value in values)
        outcomes.add(has_complex)
        assert partial["item2"]["count"] == len(values)
        assert ("item" in partial, function.lower() in partial["item2"]) == (bool(values) and not has_complex,) * 2

    assert outcomes == {True, False}


async def test_the_python_sdk_is_told_that_it_cannot_group_across_partitions(filled: ContainerProxy) -> None:
    with pytest.raises(CosmosHttpResponseError, match="does not support: GroupBy NonValueAggregate") as caught:
        [item async for item in filled.query_items("SELECT c.team, COUNT(1) AS n FROM c GROUP BY c.team")]

    assert caught.value.status_code == 400


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT c.n, COUNT(1) AS n FROM c GROUP BY c.team", "not contained in"),
        ("SELECT * FROM c GROUP BY c.team", "not allowed with GROUP BY"),
        ("SELECT c.team FROM c GROUP BY c.team ORDER BY c.n", "not contained in"),
        ("SELECT * FROM c JOIN t IN c.tags", "single input set"),
        ("SELECT c.id FROM t IN c.tags", "'c' could not be resolved"),
        ("SELECT VALUE t FROM c JOIN t IN d.tags", "'d' could not be resolved"),
        ("SELECT VALUE c FROM c JOIN c IN c.tags", "more than once"),
        ("SELECT VALUE t FROM t IN [1, 2]", "needs a property"),
    ],
)
async def test_what_cannot_stand_together_is_refused(filled: ContainerProxy, query: str, reason: str) -> None:
    with pytest.raises(CosmosHttpResponseError, match=reason) as caught:
        await within(filled, query)

    assert caught.value.status_code == 400
