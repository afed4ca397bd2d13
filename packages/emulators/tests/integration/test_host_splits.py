"""Physical partitions split or merged under the host: their replacements are read from their positions."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import fields

import pytest

from outbox_relay.emulators.functions.edges import Edges
from outbox_relay.emulators.testing import FaultClient
from packages.emulators.tests.integration.apps import eventually
from packages.emulators.tests.integration.conftest import Outbox

# Of the nine partitions that five splits make, all but a small one have a key.
KEYS = [f"key-{number}" for number in (0, 1, 2, 3, 4, 6, 12, 15)]


class LeavesFirstParent(Edges):
    """Edges by which a host leaves the lease of the first parent that it divides, and no other."""

    def random(self, what: str) -> random.Random | None:
        drawn = super().random(what)
        if what.startswith("parent leases left"):
            first_then_others = itertools.chain([0], itertools.repeat(1))
            drawn = random.Random(0)
            drawn.randrange = lambda *_: next(first_then_others)  # type: ignore[method-assign]
        return drawn


class Rounds(Outbox):
    """Round `n` is an item with the id `n` of each key."""

    async def write_round(self, number: int) -> None:
        for key in KEYS:
            await self.write(number, key=key)

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

    async def until_rounds(self, rounds: int) -> None:
        await self.recorder.until(lambda: len(self.delivered) == rounds * len(KEYS))

    async def until_leases_are(self, tokens: Sequence[str]) -> None:
        async def are() -> bool:
            return {lease["LeaseToken"] for lease in await self.stored_leases()} == set(tokens)

        await eventually(are)


@pytest.fixture(name="rounds")
def made_rounds(outbox: Outbox) -> Rounds:
    return Rounds(**{field.name: getattr(outbox, field.name) for field in fields(outbox)})


def items_of(*numbers: str) -> list[tuple[str, str]]:
    """All items of those rounds, sorted."""
    return sorted((key, number) for key in KEYS for number in numbers)


def numbered(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last + 1)]


async def test_the_children_of_a_split_partition_go_on_where_it_was(rounds: Rounds) -> None:
    await rounds.start()
    await rounds.write_round(0)
    await rounds.until_rounds(1)

    rounds.split("0", "1", "2", "3", "4")
    await rounds.write_round(1)

    await rounds.until_rounds(2)
    await rounds.until_leases_are(numbered(5, 13))
    assert sorted(rounds.delivered) == items_of("0", "1")


async def test_a_parents_lease_can_stay_next_to_its_childrens_until_it_is_divided_again(rounds: Rounds) -> None:
    hosts = [rounds.host(edges=LeavesFirstParent(seed)) for seed in (1, 2)]
    for host in hosts:
        await host.start()
    await rounds.write_round(0)
    await rounds.recorder.until(lambda: {key for key, _ in rounds.delivered} == set(KEYS))

    rounds.split("0", "1", "2", "3")
    await rounds.write_round(1)

    await rounds.until_leases_are(numbered(4, 11))
    await rounds.recorder.until(lambda: sorted(set(rounds.delivered)) == items_of("0", "1"))
    assert sum(host.edges.as_json()["edges"].get("parent-lease-left", 0) for host in hosts) in (1, 2)


async def test_a_merged_partition_goes_on_where_each_of_its_parents_was(rounds: Rounds) -> None:
    await rounds.start()
    await rounds.write_round(0)
    await rounds.until_rounds(1)

    rounds.merge("0", "1")
    await rounds.write_round(1)
    await rounds.until_rounds(2)

    async def by_range() -> bool:
        found = await rounds.stored_leases()
        return len(found) == 4 and sum("-" in lease["LeaseToken"] for lease in found) == 2

    await eventually(by_range)
    rounds.split("4")
    await rounds.write_round(2)
    await rounds.until_rounds(3)

    assert sorted(rounds.delivered) == items_of("0", "1", "2")
    for lease in await rounds.stored_leases():
        bounds = lease["FeedRange"]["Range"]
        is_range = lease["LeaseToken"] == f"{bounds['min']}-{bounds['max']}"
        assert lease["version"] == (1 if is_range else 0), lease


async def test_a_range_stays_a_range_when_its_partition_is_split_again(rounds: Rounds) -> None:
    await rounds.start()
    rounds.merge("0", "1")
    await rounds.write_round(0)
    await rounds.until_rounds(1)
    rounds.split("4", "5", "6")
    await rounds.write_round(1)
    await rounds.until_rounds(2)

    async def all_ranges() -> bool:
        return sorted(lease["version"] for lease in await rounds.stored_leases()) == [0, 0, 1, 1, 1, 1]

    await eventually(all_ranges)
    assert sorted(rounds.delivered) == items_of("0", "1")


async def test_what_is_written_around_a_split_arrives_without_a_checkpoint_to_start_from(rounds: Rounds) -> None:
    await rounds.start(app={"start_from_beginning": False})

    rounds.split("0", "1", "2", "3")
    await rounds.write_round(0)

    await rounds.until_rounds(1)
    assert sorted(rounds.delivered) == items_of("0")


async def test_leases_of_older_processors_are_carried_on_with(rounds: Rounds) -> None:
    first = await rounds.start()
    await rounds.write_round(0)
    await rounds.until_rounds(1)
    await eventually(lambda: first.status()["functions"][0]["invoking"] == [])
    await first.stop()
    for lease in await rounds.stored_leases():
        older = {key: value for key, value in lease.items() if key not in ("version", "FeedRange", "Mode")}
        if lease["LeaseToken"] in ("0", "2"):  # those of SDK 2
            older["PartitionId"] = older.pop("LeaseToken")
        await rounds.leases.replace_item(lease["id"], older)

    await rounds.start()
    rounds.split("0", "1")
    await rounds.write_round(1)
    await rounds.until_rounds(2)

    assert sorted(rounds.delivered) == items_of("0", "1")
    await rounds.until_leases_are(numbered(2, 7))
    for lease in await rounds.stored_leases():
        assert lease["FeedRange"]["Range"]["max"]


async def test_a_lease_of_a_partition_that_nothing_has_replaced_is_given_up(rounds: Rounds) -> None:
    first = await rounds.start()
    await first.stop()
    [stored, *_] = await rounds.stored_leases()
    unknown = stored["id"].removesuffix(stored["LeaseToken"]) + "77"
    await rounds.leases.create_item({"id": unknown, "LeaseToken": "77", "Owner": None, "ContinuationToken": None})

    host = await rounds.start()
    await rounds.write_round(0)

    await rounds.until_rounds(1)
    await eventually(lambda: host.edges.as_json()["edges"].get("lease-given-up", 0) >= 1)
    await rounds.until_leases_are([*numbered(0, 3), "77"])


async def test_a_partition_that_is_gone_for_a_moment_has_a_lease_by_range_afterwards(
    rounds: Rounds, faults: FaultClient
) -> None:
    """To the real processor one partition instead of another is a merge, even if it is the same one."""
    await rounds.start()

    await faults.add("gone", "read-feed", count=40)
    await rounds.write_round(0)

    await rounds.until_rounds(1)
    versions = [lease["version"] for lease in await rounds.stored_leases()]
    assert len(versions) == 4
    assert 1 in versions
