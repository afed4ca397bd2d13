"""Effective partition keys, and physical partitions that are merged: readers go on where they stood."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.partition_key import NonePartitionKeyValue
from hypothesis import given
from hypothesis import strategies as st

from outbox_relay.emulators.cosmos.errors import BadRequest
from outbox_relay.emulators.cosmos.partitioning import PartitionKeyDefinition, locate
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.testing import RawClient

COLL = "/dbs/outbox/colls/data"
DOCS = f"{COLL}/docs"
KEYS = [str(number) for number in range(40)]


async def merge(server: CosmosServer, *ranges: str, status: int = 200) -> Any:
    body = json.dumps({"database": "outbox", "container": "data", "ranges": list(ranges)})
    async with (
        aiohttp.ClientSession(server.endpoint) as session,
        session.post("/admin/merge", data=body) as answer,
    ):
        assert answer.status == status
        return await answer.json()


async def write(container: ContainerProxy, name: str, most: int = 5) -> set[tuple[str, str]]:
    """A batch of one to `most` items for each key: the numbers of different partitions overlap."""
    sizes = {key: 1 + number * 7 % most for number, key in enumerate(KEYS)}
    for key, operations in sizes.items():
        batch = [("upsert", ({"id": f"{name}-{number}", "pk": key},)) for number in range(operations)]
        await container.execute_item_batch(batch, key)
    return {(key, f"{name}-{number}") for key, operations in sizes.items() for number in range(operations)}


async def ranges(raw: RawClient) -> list[dict[str, Any]]:
    return list((await raw.send("GET", f"{COLL}/pkranges")).body["PartitionKeyRanges"])


async def drain(
    raw: RawClient, range_id: str, token: str, within: dict[str, Any]
) -> tuple[list[tuple[str, str]], str]:
    """The changes of a partition's part after a position, and the new position."""
    found: list[tuple[str, str]] = []
    while True:
        answer = await raw.send(
            "GET",
            DOCS,
            headers={
                "a-im": "Incremental Feed",
                "x-ms-max-item-count": "4",
                "x-ms-documentdb-partitionkeyrangeid": range_id,
                "x-ms-read-key-type": "EffectivePartitionKeyRange",
                "x-ms-start-epk": within["minInclusive"],
                "x-ms-end-epk": within["maxExclusive"],
                "if-none-match": token,
            },
        )
        token = answer.headers["etag"]
        if answer.status == 304:
            return found, token
        assert answer.status == 200
        found += [(item["pk"], item["id"]) for item in answer.body["Documents"]]


@pytest.mark.parametrize("edges", [1, None])
async def test_the_readers_of_two_partitions_go_on_in_the_one_that_took_their_place(
    server: CosmosServer, container: ContainerProxy, raw: RawClient
) -> None:
    before = await ranges(raw)
    first = await write(container, "first")
    read = [await drain(raw, each["id"], '"0"', each) for each in before]
    unread = await write(container, "unread")

    merged = (await merge(server, "1", "2"))["into"]
    later = await write(container, "later")

    holders = {"0": "0", "1": merged, "2": merged, "3": "3"}
    rest = [await drain(raw, holders[each["id"]], read[n][1], each) for n, each in enumerate(before)]
    assert sorted(change for changes, _ in read for change in changes) == sorted(first)
    assert sorted(change for changes, _ in rest for change in changes) == sorted(unread | later)


@pytest.mark.parametrize("edges", [1, None])
async def test_a_new_reader_of_the_merged_partition_gets_everything_once(
    server: CosmosServer, container: ContainerProxy, raw: RawClient
) -> None:
    written = await write(container, "first") | await write(container, "second", 1)
    await merge(server, "0", "1")
    await merge(server, "4", "2")

    found = [await drain(raw, each["id"], '"0"', each) for each in await ranges(raw)]

    assert sorted(change for changes, _ in found for change in changes) == sorted(written)


async def test_the_merged_partition_names_its_parents_which_are_gone(
    server: CosmosServer, container: ContainerProxy, raw: RawClient
) -> None:
    before = await ranges(raw)

    answer = await merge(server, "1", "2")

    _, merged, _ = after = await ranges(raw)
    assert answer == {"merged": ["1", "2"], "into": "4"}
    assert [each["id"] for each in after] == ["0", "4", "3"]
    assert merged["parents"] == ["1", "2"]
    assert (merged["minInclusive"], merged["maxExclusive"]) == (
        before[1]["minInclusive"],
        before[2]["maxExclusive"],
    )
    gone = await raw.send("GET", DOCS, headers={"x-ms-documentdb-partitionkeyrangeid": "2"})
    assert (gone.status, gone.headers["x-ms-substatus"]) == (410, "1002")


async def test_items_are_found_queried_and_changed_as_before_and_tokens_hold(
    server: CosmosServer, container: ContainerProxy, raw: RawClient
) -> None:
    written = await write(container, "a")
    tokens = {}
    for key in KEYS:
        answer = await raw.send("GET", f"{DOCS}/a-0", headers={"x-ms-documentdb-partitionkey": f'["{key}"]'})
        tokens[key] = answer.headers["x-ms-session-token"]
    await merge(server, "0", "1")
    await merge(server, "2", "3")

    for key, token in tokens.items():
        headers = {"x-ms-documentdb-partitionkey": f'["{key}"]', "x-ms-session-token": token}
        assert (await raw.send("GET", f"{DOCS}/a-0", headers=headers)).status == 200
    found = container.query_items("SELECT * FROM c ORDER BY c.id", max_item_count=7)
    assert {(item["pk"], item["id"]) async for item in found} == written
    listed = [(item["pk"], item["id"]) async for item in container.read_all_items(max_item_count=7)]
    assert sorted(listed) == sorted(written)
    await write(container, "b")
    counts: list[Any] = [count async for count in container.query_items("SELECT VALUE COUNT(1) FROM c")]
    assert counts == [len(written) * 2]


@pytest.mark.usefixtures("container")
@pytest.mark.parametrize(
    ("parts", "status"), [(("0", "2"), 400), (("1", "0"), 400), (("0", "9"), 410), (("0",), 400)]
)
async def test_partitions_that_are_not_neighbours_are_not_merged(
    server: CosmosServer, parts: tuple[str, ...], status: int
) -> None:
    assert (await merge(server, *parts, status=status))["error"]


async def test_splits_and_merges_outlive_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "account.db"
    async with (
        CosmosServer(database=file) as server,
        CosmosClient.from_connection_string(server.connection_string) as client,
    ):
        database = await client.create_database("outbox")
        container = await database.create_container("data", PartitionKey(path="/pk"))
        account = server.account
        await write(container, "first")
        account.split("outbox", "data", "1")
        account.merge("outbox", "data", ["0", "4"])
        account.split("outbox", "data", "6")
        written = await write(container, "second")
        before = account.catalog.container("outbox", "data").partitions

    async with (
        CosmosServer(database=file) as server,
        CosmosClient.from_connection_string(server.connection_string) as client,
    ):
        after = server.account.catalog.container("outbox", "data").partitions
        container = client.get_database_client("outbox").get_container_client("data")
        assert after == before
        assert [each.id for each in after] == ["7", "8", "5", "2", "3"]
        assert {(item["pk"], item["id"]) async for item in container.read_all_items()} >= written


# Effective partition keys agree with the SDK, which computes feed ranges itself


SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=200),
)


def definition(path: Any = "/a", version: int = 2) -> tuple[PartitionKeyDefinition, PartitionKey]:
    key = PartitionKey(path=path, version=version)
    return PartitionKeyDefinition.from_json(dict(key)), key


@given(st.one_of(SCALARS, st.none()))
def test_version_two_keys_hash_as_in_the_sdk(value: Any) -> None:
    ours, theirs = definition()

    assert ours.of_values([value]).effective == theirs._get_effective_partition_key_string([value])


@given(st.one_of(st.booleans(), st.integers(0, 2**32 - 1), st.text(max_size=200)))
def test_version_one_keys_hash_as_in_the_sdk(value: Any) -> None:
    ours, theirs = definition(version=1)

    assert ours.of_values([value]).effective == str(theirs._get_effective_partition_key_string([value])).upper()


@given(st.lists(SCALARS, min_size=3, max_size=3))
def test_hierarchical_keys_hash_as_in_the_sdk(values: list[Any]) -> None:
    ours, theirs = definition(["/a", "/b", "/c"])

    assert ours.of_values(values).effective == theirs._get_effective_partition_key_string(values)


@pytest.mark.parametrize("version", [1, 2])
def test_a_missing_key_hashes_as_in_the_sdk(version: int) -> None:
    ours, theirs = definition(version=version)

    expected = str(theirs._get_effective_partition_key_string([NonePartitionKeyValue])).upper()
    assert ours.of_document({}).effective == expected


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("count", [1, 3, 4, 7])
def test_ranges_cover_everything_without_overlap_and_fill_evenly(version: int, count: int) -> None:
    ours, _ = definition(version=version)
    ranges = ours.split(count)
    filled = [0] * count

    for number in range(2000):
        effective = ours.of_values([f"key-{number}"]).effective
        index = locate(ranges, effective)
        assert ranges[index].minimum <= effective < ranges[index].maximum
        filled[index] += 1

    assert (ranges[0].minimum, ranges[-1].maximum) == ("", "FF")
    assert all(left.maximum == right.minimum for left, right in itertools.pairwise(ranges))
    assert min(filled) > 2000 / count * 0.7


@pytest.mark.parametrize(
    ("path", "document", "same_as"),
    [
        ("/a/b", {"a": {"b": "x"}}, "x"),
        ('/"odd/name"', {"odd/name": "x"}, "x"),
        ("/a/'b c'", {"a": {"b c": 1}}, 1.0),
        ("/a", {"a": {"is": "no scalar"}}, {}),
        ("/a/b", {"a": "no object"}, {}),
    ],
)
def test_the_key_is_found_where_the_path_leads(path: str, document: dict[str, Any], same_as: Any) -> None:
    ours = PartitionKeyDefinition.from_json({"paths": [path], "kind": "Hash", "version": 2})

    assert ours.of_document(document) == ours.of_values([same_as])


@pytest.mark.parametrize(
    "bad",
    [
        None,
        {},
        {"paths": []},
        {"paths": ["no-slash"], "version": 2},
        {"paths": ["/a", "/b"], "version": 2},
        {"paths": ["/a"], "kind": "Range", "version": 2},
        {"paths": ["/a"], "version": 3},
        {"paths": ["/a", "/b", "/c", "/d"], "kind": "MultiHash", "version": 2},
    ],
)
def test_what_is_no_partition_key_definition_is_refused(bad: Any) -> None:
    with pytest.raises(BadRequest):
        PartitionKeyDefinition.from_json(bad)
