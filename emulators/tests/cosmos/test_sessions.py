"""Session tokens: the state that a read demands, and that each answer reports."""

from __future__ import annotations

import json
from typing import Any

import pytest
from azure.cosmos.aio import ContainerProxy

from outbox_emulators.testing import Answer, RawClient

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


@pytest.mark.usefixtures("container")
async def test_a_missing_container_has_no_substatus_through_the_gateway(stranger: RawClient) -> None:
    answer = await stranger.send("GET", "/dbs/outbox/colls/none/docs/1", headers=KEY)

    assert (answer.status, answer.headers["x-ms-substatus"]) == (404, "0")


async def test_a_client_reads_what_it_wrote(container: ContainerProxy) -> None:
    for number in range(20):
        await container.create_item({"id": str(number), "pk": "a"})

        assert (await container.read_item(str(number), "a"))["id"] == str(number)
