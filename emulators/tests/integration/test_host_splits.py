"""Physical partitions split or merged under the host: what took their place is read on from where they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    for lease in await stored_leases(leases):
        bounds = lease["FeedRange"]["Range"]
        is_range = lease["LeaseToken"] == f"{bounds['min']}-{bounds['max']}"
        assert lease["version"] == (1 if is_range else 0), lease


async def test_a_range_stays_a_range_when_its_partition_is_split_again(
    tmp_path: Path,
    server: CosmosServer,
    data: ContainerProxy,
    leases: ContainerProxy,
    recorder: Recorder,
    host_of: HostFactory,
) -> None:
    await host_of(write_app(tmp_path / "app", name="app")).start()
    server.account.merge("outbox", "data", ["0", "1"])
    await write(data, 0)
    await recorder.until(lambda: len(delivered(recorder)) == len(KEYS))
    for token in ("4", "5", "6"):
        server.account.split("outbox", "data", token)
    await write(data, 1)
    await recorder.until(lambda: len(delivered(recorder)) == 2 * len(KEYS))

    async def all_ranges() -> bool:
        found = await stored_leases(leases)
        return sorted(lease["version"] for lease in found) == [0, 0, 1, 1, 1, 1]

    await eventually(all_ranges)
    assert sorted(delivered(recorder)) == sorted((key, number) for key in KEYS for number in ("0", "1"))


async def test_what_is_written_around_a_split_arrives_without_a_checkpoint_to_start_from(
    tmp_path: Path,
    server: CosmosServer,
    data: ContainerProxy,
    recorder: Recorder,
    host_of: HostFactory,
    leases: Any,
) -> None:
    await host_of(write_app(tmp_path / "app", name="app", start_from_beginning=False)).start()

    for token in ("0", "1", "2", "3"):
        server.account.split("outbox", "data", token)
    await write(data, 0)

    await recorder.until(lambda: len(delivered(recorder)) == len(KEYS))
    assert sorted(delivered(recorder)) == sorted((key, "0") for key in KEYS)


@pytest.mark.parametrize("partition_id", [True, False], ids=["SDK 2", "without version and range"])
async def test_leases_of_older_processors_are_carried_on_with(
    tmp_path: Path,
    server: CosmosServer,
    data: ContainerProxy,
    leases: ContainerProxy,
    recorder: Recorder,
    host_of: HostFactory,
    partition_id: bool,
) -> None:
    app = write_app(tmp_path / "app", name="app")
    first = host_of(app)
    await first.start()
    await write(data, 0)
    await recorder.until(lambda: len(delivered(recorder)) == len(KEYS))
    await eventually(lambda: first.status()["functions"][0]["invoking"] == [])
    await first.stop()
    for lease in await stored_leases(leases):
        older = {key: value for key, value in lease.items() if key not in ("version", "FeedRange", "Mode")}
        if partition_id:
            older["PartitionId"] = older.pop("LeaseToken")
        await leases.replace_item(lease["id"], older)

    await host_of(app).start()
    server.account.split("outbox", "data", "0")
    await write(data, 1)
    await recorder.until(lambda: len(delivered(recorder)) == 2 * len(KEYS))

    assert sorted(delivered(recorder)) == sorted((key, number) for key in KEYS for number in ("0", "1"))

    async def divided() -> bool:
        return {lease["LeaseToken"] for lease in await stored_leases(leases)} == {"1", "2", "3", "4", "5"}

    await eventually(divided)
    for lease in await stored_leases(leases):
        assert lease["FeedRange"]["Range"]["max"]


def delivered(recorder: Recorder) -> list[tuple[str, str]]:
    return [
        (document["partitionKey"], document["id"])
        for delivery in recorder.deliveries
        for document in delivery.documents
    ]


async def test_a_lease_of_a_partition_that_nothing_has_replaced_is_given_up(
    tmp_path: Path, data: ContainerProxy, leases: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    app = write_app(tmp_path / "app", name="app")
    first = host_of(app)
    await first.start()
    await first.stop()
    [stored, *_] = await stored_leases(leases)
    unknown = stored["id"].removesuffix(stored["LeaseToken"]) + "77"
    await leases.create_item({"id": unknown, "LeaseToken": "77", "Owner": None, "ContinuationToken": None})

    host = host_of(app)
    await host.start()
    await write(data, 0)

    await recorder.until(lambda: len(delivered(recorder)) == len(KEYS))
    await eventually(lambda: host.edges.as_json()["edges"].get("lease-given-up", 0) >= 1)
    assert {lease["LeaseToken"] for lease in await stored_leases(leases)} == {"0", "1", "2", "3", "77"}


async def test_a_partition_that_is_gone_for_a_moment_has_a_lease_by_range_afterwards(
    tmp_path: Path,
    data: ContainerProxy,
    leases: ContainerProxy,
    recorder: Recorder,
    host_of: HostFactory,
    faults: FaultClient,
) -> None:
    """To the real processor one partition in place of another is a merge, even if it is the same one."""
    await host_of(write_app(tmp_path / "app", name="app")).start()

    await faults.add("gone", "read-feed", count=40)
    await write(data, 0)

    await recorder.until(lambda: len(delivered(recorder)) == len(KEYS))
    versions = [lease["version"] for lease in await stored_leases(leases)]
    assert len(versions) == 4
    assert 1 in versions
