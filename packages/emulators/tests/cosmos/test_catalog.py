"""Databases, containers, throughput."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from azure.cosmos import PartitionKey, ThroughputProperties
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import CosmosHttpResponseError, CosmosResourceExistsError, CosmosResourceNotFoundError

from outbox_relay.emulators.cosmos.errors import BadRequest
from outbox_relay.emulators.cosmos.offers import Throughput
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.testing import ManualClock, RawClient
from packages.emulators.tests.cosmos.support import MakeContainer


async def test_databases_are_created_read_listed_queried_and_deleted(client: CosmosClient) -> None:
    for name in ("one", "two"):
        await client.create_database(name)

    assert (await client.get_database_client("one").read())["id"] == "one"
    assert {each["id"] async for each in client.list_databases()} == {"one", "two"}
    query = client.query_databases(
        "SELECT * FROM r WHERE r.id = @id", parameters=[{"name": "@id", "value": "two"}]
    )
    assert [each["id"] async for each in query] == ["two"]
    with pytest.raises(CosmosResourceExistsError):
        await client.create_database("one")

    await client.delete_database("one")

    with pytest.raises(CosmosResourceNotFoundError):
        await client.get_database_client("one").read()
    assert [each["id"] async for each in client.list_databases()] == ["two"]


async def test_containers_are_created_read_listed_queried_and_deleted(
    client: CosmosClient, make_container: MakeContainer
) -> None:
    await make_container("data", default_ttl=-1)
    await make_container("leases", "/id")
    database = client.get_database_client("outbox")

    data = await database.get_container_client("data").read()
    assert data["partitionKey"]["paths"] == ["/pk"]
    assert data["defaultTtl"] == -1
    assert data["indexingPolicy"]["indexingMode"] == "consistent"
    assert {each["id"] async for each in database.list_containers()} == {"data", "leases"}
    assert [each["id"] async for each in database.query_containers("SELECT * FROM c WHERE c.defaultTtl = -1")] == [
        "data"
    ]
    with pytest.raises(CosmosResourceExistsError):
        await make_container("data")

    await database.delete_container("data")

    with pytest.raises(CosmosResourceNotFoundError):
        await database.get_container_client("data").read()


@pytest.mark.usefixtures("container")
async def test_a_container_is_answered_with_the_path_of_its_database(raw: RawClient) -> None:
    database = json.loads((await raw.send("GET", "/dbs/outbox")).text)

    answer = await raw.send("GET", "/dbs/outbox/colls/data")

    assert answer.headers["x-ms-alt-content-path"] == "dbs/outbox"
    assert answer.headers["x-ms-content-path"] == database["_rid"]


async def test_a_partition_key_cannot_be_changed(client: CosmosClient, container: ContainerProxy) -> None:
    with pytest.raises(CosmosHttpResponseError) as caught:
        await client.get_database_client("outbox").replace_container(container, PartitionKey(path="/other"))

    assert caught.value.status_code == 400


@pytest.mark.parametrize(
    "options",
    [
        {"vector_embedding_policy": {"vectorEmbeddings": [{"path": "/v"}]}},
        {"full_text_policy": {"defaultLanguage": "en-US"}},
        {"analytical_storage_ttl": -1},
        {"computed_properties": [{"name": "x", "query": "SELECT VALUE 1 FROM c"}]},
        {"conflict_resolution_policy": {"mode": "Custom"}},
        {"indexing_policy": {"indexingMode": "sometimes"}},
        {"indexing_policy": {"compositeIndexes": [[{"path": "/alone"}]]}},
        {"unique_key_policy": {"uniqueKeys": [{"paths": []}]}},
        {"offer_throughput": 100},
        {"offer_throughput": 450},
    ],
)
async def test_what_is_not_served_is_refused_when_a_container_is_created(
    make_container: MakeContainer, options: dict[str, Any]
) -> None:
    with pytest.raises(CosmosHttpResponseError) as caught:
        await make_container("data", **options)

    assert caught.value.status_code == 400


@pytest.mark.usefixtures("container")
@pytest.mark.parametrize(
    ("paths", "refused"),
    [
        (["/id ds"], "/id ds"),
        (["/a-b"], "/a-b"),
        (["/a/"], "/a/"),
        (["/*"], "/*"),
        (["/a", "id"], "id"),
        (["/a/b_1"], None),
        (['/"a b"/c'], None),
    ],
)
async def test_a_partition_key_path_has_letters_digits_and_underscores_or_quotes(
    raw: RawClient, paths: list[str], refused: str | None
) -> None:
    """container.spec.ts of @azure/cosmos 4.3.0 has the first and the fifth."""
    key = {"paths": paths, "kind": "Hash" if len(paths) == 1 else "MultiHash", "version": 2}

    answer = await raw.send("POST", "/dbs/outbox/colls", body=json.dumps({"id": "c", "partitionKey": key}))

    if refused is None:
        assert answer.status == 201
    else:
        said = f"The partition key component definition path '{refused}' could not be accepted"
        assert (answer.status, said in answer.body["message"]) == (400, True)


TIMES: dict[str, Any] = {"id": "times", "partitionKey": {"paths": ["/pk"], "kind": "Hash"}, "defaultTtl": 10}


@pytest.mark.usefixtures("container")
async def test_a_path_of_times_to_live_is_kept_returned_and_removed(raw: RawClient) -> None:
    """CosmosContainerTests.cs of azure-cosmos-dotnet-v3 does the same."""
    with_path = TIMES | {"ttlPropertyPath": "/created"}
    without_default = {name: value for name, value in with_path.items() if name != "defaultTtl"}
    path = "/dbs/outbox/colls/times"

    refused = await raw.send("POST", "/dbs/outbox/colls", body=json.dumps(without_default))
    created = await raw.send("POST", "/dbs/outbox/colls", body=json.dumps(with_path))
    read = await raw.send("GET", path)
    removed = await raw.send("PUT", path, body=json.dumps(TIMES))
    added = await raw.send("PUT", path, body=json.dumps(with_path))
    malformed = await raw.send("PUT", path, body=json.dumps(TIMES | {"ttlPropertyPath": "created"}))

    answers = [created, read, removed, added]
    assert [each.body.get("ttlPropertyPath") for each in answers] == ["/created", "/created", None, "/created"]
    assert [each.body["defaultTtl"] for each in answers] == [10] * 4
    assert (malformed.status, "'created' is invalid" in malformed.body["message"]) == (400, True)
    assert (refused.status, "'ttlPropertyPath' needs" in refused.body["message"]) == (400, True)


@pytest.mark.usefixtures("container")
async def test_items_live_from_the_time_at_the_path_of_their_container(
    client: CosmosClient, raw: RawClient, clock: ManualClock
) -> None:
    with_path = TIMES | {"ttlPropertyPath": "/at/created"}
    await raw.send("POST", "/dbs/outbox/colls", body=json.dumps(with_path))
    times = client.get_database_client("outbox").get_container_client("times")
    now = int(clock.now)
    items: list[dict[str, Any]] = [
        {"id": "old", "at": {"created": now - 5}},
        {"id": "own", "at": {"created": now - 5}, "ttl": 20},
        {"id": "later", "at": {"created": now + 100.5}},
        {"id": "text", "at": {"created": str(now + 100)}},
        {"id": "too large", "at": {"created": 1e308}},
        {"id": "negative", "at": {"created": -1}},
        {"id": "without"},
    ]
    for item in items:
        await times.create_item(item | {"pk": "a"})
    found = []
    for seconds in (4, 1, 5, 10):
        clock.advance(seconds)
        found.append(sorted([item["id"] async for item in times.read_all_items()]))

    await raw.send("PUT", "/dbs/outbox/colls/times", body=json.dumps(TIMES))

    assert found == [
        ["later", "negative", "old", "own", "text", "too large", "without"],
        ["later", "negative", "own", "text", "too large", "without"],
        ["later", "own"],
        ["later"],
    ]
    assert [item["id"] async for item in times.read_all_items()] == []


@pytest.mark.parametrize("name", ["a/b", "a?", "x" * 256, "blank "])
async def test_an_invalid_name_is_refused(server: CosmosServer, name: str) -> None:
    with pytest.raises(BadRequest):
        server.account.catalog.create_database(name)


async def test_an_offer_that_is_replaced_keeps_its_id(container: ContainerProxy, raw: RawClient) -> None:
    [offer] = (await raw.send("GET", "/offers")).body["Offers"]
    path = f"/offers/{offer['id']}"

    wrong = await raw.send("PUT", path, body=json.dumps({**offer, "id": "other"}))
    same = await raw.send("PUT", path, body=json.dumps(offer))

    assert (wrong.status, same.status) == (400, 200)


async def test_throughput_is_kept_and_given_back(make_container: MakeContainer) -> None:
    container = await make_container("fixed", offer_throughput=1000)
    default = await make_container("default")
    scaled = await make_container("scaled", offer_throughput=ThroughputProperties(auto_scale_max_throughput=4000))

    assert (await container.get_throughput()).offer_throughput == 1000
    assert (await default.get_throughput()).offer_throughput == 400
    assert (await scaled.get_throughput()).auto_scale_max_throughput == 4000
    assert (await container.replace_throughput(2000)).offer_throughput == 2000
    with pytest.raises(CosmosHttpResponseError):
        await container.replace_throughput(150)


async def test_containers_of_a_database_with_throughput_have_none_of_their_own(
    client: CosmosClient, raw: RawClient
) -> None:
    database = await client.create_database("shared", offer_throughput=600)
    await database.create_container("c", PartitionKey(path="/pk"))

    assert (await database.get_throughput()).offer_throughput == 600
    offers = (await raw.send("GET", "/offers")).body["Offers"]
    assert [offer["resource"] for offer in offers] == [(await database.read())["_self"]]


async def test_hierarchical_partition_keys_address_items_and_prefixes(client: CosmosClient) -> None:
    database = await client.create_database("db")
    container = await database.create_container("c", PartitionKey(path=["/tenant", "/user"], kind="MultiHash"))
    for tenant in ("t1", "t2"):
        for user in ("u1", "u2"):
            await container.create_item({"id": "1", "tenant": tenant, "user": user})

    assert (await container.read_item("1", ["t1", "u2"]))["user"] == "u2"
    found = [item["user"] async for item in container.query_items("SELECT * FROM c", partition_key=["t1"])]
    assert sorted(found) == ["u1", "u2"]
    in_query = container.query_items("SELECT VALUE c.user FROM c WHERE c.tenant = 't2' ORDER BY c.user DESC")
    users: list[Any] = [user async for user in in_query]
    assert users == ["u2", "u1"]


async def test_the_items_of_a_container_are_counted(container: ContainerProxy) -> None:
    await container.create_item({"id": "1", "pk": "a"})

    properties = await container.read(populate_partition_key_range_statistics=True, populate_quota_info=True)

    assert sum(each["documentCount"] for each in properties["statistics"]) == 1
    assert "documentsCount=1" in container.client_connection.last_response_headers["x-ms-resource-usage"]


async def test_there_are_no_conflicts(container: ContainerProxy) -> None:
    assert [each async for each in container.list_conflicts()] == []
    with pytest.raises(CosmosResourceNotFoundError):
        await container.get_conflict("1", "a")


async def test_a_thousand_fresh_containers_have_sound_resource_ids() -> None:
    # As ResourceId.cs of azure-cosmos-dotnet-v3 reads them: four bytes of database, then four whose first bit
    # distinguishes a container from a user, then eight of an item, whose last byte marks it in its upper half.
    async with CosmosServer(physical_partitions=1) as server:
        catalog = server.account.catalog
        databases = [catalog.create_database(f"db{number}") for number in range(10)]
        rids = []
        for database in databases:
            for number in range(100):
                definition = {"id": f"c{number}", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}}
                container = catalog.create_container(database, definition)
                raw = base64.b64decode(container.rid, b"+-", validate=True)
                rids.append(raw)
                assert len(raw) == 8
                assert raw[4] & 0x80
                assert raw[:4] == base64.b64decode(database.rid, b"+-", validate=True)
        async with CosmosClient.from_connection_string(server.connection_string) as client:
            last = client.get_database_client("db9").get_container_client("c99")
            item = await last.create_item({"id": "1", "pk": "a"})

    assert len(set(rids)) == 1_000
    raw = base64.b64decode(item["_rid"], b"+-", validate=True)
    assert len(raw) == 16
    assert raw[:8] == rids[-1]
    assert raw[15] >> 4 == 0


async def test_the_account_returns_the_limits_of_its_query_engine(raw: RawClient) -> None:
    engine = json.loads((await raw.send("GET", "/")).body["queryEngineConfiguration"])

    assert engine["maxSqlQueryInputLength"] > 0
    assert engine["sqlAllowNonFiniteNumbers"] is False


@pytest.mark.parametrize("resource", ["/dbs", "/dbs/db0/colls", "/offers"])
async def test_a_listing_comes_in_pages_of_the_requested_size(
    server: CosmosServer, raw: RawClient, resource: str
) -> None:
    for number in range(5):
        server.account.catalog.create_database(f"db{number}")
    first = server.account.catalog.databases["db0"]
    for number in range(5):
        definition = {"id": f"c{number}", "partitionKey": {"paths": ["/pk"]}}
        server.account.create_container(first, definition, Throughput.default())
    pages, headers = [], {"x-ms-max-item-count": "2"}
    while True:
        answer = await raw.send("GET", resource, headers=headers)
        [name] = [key for key, value in answer.body.items() if isinstance(value, list)]
        pages.append([each["_rid"] for each in answer.body[name]])
        if "x-ms-continuation" not in answer.headers:
            break
        headers["x-ms-continuation"] = answer.headers["x-ms-continuation"]

    assert [len(page) for page in pages] == [2, 2, 1]
    assert len({rid for page in pages for rid in page}) == 5
    assert (await raw.send("GET", resource, headers={"x-ms-continuation": "é"})).status == 400


async def test_a_container_has_as_many_physical_partitions_as_its_throughput_needs() -> None:
    """At first one for each 60 % of a partition's maximum, with autoscale and when it grows for each maximum."""
    async with (
        CosmosServer(physical_partitions=1, ru_per_partition=1000) as server,
        CosmosClient.from_connection_string(server.connection_string) as client,
    ):
        database = await client.create_database("outbox")
        container = await database.create_container("data", PartitionKey("/pk"), offer_throughput=1700)
        assert len([each async for each in container.read_feed_ranges()]) == 3
        autoscale = ThroughputProperties(auto_scale_max_throughput=2000)
        scaled = await database.create_container("scaled", PartitionKey("/pk"), offer_throughput=autoscale)
        assert len([each async for each in scaled.read_feed_ranges()]) == 2

        await container.replace_throughput(5000)

        partitions = server.account.catalog.container("outbox", "data").partitions
        assert len(partitions) == 5
        assert sorted(len(each.parents) for each in partitions) == [0, 1, 1, 1, 1]
