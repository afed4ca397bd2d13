"""The change feed source's queries of the leases, and their partition keys."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from azure.cosmos.partition_key import NonePartitionKeyValue

from relay.backends.cosmos.containers import Containers
from relay.backends.cosmos.source import CosmosSource
from relay.core.events import Reason, Rejected
from relay.routes.selection import BY_DEFAULT
from tests.support import virtual_time
from tests.support.outbox import event, plain, sound


class Leases:
    """Leases that have passed LSN 5 everywhere, and which partition keys they were asked about."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def positions(self) -> Leases:
        return self

    async def has_passed(self, value: Any, lsn: int) -> bool:
        self.asked.append(value)
        return lsn <= 5


def source(leases: Leases) -> CosmosSource:
    return CosmosSource(BY_DEFAULT, cast("Containers", SimpleNamespace(positions=leases.positions)))


def invalid(position: int, **members: Any) -> Rejected:
    return Rejected(plain({"id": str(position), "_lsn": 5, **members}), Reason.KEY_PARKED, "", position)


async def test_any_partition_key_that_cosmos_db_stores_is_compared() -> None:
    leases = Leases()
    keys: list[Any] = ["text", None, 7, 1.5, True]
    items = [invalid(position, partitionKey=key) for position, key in enumerate(keys)]
    unusable = [invalid(8, partitionKey={"a": 1}), invalid(9, partitionKey=["a"])]

    passed = await source(leases).passed_positions([*items, *unusable, invalid(10)])

    assert leases.asked == [*keys, NonePartitionKeyValue]
    assert passed == {0, 1, 2, 3, 4, 10}


async def test_what_has_no_lsn_or_a_later_one_is_not_passed() -> None:
    later, without = event("later", "k") | {"_lsn": 6}, event("without", "k")
    text, passed = event("text", "k") | {"_lsn": "5"}, event("passed", "k") | {"_lsn": 5}
    items = [sound(each, position) for position, each in enumerate((later, without, text, passed))]

    assert await source(Leases()).passed_positions(items) == {3}


def test_other_tasks_go_on_while_many_are_compared_and_no_time_passes() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def work() -> float:
        items = [invalid(position, partitionKey="k") for position in range(2_000)]
        going_on = asyncio.create_task(other())
        assert len(await source(Leases()).passed_positions(items)) == 2_000
        going_on.cancel()
        return asyncio.get_running_loop().time()

    assert virtual_time.run(work()) == 0
    assert 5 <= turns <= 50
