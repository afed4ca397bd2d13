"""A physical partition is split on request: reads continue in its children, and nothing is lost or repeated."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import CosmosHttpResponseError

from outbox_relay.emulators.cosmos.account import Account
from outbox_relay.emulators.cosmos.documents import Document
from outbox_relay.emulators.cosmos.jsontext import Part
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.testing import Answer, RawClient
from packages.emulators.tests.cosmos.support import MakeContainer

COLL = "/dbs/outbox/colls/data"
DOCS = f"{COLL}/docs"
FEED = {"a-im": "Incremental Feed", "x-ms-max-item-count": "10"}

Split = Callable[..., Awaitable[Answer]]


@pytest.fixture
def split(server: CosmosServer) -> Split:
    """Splits the partition with this range id."""

    async def ask(range_id: str, container: str = "data", body: Any = None) -> Answer:
        wanted = {"database": "outbox", "container": container, "range": range_id}
        content = json.dumps(wanted if body is None else body)
        async with (
            aiohttp.ClientSession(server.endpoint) as session,
            session.post("/admin/split", data=content) as answer,
        ):
            return Answer(answer.status, answer.headers, await answer.text())

    return ask


async def write(container: ContainerProxy, start: int, count: int = 50) -> set[str]:
    for number in range(start, start + count):
        await container.upsert_item({"id": str(number), "pk": str(number)})
    return {str(number) for number in range(start, start + count)}


def fill(account: Account, count: int = 200) -> set[str]:
    """Puts items into the container without a request for each."""
    container = account.catalog.container("outbox", "data")
    for number in range(count):
        value = {"id": str(number), "pk": str(number)}
        with account.items.commit(container, container.partition_key.of_document(value)) as commit:
            commit.insert(Document.of(Part(value, json.dumps(value))))
    return {str(number) for number in range(count)}


async def ranges(raw: RawClient) -> list[dict[str, Any]]:
    answer = await raw.send("GET", f"{COLL}/pkranges")
    return list(answer.body["PartitionKeyRanges"])


async def test_five_partitions_end_where_those_of_the_service_do(
    make_container: MakeContainer, raw: RawClient
) -> None:
    await make_container(offer_throughput=30_000)

    ends = [each["maxExclusive"] for each in await ranges(raw)]

    assert ends == ["0" + "C" * 31, "1" + "9" * 30 + "8", "2" + "6" * 30 + "4", "3" * 31 + "0", "FF"]


async def drain(raw: RawClient, range_id: str, token: str | None) -> tuple[list[dict[str, Any]], str]:
    """All changes of a partition after a position, and the new position."""
    items: list[dict[str, Any]] = []
    while True:
        headers = FEED | {"x-ms-documentdb-partitionkeyrangeid": range_id}
        if token is not None:
            headers["if-none-match"] = token
        answer = await raw.send("GET", DOCS, headers=headers)
        token = answer.headers["etag"]
        if answer.status == 304:
            return items, token
        assert answer.status == 200
        items += answer.body["Documents"]


async def test_the_children_replace_the_parent_and_name_it(
    container: ContainerProxy, raw: RawClient, split: Split
) -> None:
    await write(container, 0)
    before = {each["id"]: each for each in await ranges(raw)}
    etag = (await raw.send("GET", f"{COLL}/pkranges")).headers["etag"]

    answer = await split("1")
    assert (answer.status, answer.body) == (200, {"split": "1", "into": ["4", "5"]})
    answer = await split("5")

    after = {each["id"]: each for each in await ranges(raw)}
    assert list(after) == ["0", "4", "6", "7", "2", "3"]
    assert [after[each]["parents"] for each in after] == [[], ["1"], ["1", "5"], ["1", "5"], [], []]
    assert after["4"]["minInclusive"] == before["1"]["minInclusive"]
    assert after["4"]["maxExclusive"] == after["6"]["minInclusive"]
    assert after["6"]["maxExclusive"] == after["7"]["minInclusive"]
    assert after["7"]["maxExclusive"] == before["1"]["maxExclusive"]
    again = await raw.send("GET", f"{COLL}/pkranges", headers={"a-im": "Incremental Feed", "if-none-match": etag})
    assert again.status == 200


@pytest.mark.usefixtures("container")
@pytest.mark.parametrize("kind", ["change feed", "read feed", "query"])
async def test_a_read_of_the_parent_is_answered_with_gone(raw: RawClient, split: Split, kind: str) -> None:
    await split("0")
    headers = {"x-ms-documentdb-partitionkeyrangeid": "0", "if-none-match": '"0"'}

    if kind == "query":
        headers |= {"content-type": "application/query+json", "x-ms-documentdb-isquery": "True"}
        answer = await raw.send("POST", DOCS, headers=headers, body='{"query":"SELECT * FROM c"}')
    else:
        answer = await raw.send("GET", DOCS, headers=headers | (FEED if kind == "change feed" else {}))

    assert (answer.status, answer.headers["x-ms-substatus"]) == (410, "1002")


@pytest.mark.parametrize("edges", [1, None])
async def test_the_change_feed_goes_on_in_the_children_where_it_stood_in_the_parent(
    server: CosmosServer, container: ContainerProxy, raw: RawClient, split: Split
) -> None:
    first = fill(server.account)
    tokens = {each["id"]: await drain(raw, each["id"], None) for each in await ranges(raw)}
    assert {item["id"] for items, _ in tokens.values() for item in items} == first
    unread = await write(container, 200)

    await split("2")
    later = await write(container, 400)

    lsns = [item["_lsn"] for item in tokens["2"][0]]
    found: list[str] = []
    for each in await ranges(raw):
        items, _ = await drain(raw, each["id"], tokens[(each["parents"] or [each["id"]])[0]][1])
        assert [item["_lsn"] for item in items] == sorted(item["_lsn"] for item in items)
        if each["parents"]:
            assert items
            assert min(item["_lsn"] for item in items) > max(lsns)
        found += [item["id"] for item in items]
    assert sorted(found) == sorted(unread | later)


async def test_the_sdks_own_reader_survives_a_split(
    server: CosmosServer, container: ContainerProxy, split: Split
) -> None:
    first = fill(server.account)
    seen = [item["id"] async for item in container.query_items_change_feed(start_time="Beginning")]
    token = container.client_connection.last_response_headers["etag"]
    for range_id in "0123":
        await split(range_id)
    second = await write(container, 200)

    seen += [item["id"] async for item in container.query_items_change_feed(continuation=token)]

    assert sorted(seen) == sorted(first | second)


async def test_items_are_found_queried_listed_and_counted_as_before(
    container: ContainerProxy, raw: RawClient, split: Split, server: CosmosServer
) -> None:
    ids = fill(server.account, 100)
    rids = {item["id"]: item["_rid"] async for item in container.read_all_items()}
    for range_id in ("0", "3", "4"):
        assert (await split(range_id)).status == 200

    ids |= await write(container, 200, 20)

    for item_id in ids:
        assert (await container.read_item(item_id, item_id))["id"] == item_id
    listed = {item["id"]: item["_rid"] async for item in container.read_all_items(max_item_count=7)}
    assert set(listed) == ids
    assert rids.items() <= listed.items()
    assert {item["id"] async for item in container.query_items("SELECT * FROM c", max_item_count=7)} == ids
    ordered = container.query_items("SELECT * FROM c ORDER BY c.id", max_item_count=7)
    assert [item["id"] async for item in ordered] == sorted(ids)
    async with aiohttp.ClientSession(server.endpoint) as session, session.get("/admin/counts") as counts:
        assert await counts.json() == {"outbox": {"data": 120}}
    await container.delete_item("7", "7")
    assert {item["id"] async for item in container.query_items("SELECT * FROM c")} == ids - {"7"}


async def test_session_tokens_of_the_parent_are_good_for_its_children(
    container: ContainerProxy, raw: RawClient, split: Split
) -> None:
    await write(container, 0)
    key = {"x-ms-documentdb-partitionkey": '["1"]'}
    answer = await raw.send("GET", f"{DOCS}/1", headers=key)
    range_id, lsn = answer.headers["x-ms-documentdb-partitionkeyrangeid"], int(answer.headers["lsn"])
    await split(range_id)

    good = await raw.send("GET", f"{DOCS}/1", headers=key | {"x-ms-session-token": f"{range_id}:-1#{lsn}"})
    ahead = await raw.send("GET", f"{DOCS}/1", headers=key | {"x-ms-session-token": f"{range_id}:-1#{lsn + 1}"})

    assert (good.status, ahead.status) == (200, 404)
    assert good.headers["x-ms-documentdb-partitionkeyrangeid"] in ("4", "5")


async def test_the_listing_of_a_container_cannot_go_on_within_a_partition_that_was_split(
    container: ContainerProxy, raw: RawClient, split: Split
) -> None:
    await write(container, 0)
    first = await raw.send("GET", DOCS, headers={"x-ms-max-item-count": "5"})
    await split("0")

    answer = await raw.send("GET", DOCS, headers={"x-ms-continuation": first.headers["x-ms-continuation"]})

    assert (answer.status, answer.headers["x-ms-substatus"]) == (410, "1002")


async def test_unique_keys_still_hold_after_a_split(make_container: MakeContainer, split: Split) -> None:
    policy: Any = {"uniqueKeys": [{"paths": ["/email"]}]}
    container = await make_container("unique", unique_key_policy=policy)
    for number in range(20):
        await container.create_item({"id": "1", "pk": str(number), "email": "x"})
    for range_id in "0123":
        await split(range_id, "unique")

    for number in range(20):
        item = {"id": "2", "pk": str(number), "email": "x"}
        with pytest.raises(CosmosHttpResponseError, match=r"Conflict"):
            await container.create_item(item)


@pytest.mark.parametrize("version", [1, 2])
async def test_splits_outlive_a_restart_and_halve_the_items(tmp_path: Path, version: int) -> None:
    file = tmp_path / "account.db"
    async with (
        CosmosServer(database=file, physical_partitions=1) as server,
        CosmosClient.from_connection_string(server.connection_string) as client,
    ):
        database = await client.create_database("outbox")
        await database.create_container("data", PartitionKey(path="/pk", version=version))
        ids = fill(server.account)
        for range_id in ("0", "1", "4"):
            server.account.split("outbox", "data", range_id)
        before = server.account.catalog.container("outbox", "data").partitions

    async with (
        CosmosServer(database=file) as server,
        CosmosClient.from_connection_string(server.connection_string) as client,
    ):
        after = server.account.catalog.container("outbox", "data").partitions
        assert after == before
        assert [each.id for each in after] == ["3", "5", "6", "2"]
        container = client.get_database_client("outbox").get_container_client("data")
        assert {item["id"] async for item in container.read_all_items()} == ids
        counts = [
            server.account.storage.execute(
                "SELECT count(*) FROM items WHERE partition=?", (each.number,)
            ).fetchone()[0]
            for each in after
        ]
        shares = (50, 25, 25, 100)
        assert all(abs(count - share) < 35 for count, share in zip(counts, shares, strict=True)), counts
        assert min(counts) > 5


@pytest.mark.usefixtures("container")
@pytest.mark.parametrize(
    ("arguments", "status"),
    [(("9",), 410), (("0", "none"), 404), (("0", "data", {"database": "outbox"}), 400), (("0", "data", []), 400)],
)
async def test_a_split_that_cannot_be_is_refused(split: Split, arguments: tuple[Any, ...], status: int) -> None:
    answer = await split(*arguments)

    assert answer.status == status
    assert answer.body["error"]


@pytest.mark.usefixtures("container")
async def test_splits_are_counted(server: CosmosServer, split: Split) -> None:
    await split("0")
    await split("4")

    async with aiohttp.ClientSession(server.endpoint) as session, session.get("/admin/edges") as answer:
        assert (await answer.json())["edges"] == {"partition-split": 2}
