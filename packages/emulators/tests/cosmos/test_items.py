"""One item at a time, through azure-cosmos."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import quote, unquote

import aiohttp
import pytest
from azure.core import MatchConditions
from azure.cosmos import CosmosClient as SyncCosmosClient
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import (
    CosmosAccessConditionFailedError,
    CosmosBatchOperationError,
    CosmosHttpResponseError,
    CosmosResourceExistsError,
    CosmosResourceNotFoundError,
)
from azure.cosmos.partition_key import NonePartitionKeyValue, NullPartitionKeyValue
from yarl import URL

from outbox_relay.emulators.cosmos.documents import MAX_ID_BYTES, MAX_ITEM_BYTES
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.testing import RawClient


async def refusal(operation: Any) -> CosmosHttpResponseError:
    with pytest.raises(CosmosHttpResponseError) as caught:
        await operation
    return caught.value


async def test_an_item_comes_back_as_sent_with_the_system_properties(container: ContainerProxy) -> None:
    sent: dict[str, Any] = {
        "id": "1",
        "pk": "a",
        "text": "Grüße 🎉 \u2028",
        "list": [1, None, {"x": []}],
        "empty": {},
    }

    created = await container.create_item(sent)
    read = await container.read_item("1", "a")

    assert read == created
    system = {key: read.pop(key) for key in ("_rid", "_self", "_etag", "_attachments", "_ts")}
    assert read == sent
    assert all(system.values())


async def test_integers_of_64_bits_and_doubles_come_back_digit_for_digit(container: ContainerProxy) -> None:
    numbers = [2**63 - 1, -(2**63), 2**53 + 1, 1.7976931348623157e308, 5e-324, 0.1, -0.0, 10**15, 1e22]

    await container.create_item({"id": "1", "pk": "a", "numbers": numbers})

    read = await container.read_item("1", "a")
    assert [repr(number) for number in read["numbers"]] == [repr(number) for number in numbers]


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("9223372036854775808", "9.223372036854776e+18"),
        ("-9223372036854775809", "-9.223372036854776e+18"),
        ("123456789012345678901234567890", "1.2345678901234568e+29"),
        ("0.1234567890123456789", "0.12345678901234568"),
        ("9007199254740993.0", "9007199254740992.0"),
        ("1e-400", "0.0"),
        ("1" + "0" * 308, "1e+308"),
    ],
)
async def test_any_other_number_becomes_the_nearest_double_without_a_word(
    container: ContainerProxy, raw: RawClient, sent: str, kept: str
) -> None:
    await container.upsert_item({"id": "0", "pk": "a"})
    key = {"x-ms-documentdb-partitionkey": '["a"]'}
    operations = f'[{{"operationType":"Create","resourceBody":{{"id":"2","pk":"a","n":[1.10,{sent}]}}}}]'
    batch = {"x-ms-cosmos-is-batch-request": "True", "x-ms-cosmos-batch-atomic": "True"}
    path = "/dbs/outbox/colls/data/docs"

    answer = await raw.send("POST", path, headers=key, body=f'{{"id":"1","pk":"a","n":[1.10,{sent}]}}')
    await raw.send("POST", path, headers=key | batch, body=operations)

    assert answer.status == 201
    for item_id in ("1", "2"):
        text = (await raw.send("GET", f"{path}/{item_id}", headers=key)).text
        assert f'"n":[1.1,{kept}]' in text


@pytest.mark.usefixtures("container")
@pytest.mark.parametrize("number", ["1e400", "-1E309", "1" + "0" * 309, "9" * 379, "9" * 5000, "NaN", "-Infinity"])
async def test_a_number_that_is_no_finite_double_is_refused(raw: RawClient, number: str) -> None:
    key = {"x-ms-documentdb-partitionkey": '["a"]'}

    answer = await raw.send(
        "POST", "/dbs/outbox/colls/data/docs", headers=key, body=f'{{"id":"1","pk":"a","n":{number}}}'
    )

    assert (answer.status, answer.body["code"]) == (400, "BadRequest")


@pytest.mark.parametrize("system", ["", ',"_ts":1,"_rid":"x"'])
async def test_the_text_of_an_item_is_kept_as_it_was_sent(
    container: ContainerProxy, raw: RawClient, system: str
) -> None:
    text = (
        '"n":1.10,"whole":5.0,"nothing":0.0,"tiny":0.100000000000000000000000,"e":1E+2,"list":[1,  2],'
        '"escaped":"\\u0041\\/"'
    )
    key = {"x-ms-documentdb-partitionkey": '["a"]'}
    path = "/dbs/outbox/colls/data/docs"

    await raw.send("POST", path, headers=key, body=f'{{"id":"1","pk":"a"{system},{text}}}')
    await container.upsert_item({"id": "2", "pk": "a"})

    assert f',{text},"_rid"' in (await raw.send("GET", f"{path}/1", headers=key)).text
    feed = await raw.send("GET", path, headers=key | {"A-IM": "Incremental Feed"})
    assert text in feed.text
    query = key | {"content-type": "application/query+json", "x-ms-documentdb-isquery": "True"}
    whole = await raw.send("POST", path, headers=query, body='{"query":"SELECT * FROM c"}')
    assert text in whole.text
    numbers = await raw.send(
        "POST", path, headers=query, body='{"query":"SELECT VALUE [c.whole, c.nothing] FROM c WHERE c.whole = 5"}'
    )
    assert '"Documents":[[5.0,0.0]]' in numbers.text


async def test_a_lone_surrogate_survives_every_way_through_the_server(container: ContainerProxy) -> None:
    await container.create_item({"id": "1", "pk": "a", "text": "\ud800 alone"})
    await container.patch_item("1", "a", [{"op": "add", "path": "/copy", "value": "\udfff"}])

    read = await container.read_item("1", "a")
    found = [item async for item in container.query_items("SELECT c.text, c.copy FROM c", partition_key="a")]

    assert (read["text"], read["copy"]) == ("\ud800 alone", "\udfff")
    assert found == [{"text": "\ud800 alone", "copy": "\udfff"}]


async def test_system_properties_sent_by_the_client_are_replaced(container: ContainerProxy) -> None:
    created = await container.create_item(
        {"id": "1", "pk": "a", "big": 2**80, "_rid": "x", "_etag": "y", "_ts": 1}
    )

    replaced = await container.replace_item("1", created | {"more": True})

    assert replaced["_rid"] == created["_rid"] != "x"
    assert replaced["_etag"] != created["_etag"]
    assert replaced["_ts"] > 1
    assert replaced["big"] == 2**80
    assert list(replaced).count("_etag") == 1


async def test_creating_an_id_twice_conflicts_but_only_within_its_partition_key(container: ContainerProxy) -> None:
    await container.create_item({"id": "1", "pk": "a"})
    await container.create_item({"id": "1", "pk": "b"})

    with pytest.raises(CosmosResourceExistsError) as caught:
        await container.create_item({"id": "1", "pk": "a"})

    assert caught.value.status_code == 409
    assert caught.value.message.startswith("(Conflict)")


async def test_what_does_not_exist_is_not_found(container: ContainerProxy) -> None:
    for operation in (
        container.read_item("1", "a"),
        container.replace_item("1", {"id": "1", "pk": "a"}),
        container.patch_item("1", "a", [{"op": "add", "path": "/x", "value": 1}]),
        container.delete_item("1", "a"),
    ):
        with pytest.raises(CosmosResourceNotFoundError):
            await operation


async def test_a_stale_etag_fails_every_kind_of_write(container: ContainerProxy) -> None:
    first = await container.create_item({"id": "1", "pk": "a"})
    await container.upsert_item({"id": "1", "pk": "a", "n": 2})
    stale: dict[str, Any] = {"etag": first["_etag"], "match_condition": MatchConditions.IfNotModified}

    for operation in (
        container.replace_item("1", {"id": "1", "pk": "a", "n": 3}, **stale),
        container.upsert_item({"id": "1", "pk": "a", "n": 3}, **stale),
        container.patch_item("1", "a", [{"op": "set", "path": "/n", "value": 3}], **stale),
        container.delete_item("1", "a", **stale),
    ):
        with pytest.raises(CosmosAccessConditionFailedError):
            await operation

    assert (await container.read_item("1", "a"))["n"] == 2


async def test_the_current_etag_lets_one_of_two_writers_win(container: ContainerProxy) -> None:
    current = await container.create_item({"id": "lease", "pk": "a"})

    results = await asyncio.gather(
        *(
            container.replace_item(
                "lease",
                {"id": "lease", "pk": "a", "owner": owner},
                etag=current["_etag"],
                match_condition=MatchConditions.IfNotModified,
            )
            for owner in range(8)
        ),
        return_exceptions=True,
    )

    assert sum(not isinstance(result, Exception) for result in results) == 1


async def test_an_upsert_with_an_etag_creates_what_is_not_there(container: ContainerProxy) -> None:
    created = await container.upsert_item(
        {"id": "1", "pk": "a"}, etag='"gone"', match_condition=MatchConditions.IfNotModified
    )

    assert created["id"] == "1"


async def test_reading_a_version_one_has_is_answered_without_a_body(container: ContainerProxy) -> None:
    created = await container.create_item({"id": "1", "pk": "a"})

    again = await container.read_item("1", "a", etag=created["_etag"], match_condition=MatchConditions.IfModified)

    assert not again


async def test_a_replace_may_change_the_id_to_one_that_is_not_in_use(container: ContainerProxy) -> None:
    created = await container.create_item({"id": "old", "pk": "a"})
    await container.create_item({"id": "taken", "pk": "a"})

    renamed = await container.replace_item("old", {"id": "new", "pk": "a"})

    assert renamed["_rid"] == created["_rid"]
    with pytest.raises(CosmosResourceNotFoundError):
        await container.read_item("old", "a")
    with pytest.raises(CosmosResourceExistsError):
        await container.replace_item("new", {"id": "taken", "pk": "a"})


@pytest.mark.parametrize("bad_id", ["", "x" * (MAX_ID_BYTES + 1), "é" * 512])
async def test_an_invalid_id_is_refused(container: ContainerProxy, bad_id: str) -> None:
    with pytest.raises(CosmosBatchOperationError) as caught:
        await container.execute_item_batch([("create", ({"id": bad_id, "pk": "a"},))], "a")

    assert caught.value.status_code == 400


@pytest.mark.parametrize("edges", [None])
@pytest.mark.parametrize(
    ("item_id", "status"),
    [
        *(("a/b", 404), ("a\\b", 404), ("a?b", 200), ("a#b", 200), ("a\tb", 400), ("a\rb", 400), ("a\nb", 400)),
        *(("a b", 200), (" a", 200), ("100%", 200), ("%2z", 200)),
        *(("a ", 401), ("a  ", 401), ("a\u3000", 401)),
        *(("a%20", 401), ("%2e%2e", 401), ("a%E9%B1%80", 401), ("a%ff", 401), ("100%25", 401), ("a%2Fb", 401)),
    ],
)
async def test_an_id_that_no_path_can_hold_is_stored_and_found_by_query_or_self_link_only(
    container: ContainerProxy, raw: RawClient, item_id: str, status: int
) -> None:
    # In a batch, since the SDK itself refuses such ids on their own.
    [result] = await container.execute_item_batch([("create", ({"id": item_id, "pk": "a"},))], "a")
    path = f"/dbs/outbox/colls/data/docs/{quote(item_id, safe='')}"
    headers = {"x-ms-documentdb-partitionkey": '["a"]'}
    changes = {
        "GET": "",
        "PUT": json.dumps({"id": item_id, "pk": "a"}),
        "PATCH": json.dumps({"operations": [{"op": "set", "path": "/n", "value": 1}]}),
    }

    by_name = [
        await raw.send(method, path, headers=headers, encoded=True, body=body) for method, body in changes.items()
    ]
    by_link = await container.read_item(result["resourceBody"], "a")
    found = [item["id"] async for item in container.query_items("SELECT * FROM c", partition_key="a")]
    deleted = await raw.send("DELETE", path, headers=headers, encoded=True)
    left = [item["id"] async for item in container.query_items("SELECT * FROM c", partition_key="a")]

    assert ([answer.status for answer in by_name], by_link["id"], found) == ([status] * 3, item_id, [item_id])
    assert (deleted.status, left) == ((204, []) if status == 200 else (status, [item_id]))


async def test_a_web_server_refuses_a_path_with_a_tab_and_not_in_json(server: CosmosServer) -> None:
    async with aiohttp.ClientSession() as session:
        url = URL(f"{server.endpoint}dbs/outbox/colls/data/docs/a%09b", encoded=True)
        async with session.get(url) as answer:
            text = await answer.text()

    assert (answer.status, answer.content_type) == (400, "text/html")
    assert "Bad Request - Invalid URL" in text
    assert "Find the item by a query" in text


@pytest.mark.usefixtures("container")
async def test_an_id_that_is_401_in_a_path_can_be_posted(raw: RawClient) -> None:
    """itemIdEncoding.spec.ts of @azure/cosmos 4.3.0 creates each first."""
    headers = {"x-ms-documentdb-partitionkey": '["a"]'}
    path = "/dbs/outbox/colls/data/docs"

    created = await raw.send("POST", path, headers=headers, body='{"id":"a%20 ","pk":"a"}')
    upserted = await raw.send(
        "POST", path, headers=headers | {"x-ms-documentdb-is-upsert": "True"}, body='{"id":"a%20 ","pk":"a","n":1}'
    )
    read = await raw.send("GET", f"{path}/{quote('a%20 ', safe='')}", headers=headers, encoded=True)

    assert (created.status, upserted.status, upserted.body["n"]) == (201, 200, 1)
    assert (read.status, "Choose another id" in read.body["message"]) == (401, True)


@pytest.mark.usefixtures("container")
async def test_an_item_has_all_system_properties_whatever_a_client_excludes(raw: RawClient) -> None:
    headers = {"x-ms-documentdb-partitionkey": '["a"]', "x-ms-exclude-system-properties": "True"}
    path = "/dbs/outbox/colls/data/docs"

    created = await raw.send("POST", path, headers=headers, body='{"id":"1","pk":"a"}')
    read = await raw.send("GET", f"{path}/1", headers=headers)

    assert created.body == read.body
    assert read.body.keys() == {"id", "pk", "_rid", "_self", "_etag", "_attachments", "_ts"}


@pytest.mark.parametrize("path", ["what?so", "what%3Fso", "a?b=%C3%A4", "a%3Fb=%C3%A4"])
async def test_an_id_with_a_question_mark_is_found_escaped_or_not(
    container: ContainerProxy, raw: RawClient, path: str
) -> None:
    """.NET's client does not escape it, and signs the whole id."""
    item_id = unquote(path)
    await container.execute_item_batch([("create", ({"id": item_id, "pk": "a"},))], "a")

    answer = await raw.send(
        "GET",
        f"/dbs/outbox/colls/data/docs/{path}",
        headers={"x-ms-documentdb-partitionkey": '["a"]'},
        encoded=True,
    )

    assert (answer.status, answer.body["id"]) == (200, item_id)


async def test_control_characters_within_strings_need_no_escape_and_come_back_escaped(
    container: ContainerProxy, raw: RawClient
) -> None:
    answer = await raw.send(
        "POST",
        "/dbs/outbox/colls/data/docs",
        headers={"x-ms-documentdb-partitionkey": '["a"]'},
        body='{\n"id":"1",\t"pk":"a","text":"a\tb\x01"}',
    )

    assert (answer.status, answer.body["text"]) == (201, "a\tb\x01")
    assert r'"text":"a\tb\u0001"' in answer.text
    assert (await container.read_item("1", "a"))["text"] == "a\tb\x01"


async def test_an_id_of_the_greatest_length_and_odd_characters_is_usable(container: ContainerProxy) -> None:
    for item_id in ("x" * MAX_ID_BYTES, "100% & more+ü 中 '\"", "%2z", "a b"):
        await container.create_item({"id": item_id, "pk": "a"})
        assert (await container.read_item(item_id, "a"))["id"] == item_id
        await container.delete_item(item_id, "a")


async def test_an_item_may_have_two_megabytes_and_not_a_byte_more(container: ContainerProxy) -> None:
    frame = len('{"id":"1","pk":"a","text":""}')

    error = await refusal(
        container.create_item({"id": "1", "pk": "a", "text": "x" * (MAX_ITEM_BYTES - frame + 1)})
    )
    await container.create_item({"id": "1", "pk": "a", "text": "x" * (MAX_ITEM_BYTES - frame)})

    assert error.status_code == 413


async def test_nesting_beyond_the_limit_is_refused(container: ContainerProxy) -> None:
    def nested(levels: int) -> Any:
        return [nested(levels - 1)] if levels else 1

    await container.create_item({"id": "1", "pk": "a", "deep": nested(127)})
    error = await refusal(container.create_item({"id": "2", "pk": "a", "deep": nested(128)}))

    assert error.status_code == 400


async def test_a_partition_key_that_is_not_the_items_own_is_refused(container: ContainerProxy) -> None:
    with pytest.raises(CosmosBatchOperationError) as caught:
        await container.execute_item_batch([("create", ({"id": "2", "pk": "b"},))], "a")

    assert caught.value.operation_responses[0]["subStatusCode"] == 1001


@pytest.mark.parametrize("key", ["", "a", "Grüße", "k" * 2048, 0, 1, -1.5, 1e300, True, False])
async def test_every_kind_of_partition_key_addresses_its_item(container: ContainerProxy, key: Any) -> None:
    await container.create_item({"id": "1", "pk": key})

    assert (await container.read_item("1", key))["pk"] == key
    assert [item["id"] async for item in container.query_items("SELECT * FROM c", partition_key=key)] == ["1"]


async def test_undefined_and_null_are_two_partition_keys(container: ContainerProxy) -> None:
    await container.create_item({"id": "1"})
    await container.create_item({"id": "1", "pk": None})

    assert "pk" not in await container.read_item("1", NonePartitionKeyValue)
    assert (await container.read_item("1", NullPartitionKeyValue))["pk"] is None


async def test_one_and_one_point_zero_are_the_same_key_but_true_is_not(container: ContainerProxy) -> None:
    await container.create_item({"id": "1", "pk": 1})

    assert await container.read_item("1", 1.0)
    with pytest.raises(CosmosResourceNotFoundError):
        await container.read_item("1", True)


async def test_a_partition_key_beyond_its_limit_is_refused(container: ContainerProxy) -> None:
    assert (await refusal(container.create_item({"id": "1", "pk": "k" * 2049}))).status_code == 400


async def test_no_body_comes_back_where_none_is_wanted(container: ContainerProxy) -> None:
    assert not await container.create_item({"id": "1", "pk": "a"}, no_response=True)
    assert not await container.upsert_item({"id": "1", "pk": "a"}, no_response=True)
    assert await container.read_item("1", "a")


async def test_answers_carry_what_clients_rely_on(container: ContainerProxy) -> None:
    headers: list[Any] = []

    await container.create_item({"id": "1", "pk": "a"}, response_hook=lambda got, _: headers.append(got))

    (got,) = headers
    assert float(got["x-ms-request-charge"]) > 0
    assert got["x-ms-session-token"] == f"{got['x-ms-documentdb-partitionkeyrangeid']}:-1#1"
    assert got["x-ms-alt-content-path"] == "dbs/outbox/colls/data"
    assert got["etag"]
    assert got["x-ms-activity-id"]


async def test_an_answer_names_the_address_that_gave_it(container: ContainerProxy, server: CosmosServer) -> None:
    headers: list[Any] = []
    await container.create_item({"id": "1", "pk": "a"})

    await container.read_item("1", "a", response_hook=lambda got, _: headers.append(got))

    assert headers[0]["Content-Location"] == f"{server.endpoint}dbs/outbox/colls/data/docs/1/"


async def test_all_items_of_a_partition_key_can_be_deleted_at_once(container: ContainerProxy) -> None:
    for number in range(5):
        await container.create_item({"id": str(number), "pk": "a"})
        await container.create_item({"id": str(number), "pk": "b"})

    await container.delete_all_items_by_partition_key("a")

    assert [item["pk"] async for item in container.read_all_items()] == ["b"] * 5


async def test_an_item_of_a_dictionary_is_addressed_by_its_self_link(container: ContainerProxy) -> None:
    created = await container.create_item({"id": "1", "pk": "a"})

    assert await container.read_item(created, "a") == created
    await container.delete_item(created, "a")

    with pytest.raises(CosmosResourceNotFoundError):
        await container.read_item("1", "a")


async def test_unique_keys_hold_within_a_partition_key(client: CosmosClient) -> None:
    database = await client.create_database("db")
    policy: Any = {"uniqueKeys": [{"paths": ["/email"]}]}
    container = await database.create_container("unique", PartitionKey(path="/pk"), unique_key_policy=policy)
    first = await container.create_item({"id": "1", "pk": "a", "email": "x"})
    await container.create_item({"id": "1", "pk": "b", "email": "x"})

    with pytest.raises(CosmosResourceExistsError):
        await container.create_item({"id": "2", "pk": "a", "email": "x"})
    await container.replace_item("1", first | {"email": "y"})
    await container.create_item({"id": "2", "pk": "a", "email": "x"})
    await container.delete_item("1", "a")
    await container.create_item({"id": "3", "pk": "a", "email": "y"})


async def test_the_synchronous_client_works_as_well(server: CosmosServer) -> None:
    def use() -> list[str]:
        with SyncCosmosClient.from_connection_string(server.connection_string) as client:
            container = client.create_database("db").create_container("c", PartitionKey(path="/pk"))
            container.create_item({"id": "1", "pk": "a"})
            container.execute_item_batch([("create", ({"id": "2", "pk": "a"},)), ("delete", ("1",))], "a")
            container.patch_item("2", "a", [{"op": "set", "path": "/x", "value": 1}])
            count = list(container.query_items("SELECT VALUE COUNT(1) FROM c", enable_cross_partition_query=True))
            assert count == [1]
            return [item["id"] for item in container.query_items_change_feed(start_time="Beginning")]

    assert await asyncio.to_thread(use) == ["2"]


@pytest.mark.usefixtures("container")
async def test_replacing_what_is_not_there_is_404_whatever_key_the_document_has(raw: RawClient) -> None:
    headers = {"x-ms-documentdb-partitionkey": '["a"]'}
    body = '{"id": "nowhere", "pk": "other"}'

    assert (await raw.send("PUT", "/dbs/outbox/colls/data/docs/nowhere", headers=headers, body=body)).status == 404


async def test_a_replacement_without_a_body_is_404_for_what_is_not_there_and_400_otherwise(
    container: ContainerProxy, raw: RawClient
) -> None:
    """CosmosItemTests.cs of azure-cosmos-dotnet-v3 replaces a missing item with an empty stream."""
    await container.create_item({"id": "here", "pk": "a"})
    headers = {"x-ms-documentdb-partitionkey": '["a"]'}

    answers = [
        await raw.send("PUT", f"/dbs/outbox/colls/data/docs/{item_id}", headers=headers, body=b"")
        for item_id in ("nowhere", "here")
    ]

    assert [answer.status for answer in answers] == [404, 400]
