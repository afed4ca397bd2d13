"""Time to live of items and containers."""

from __future__ import annotations

from typing import Any

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import CosmosHttpResponseError, CosmosResourceNotFoundError

from emulators.tests.cosmos.support import MakeContainer
from outbox_emulators.cosmos.server import CosmosServer
from outbox_emulators.testing import ManualClock


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
