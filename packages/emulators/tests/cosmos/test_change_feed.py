"""The change feed in latest-version mode, and items and containers with a time to live."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import CosmosHttpResponseError, CosmosResourceNotFoundError

from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.testing import ManualClock, RawClient
from packages.emulators.tests.cosmos.support import MakeContainer


async def read(container: ContainerProxy, **options: Any) -> list[dict[str, Any]]:
    return [item async for item in container.query_items_change_feed(**options)]


async def read_pages(container: ContainerProxy, **options: Any) -> list[list[str]]:
    pages = container.query_items_change_feed(**options).by_page()
    return [[item["id"] async for item in page] async for page in pages]


def continuation_of(container: ContainerProxy) -> str:
    token: str = container.client_connection.last_response_headers["etag"]
    return token


async def create(container: ContainerProxy, *ids: str, pk: str = "a") -> None:
    for item_id in ids:
        await container.create_item({"id": item_id, "pk": pk})


async def batch(container: ContainerProxy, *ids: str, pk: str = "a") -> None:
    await container.execute_item_batch([("create", ({"id": item_id, "pk": pk},)) for item_id in ids], pk)


async def test_the_feed_from_the_beginning_holds_everything_in_commit_order(container: ContainerProxy) -> None:
    await create(container, "1", "2", "3")

    feed = await read(container, start_time="Beginning", partition_key="a")

    assert [item["id"] for item in feed] == ["1", "2", "3"]
    assert [item["_lsn"] for item in feed] == [1, 2, 3]


async def test_an_item_changed_twice_comes_once_at_its_latest_place(container: ContainerProxy) -> None:
    await create(container, "1", "2", "3")
    await container.upsert_item({"id": "1", "pk": "a", "version": 2})
    await container.upsert_item({"id": "1", "pk": "a", "version": 3})

    feed = await read(container, start_time="Beginning", partition_key="a")

    assert [(item["id"], item.get("version")) for item in feed] == [("2", None), ("3", None), ("1", 3)]


async def test_deleted_items_vanish(container: ContainerProxy) -> None:
    await create(container, "1", "2")
    await container.delete_item("1", "a")

    assert [item["id"] for item in await read(container, start_time="Beginning")] == ["2"]


async def test_a_feed_from_now_holds_only_what_comes_later(container: ContainerProxy) -> None:
    await create(container, "1")
    assert await read(container, start_time="Now") == []
    token = continuation_of(container)

    await create(container, "2")

    assert [item["id"] for item in await read(container, continuation=token)] == ["2"]


async def test_a_feed_from_a_point_in_time_holds_what_changed_since(
    container: ContainerProxy, clock: ManualClock
) -> None:
    await create(container, "1")
    clock.advance(100)
    since = datetime.fromtimestamp(clock.now, UTC)
    await create(container, "2")
    clock.advance(100)
    await create(container, "3", pk="b")

    before = since - timedelta(seconds=1)
    assert sorted(item["id"] for item in await read(container, start_time=before)) == ["2", "3"]
    assert [item["id"] for item in await read(container, start_time=before, partition_key="a")] == ["2"]
    assert [item["id"] for item in await read(container, start_time=since)] == ["3"]
    assert await read(container, start_time=since + timedelta(hours=1)) == []


async def test_every_item_is_in_exactly_one_feed_range(container: ContainerProxy) -> None:
    ids = [str(number) for number in range(80)]
    for item_id in ids:
        await create(container, item_id, pk=item_id)

    ranges = [feed_range async for feed_range in container.read_feed_ranges()]
    feeds = [await read(container, feed_range=feed_range, start_time="Beginning") for feed_range in ranges]

    assert len(ranges) == 4
    assert sorted(item["id"] for feed in feeds for item in feed) == sorted(ids)
    assert all(len(feed) > 8 for feed in feeds)
    assert sorted(item["id"] for item in await read(container, start_time="Beginning")) == sorted(ids)


async def test_the_feed_range_of_a_partition_key_holds_it_and_nothing_else(container: ContainerProxy) -> None:
    for pk in range(10):
        await create(container, f"{pk}", pk=f"{pk}")

    feed_range = await container.feed_range_from_partition_key("7")

    assert [item["id"] for item in await read(container, feed_range=feed_range, start_time="Beginning")] == ["7"]


@pytest.mark.parametrize("edges", [None])
async def test_pages_have_the_requested_size_and_continue_where_they_ended(container: ContainerProxy) -> None:
    await create(container, *"12345")

    pages = await read_pages(container, start_time="Beginning", partition_key="a", max_item_count=2)

    assert pages == [["1", "2"], ["3", "4"], ["5"]]


@pytest.mark.parametrize("edges", [None])
async def test_as_documented_a_batch_is_never_cut_by_the_end_of_a_page(container: ContainerProxy) -> None:
    await create(container, "1")
    await batch(container, "2", "3", "4", "5")
    await batch(container, "6", "7")

    pages = await read_pages(container, start_time="Beginning", partition_key="a", max_item_count=2)

    assert pages == [["1", "2", "3", "4", "5"], ["6", "7"]]


async def test_a_continuation_loses_nothing_when_a_batch_is_larger_than_a_page(container: ContainerProxy) -> None:
    for start in range(0, 300, 100):
        await batch(container, *(str(number) for number in range(start, start + 100)))

    seen: list[str] = []
    token = None
    while True:
        options: dict[str, Any] = {"continuation": token} if token else {"start_time": "Beginning"}
        pages = container.query_items_change_feed(max_item_count=7, **options).by_page()
        ids = [item["id"] async for page in pages async for item in page]
        token = continuation_of(container)
        if not ids:
            break
        seen += ids

    for start in range(0, 300, 100):
        wanted = [str(number) for number in range(start, start + 100)]
        assert sorted(seen[start : start + 100], key=int) == wanted
    assert len(seen) == 300


async def test_a_drained_feed_answers_not_modified_and_its_token_stays_good(container: ContainerProxy) -> None:
    await create(container, "1")
    await read(container, start_time="Beginning")
    token = continuation_of(container)

    for _ in range(3):
        assert await read(container, continuation=token) == []
        token = continuation_of(container)
    await create(container, "2")

    assert [item["id"] for item in await read(container, continuation=token)] == ["2"]


async def test_a_reader_at_the_tip_misses_nothing_while_writers_write(container: ContainerProxy) -> None:
    keys, writes = 6, 12
    done = asyncio.Event()

    async def write(key: int) -> None:
        for number in range(writes):
            await batch(container, f"{key}-{number}", f"{key}-{number}-event", pk=str(key))

    async def follow() -> list[dict[str, Any]]:
        seen: list[dict[str, Any]] = []
        token = None
        while True:
            finished = done.is_set()
            options: dict[str, Any] = {"continuation": token} if token else {"start_time": "Beginning"}
            found = [item async for item in container.query_items_change_feed(max_item_count=5, **options)]
            token = continuation_of(container)
            seen += found
            if finished and not found:
                return seen

    async with asyncio.TaskGroup() as group:
        reader = group.create_task(follow())
        await asyncio.gather(*(write(key) for key in range(keys)))
        done.set()

    for key in range(keys):
        expected = [{f"{key}-{number}", f"{key}-{number}-event"} for number in range(writes)]
        found = [item["id"] for item in reader.result() if item["pk"] == str(key)]
        assert [set(pair) for pair in zip(found[::2], found[1::2], strict=True)] == expected


async def test_expired_items_are_not_in_the_feed(make_container: MakeContainer, clock: ManualClock) -> None:
    container = await make_container("ttl", default_ttl=-1)
    await container.create_item({"id": "1", "pk": "a", "ttl": 10})
    await create(container, "2")

    clock.advance(10)

    assert [item["id"] for item in await read(container, start_time="Beginning")] == ["2"]


async def test_all_versions_and_deletes_is_refused_rather_than_faked(container: ContainerProxy) -> None:
    with pytest.raises(CosmosHttpResponseError) as caught:
        await read(container, mode="AllVersionsAndDeletes")

    assert caught.value.status_code == 400


async def test_reading_by_partition_key_range_id_is_refused_where_it_cannot_be_known(
    container: ContainerProxy,
) -> None:
    # The SDK does not send the id, so with several physical partitions the server cannot know which one is meant.
    with pytest.raises(CosmosHttpResponseError) as caught:
        await read(container, partition_key_range_id="0", start_time="Beginning")

    assert caught.value.status_code == 400


async def test_a_change_is_beside_its_metadata_where_the_reader_asks_for_that() -> None:
    async with (
        CosmosServer(physical_partitions=1) as server,
        CosmosClient.from_connection_string(server.connection_string) as client,
        aiohttp.ClientSession() as session,
    ):
        database = await client.create_database("db")
        container = await database.create_container("c", PartitionKey(path="/pk"))
        await create(container, "1")
        raw = RawClient(session, server.endpoint, server.key)

        answer = await raw.send(
            "GET",
            "/dbs/db/colls/c/docs",
            headers={
                "A-IM": "Incremental Feed",
                "x-ms-documentdb-partitionkeyrangeid": "0",
                "x-ms-cosmos-changefeed-wire-format-version": "2021-09-15",
            },
        )

        (change,) = json.loads(answer.text)["Documents"]
        assert change["current"]["id"] == "1"
        assert change["metadata"] == {"lsn": change["current"]["_lsn"], "crts": change["current"]["_ts"]}


async def test_with_one_physical_partition_its_id_need_not_be_known() -> None:
    async with (
        CosmosServer(physical_partitions=1) as server,
        CosmosClient.from_connection_string(server.connection_string) as client,
    ):
        database = await client.create_database("db")
        container = await database.create_container("c", PartitionKey(path="/pk"))
        await create(container, "1")

        feed = await read(container, partition_key_range_id="0", start_time="Beginning")
        token = continuation_of(container)
        await create(container, "2")

        assert [item["id"] for item in feed] == ["1"]
        assert [item["id"] for item in await read(container, partition_key_range_id="0", continuation=token)] == [
            "2"
        ]


@pytest.mark.usefixtures("container")
@pytest.mark.parametrize(
    ("headers", "status", "substatus"),
    [
        ({"If-None-Match": '"nonsense"', "x-ms-documentdb-partitionkeyrangeid": "0"}, 400, "0"),
        ({"If-Modified-Since": "yesterday", "x-ms-documentdb-partitionkeyrangeid": "0"}, 400, "0"),
        ({"x-ms-max-item-count": "0", "x-ms-documentdb-partitionkeyrangeid": "0"}, 400, "0"),
        ({"x-ms-documentdb-partitionkeyrangeid": "99"}, 410, "1002"),
        ({"x-ms-documentdb-partitionkeyrangeid": "0"}, 304, None),
    ],
)
async def test_a_malformed_read_is_refused(
    raw: RawClient, headers: dict[str, str], status: int, substatus: str | None
) -> None:
    answer = await raw.send("GET", "/dbs/outbox/colls/data/docs", headers={"A-IM": "Incremental Feed", **headers})

    assert (answer.status, answer.headers.get("x-ms-substatus")) == (status, substatus)
    # The .NET SDK reads it of a page without items, too.
    assert answer.headers.get("x-ms-item-count") == ("0" if status == 304 else None)


# Time to live of items and containers


async def ids_in(container: ContainerProxy) -> list[str]:
    return sorted([item["id"] async for item in container.read_all_items()])


async def test_items_live_as_long_as_they_say_else_as_long_as_their_container(
    make_container: MakeContainer, clock: ManualClock
) -> None:
    container = await make_container("ttl", default_ttl=100)
    await container.create_item({"id": "default", "pk": "a"})
    await container.create_item({"id": "short", "pk": "a", "ttl": 10})
    await container.create_item({"id": "long", "pk": "a", "ttl": 1000})
    await container.create_item({"id": "forever", "pk": "a", "ttl": -1})

    clock.advance(9)
    assert await ids_in(container) == ["default", "forever", "long", "short"]
    clock.advance(1)
    assert await ids_in(container) == ["default", "forever", "long"]
    clock.advance(90)
    assert await ids_in(container) == ["forever", "long"]
    clock.advance(10_000)
    assert await ids_in(container) == ["forever"]


async def test_without_a_container_setting_an_items_ttl_is_ignored(
    make_container: MakeContainer, clock: ManualClock
) -> None:
    container = await make_container("off")
    await container.create_item({"id": "1", "pk": "a", "ttl": 1})

    clock.advance(1000)

    assert await ids_in(container) == ["1"]


async def test_an_expired_item_is_gone_for_every_operation(
    make_container: MakeContainer, clock: ManualClock
) -> None:
    container = await make_container("ttl", default_ttl=-1)
    await container.create_item({"id": "1", "pk": "a", "ttl": 5})
    clock.advance(5)

    for operation in (
        container.read_item("1", "a"),
        container.delete_item("1", "a"),
        container.patch_item("1", "a", [{"op": "add", "path": "/n", "value": 1}]),
    ):
        with pytest.raises(CosmosResourceNotFoundError):
            await operation
    counted: list[Any] = [
        n async for n in container.query_items("SELECT VALUE COUNT(1) FROM c", partition_key="a")
    ]
    assert counted == [0]


async def test_the_id_of_an_expired_item_is_free_again(make_container: MakeContainer, clock: ManualClock) -> None:
    container = await make_container("ttl", default_ttl=-1)
    first = await container.create_item({"id": "1", "pk": "a", "ttl": 5})
    clock.advance(5)

    second = await container.create_item({"id": "1", "pk": "a"})

    assert second["_rid"] != first["_rid"]
    assert await container.read_item("1", "a") == second


async def test_writing_an_item_again_starts_its_time_anew(
    make_container: MakeContainer, clock: ManualClock
) -> None:
    container = await make_container("ttl", default_ttl=10)
    await container.create_item({"id": "1", "pk": "a"})
    clock.advance(8)
    await container.upsert_item({"id": "1", "pk": "a"})
    clock.advance(8)

    assert await ids_in(container) == ["1"]


async def test_changing_the_containers_setting_counts_for_items_already_there(
    client: CosmosClient, make_container: MakeContainer, clock: ManualClock
) -> None:
    container = await make_container("ttl")
    await container.create_item({"id": "default", "pk": "a"})
    await container.create_item({"id": "own", "pk": "a", "ttl": 1000})
    database = client.get_database_client("outbox")
    clock.advance(50)

    await database.replace_container(container, PartitionKey(path="/pk"), default_ttl=60)
    assert (await container.read())["defaultTtl"] == 60
    clock.advance(10)
    assert await ids_in(container) == ["own"]

    await database.replace_container(container, PartitionKey(path="/pk"))
    assert "defaultTtl" not in await container.read()


@pytest.mark.parametrize("ttl", [0, -2, 1.5, "10", None, True, 2**31])
async def test_an_invalid_ttl_is_refused(make_container: MakeContainer, ttl: Any) -> None:
    container = await make_container("ttl", default_ttl=-1)

    with pytest.raises(CosmosHttpResponseError) as caught:
        await container.create_item({"id": "1", "pk": "a", "ttl": ttl})

    assert caught.value.status_code == 400


@pytest.mark.parametrize("ttl", [0, -2])
async def test_an_invalid_default_ttl_is_refused(make_container: MakeContainer, ttl: int) -> None:
    with pytest.raises(CosmosHttpResponseError) as caught:
        await make_container("ttl", default_ttl=ttl)

    assert caught.value.status_code == 400


async def test_expired_items_are_removed_for_good(
    server: CosmosServer, make_container: MakeContainer, clock: ManualClock
) -> None:
    container = await make_container("ttl", default_ttl=10)
    for number in range(5):
        await container.create_item({"id": str(number), "pk": "a"})
    clock.advance(10)

    items = server.account.items

    assert [items.remove_expired(limit=3), items.remove_expired(limit=3), items.remove_expired(limit=3)] == [
        3,
        2,
        0,
    ]
