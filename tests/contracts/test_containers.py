"""What the relay's commands ask of a container: of the one in memory, and over the wire with the real SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import (
    CosmosAccessConditionFailedError,
    CosmosBatchOperationError,
    CosmosResourceExistsError,
    CosmosResourceNotFoundError,
)

from outbox_emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_emulators.cosmos.server import CosmosServer
from relay.cli.quarantine.holdings import Holdings
from relay.cli.quarantine.records import Filter, Records
from relay.cosmos import holds
from tests.unit.relay.accounts import FakeContainer


@pytest.fixture(params=["in memory", "Cosmos DB emulator"])
async def container(request: pytest.FixtureRequest) -> AsyncIterator[ContainerProxy]:
    if request.param == "in memory":
        yield FakeContainer().proxy
        return
    async with CosmosServer() as server:
        provision(server.account, [ContainerSpec.parse("outbox/quarantine:/partitionKey")])
        async with CosmosClient.from_connection_string(server.connection_string) as client:
            yield client.get_database_client("outbox").get_container_client("quarantine")


def item(identifier: str, key: str = "k", **more: Any) -> dict[str, Any]:
    return {"id": identifier, "partitionKey": key, "type": "t", **more}


async def rows(container: ContainerProxy, query: str, key: str | None = None, **values: Any) -> list[Any]:
    parameters = [{"name": f"@{name}", "value": value} for name, value in values.items()]
    scope: dict[str, Any] = {} if key is None else {"partition_key": key}
    return [row async for row in container.query_items(query, parameters=parameters, **scope)]


# one item


async def test_a_created_item_is_returned_as_it_is_stored(container: ContainerProxy) -> None:
    created = dict(await container.create_item(item("a", n=1.0, text="é\u2028")))

    assert {name: created[name] for name in item("a", n=1.0, text="é\u2028")} == item("a", n=1.0, text="é\u2028")
    assert isinstance(created["_ts"], int)
    assert dict(await container.read_item("a", partition_key="k")) == created


async def test_an_item_is_created_once_within_a_partition_key(container: ContainerProxy) -> None:
    await container.create_item(item("a"))

    with pytest.raises(CosmosResourceExistsError):
        await container.create_item(item("a"))
    await container.create_item(item("a", "other"))


async def test_an_item_that_does_not_exist_is_not_found(container: ContainerProxy) -> None:
    await container.create_item(item("a", "other"))

    with pytest.raises(CosmosResourceNotFoundError):
        await container.read_item("a", partition_key="k")
    with pytest.raises(CosmosResourceNotFoundError):
        await container.delete_item("a", partition_key="k")
    with pytest.raises(CosmosResourceNotFoundError):
        await container.patch_item("a", "k", [{"op": "set", "path": "/n", "value": 1}])


async def test_an_item_is_deleted_once(container: ContainerProxy) -> None:
    await container.create_item(item("a"))

    await container.delete_item("a", partition_key="k")

    with pytest.raises(CosmosResourceNotFoundError):
        await container.delete_item("a", partition_key="k")


async def test_an_item_that_has_changed_is_not_deleted_by_its_old_etag(container: ContainerProxy) -> None:
    options: dict[str, Any] = {"partition_key": "k", "match_condition": MatchConditions.IfNotModified}
    old = (await container.create_item(item("a")))["_etag"]
    new = (await container.patch_item("a", "k", [{"op": "set", "path": "/touched", "value": 1}]))["_etag"]

    with pytest.raises(CosmosAccessConditionFailedError):
        await container.delete_item("a", etag=old, **options)
    assert (await container.read_item("a", partition_key="k"))["touched"] == 1
    await container.delete_item("a", etag=new, **options)

    with pytest.raises(CosmosResourceNotFoundError):
        await container.delete_item("a", etag=new, **options)


# batches


async def test_a_batch_deletes_all_of_its_items(container: ContainerProxy) -> None:
    for name in ("a", "b", "c"):
        await container.create_item(item(name))

    await container.execute_item_batch([("delete", ("a",)), ("delete", ("c",))], partition_key="k")

    assert await rows(container, "SELECT VALUE c.id FROM c WHERE c.type = @t", t="t") == ["b"]


async def test_a_batch_of_which_one_operation_fails_changes_nothing(container: ContainerProxy) -> None:
    await container.create_item(item("a"))

    with pytest.raises(CosmosBatchOperationError) as raised:
        await container.execute_item_batch([("delete", ("a",)), ("delete", ("gone",))], partition_key="k")

    assert (raised.value.status_code, raised.value.error_index) == (404, 1)
    assert (await container.read_item("a", partition_key="k"))["id"] == "a"


# queries


async def test_a_query_finds_items_of_every_partition_key_or_of_one(container: ContainerProxy) -> None:
    for name, key in (("a", "k"), ("b", "other"), ("c", "k")):
        await container.create_item(item(name, key))
    await container.create_item({"id": "d", "partitionKey": "k", "type": "another"})
    query = "SELECT * FROM c WHERE c.type = @type"

    everywhere = [row["id"] for row in await rows(container, query, type="t")]
    of_key = [row["id"] for row in await rows(container, query, "k", type="t")]

    assert (sorted(everywhere), sorted(of_key)) == (["a", "b", "c"], ["a", "c"])


async def test_a_count_is_the_sum_of_its_rows(container: ContainerProxy) -> None:
    for number in range(7):
        await container.create_item(item(str(number), f"key {number}"))
    query = "SELECT VALUE COUNT(1) FROM c WHERE c.type = @type"

    assert sum(await rows(container, query, type="t")) == 7
    assert sum(await rows(container, query, "key 3", type="t")) == 1
    assert sum(await rows(container, query, type="another")) == 0
    assert sum(await rows(container, query, "nobody", type="t")) == 0


async def test_rows_are_in_the_order_that_was_asked_for(container: ContainerProxy) -> None:
    for name, at in (("a", "3"), ("b", "1"), ("c", "2")):
        await container.create_item(item(name, f"key of {name}", at=at))

    found = await rows(container, "SELECT c.id FROM c WHERE c.type = @type ORDER BY c.at", type="t")

    assert [row["id"] for row in found] == ["b", "c", "a"]


async def test_what_an_item_lacks_is_not_in_its_row(container: ContainerProxy) -> None:
    await container.create_item(item("a", document={"id": "d"}, order=3))
    await container.create_item(item("b", "other", document="text"))

    query = (
        'SELECT c.id, c.document.id AS documentId, c["order"] AS place FROM c WHERE c.type = @type ORDER BY c.id'
    )

    assert await rows(container, query, type="t") == [{"id": "a", "documentId": "d", "place": 3}, {"id": "b"}]


async def test_an_id_is_found_by_its_beginning(container: ContainerProxy) -> None:
    for name in ("ab1", "ab2", "b"):
        await container.create_item(item(name, f"key of {name}"))
    query = "SELECT c.id FROM c WHERE STARTSWITH(c.id, @id)"

    assert sorted([row["id"] for row in await rows(container, query, id="ab")]) == ["ab1", "ab2"]
    assert await rows(container, query, id="AB") == []


# the quarantine that the commands build of these


def record(identifier: str, key: str = "k", at: str = "1", **more: Any) -> dict[str, Any]:
    return {
        "id": identifier,
        "partitionKey": key,
        "type": "quarantinedEvent",
        "reason": "message-refused",
        "detail": "said",
        "quarantinedAt": at,
        "position": 0,
        "invocationId": "i1",
        "document": {"id": f"document of {identifier}"},
        **more,
    }


async def test_records_are_found_counted_and_removed(container: ContainerProxy) -> None:
    records = Records(container)
    for name, key, at in (("ab1", "k", "3"), ("ab2", "other", "1"), ("c", "k", "2")):
        await container.create_item(record(name, key, at))

    found = await records.find(Filter())

    assert [each.id for each in found] == ["ab2", "c", "ab1"]
    assert [each.id for each in await records.find(Filter(partition_key="k"), limit=1)] == ["c"]
    assert await records.count(Filter("message-refused", "k")) == 2
    assert await records.count(Filter("set-aside")) == 0
    (named, missing) = await records.find_by_ids(["c", "zz"])
    assert ([each.document_id for each in named], missing) == (["document of c"], ["zz"])
    for _ in range(2):
        await records.remove(found[0])
    assert await records.document(found[0]) is None
    assert await records.document(found[1]) == {"id": "document of c"}


async def test_a_record_in_parts_is_joined_and_removed_whole(container: ContainerProxy) -> None:
    records = Records(container)
    whole = record("r", documentParts=2)
    del whole["document"]
    await container.create_item(whole)
    for number, text in enumerate(['{"id": "d', 'oc"}']):
        await container.create_item(item(f"r-{number}", text=text))
    (found,) = await records.find(Filter())

    assert (found.parts, found.document_id, await records.document(found)) == (2, None, {"id": "doc"})
    await container.delete_item("r-0", partition_key="k")
    await records.remove(found)

    assert await rows(container, "SELECT * FROM c", "k") == []


async def test_a_key_stays_parked_while_it_has_a_record(container: ContainerProxy) -> None:
    records = Records(container)
    await container.create_item(holds.marker("k", "r"))
    await container.create_item(record("r"))
    await container.create_item(record("s", "other"))

    assert list(await records.holdings.parked()) == ["k"]
    assert list(await records.holdings.parked("other")) == []
    assert await records.holdings.unpark("k") is False
    for found in await records.find(Filter(partition_key="k")):
        await records.remove(found)
    assert await records.holdings.unpark("k") is True
    assert await records.holdings.unpark("k") is True
    assert await records.holdings.parked() == {}


async def test_a_record_that_is_stored_while_a_key_is_unparked_keeps_it_parked(container: ContainerProxy) -> None:
    class Overtaken(Holdings):
        async def _count_records(self, partition_key: str) -> int:
            count = await super()._count_records(partition_key)
            await container.execute_item_batch(
                [("create", (record("late"),)), holds.touch()], partition_key=partition_key
            )
            return count

    await container.create_item(holds.marker("k", "r"))

    assert await Overtaken(container).unpark("k") is False
    assert list(await Holdings(container).parked()) == ["k"]


async def test_an_order_is_written_once_and_withdrawn(container: ContainerProxy) -> None:
    holdings = Holdings(container)

    assert [await holdings.add("k", "e/1?"), await holdings.add("k", "e/1?")] == [True, False]
    (order,) = await holdings.orders("k")
    assert (order.partition_key, order.event_id) == ("k", "e/1?")
    assert await holdings.orders("other") == []
    for _ in range(2):
        await holdings.withdraw(order)
    assert await holdings.orders() == []
