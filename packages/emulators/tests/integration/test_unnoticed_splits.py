"""Physical partitions split and merged while no host runs: which leases there are then, and what is delivered.

Expected is what Microsoft.Azure.Cosmos 3.64 was seen to do on the same account: 80 documents read, 60 more around
the change, 30 behind it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from outbox_relay.emulators.functions.edges import Edges
from outbox_relay.emulators.functions.feed import ChangeFeed
from outbox_relay.emulators.functions.host import Host
from packages.emulators.tests.integration.apps import eventually
from packages.emulators.tests.integration.test_host_splits import KEYS, Rounds, items_of
from packages.emulators.tests.integration.test_host_splits import made_rounds as made_rounds

FROM_NOW = {"start_from_beginning": False}

# By name: partitions that are split one after another, then pairs that are merged.
CHANGES: dict[str, tuple[tuple[str, ...], tuple[tuple[str, str], ...]]] = {
    "two partitions split": (("0", "1"), ()),
    "a partition split twice": (("0", "4"), ()),
    "two partitions merged": ((), (("0", "1"),)),
}


def change(rounds: Rounds, name: str) -> None:
    splits, merges = CHANGES[name]
    rounds.split(*splits)
    for pair in merges:
        rounds.merge(*pair)


async def read_and_stop(rounds: Rounds) -> None:
    """Let a host read round 0, whose leases then have positions, and stop it."""
    host = await rounds.start(app=FROM_NOW)
    await rounds.write_round(0)
    await rounds.until_rounds(1)
    await eventually(lambda: host.status()["functions"][0]["invoking"] == [])
    await host.stop()


async def has_leases(host: Host, count: int) -> None:
    await eventually(lambda: len(host.status()["functions"][0]["leases"]) == count)


async def resume(rounds: Rounds) -> Host:
    """Start a host, and write round 3 once it has leases."""
    host = await rounds.start(app=FROM_NOW)
    await rounds.write_round(3)
    return host


async def lose_marker(rounds: Rounds) -> None:
    """Delete the marker: a host was killed before it wrote it, or the lease container was restored."""
    async for document in rounds.leases.read_all_items():
        if document["id"].endswith(".info"):
            await rounds.leases.delete_item(document["id"], partition_key=document["id"])


async def lose_ranges(rounds: Rounds) -> None:
    """Leave the leases as an SDK has written them that knew no ranges."""
    for lease in await rounds.stored_leases():
        older = {key: value for key, value in lease.items() if key not in ("version", "FeedRange", "Mode")}
        await rounds.leases.replace_item(lease["id"], older)


async def keys_of(rounds: Rounds, *partitions: str) -> set[str]:
    """The keys that these physical partitions have."""
    bounds = await ChangeFeed(rounds.data, start_from="Now", max_items=None).ranges()
    found = set()
    for key in KEYS:
        first = (await rounds.data.feed_range_from_partition_key(key))["Range"]["min"]
        if any(each.id in partitions and each.minimum <= first < each.maximum for each in bounds):
            found.add(key)
    return found


def tokens(leases: list[dict[str, Any]]) -> list[str]:
    return sorted(lease["LeaseToken"] for lease in leases)


@pytest.mark.parametrize(
    ("lose", "name"),
    [
        *((lose_marker, name) for name in CHANGES),
        (lose_ranges, "a partition split twice"),
    ],
)
async def test_what_was_written_around_a_change_is_delivered_once(
    rounds: Rounds, lose: Callable[[Rounds], Awaitable[None]], name: str
) -> None:
    await read_and_stop(rounds)
    await rounds.write_round(1)
    await lose(rounds)
    change(rounds, name)
    await rounds.write_round(2)

    await resume(rounds)
    await rounds.until_rounds(4)

    assert sorted(rounds.delivered) == items_of("0", "1", "2", "3")


async def test_a_lease_without_a_range_stops_where_its_partition_was_merged(rounds: Rounds) -> None:
    """By design of the processor: it cannot know of which part of the merged partition the lease is."""
    await read_and_stop(rounds)
    await lose_ranges(rounds)
    change(rounds, "two partitions merged")

    host = await resume(rounds)

    def error() -> str:
        return str(host.status()["functions"][0]["last_error"])

    await eventually(lambda: "was merged, and it has no FeedRange" in error())
    others = await keys_of(rounds, "2", "3")
    await rounds.recorder.until(lambda: {key for key, number in rounds.delivered if number == "3"} == others)
    assert 0 < len(others) < len(KEYS)
    assert tokens(await rounds.stored_leases()) == ["0", "1", "2", "3"]


async def test_the_leases_of_a_host_are_taken_in_an_order_that_is_drawn(
    rounds: Rounds, caplog: pytest.LogCaptureFixture
) -> None:
    """The first of two divisions that meet in a merged partition decides where its lease begins."""
    caplog.set_level(logging.DEBUG, "outbox_relay.emulators.functions.listener")
    orders = []
    for seed in (1, 1, 2, 3, 4):
        caplog.clear()
        host = await rounds.start(app=FROM_NOW, instance="host", edges=Edges(seed))
        await has_leases(host, 4)
        await host.stop()
        orders.append(tuple(re.findall(r"Lease (\d) was acquired", caplog.text)))

    assert orders[0] == orders[1]
    assert len(set(orders)) > 1
    assert {tuple(sorted(order)) for order in orders} == {("0", "1", "2", "3")}
