"""Physical partitions split or merged under the host: what took their place is read on from where they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from azure.cosmos.aio import ContainerProxy

from emulators.tests.integration.apps import Recorder, eventually, stored_leases, write_app
from emulators.tests.integration.conftest import HostFactory
from outbox_emulators.cosmos.server import CosmosServer
from outbox_emulators.functions.edges import Edges
from outbox_emulators.functions.host import Host
from outbox_emulators.testing import FaultClient

KEYS = [f"key-{number}" for number in range(20)]


@dataclass(frozen=True, slots=True)
class Outbox:
    """An outbox with a function app on it; round `n` is an item with the id `n` of each key."""

    folder: Path
    server: CosmosServer
    data: ContainerProxy
    leases: ContainerProxy
    recorder: Recorder
    host_of: HostFactory

    def host(self, *, edges: Edges | None = None, **trigger: Any) -> Host:
        return self.host_of(write_app(self.folder / "app", **trigger), edges=edges or Edges(None))

    async def write(self, number: int) -> None:
        for key in KEYS:
            await self.data.create_item({"id": f"{number}", "partitionKey": key})

    def split(self, *tokens: str) -> None:
        for token in tokens:
            self.server.account.split("outbox", "data", token)

    def merge(self, *tokens: str) -> None:
        self.server.account.merge("outbox", "data", tokens)

    @property
    def delivered(self) -> list[tuple[str, str]]:
        """Key and id of what was delivered, in order."""
        return [
            (document["partitionKey"], document["id"])
            for delivery in self.recorder.deliveries
            for document in delivery.documents
        ]

    async def until_delivered(self, rounds: int) -> None:
        await self.recorder.until(lambda: len(self.delivered) == rounds * len(KEYS))

    async def stored(self) -> list[dict[str, Any]]:
        return await stored_leases(self.leases)

    async def until_leases_are(self, tokens: Sequence[str]) -> None:
        async def are() -> bool:
            return {lease["LeaseToken"] for lease in await self.stored()} == set(tokens)

        await eventually(are)


@pytest.fixture
def outbox(
    tmp_path: Path,
    server: CosmosServer,
    data: ContainerProxy,
    leases: ContainerProxy,
    recorder: Recorder,
    host_of: HostFactory,
) -> Outbox:
    return Outbox(tmp_path, server, data, leases, recorder, host_of)


def rounds(*numbers: str) -> list[tuple[str, str]]:
    """All items of those rounds, sorted."""
    return sorted((key, number) for key in KEYS for number in numbers)


def numbered(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last + 1)]


@pytest.mark.parametrize("written_before", [True, False], ids=["with a checkpoint", "before the first checkpoint"])
async def test_the_children_of_a_split_partition_go_on_where_it_was(outbox: Outbox, written_before: bool) -> None:
    await outbox.host().start()
    if written_before:
        await outbox.write(0)
        await outbox.until_delivered(1)

    outbox.split("0", "1", "2", "3", "4")
    await outbox.write(1)

    expected = rounds("0", "1") if written_before else rounds("1")
    await outbox.recorder.until(lambda: set(outbox.delivered) >= set(expected))
    await outbox.until_leases_are(numbered(5, 13))
    assert sorted(outbox.delivered) == expected


async def test_a_parents_lease_can_stay_next_to_its_childrens_until_it_is_divided_again(outbox: Outbox) -> None:
    hosts = [outbox.host(edges=Edges(seed)) for seed in (1, 2)]
    for host in hosts:
        await host.start()
    await outbox.write(0)
    await outbox.recorder.until(lambda: {key for key, _ in outbox.delivered} == set(KEYS))

    outbox.split("0", "1", "2", "3")
    await outbox.write(1)

    await outbox.until_leases_are(numbered(4, 11))
    await outbox.recorder.until(lambda: sorted(set(outbox.delivered)) == rounds("0", "1"))
    assert sum(host.edges.as_json()["edges"].get("parent-lease-left", 0) for host in hosts) > 0


async def test_a_merged_partition_goes_on_where_each_of_its_parents_was(outbox: Outbox) -> None:
    await outbox.host().start()
    await outbox.write(0)
    await outbox.until_delivered(1)

    outbox.merge("0", "1")
    await outbox.write(1)
    await outbox.until_delivered(2)

    async def by_range() -> bool:
        found = await outbox.stored()
        return len(found) == 4 and sum("-" in lease["LeaseToken"] for lease in found) == 2

    await eventually(by_range)
    outbox.split("4")
    await outbox.write(2)
    await outbox.until_delivered(3)

    assert sorted(outbox.delivered) == rounds("0", "1", "2")
    for lease in await outbox.stored():
        bounds = lease["FeedRange"]["Range"]
        is_range = lease["LeaseToken"] == f"{bounds['min']}-{bounds['max']}"
        assert lease["version"] == (1 if is_range else 0), lease


async def test_a_range_stays_a_range_when_its_partition_is_split_again(outbox: Outbox) -> None:
    await outbox.host().start()
    outbox.merge("0", "1")
    await outbox.write(0)
    await outbox.until_delivered(1)
    outbox.split("4", "5", "6")
    await outbox.write(1)
    await outbox.until_delivered(2)

    async def all_ranges() -> bool:
        return sorted(lease["version"] for lease in await outbox.stored()) == [0, 0, 1, 1, 1, 1]

    await eventually(all_ranges)
    assert sorted(outbox.delivered) == rounds("0", "1")


async def test_what_is_written_around_a_split_arrives_without_a_checkpoint_to_start_from(outbox: Outbox) -> None:
    await outbox.host(start_from_beginning=False).start()

    outbox.split("0", "1", "2", "3")
    await outbox.write(0)

    await outbox.until_delivered(1)
    assert sorted(outbox.delivered) == rounds("0")


@pytest.mark.parametrize("partition_id", [True, False], ids=["SDK 2", "without version and range"])
async def test_leases_of_older_processors_are_carried_on_with(outbox: Outbox, partition_id: bool) -> None:
    first = outbox.host()
    await first.start()
    await outbox.write(0)
    await outbox.until_delivered(1)
    await eventually(lambda: first.status()["functions"][0]["invoking"] == [])
    await first.stop()
    for lease in await outbox.stored():
        older = {key: value for key, value in lease.items() if key not in ("version", "FeedRange", "Mode")}
        if partition_id:
            older["PartitionId"] = older.pop("LeaseToken")
        await outbox.leases.replace_item(lease["id"], older)

    await outbox.host().start()
    outbox.split("0")
    await outbox.write(1)
    await outbox.until_delivered(2)

    assert sorted(outbox.delivered) == rounds("0", "1")
    await outbox.until_leases_are(numbered(1, 5))
    for lease in await outbox.stored():
        assert lease["FeedRange"]["Range"]["max"]


async def test_a_lease_of_a_partition_that_nothing_has_replaced_is_given_up(outbox: Outbox) -> None:
    first = outbox.host()
    await first.start()
    await first.stop()
    [stored, *_] = await outbox.stored()
    unknown = stored["id"].removesuffix(stored["LeaseToken"]) + "77"
    await outbox.leases.create_item({"id": unknown, "LeaseToken": "77", "Owner": None, "ContinuationToken": None})

    host = outbox.host()
    await host.start()
    await outbox.write(0)

    await outbox.until_delivered(1)
    await eventually(lambda: host.edges.as_json()["edges"].get("lease-given-up", 0) >= 1)
    await outbox.until_leases_are([*numbered(0, 3), "77"])


async def test_a_partition_that_is_gone_for_a_moment_has_a_lease_by_range_afterwards(
    outbox: Outbox, faults: FaultClient
) -> None:
    """To the real processor one partition in place of another is a merge, even if it is the same one."""
    await outbox.host().start()

    await faults.add("gone", "read-feed", count=40)
    await outbox.write(0)

    await outbox.until_delivered(1)
    versions = [lease["version"] for lease in await outbox.stored()]
    assert len(versions) == 4
    assert 1 in versions
