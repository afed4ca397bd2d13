"""The pytest plugin in projects of its users."""

from __future__ import annotations

from pathlib import Path

import pytest

from packages.emulators.tests.package.projects import SLOW, run_pytest

pytestmark = [pytest.mark.slow, SLOW]

ANY_KIND_OF_TEST = """
import pytest
from azure.cosmos import CosmosClient
from azure.cosmos.aio import CosmosClient as AsyncCosmosClient
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient

pytestmark = [pytest.mark.cosmos(containers=["data:/pk"]), pytest.mark.servicebus(queues=["jobs"])]


def test_plain(cosmos_database, servicebus_namespace):
    with CosmosClient.from_connection_string(cosmos_database.connection_string) as client:
        data = client.get_database_client(cosmos_database.name).get_container_client("data")
        data.create_item({"id": "1", "pk": "a"})
        assert [item["id"] for item in data.read_all_items()] == ["1"]
    with ServiceBusClient.from_connection_string(servicebus_namespace.connection_string) as client:
        with client.get_queue_sender("jobs") as sender:
            sender.send_messages(ServiceBusMessage("x"))
    assert servicebus_namespace.counts("jobs")["active"] == 1


async def use(cosmos_database, servicebus_namespace):
    async with AsyncCosmosClient.from_connection_string(cosmos_database.connection_string) as client:
        data = client.get_database_client(cosmos_database.name).get_container_client("data")
        await data.create_item({"id": "1", "pk": "a"})
        assert [item["id"] async for item in data.read_all_items()] == ["1"]
    async with AsyncServiceBusClient.from_connection_string(servicebus_namespace.connection_string) as client:
        async with client.get_queue_sender("jobs") as sender:
            await sender.send_messages(ServiceBusMessage("x"))
    assert servicebus_namespace.counts("jobs")["active"] == 1


@pytest.mark.asyncio
async def test_with_pytest_asyncio(cosmos_database, servicebus_namespace):
    await use(cosmos_database, servicebus_namespace)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_with_anyio(cosmos_database, servicebus_namespace):
    await use(cosmos_database, servicebus_namespace)
"""

ISOLATED = """
import pytest
from azure.cosmos import CosmosClient

names = []


@pytest.mark.cosmos(containers=["data:/pk"])
@pytest.mark.servicebus(topics=["orders/all"])
@pytest.mark.parametrize("turn", [1, 2])
def test_the_same_twice(turn, cosmos_database, servicebus_namespace):
    with CosmosClient.from_connection_string(cosmos_database.connection_string) as client:
        assert [database["id"] for database in client.list_databases()] == [cosmos_database.name]
        data = client.get_database_client(cosmos_database.name).get_container_client("data")
        data.create_item({"id": "1", "pk": "a"})
    assert cosmos_database.name not in names
    names.append(cosmos_database.name)

    cosmos_database.inject("unavailable", for_ms=3_600_000)

    with servicebus_namespace.administration_client() as administration:
        administration.create_queue("jobs")
"""

DRAWN = """
import pytest
from azure.cosmos import CosmosClient


@pytest.mark.cosmos(containers=["data:/pk"])
@pytest.mark.parametrize("turn", [1, 2])
def test_the_order_of_transactions_in_the_change_feed(turn, cosmos_account, cosmos_database):
    with CosmosClient.from_connection_string(cosmos_database.connection_string) as client:
        data = client.get_database_client(cosmos_database.name).get_container_client("data")
        for number in range(8):
            batch = [("create", ({"id": f"{number}-{place}", "pk": "a"},)) for place in range(3)]
            data.execute_item_batch(batch, partition_key="a")
        print("ORDER", [item["id"] for item in data.query_items_change_feed(start_time="Beginning")])
"""

WRONG = """
import pytest


@pytest.mark.cosmos("data:/pk")
def test_a_container_that_is_no_keyword(cosmos_database):
    pass


@pytest.mark.cosmos(containers=["data"])
def test_a_container_without_a_partition_key(cosmos_database):
    pass


@pytest.mark.servicebus(queues={"jobs": {"LockDuration": "soon"}})
def test_a_property_that_is_wrong(servicebus_namespace):
    pass


@pytest.mark.servicebus(queues=["jobs"], entities="Config.json")
def test_entities_given_twice(servicebus_namespace):
    pass


def test_a_fault_that_does_not_exist(cosmos_database):
    cosmos_database.inject("flood")
"""


def test_tests_of_any_kind_in_any_process_get_a_database_and_a_namespace(tmp_path: Path) -> None:
    counts, output = run_pytest(tmp_path, ANY_KIND_OF_TEST, "-n", "2")

    assert counts == {"passed": 3}, output


def test_each_test_has_its_own_database_namespace_and_faults(tmp_path: Path) -> None:
    counts, output = run_pytest(tmp_path, ISOLATED)

    assert counts == {"passed": 2}, output


def _orders(output: str) -> list[str]:
    return [line.partition("ORDER")[2] for line in output.splitlines() if "ORDER" in line]


def test_each_test_draws_the_same_from_a_seed(tmp_path: Path) -> None:
    first, again = _orders(run_pytest(tmp_path, DRAWN, "-s")[1])
    other, _ = _orders(run_pytest(tmp_path, DRAWN, "-s", "--emulators-seed", "7")[1])

    assert first == again
    assert first != other


def test_a_seed_that_is_no_number_is_a_usage_error(tmp_path: Path) -> None:
    _, output = run_pytest(tmp_path, DRAWN, "--emulators-seed", "on")

    assert "--emulators-seed is 'on': give a whole number, or 'off'" in output


def test_a_wrong_marker_or_fault_says_what_is_wrong(tmp_path: Path) -> None:
    counts, output = run_pytest(tmp_path, WRONG)

    assert counts == {"errors": 4, "failed": 1}
    for message in (
        "the cosmos marker takes keyword arguments",
        "is not a container: write DATABASE/CONTAINER:/partitionKeyPath",
        "LockDuration",
        "the servicebus marker takes entities, or queues and topics, not both",
        "kind is 'flood'; it must be one of throttle",
    ):
        assert message in output
