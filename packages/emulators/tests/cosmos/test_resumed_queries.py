"""Session tokens, and sorted queries of clients that merge physical partitions themselves."""

from __future__ import annotations

import functools
import json
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest
from azure.cosmos.aio import ContainerProxy
from hypothesis import given
from hypothesis import strategies as st

from outbox_relay.emulators.cosmos.query.complex_values import ComplexPlace
from outbox_relay.emulators.cosmos.query.execution import Continuation, Execution, Row
from outbox_relay.emulators.cosmos.query.parsing import parse_query
from outbox_relay.emulators.cosmos.query.values import UNDEFINED, sort_order
from outbox_relay.emulators.testing import Answer, RawClient


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[]", "7D-54-F7-29-FF-4A-63-FF-A2-EF-3C-A3-59-53-80-82"),
        ("[null]", "3E-8E-8C-77-47-23-38-35-2F-80-EA-62-35-FB-6E-41"),
        ('{"prop":{}}', "6E-74-77-6C-B0-9F-B1-92-7E-68-8A-47-BC-64-68-1A"),
        ("[1234]", "CD-00-EF-41-85-A0-D7-A3-29-B7-CD-12-CE-79-54-F8"),
        ('{"prop":"asdfasdfasdfasdfasdfasdf"}', "C0-98-93-34-E1-94-CA-CE-02-41-B2-8F-FE-97-A7-B3"),
    ],
)
def test_the_hash_of_an_array_or_object_is_the_sdks(text: str, expected: str) -> None:
    """The values are those of DistinctHashBaselineTests in azure-cosmos-dotnet-v3."""
    assert ComplexPlace.of(json.loads(text)).hash.to_bytes(16, "big").hex("-").upper() == expected


@pytest.mark.parametrize(
    ("value", "recorded"),
    [
        ([], {"type": "array", "low": -6706074647855398782, "high": 9031114912533472255}),
        ({}, {"type": "object", "low": 1457042291250783704, "high": 1493060239874959160}),
    ],
)
def test_the_resume_value_that_the_sdk_was_recorded_to_send_is_understood(
    value: Any, recorded: dict[str, Any]
) -> None:
    assert ComplexPlace.read(recorded) == ComplexPlace.of(value)


SHAPES = [["x"], [1, 2], [], [[3]], {"a": 1}, {"b": None}, {}, {"a": {"b": [True]}}, [1], {"c": "d"}, [None], [""]]


@pytest.mark.parametrize("order", ["ASC", "DESC"])
async def test_a_sorted_query_resumes_at_an_array_or_object_without_loss(
    container: ContainerProxy, raw: RawClient, order: str
) -> None:
    items = {}
    for number, shape in enumerate(SHAPES * 2):
        item = await container.create_item({"id": f"{number:02}", "pk": "a", "rank": shape})
        items[item["id"]] = item
    everything = container.query_items(f"SELECT * FROM c ORDER BY c.rank {order}", partition_key="a")
    expected = [item["id"] async for item in everything]
    assert sorted(expected) == sorted(items)

    for place, last in enumerate(expected):
        item = items[last]
        resume = {"value": [_resume_value(item["rank"])], "rid": item["_rid"], "exclude": False}
        assert await ids_resumed(raw, order, resume) == expected[place:]
        resume = {"value": [_resume_value(item["rank"])], "exclude": True}
        behind = [each for each in expected[place:] if items[each]["rank"] != item["rank"]]
        assert await ids_resumed(raw, order, resume) == behind


async def test_pages_of_a_query_sorted_by_arrays_and_objects_lose_nothing(container: ContainerProxy) -> None:
    for number, shape in enumerate(SHAPES):
        await container.create_item({"id": str(number), "pk": "a", "rank": shape})
    pages = container.query_items("SELECT * FROM c ORDER BY c.rank DESC", partition_key="a", max_item_count=1)
    found = [item["id"] async for page in pages.by_page() async for item in page]
    assert sorted(found) == sorted(str(number) for number in range(len(SHAPES)))


def _resume_value(value: Any) -> dict[str, Any]:
    """Return a value in the form of SqlQueryResumeValue.cs: two signed words."""
    place = ComplexPlace.of(value)
    low, high = struct.unpack("<qq", place.rank)
    return {"type": place.type, "low": low, "high": high}


@pytest.mark.usefixtures("container")
@pytest.mark.parametrize(
    "resume",
    [[], {}, {"value": 1}, {"value": [1, 2]}, {"value": [{}]}, {"value": [{"type": "x", "low": 1, "high": 2}]}],
)
async def test_a_malformed_resume_filter_is_a_bad_request(raw: RawClient, resume: Any) -> None:
    body = json.dumps({"query": "SELECT * FROM c ORDER BY c.rank", "resumeFilter": resume})
    headers = {
        "content-type": "application/query+json",
        "x-ms-documentdb-isquery": "True",
        "x-ms-documentdb-partitionkeyrangeid": "0",
    }

    assert (await raw.send("POST", "/dbs/outbox/colls/data/docs", headers=headers, body=body)).status == 400


# Session tokens: the state that a read demands, and that each answer reports


DOCS = "/dbs/outbox/colls/data/docs"
KEY = {"x-ms-documentdb-partitionkey": '["a"]'}
QUERY = {"content-type": "application/query+json", "x-ms-documentdb-isquery": "True"}
BATCH = {"x-ms-cosmos-is-batch-request": "True", "x-ms-cosmos-batch-atomic": "True"}


async def written(stranger: RawClient, item_id: str = "1") -> str:
    """The session token of a write."""
    answer = await stranger.send("POST", DOCS, headers=KEY, body=json.dumps({"id": item_id, "pk": "a"}))
    assert answer.status == 201
    return answer.headers["x-ms-session-token"]


def ahead_of(token: str) -> str:
    range_id, _, lsn = token.partition(":-1#")
    return f"{range_id}:-1#{int(lsn) + 1}"


async def reads(stranger: RawClient, headers: dict[str, str]) -> dict[str, Answer]:
    """Every kind of read of one logical partition, each with these headers."""
    operations = json.dumps([{"operationType": "Read", "id": "1"}])
    query = json.dumps({"query": "SELECT * FROM c"})
    return {
        "point read": await stranger.send("GET", f"{DOCS}/1", headers=KEY | headers),
        "query": await stranger.send("POST", DOCS, headers=KEY | QUERY | headers, body=query),
        "read feed": await stranger.send("GET", DOCS, headers=KEY | headers),
        "change feed": await stranger.send("GET", DOCS, headers=KEY | {"a-im": "Incremental Feed"} | headers),
        "batch": await stranger.send("POST", DOCS, headers=KEY | BATCH | headers, body=operations),
    }


@pytest.mark.usefixtures("container")
async def test_a_read_whose_token_is_ahead_of_the_partition_is_refused(stranger: RawClient) -> None:
    token = await written(stranger)

    answers = await reads(stranger, {"x-ms-session-token": ahead_of(token)})

    assert {
        kind: (each.status, each.headers["x-ms-substatus"]) for kind, each in answers.items()
    } == dict.fromkeys(answers, (404, "1002"))
    assert {each.headers["x-ms-session-token"] for each in answers.values()} == {token}


@pytest.mark.usefixtures("container")
@pytest.mark.parametrize("others", ["", "9:-1#99,", "9:-1#99,8:1#7#2=3,"])
async def test_a_read_with_the_token_of_the_last_write_is_served(stranger: RawClient, others: str) -> None:
    token = await written(stranger)

    answers = await reads(stranger, {"x-ms-session-token": others + token})

    assert {kind: each.status for kind, each in answers.items()} == dict.fromkeys(answers, 200)


@pytest.mark.usefixtures("container")
async def test_a_write_ignores_session_tokens(stranger: RawClient) -> None:
    token = await written(stranger)
    create = json.dumps([{"operationType": "Create", "resourceBody": {"id": "3", "pk": "a"}}])
    headers = KEY | {"x-ms-session-token": ahead_of(ahead_of(token))}

    one = await stranger.send("POST", DOCS, headers=headers, body='{"id":"2","pk":"a"}')
    many = await stranger.send("POST", DOCS, headers=headers | BATCH, body=create)

    assert (one.status, many.status) == (201, 200)


@pytest.mark.usefixtures("container")
@pytest.mark.parametrize("token", ["nonsense", "0:", "0:-1#x", "#1"])
async def test_a_malformed_token_is_a_bad_request(stranger: RawClient, token: str) -> None:
    answer = await stranger.send("GET", f"{DOCS}/1", headers=KEY | {"x-ms-session-token": token})

    assert answer.status == 400


@pytest.mark.usefixtures("container")
@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "status"),
    [
        ("GET", "/none", {}, None, 404),
        ("POST", "", {}, {"id": "1", "pk": "a"}, 409),
        ("PUT", "/1", {"if-match": '"other"'}, {"id": "1", "pk": "a"}, 412),
        ("DELETE", "/1", {"if-match": '"other"'}, None, 412),
        ("PATCH", "/none", {}, {"operations": [{"op": "set", "path": "/x", "value": 1}]}, 404),
        ("GET", "/1", {"if-none-match": "*"}, None, 304),
    ],
)
async def test_a_refusal_carries_the_token_with_which_its_reason_can_be_seen(
    stranger: RawClient, method: str, path: str, headers: dict[str, str], body: Any, status: int
) -> None:
    token = await written(stranger)

    answer = await stranger.send(
        method, DOCS + path, headers=KEY | headers, body=None if body is None else json.dumps(body)
    )

    assert (answer.status, answer.headers["x-ms-session-token"]) == (status, token)
    assert "x-ms-alt-content-path" not in answer.headers
    # .NET's tests expect no id of the container with what is not found.
    assert ("x-ms-content-path" in answer.headers) is (status != 404)


@pytest.mark.usefixtures("container")
async def test_a_missing_container_has_no_substatus_through_the_gateway(stranger: RawClient) -> None:
    answer = await stranger.send("GET", "/dbs/outbox/colls/none/docs/1", headers=KEY)

    assert (answer.status, answer.headers["x-ms-substatus"]) == (404, "0")


async def test_a_client_reads_what_it_wrote(container: ContainerProxy) -> None:
    for number in range(20):
        await container.create_item({"id": str(number), "pk": "a"})

        assert (await container.read_item(str(number), "a"))["id"] == str(number)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.sampled_from([0.5, -1.5]),
    st.sampled_from(["", "a", "b"]),
    st.lists(st.integers(0, 1), max_size=2),
    st.dictionaries(st.sampled_from("xy"), st.integers(0, 1), max_size=1),
)
DIRECTIONS = st.sampled_from(["ASC", "DESC"])
ITEMS = st.lists(st.dictionaries(st.sampled_from("pq"), VALUES), max_size=12)


@given(directions=st.tuples(DIRECTIONS, DIRECTIONS), items=ITEMS, size=st.integers(1, 5))
async def test_pages_follow_each_other_in_the_order_of_the_keys(
    directions: tuple[str, str], items: list[dict[str, Any]], size: int
) -> None:
    first, second = directions
    query = f"SELECT VALUE c.n FROM c ORDER BY c.p {first}, c.q {second}"

    def order(left: dict[str, Any], right: dict[str, Any]) -> int:
        for name, direction in zip("pq", directions, strict=True):
            difference = sort_order(left.get(name, UNDEFINED), right.get(name, UNDEFINED))
            if difference:
                return -difference if direction == "DESC" else difference
        difference = int(left["n"] - right["n"])
        return -difference if first == "DESC" else difference

    numbered = [{**item, "n": number} for number, item in enumerate(items)]

    expected = sorted(numbered, key=functools.cmp_to_key(order))
    assert await all_pages(query, numbered, size) == [item["n"] for item in expected]


@given(items=ITEMS, size=st.integers(1, 5))
async def test_no_page_repeats_a_distinct_result(items: list[dict[str, Any]], size: int) -> None:
    found = await all_pages("SELECT DISTINCT VALUE IS_DEFINED(c.q) FROM c ORDER BY c.p", items, size)

    assert sorted(found) == sorted({"q" in item for item in items})


async def all_pages(query: str, items: list[dict[str, Any]], size: int) -> list[Any]:
    async def rows() -> AsyncIterator[Row]:
        for number, item in enumerate(items):
            yield Row(number, json.dumps(item))

    found: list[Any] = []
    continuation: Continuation | None = None
    while True:
        page = await Execution(parse_query(query), {}).page(rows(), size, continuation)
        found += map(json.loads, page.texts)
        if page.continuation is None:
            return found
        continuation = Continuation.decode(page.continuation.encode())
