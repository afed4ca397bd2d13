"""Subqueries: in expressions, in JOIN and in FROM, also as LINQ of the .NET SDK writes them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import CosmosHttpResponseError

from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.testing import RawClient

pytestmark = pytest.mark.asyncio(loop_scope="module")

ITEMS: list[dict[str, Any]] = [
    {
        "id": "1",
        "pk": "a",
        "n": 1,
        "tags": ["t1", "t2"],
        "lines": [{"sku": "s1", "qty": 2}, {"sku": "s2", "qty": 0}],
    },
    {"id": "2", "pk": "a", "n": 2, "tags": [], "lines": [{"sku": "s3", "qty": -1}]},
    {"id": "3", "pk": "b", "n": 2, "lines": [], "name": "Ada"},
    {"id": "4", "pk": "c", "n": 3, "tags": ["t2"], "lines": [{"sku": "s1", "qty": 5}], "loc": {"street": "Main"}},
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[CosmosServer]:
    async with CosmosServer(physical_partitions=1) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(server: CosmosServer) -> AsyncIterator[CosmosClient]:
    async with CosmosClient.from_connection_string(server.connection_string) as connected:
        yield connected


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def container(client: CosmosClient) -> ContainerProxy:
    database = await client.create_database("outbox")
    created = await database.create_container("data", PartitionKey("/pk"))
    for item in ITEMS:
        await created.create_item(item)
    return created


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def spread(client: CosmosClient, container: ContainerProxy) -> ContainerProxy:
    """The same items, over several physical partitions."""
    database = client.get_database_client("outbox")
    created = await database.create_container("spread", PartitionKey("/pk"), offer_throughput=40_000)
    for item in ITEMS:
        await created.create_item(item)
    return created


@pytest_asyncio.fixture(loop_scope="module")
async def raw(server: CosmosServer) -> AsyncIterator[RawClient]:
    async with aiohttp.ClientSession() as session:
        yield RawClient(session, server.endpoint, server.key)


async def run(container: ContainerProxy, query: str, **options: Any) -> list[Any]:
    return [item async for item in container.query_items(query, **options)]


def sorted_json(values: list[Any]) -> list[str]:
    return sorted(json.dumps(value, sort_keys=True) for value in values)


LINQ = [
    (
        'SELECT VALUE root FROM root JOIN (SELECT VALUE EXISTS(SELECT VALUE l0 FROM root JOIN l0 IN root["lines"] '
        'WHERE (l0["sku"] = "s1"))) AS v0 WHERE v0',
        ["1", "4"],
    ),
    (
        'SELECT VALUE root FROM root JOIN (SELECT VALUE EXISTS(SELECT VALUE t0 FROM root JOIN t0 IN root["tags"] '
        'WHERE (t0 = "t1"))) AS v0 WHERE v0',
        ["1"],
    ),
    (
        "SELECT VALUE root FROM root JOIN (SELECT VALUE EXISTS(SELECT VALUE v0 "
        'FROM root JOIN v0 IN root["tags"])) '
        "AS v1 WHERE v1",
        ["1", "4"],
    ),
    (
        'SELECT VALUE root FROM root JOIN (SELECT VALUE EXISTS(SELECT VALUE l0 FROM root JOIN l0 IN root["lines"] '
        'WHERE (l0["qty"] < 0))) AS v0 WHERE (NOT v0)',
        ["1", "3", "4"],
    ),
]
"""Any and All, from the recordings of Microsoft.Azure.Cosmos 3.64, and the ids that they find."""

VALUES = [
    (
        'SELECT VALUE {"id": root["id"], "c": v0} FROM root JOIN (SELECT VALUE COUNT(1) FROM root JOIN l0 IN '
        'root["lines"] WHERE (l0["qty"] > 0)) AS v0',
        [{"id": "1", "c": 1}, {"id": "2", "c": 0}, {"id": "3", "c": 0}, {"id": "4", "c": 1}],
    ),
    (
        'SELECT VALUE v0 FROM root JOIN (SELECT VALUE SUM(l0["qty"]) FROM root JOIN l0 IN root["lines"]) AS v0',
        [2, -1, 0, 5],
    ),
    (
        'SELECT VALUE v0 FROM root JOIN (SELECT VALUE ARRAY(SELECT VALUE l0 FROM root JOIN l0 IN root["lines"] '
        'WHERE (l0["qty"] > 1))) AS v0',
        [[{"sku": "s1", "qty": 2}], [], [], [{"sku": "s1", "qty": 5}]],
    ),
]
"""Count, Sum and Where().ToArray() over arrays."""


OTHERS = [
    ('SELECT VALUE ToString(root["n"]) FROM root', ["1", "2", "2", "3"]),
    ('SELECT VALUE root["id"] FROM root WHERE RegexMatch(root["name"], "^A")', ["3"]),
    ('SELECT VALUE (SIGN(root["n"]) + TRUNC(root["n"])) FROM root', [2, 3, 3, 4]),
    ('SELECT VALUE root["id"] FROM root WHERE ((root["n"] & 1) = 1)', ["1", "4"]),
    ('SELECT VALUE ARRAY_CONCAT(root["tags"], ["x"]) FROM root', [["t1", "t2", "x"], ["x"], ["t2", "x"]]),
    ('SELECT VALUE root["id"] FROM root WHERE (DOCUMENTID(root) >= 0)', ["1", "2", "3", "4"]),
    ('SELECT VALUE root["id"] FROM root WHERE ARRAY_CONTAINS_ANY(root["tags"], "t1", "t2")', ["1", "4"]),
]
"""Functions as LINQ writes them, with fewer columns than were recorded."""


@pytest.mark.parametrize(("query", "ids"), LINQ)
async def test_any_and_all_of_linq(
    container: ContainerProxy, spread: ContainerProxy, query: str, ids: list[str]
) -> None:
    for each in (container, spread):
        assert sorted(item["id"] for item in await run(each, query)) == ids


@pytest.mark.parametrize(("query", "expected"), VALUES + OTHERS)
async def test_count_sum_arrays_and_functions_of_linq(
    container: ContainerProxy, spread: ContainerProxy, query: str, expected: list[Any]
) -> None:
    for each in (container, spread):
        assert sorted_json(await run(each, query)) == sorted_json(expected)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT VALUE ARRAY(SELECT VALUE l.sku FROM l IN c.lines) FROM c WHERE c.id = '1'", [["s1", "s2"]]),
        ("SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = 't1')", ["1"]),
        ("SELECT VALUE c.id FROM c WHERE NOT EXISTS(SELECT VALUE t FROM t IN c.tags)", ["2", "3"]),
        (
            "SELECT c.id, EXISTS(SELECT VALUE t FROM t IN c.tags) AS any FROM c WHERE c.id = '3'",
            [{"id": "3", "any": False}],
        ),
        ("SELECT VALUE (SELECT VALUE COUNT(1) FROM l IN c.lines) FROM c WHERE c.id = '1'", [2]),
        ("SELECT (SELECT VALUE c.name) AS name FROM c WHERE c.id IN ('2', '3')", [{}, {"name": "Ada"}]),
        ("SELECT VALUE c.id FROM c WHERE (SELECT VALUE SUM(l.qty) FROM l IN c.lines) > 1", ["1", "4"]),
        (
            "SELECT VALUE ARRAY(SELECT l.sku, c.n FROM l IN c.lines) FROM c WHERE c.id = '2'",
            [[{"sku": "s3", "n": 2}]],
        ),
        (
            "SELECT VALUE ARRAY(SELECT VALUE ARRAY(SELECT VALUE t FROM t IN c.tags WHERE t != l.sku) "
            "FROM l IN c.lines) "
            "FROM c WHERE c.id = '4'",
            [[["t2"]]],
        ),
        (
            "SELECT VALUE ARRAY(SELECT DISTINCT VALUE l.qty > 0 FROM l IN c.lines) FROM c WHERE c.id = '1'",
            [[True, False]],
        ),
        (
            "SELECT VALUE ARRAY(SELECT l.qty > 0 AS sold, COUNT(1) AS n "
            "FROM l IN c.lines GROUP BY l.qty > 0) FROM c "
            "WHERE c.id = '1'",
            [[{"sold": True, "n": 1}, {"sold": False, "n": 1}]],
        ),
        (
            "SELECT VALUE {'id': c.id, 'sku': l.sku} FROM c JOIN (SELECT VALUE l "
            "FROM l IN c.lines WHERE l.qty > 0) AS l",
            [{"id": "1", "sku": "s1"}, {"id": "4", "sku": "s1"}],
        ),
        (
            "SELECT VALUE o.most FROM c JOIN (SELECT MAX(l.qty) AS most FROM l IN c.lines) AS o WHERE c.id = '4'",
            [5],
        ),
        ("SELECT VALUE d.n FROM (SELECT c.n FROM c WHERE c.n > 1) AS d", [2, 2, 3]),
        ("SELECT * FROM (SELECT VALUE c.n FROM c WHERE c.n = 3) AS d", [3]),
        ("SELECT VALUE COUNT(1) FROM (SELECT VALUE root FROM root) AS r0", [4]),
        ("SELECT VALUE SUM(d.most) FROM (SELECT c.n, MAX(c.n) AS most FROM c GROUP BY c.n) AS d", [6]),
        ("SELECT VALUE p.street FROM c.loc p", ["Main"]),
        ("SELECT VALUE loc.street FROM c.loc", ["Main"]),
        ("SELECT VALUE l.sku FROM c.lines[0] AS l", ["s1", "s3", "s1"]),
        ("SELECT * FROM c['loc']", [{"street": "Main"}]),
        ("SELECT VALUE (SELECT VALUE other.n FROM c other) FROM c WHERE c.id = '4'", [3]),
    ],
)
async def test_subqueries(container: ContainerProxy, query: str, expected: list[Any]) -> None:
    found = await run(container, query)
    assert sorted_json(found) == sorted_json(expected)


async def test_a_subquery_takes_parameters(container: ContainerProxy) -> None:
    query = "SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE l FROM l IN c.lines WHERE l.sku = @sku)"
    assert await run(container, query, parameters=[{"name": "@sku", "value": "s3"}]) == ["2"]


async def test_pages_of_a_query_over_a_subquery_lose_nothing(
    container: ContainerProxy, spread: ContainerProxy
) -> None:
    query = "SELECT VALUE d.id FROM (SELECT c.id FROM c) AS d"
    assert await run(container, query, partition_key="a", max_item_count=1) == ["1", "2"]
    assert sorted(await run(spread, query, max_item_count=1)) == ["1", "2", "3", "4"]


async def test_distinct_values_are_counted_over_all_partitions(spread: ContainerProxy, raw: RawClient) -> None:
    query = "SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.n FROM c) AS d"
    headers = {
        "content-type": "application/query+json",
        "x-ms-cosmos-is-query-plan-request": "True",
        "x-ms-cosmos-supported-query-features": "Aggregate, DCount, Distinct, NonValueAggregate",
        "x-ms-documentdb-query-enablecrosspartition": "True",
    }
    answer = await raw.send(
        "POST", "/dbs/outbox/colls/spread/docs", headers=headers, body=json.dumps({"query": query})
    )
    plan = answer.body["queryInfo"]
    assert (plan["dCountInfo"], plan["distinctType"]) == ({"dCountAlias": ""}, "Unordered")
    assert plan["aggregates"] == []
    assert sorted(set(await run(spread, plan["rewrittenQuery"]))) == [1, 2, 3]


@pytest.mark.parametrize(
    ("query", "why"),
    [
        (
            "SELECT VALUE (SELECT VALUE l FROM l IN c.lines) FROM c WHERE c.id = '1'",
            "cardinality of a scalar subquery",
        ),
        ("SELECT VALUE EXISTS(SELECT VALUE x.a FROM y IN c.lines) FROM c", "Identifier 'x' could not be resolved"),
        ("SELECT VALUE EXISTS(SELECT VALUE other FROM other) FROM c", "Identifier 'other' could not be resolved"),
        ("SELECT VALUE c.n FROM (SELECT VALUE c FROM c) AS d", "Identifier 'c' could not be resolved"),
        ("SELECT VALUE udf.tax(c.n) FROM c", "User-defined functions are not supported in a query: 'udf.tax'"),
    ],
)
async def test_what_cannot_be_resolved_is_refused(container: ContainerProxy, query: str, why: str) -> None:
    with pytest.raises(CosmosHttpResponseError, match=why) as caught:
        await run(container, query)
    assert caught.value.status_code == 400


@pytest.mark.parametrize(
    ("subquery", "code"),
    [
        ("SELECT TOP 1 VALUE c.n FROM c", "SC2203"),
        ("SELECT VALUE c.n FROM c ORDER BY c.n", "SC2202"),
        ("SELECT VALUE c.n FROM c OFFSET 1 LIMIT 2", "SC2204"),
    ],
)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT VALUE COUNT(1) FROM ({}) AS r",
        "SELECT VALUE ARRAY({}) FROM c",
        "SELECT VALUE EXISTS({}) FROM c",
        "SELECT VALUE ({}) FROM c",
        "SELECT VALUE x FROM c JOIN ({}) AS x",
        "SELECT VALUE ARRAY(SELECT VALUE d FROM ({}) AS d) FROM c",
    ],
)
async def test_clauses_that_no_subquery_may_have_are_refused_with_one_partition_too(
    container: ContainerProxy, query: str, subquery: str, code: str
) -> None:
    with pytest.raises(CosmosHttpResponseError, match=code) as caught:
        await run(container, query.format(subquery), partition_key="a")
    assert caught.value.status_code == 400


@pytest.mark.parametrize("index", ["c.name", "'a' || 'b'", "c.n + 1", "(SELECT VALUE 1)"])
async def test_a_member_that_is_computed_is_refused(container: ContainerProxy, index: str) -> None:
    with pytest.raises(CosmosHttpResponseError, match="SC2990"):
        await run(container, f"SELECT VALUE c.tags[{index}] FROM c", partition_key="a")
    tags = "SELECT VALUE c.tags[@index] FROM c"
    assert await run(container, tags, partition_key="a", parameters=[{"name": "@index", "value": 1}]) == ["t2"]


async def test_what_no_client_can_merge_is_refused_across_partitions_and_served_within_a_key(
    spread: ContainerProxy,
) -> None:
    query = "SELECT VALUE COUNT(1) FROM (SELECT VALUE MAX(root.n) FROM root) AS r0"
    with pytest.raises(CosmosHttpResponseError, match="Give the query a partition key"):
        await run(spread, query)
    assert await run(spread, query, partition_key="a") == [1]
    query = "SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.n FROM c) AS d"
    assert await run(spread, query, partition_key="b") == [1]


async def test_a_property_of_a_joined_element_is_not_taken_for_the_partition_key(spread: ContainerProxy) -> None:
    """`t.pk` of an element has nothing to do with `/pk` of the item."""
    await spread.upsert_item({"id": "5", "pk": "z", "parts": [{"pk": "a", "id": "x"}]})
    try:
        assert await run(spread, "SELECT VALUE c.id FROM c JOIN t IN c.parts WHERE t.pk = 'a'") == ["5"]
        assert await run(spread, "SELECT VALUE c.id FROM c JOIN t IN c.parts WHERE t.id = 'x'") == ["5"]
    finally:
        await spread.delete_item("5", "z")
