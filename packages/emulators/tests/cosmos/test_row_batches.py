"""Batches in HybridRow, as the .NET SDK sends them: transactions, and bulk execution, which is in JSON too."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outbox_relay.emulators.testing import Answer, RawClient
from packages.emulators.tests.cosmos.rows import batch_of, results_in

DOCS = "/dbs/outbox/colls/data/docs"
KEY = {"x-ms-documentdb-partitionkey": '["a"]'}

pytestmark = pytest.mark.usefixtures("container")


def item(item_id: str, key: str = "a", **rest: Any) -> dict[str, Any]:
    return {"resourceBody": json.dumps({"id": item_id, "pk": key, **rest})}


async def send(raw: RawClient, body: bytes, *, atomic: bool = True, **headers: str) -> Answer:
    kind = {
        "x-ms-cosmos-is-batch-request": "True",
        "x-ms-cosmos-batch-atomic": str(atomic),
        "x-ms-cosmos-batch-continue-on-error": str(not atomic),
    }
    return await raw.send("POST", DOCS, headers=kind | (KEY if atomic else {}) | headers, body=body)


async def test_a_transaction_is_done_and_each_result_has_etag_and_item(raw: RawClient) -> None:
    answer = await send(
        raw,
        batch_of(
            {"operationType": "Create", **item("1", n=1)},
            {"operationType": "Upsert", "minimal": True, **item("2")},
            {"operationType": "Replace", "id": "1", **item("1", n=2)},
            {"operationType": "Read", "id": "1"},
            {"operationType": "Delete", "id": "2"},
        ),
    )

    results = results_in(answer.content)
    assert (answer.status, [each["status"] for each in results]) == (200, [201, 201, 200, 200, 204])
    assert [each["body"]["n"] for each in results if "body" in each] == [1, 2, 2]
    assert results[3]["_etag"] == results[3]["body"]["_etag"]
    assert (await raw.send("GET", f"{DOCS}/1", headers=KEY)).body["n"] == 2


async def test_a_transaction_with_a_failed_operation_says_which_and_does_nothing(raw: RawClient) -> None:
    answer = await send(
        raw,
        batch_of(
            {"operationType": "Create", **item("1")},
            {"operationType": "Replace", "id": "1", "ifMatch": '"other"', **item("1")},
        ),
    )

    assert (answer.status, [each["status"] for each in results_in(answer.content)]) == (207, [424, 412])
    assert (await raw.send("GET", f"{DOCS}/1", headers=KEY)).status == 404


@pytest.mark.parametrize(("read", "named"), [("1", True), ("none", False)])
async def test_a_batch_that_found_no_item_does_not_name_the_container(
    raw: RawClient, read: str, named: bool
) -> None:
    answer = await send(
        raw, batch_of({"operationType": "Create", **item("1")}, {"operationType": "Read", "id": read})
    )

    assert ("x-ms-content-path" in answer.headers) is named


async def test_an_answer_that_would_be_too_large_undoes_the_transaction(raw: RawClient) -> None:
    big = {"operationType": "Create", **item("big", text="x" * 1_900_000)}
    reads = [{"operationType": "Read", "id": "big"}] * 3

    answer = await send(raw, batch_of(big, *reads))

    # BatchSinglePartitionKeyTests.cs of azure-cosmos-dotnet-v3: of the last operation, and charges add up.
    results = results_in(answer.content)
    assert (answer.status, [each["status"] for each in results]) == (207, [424, 424, 424, 413])
    assert float(answer.headers["x-ms-request-charge"]) == sum(each["charge"] for each in results) > 0
    assert (await raw.send("GET", f"{DOCS}/big", headers=KEY)).status == 404


async def test_bulk_runs_every_operation_by_itself_each_with_its_own_key(raw: RawClient) -> None:
    first = await raw.send("POST", DOCS, headers=KEY, body='{"id":"1","pk":"a"}')
    range_id = first.headers["x-ms-documentdb-partitionkeyrangeid"]

    answer = await send(
        raw,
        batch_of(
            {"operationType": "Create", "partitionKey": '["a"]', **item("1")},
            {"operationType": "Create", "partitionKey": '["a"]', **item("2")},
        ),
        atomic=False,
        **{"x-ms-documentdb-partitionkeyrangeid": range_id},
    )

    assert (answer.status, [each["status"] for each in results_in(answer.content)]) == (207, [409, 201])
    assert (await raw.send("GET", f"{DOCS}/2", headers=KEY)).status == 200


async def test_bulk_on_a_partition_that_does_not_hold_the_key_is_gone(raw: RawClient) -> None:
    operation = {"operationType": "Create", "partitionKey": '["a"]', **item("1")}

    answers = [
        await send(raw, batch_of(operation), atomic=False, **{"x-ms-documentdb-partitionkeyrangeid": str(number)})
        for number in range(5)
    ]

    assert sorted(answer.status for answer in answers) == [200, 410, 410, 410, 410]


@pytest.mark.parametrize("cut", [12, 30, -1])
async def test_rows_that_are_cut_or_altered_are_a_bad_request(raw: RawClient, cut: int) -> None:
    body = batch_of({"operationType": "Create", **item("1")})

    assert (await send(raw, body[:cut])).status == 400
    assert (await send(raw, body[:-1] + bytes([body[-1] ^ 1]))).status == 400
    assert (await send(raw, batch_of())).status == 400


async def test_bulk_in_json_is_answered_in_json(raw: RawClient) -> None:
    first = await raw.send("POST", DOCS, headers=KEY, body='{"id":"1","pk":"a"}')
    range_id = first.headers["x-ms-documentdb-partitionkeyrangeid"]
    operations = [
        {"operationType": "Create", "partitionKey": '["a"]', "resourceBody": {"id": item_id, "pk": "a"}}
        for item_id in ("1", "2")
    ]

    answer = await send(
        raw,
        json.dumps(operations).encode(),
        atomic=False,
        **{"x-ms-documentdb-partitionkeyrangeid": range_id},
    )

    assert (answer.status, [each["statusCode"] for each in answer.body]) == (207, [409, 201])
    assert (await raw.send("GET", f"{DOCS}/2", headers=KEY)).status == 200
