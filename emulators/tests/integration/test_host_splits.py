"""Physical partitions split or merged under the host: what took their place is read on from where they were."""

from __future__ import annotations

from pathlib import Path

import pytest
from azure.cosmos.aio import ContainerProxy

from emulators.tests.integration.apps import Recorder, eventually, stored_leases, write_app
from emulators.tests.integration.conftest import HostFactory
from outbox_emulators.cosmos.server import CosmosServer
from outbox_emulators.functions.edges import Edges
from outbox_emulators.testing import FaultClient

KEYS = [f"key-{number}" for number in range(20)]


async def write(data: ContainerProxy, number: int) -> None:
    for key in KEYS:
        await data.create_item({"id": f"{number}", "partitionKey": key})


@pytest.mark.parametrize("written_before", [True, False], ids=["with a checkpoint", "before the first checkpoint"])
async def test_the_children_of_a_split_partition_go_on_where_it_was(
    tmp_path: Path,
    server: CosmosServer,
    data: ContainerProxy,
    leases: ContainerProxy,
    recorder: Recorder,
    host_of: HostFactory,
    written_before: bool,
) -> None:
    await host_of(write_app(tmp_path / "app", name="app")).start()
    if written_before:
        await write(data, 0)
        await recorder.until(lambda: len(delivered(recorder)) == len(KEYS))

    for token in ("0", "1", "2", "3", "4"):
        server.account.split("outbox", "data", token)
    await write(data, 1)

    expected = {(key, number) for key in KEYS for number in (("0", "1") if written_before else ("1",))}
    await recorder.until(lambda: set(delivered(recorder)) >= expected)

    async def divided() -> bool:
        found = {lease["LeaseToken"] for lease in await stored_leases(leases)}
        return found == {str(number) for number in range(5, 14)}

    await eventually(divided)
    assert sorted(delivered(recorder)) == sorted(expected)


async def test_a_parents_lease_can_stay_next_to_its_childrens_until_it_is_divided_again(
    tmp_path: Path,
    server: CosmosServer,
    data: ContainerProxy,
    leases: ContainerProxy,
    recorder: Recorder,
    host_of: HostFactory,
) -> None:
    hosts = [host_of(write_app(tmp_path / "app", name="app"), edges=Edges(seed)) for seed in (1, 2)]
    for host in hosts:
        await host.start()
    await write(data, 0)
    await recorder.until(lambda: {key for key, _ in delivered(recorder)} == set(KEYS))

    for token in ("0", "1", "2", "3"):
        server.account.split("outbox", "data", token)
    await write(data, 1)

    async def divided() -> bool:
        return {lease["LeaseToken"] for lease in await stored_leases(leases)} == {
            str(each) for each in range(4, 12)
        }

    await eventually(divided)
    await recorder.until(lambda: set(delivered(recorder)) == {(key, number) for key in KEYS for number in "01"})
    assert sum(host.edges.as_json()["edges"].get("parent-lease-left", 0) for host in hosts) > 0


async def test_a_merged_partition_goes_on_where_each_of_its_parents_was(
    tmp_path: Path,
    server: CosmosServer,
    data: ContainerProxy,
    leases: ContainerProxy,
    recorder: Recorder,
    host_of: HostFactory,
) -> None:
    await host_of(write_app(tmp_path / "app", name="app")).start()
    await write(data, 0)
    await recorder.until(lambda: len(delivered(recorder)) == len(KEYS))

    server.account.merge("outbox", "data", ["0", "1"])
    await write(data, 1)
    await recorder.until(lambda: len(delivered(recorder)) == 2 * len(KEYS))

    async def by_range() -> bool:
        found = await stored_leases(leases)
        return len(found) == 4 and sum("-" in lease["LeaseToken"] for lease in found) == 2

    await eventually(by_range)
    server.account.split("outbox", "data", "4")
    await write(data, 2)
    await recorder.until(lambda: len(delivered(recorder)) == 3 * len(KEYS))

    assert sorted(delivered(recorder)) == sorted((key, number) for key in KEYS for number in ("0", "1", "2"))


def delivered(recorder: Recorder) -> list[tuple[str, str]]:
    return [
        (document["partitionKey"], document["id"])
        for delivery in recorder.deliveries
        for document in delivery.documents
    ]


async def test_a_partition_that_is_gone_for_a_moment_keeps_its_lease(
    tmp_path: Path,
    data: ContainerProxy,
    leases: ContainerProxy,
    recorder: Recorder,
    host_of: HostFactory,
    faults: FaultClient,
) -> None:
    host = host_of(write_app(tmp_path / "app", name="app"))
    await host.start()

    await faults.add("gone", "read-feed", count=8)
    await write(data, 0)

    await recorder.until(lambda: len(delivered(recorder)) == len(KEYS))
    assert {lease["LeaseToken"] for lease in await stored_leases(leases)} == {"0", "1", "2", "3"}
    assert host.edges.as_json()["edges"]["lease-given-up"] >= 1
