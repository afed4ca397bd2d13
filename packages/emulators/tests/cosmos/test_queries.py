"""Queries through azure-cosmos: within a partition, across partitions, page by page."""

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
from packages.emulators.tests.cosmos.support import MakeContainer

pytestmark = pytest.mark.asyncio(loop_scope="module")

GROUPS = 5
QUERY = {"content-type": "application/query+json", "x-ms-documentdb-isquery": "True"}
NUMBERS = range(60)
COMPOSITE = [[{"path": "/grp", "order": "ascending"}, {"path": "/n", "order": "descending"}]]


def sample(n: int) -> dict[str, Any]:
    return {
        "id": f"i{n}",
        "pk": f"p{n % 10}",
        "n": n,
        "grp": n % GROUPS,
        "name": f"Name-{n:02}",
        "tags": [n, "x"],
        "deep": {"inner": {"n": n}, "odd key": True},
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[CosmosServer]:
    """One for all of these tests, which write nothing to what they share."""
    async with CosmosServer() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def make_container(server: CosmosServer) -> AsyncIterator[MakeContainer]:
    async with CosmosClient.from_connection_string(server.connection_string) as client:
        database = await client.create_database("outbox")

        async def make(name: str, **options: Any) -> ContainerProxy:
            created: ContainerProxy = await database.create_container(name, PartitionKey("/pk"), **options)
            return created

        yield make


async def _filled(make_container: MakeContainer, name: str) -> ContainerProxy:
    container = await make_container(name, indexing_policy={"compositeIndexes": COMPOSITE})
    for key in range(10):
        operations = [("create", (sample(n),)) for n in NUMBERS if n % 10 == key]
        await container.execute_item_batch(operations, f"p{key}")
    return container


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def filled(make_container: MakeContainer) -> ContainerProxy:
    """Read by many tests, and changed by none."""
    return await _filled(make_container, "data")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def odd(make_container: MakeContainer) -> ContainerProxy:
    """Holds one item, with values of several types."""
    container = await make_container("odd")
    await container.create_item({"id": "1", "pk": "a", "n": 1, "text": "1", "flag": True, "nil": None})
    return container


@pytest_asyncio.fixture(loop_scope="module")
async def raw(server: CosmosServer) -> AsyncIterator[RawClient]:
    async with aiohttp.ClientSession() as session:
        yield RawClient(session, server.endpoint, server.key)


async def run(container: ContainerProxy, query: str, **options: Any) -> list[Any]:
    parameters = [{"name": f"@{name}", "value": value} for name, value in options.pop("values", {}).items()]
    return [item async for item in container.query_items(query, parameters=parameters, **options)]


async def refused(container: ContainerProxy, query: str, **options: Any) -> str:
    with pytest.raises(CosmosHttpResponseError) as caught:
        await run(container, query, **options)
    assert caught.value.status_code == 400
    return str(caught.value.message)


async def test_select_all_gives_whole_items_with_their_system_properties(filled: ContainerProxy) -> None:
    found = await run(filled, "SELECT * FROM c WHERE c.id = 'i5'")

    assert found == [await filled.read_item("i5", "p5")]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT VALUE 1 + 2 * 3", [7]),
        ("SELECT 'a' AS b", [{"b": "a"}]),
        ("SELECT VALUE COUNT(1)", [1]),
        ("SELECT VALUE 1 WHERE false", []),
    ],
)
async def test_a_query_without_from_has_one_result(
    filled: ContainerProxy, raw: RawClient, query: str, expected: list[Any]
) -> None:
    assert await run(filled, query) == expected
    assert await run(filled, query, partition_key="p5") == expected
    databases = await raw.send("POST", "/dbs", headers=QUERY, body=json.dumps({"query": query}))
    assert databases.body["Databases"] == expected


async def test_two_escapes_of_a_literal_make_one_character(make_container: MakeContainer) -> None:
    container = await make_container("smileys")
    await container.create_item({"id": "1", "pk": "a", "face": "\U0001f603", "\U0001f603": 1})

    for condition in (r'c.face = "\uD83D\uDE03"', r'c["\uD83D\uDE03"] = 1', r"c.face LIKE '\uD83D\uDE03'"):
        assert await run(container, f"SELECT VALUE c.id FROM c WHERE {condition}") == ["1"]


async def test_every_item_is_found_across_partitions_and_only_once(filled: ContainerProxy) -> None:
    assert sorted(item["n"] for item in await run(filled, "SELECT * FROM c")) == list(NUMBERS)


@pytest.mark.parametrize(
    ("projection", "expected"),
    [
        ("c.id, c.n", {"id": "i5", "n": 5}),
        ('c["deep"].inner.n AS depth, c.deep["odd key"]', {"depth": 5, "odd key": True}),
        ("c.tags[1] second, c.none", {"second": "x"}),
        ("VALUE c.name", "Name-05"),
        ("VALUE {'a': c.n, \"b\": [c.n, c.none, 'é']}", {"a": 5, "b": [5, "é"]}),
        ("VALUE c.n > 3 ? 'big' : 'small'", "big"),
        ("VALUE c.none ?? c.n * 2 + 1", 11),
        ("VALUE -c.n % 3", -2),
        ("VALUE c.n / 2", 2.5),
        ("c.n + 1", {"$1": 6}),
        ("VALUE UPPER(c.name) || LOWER('!A')", "NAME-05!a"),
        ("VALUE 'it\\'s \\u00e9 \"quoted\"'", 'it\'s é "quoted"'),
    ],
)
async def test_projections(filled: ContainerProxy, projection: str, expected: Any) -> None:
    assert await run(filled, f"SELECT {projection} FROM c WHERE c.n = 5", partition_key="p5") == [expected]


@pytest.mark.parametrize(
    ("condition", "numbers"),
    [
        ("c.n < 3", [0, 1, 2]),
        ("c.n >= 58", [58, 59]),
        ("c.n = 3 OR c.n = 4", [3, 4]),
        ("c.n != 3 AND c.n <= 4 AND NOT c.n = 1", [0, 2, 4]),
        ("c.n <> 0 AND c.n < 2", [1]),
        ("c.n IN (1, 5, 'x', 99)", [1, 5]),
        ("c.n NOT IN (0, 1) AND c.n < 4", [2, 3]),
        ("c.n BETWEEN 2 AND 4", [2, 3, 4]),
        ("c.n NOT BETWEEN 1 AND 58", [0, 59]),
        ("c.name LIKE 'Name-0_' AND c.n > 7", [8, 9]),
        ("c.name LIKE '%-1[0-2]'", [10, 11, 12]),
        ("c.name NOT LIKE '%' OR c.name LIKE 'Name!-03' ESCAPE '!'", [3]),
        ("ARRAY_CONTAINS(c.tags, 7)", [7]),
        ("IS_DEFINED(c.none)", []),
        ("c.deep.inner.n = 6", [6]),
        ("c.deep = {'odd key': true, 'inner': {'n': 8}}", [8]),
        ("c.tags = [9, 'x']", [9]),
        ("c._ts > 0 AND c.id = 'i4'", [4]),
        ("(c.n = 1 OR c.n = 2) AND c.n = 2", [2]),
        ("true AND c.n = 3", [3]),
    ],
)
async def test_conditions(filled: ContainerProxy, condition: str, numbers: list[int]) -> None:
    found = await run(filled, f"SELECT VALUE c.n FROM c WHERE {condition}")

    assert sorted(found) == numbers


@pytest.mark.parametrize(
    ("condition", "matches"),
    [
        ("c.none = 1", False),
        ("c.none != 1", False),
        ("NOT (c.none = 1)", False),
        ("c.none = 1 OR true", True),
        ("NOT (c.none = 1 AND false)", True),
        ("c.n = '1'", False),
        ("c.n != '1'", False),
        ("c.n = true", False),
        ("c.flag = 1", False),
        ("c.nil = null", True),
        ("c.nil != 1", False),
        ("c.none = undefined", False),
        ("c.text < 5", False),
        ("c.n + 'x' = 'x'", False),
        ("c.n / 0 > 0", False),
        ("c.none IN (1, 2)", False),
        ("NOT (c.none IN (1, 2))", False),
        ("c.n", False),
        ("NOT c.n", False),
    ],
)
async def test_undefined_and_other_types_never_match_by_accident(
    odd: ContainerProxy, condition: str, matches: bool
) -> None:
    assert bool(await run(odd, f"SELECT * FROM c WHERE {condition}", partition_key="a")) is matches


async def test_parameters_stand_for_values_of_every_type(filled: ContainerProxy) -> None:
    query = (
        "SELECT VALUE c.n FROM c WHERE c.n >= @low AND c.name IN (@name, 'Name-03') AND ARRAY_CONTAINS(@set, c.n)"
    )

    assert await run(filled, query, values={"low": 2, "name": "Name-04", "set": [1, 4]}) == [4]


async def test_a_missing_parameter_is_refused(filled: ContainerProxy) -> None:
    assert "@nowhere" in await refused(filled, "SELECT * FROM c WHERE c.n = @nowhere")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT VALUE c.n FROM c ORDER BY c.n", list(NUMBERS)),
        ("SELECT VALUE c.n FROM c ORDER BY c.name DESC", list(reversed(NUMBERS))),
        ("SELECT VALUE c.n FROM c WHERE c.n > 50 ORDER BY c.deep.inner.n", list(range(51, 60))),
        ("SELECT TOP 4 VALUE c.n FROM c ORDER BY c.n DESC", [59, 58, 57, 56]),
        ("SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 10 LIMIT 3", [10, 11, 12]),
        ("SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 58 LIMIT 10", [58, 59]),
        ("SELECT VALUE c.n FROM c WHERE c.n IN (7, 12, 2) ORDER BY c.grp, c.n DESC", [12, 7, 2]),
        ("SELECT VALUE c.n FROM c WHERE c.n IN (7, 1, 2) ORDER BY c.grp DESC, c.n ASC", [2, 7, 1]),
        ("SELECT DISTINCT VALUE c.grp FROM c ORDER BY c.grp", list(range(GROUPS))),
    ],
)
async def test_sorted_queries_across_partitions(filled: ContainerProxy, query: str, expected: list[int]) -> None:
    assert await run(filled, query, max_item_count=3) == expected


async def test_distinct_and_offset_without_order(filled: ContainerProxy) -> None:
    assert sorted(await run(filled, "SELECT DISTINCT VALUE c.grp FROM c")) == list(range(GROUPS))
    assert len(await run(filled, "SELECT * FROM c OFFSET 50 LIMIT 20")) == 10
    assert len(await run(filled, "SELECT TOP 7 * FROM c")) == 7
    assert len(await run(filled, "SELECT TOP @n * FROM c", values={"n": 7})) == 7


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        ("COUNT(1)", 60),
        ("COUNT(c.none)", 0),
        ("SUM(c.n)", 1770),
        ("MIN(c.n)", 0),
        ("MAX(c.name)", "Name-59"),
        ("AVG(c.n)", 29.5),
    ],
)
async def test_aggregates_across_partitions(filled: ContainerProxy, aggregate: str, expected: Any) -> None:
    assert await run(filled, f"SELECT VALUE {aggregate} FROM c") == [expected]


async def test_aggregates_within_a_partition(filled: ContainerProxy) -> None:
    query = "SELECT COUNT(1) AS count, SUM(c.n) AS total, MAX(c.n) - MIN(c.n) AS span FROM c WHERE c.n > 20"

    assert await run(filled, query, partition_key="p1") == [{"count": 4, "total": 144, "span": 30}]
    assert await run(filled, "SELECT VALUE AVG(c.name) FROM c", partition_key="p1") == []


async def test_a_partition_key_keeps_a_query_within_it(filled: ContainerProxy) -> None:
    assert await run(filled, "SELECT VALUE c.n FROM c", partition_key="p3") == [3, 13, 23, 33, 43, 53]
    assert await run(filled, "SELECT VALUE c.n FROM c WHERE c.pk = 'p4'") == [4, 14, 24, 34, 44, 54]
    assert await run(
        filled, "SELECT TOP 2 VALUE c.n FROM c WHERE c.pk = @pk ORDER BY c.n DESC", values={"pk": "p4"}
    ) == [54, 44]


async def test_feed_ranges_split_a_query_without_overlap(filled: ContainerProxy) -> None:
    ranges = [feed_range async for feed_range in filled.read_feed_ranges()]

    parts = [await run(filled, "SELECT VALUE c.n FROM c", feed_range=feed_range) for feed_range in ranges]

    assert sorted(n for part in parts for n in part) == list(NUMBERS)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT VALUE c.n FROM c",
        "SELECT VALUE c.n FROM c WHERE c.n > 3",
        "SELECT VALUE c.n FROM c ORDER BY c.n DESC",
        "SELECT VALUE c.n FROM c ORDER BY c.none",
        "SELECT VALUE c.n FROM c OFFSET 1 LIMIT 4",
        "SELECT TOP 5 VALUE c.n FROM c ORDER BY c.grp",
        "SELECT DISTINCT VALUE c.grp FROM c",
        "SELECT DISTINCT VALUE c.n % 7 FROM c OFFSET 1 LIMIT 3",
    ],
)
async def test_pages_of_a_partition_put_together_are_the_whole(filled: ContainerProxy, query: str) -> None:
    whole = await run(filled, query, partition_key="p1")

    pages: list[list[Any]] = []
    token = None
    while True:
        page_iterator: Any = filled.query_items(query, partition_key="p1", max_item_count=2).by_page(token)
        pages.append([item async for item in await anext(page_iterator)])
        token = page_iterator.continuation_token
        if token is None:
            break

    assert [item for page in pages for item in page] == whole
    assert all(len(page) == 2 for page in pages[:-1])


async def test_items_written_between_two_pages_neither_shift_nor_repeat_what_follows(
    make_container: MakeContainer,
) -> None:
    container = await _filled(make_container, "changing")
    pages = container.query_items("SELECT * FROM c ORDER BY c.n", partition_key="p1", max_item_count=2).by_page()
    first = [item["n"] async for item in await anext(pages)]

    await container.create_item({"id": "new", "pk": "p1", "n": 0})
    await container.delete_item("i1", "p1")
    rest = [item["n"] async for page in pages async for item in page]

    assert (first, rest) == ([1, 11], [21, 31, 41, 51])


async def test_all_items_can_be_read_page_by_page(filled: ContainerProxy) -> None:
    pages = [
        [item["n"] async for item in page] async for page in filled.read_all_items(max_item_count=7).by_page()
    ]

    assert sorted(n for page in pages for n in page) == list(NUMBERS)
    assert max(len(page) for page in pages) == 7


async def test_one_query_can_list_a_thousand_ids(make_container: MakeContainer) -> None:
    container = await make_container("thousand")
    wanted = [(str(number), "a") for number in range(1000)]
    stored = [item_id for item_id, _ in wanted[::10]]
    await container.execute_item_batch([("create", ({"id": item_id, "pk": "a"},)) for item_id in stored], "a")
    conditions = " OR ".join(f"(c.id = '{item_id}' AND c.pk = 'a')" for item_id, _ in wanted)

    assert sorted(item["id"] for item in await container.read_items(wanted)) == sorted(stored)
    found = await run(container, f"SELECT VALUE c.id FROM c WHERE {conditions}", partition_key="a")
    assert sorted(found) == sorted(stored)


async def test_sorting_by_several_properties_needs_a_composite_index(filled: ContainerProxy) -> None:
    assert "composite index" in await refused(filled, "SELECT * FROM c ORDER BY c.grp, c.name")
    assert "composite index" in await refused(filled, "SELECT * FROM c ORDER BY c.grp, c.n", partition_key="p1")


CORRELATED = "Order-by over correlated collections is not supported."
UNMAPPED = "Unsupported ORDER BY clause. ORDER BY item expression could not be mapped to a document path."


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (
            "SELECT DISTINCT VALUE v2 FROM root JOIN (SELECT DISTINCT VALUE v0 FROM root JOIN v0 IN root.Parents) "
            "AS v2 WHERE (LENGTH(v2.FamilyName) > 10) ORDER BY v2 ASC",
            CORRELATED,
        ),
        ("SELECT VALUE f FROM c JOIN f IN c.tags WHERE c.n > 1 ORDER BY f.grade OFFSET 1 LIMIT 2", CORRELATED),
        ("SELECT VALUE c.n FROM c JOIN f IN c.tags ORDER BY c.n, f", CORRELATED),
        ("SELECT VALUE f FROM f IN c.tags ORDER BY f", CORRELATED),
        ("SELECT VALUE c FROM c IN c.tags ORDER BY c.n", CORRELATED),
        ("SELECT VALUE f FROM c JOIN f IN c.tags ORDER BY f.grade, ARRAY_LENGTH(f.pets)", UNMAPPED),
        ("SELECT * FROM c WHERE c.pk = 'p1' ORDER BY LOWER(c.name) ASC", UNMAPPED),
        ("SELECT * FROM c ORDER BY c.n + 1", UNMAPPED),
        ("SELECT * FROM c ORDER BY 1", UNMAPPED),
        ("SELECT VALUE c FROM c JOIN (SELECT VALUE COUNT(1) FROM c JOIN t IN c.tags) AS v ORDER BY v", UNMAPPED),
        (
            "SELECT VALUE c FROM c JOIN (SELECT VALUE ARRAY(SELECT VALUE t FROM t IN c.tags)) AS v ORDER BY v",
            UNMAPPED,
        ),
    ],
)
async def test_an_order_by_anything_but_properties_is_refused_in_the_services_words(
    filled: ContainerProxy, raw: RawClient, query: str, words: str
) -> None:
    """OrderByQueryTests.cs and the baselines of azure-cosmos-dotnet-v3 have such queries."""
    planning = {
        **QUERY,
        "x-ms-cosmos-is-query-plan-request": "True",
        "x-ms-cosmos-supported-query-features": "Distinct, MultipleOrderBy, OffsetAndLimit, OrderBy",
    }

    plan = await raw.send(
        "POST", "/dbs/outbox/colls/data/docs", headers=planning, body=json.dumps({"query": query})
    )

    assert words in await refused(filled, query)
    assert words in await refused(filled, query, partition_key="p1")
    assert (plan.status, words in plan.body["message"]) == (400, True)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT",
        "SELECT * FROM",
        "SELECT * FROM c WHERE",
        "SELECT * FROM c GROUP BY c.n",
        "SELECT * FROM c JOIN t IN c.tags",
        "SELECT * FROM c WHERE c.order = 1",
        "SELECT * FROM c WHERE c.value = 1",
        "SELECT * FROM c WHERE d.n = 1",
        "SELECT * FROM c WHERE udf.f(c.n)",
        "SELECT * FROM c WHERE NOSUCH(c.n)",
        "SELECT * FROM c WHERE LOWER(c.n, 1)",
        "SELECT * FROM c WHERE COUNT(1) > 1",
        "SELECT * FROM c WHERE c.name LIKE '[z-a]'",
        "SELECT COUNT(1) + 5 FROM c",
        "DELETE FROM c",
        "SELECT * FROM c; DROP TABLE items",
    ],
)
async def test_what_is_not_supported_is_a_bad_request(filled: ContainerProxy, query: str) -> None:
    await refused(filled, query)


@pytest.mark.usefixtures("filled")
async def test_a_query_across_partitions_has_to_be_allowed(raw: RawClient) -> None:
    headers = {"x-ms-documentdb-isquery": "true", "content-type": "application/query+json"}
    path = "/dbs/outbox/colls/data/docs"

    refused = await raw.send("POST", path, headers=headers, body='{"query":"SELECT * FROM c"}')
    allowed = await raw.send(
        "POST",
        path,
        headers=headers | {"x-ms-documentdb-query-enablecrosspartition": "True"},
        body='{"query":"SELECT * FROM c"}',
    )

    assert (refused.status, allowed.status) == (400, 200)
    assert allowed.headers["x-ms-item-count"] == str(len(allowed.body["Documents"]))


@pytest.mark.usefixtures("filled")
async def test_a_refused_query_across_partitions_carries_its_plan(raw: RawClient) -> None:
    headers = {"content-type": "application/query+json", "x-ms-documentdb-query-enablecrosspartition": "True"}
    path, body = "/dbs/outbox/colls/data/docs", '{"query":"SELECT VALUE COUNT(1) FROM c"}'
    planning = headers | {"x-ms-cosmos-is-query-plan-request": "True"}

    refused = await raw.send("POST", path, headers=headers, body=body)
    planned = await raw.send(
        "POST", path, headers=planning | {"x-ms-cosmos-supported-query-features": "Top, Aggregate"}, body=body
    )
    beyond = await raw.send("POST", path, headers=planning, body=body)

    assert (refused.status, refused.headers["x-ms-substatus"]) == (400, "1004")
    assert json.loads(refused.body["additionalErrorInfo"]) == planned.body
    assert planned.body["queryInfo"]["aggregates"] == ["Count"]
    assert (beyond.status, beyond.headers["x-ms-substatus"]) == (400, "0")
    assert "the calling client does not support: Aggregate" in beyond.body["message"]


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    "body",
    [
        "{}",
        '{"query":1}',
        '{"query":"SELECT * FROM c","parameters":{"@n":1}}',
        '{"query":"SELECT * FROM c","parameters":[{"name":"n"}]}',
    ],
)
async def test_a_malformed_query_request_is_refused(raw: RawClient, body: str) -> None:
    headers = {"content-type": "application/query+json", "x-ms-documentdb-query-enablecrosspartition": "True"}

    assert (await raw.send("POST", "/dbs/outbox/colls/data/docs", headers=headers, body=body)).status == 400


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("token", ["nonsense", "W10=", "W1tdLDEsMCwwXQ=="])
async def test_a_malformed_continuation_is_refused(raw: RawClient, token: str) -> None:
    answer = await raw.send("GET", "/dbs/outbox/colls/data/docs", headers={"x-ms-continuation": token})

    assert (answer.status, "Invalid Continuation Token" in answer.body["message"]) == (400, True)


async def test_metrics_have_the_time_and_the_sizes(filled: ContainerProxy, raw: RawClient) -> None:
    answer = await raw.send(
        "POST",
        "/dbs/outbox/colls/data/docs",
        headers={
            **QUERY,
            "x-ms-documentdb-partitionkey": '["p5"]',
            "x-ms-documentdb-populatequerymetrics": "True",
        },
        body=json.dumps({"query": "SELECT VALUE c.n FROM c WHERE c.n >= 15"}),
    )

    pairs = answer.headers["x-ms-documentdb-query-metrics"].split(";")
    metrics = {name: float(value) for name, _, value in (pair.partition("=") for pair in pairs)}
    assert answer.body["Documents"] == [15, 25, 35, 45, 55]
    assert metrics["totalExecutionTimeInMs"] >= 0
    assert metrics["queryCompileTimeInMs"] > 0
    assert metrics["indexUtilizationRatio"] == 0.83
    assert (metrics["retrievedDocumentCount"], metrics["outputDocumentCount"]) == (6, 5)
    assert metrics["retrievedDocumentSize"] > metrics["outputDocumentSize"] == 10
