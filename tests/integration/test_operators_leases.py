"""Reading how far the relay has come, from leases that the local Functions host's store has written."""

from __future__ import annotations

from typing import Any

from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient

from local.stack.environment import DATABASE
from relay.backends.cosmos.leases import read_positions
from tests.support.leases import TriggerLeases
from tests.support.outbox import event

KEYS = [f"key-{number}" for number in range(20)]


async def write(trigger: TriggerLeases, name: str) -> dict[str, int]:
    """One event for each key; returns the LSN of each."""
    for key in KEYS:
        await trigger.data.create_item(event(f"{key}-{name}", key))
    feed = trigger.data.query_items_change_feed(start_time="Beginning")
    return {each["partitionKey"]: each["_lsn"] async for each in feed if each["id"].endswith(f"-{name}")}


async def test_what_is_checkpointed_is_passed_and_what_comes_later_is_not(trigger: TriggerLeases) -> None:
    early = await write(trigger, "early")
    await trigger.pass_all()
    late = await write(trigger, "late")

    positions = await read_positions(trigger.leases, trigger.data)

    assert len({lease.token for lease in positions.leases if lease.done > 0}) > 1
    assert [await positions.passed(key, early[key]) for key in KEYS] == [True] * len(KEYS)
    assert [await positions.passed(key, late[key]) for key in KEYS] == [False] * len(KEYS)


async def test_leases_that_no_invocation_has_checkpointed_have_passed_nothing(trigger: TriggerLeases) -> None:
    written = await write(trigger, "first")
    await trigger.store()

    positions = await read_positions(trigger.leases, trigger.data)

    assert [lease.done for lease in positions.leases] == [-1] * len(positions.leases)
    assert [await positions.passed(key, written[key]) for key in KEYS] == [False] * len(KEYS)


async def test_each_partition_has_a_position_of_its_own(trigger: TriggerLeases) -> None:
    first = await write(trigger, "first")
    store = await trigger.store()
    (chosen, *_) = await store.all()
    await store.checkpoint(await store.acquire(chosen), '"1000000"')

    positions = await read_positions(trigger.leases, trigger.data)

    bounds = chosen.partition
    ranges = {key: await trigger.data.feed_range_from_partition_key(key) for key in KEYS}
    expected = [bounds.minimum <= ranges[key]["Range"]["min"] < bounds.maximum for key in KEYS]
    assert {True, False} == set(expected)
    assert [await positions.passed(key, first[key]) for key in KEYS] == expected


async def test_without_leases_nobody_knows(trigger: TriggerLeases) -> None:
    written = await write(trigger, "first")

    positions = await read_positions(trigger.leases, trigger.data)

    assert positions.leases == []
    assert await positions.passed(KEYS[0], written[KEYS[0]]) is None


async def test_leases_of_another_container_are_not_the_relays(
    account: CosmosClient, trigger: TriggerLeases
) -> None:
    written = await write(trigger, "first")
    await trigger.pass_all()
    database = account.get_database_client(DATABASE)
    other = await database.create_container("other", PartitionKey("/partitionKey"))

    assert (await read_positions(trigger.leases, other)).leases == []
    await database.delete_container("data")
    anew = await database.create_container("data", PartitionKey("/partitionKey"))
    positions = await read_positions(trigger.leases, anew)

    assert await positions.passed(KEYS[0], written[KEYS[0]]) is None


async def test_leases_with_a_prefix_are_anothers_unless_there_are_no_others(
    account: CosmosClient, trigger: TriggerLeases
) -> None:
    written = await write(trigger, "first")
    await TriggerLeases(account, prefix="projection-").pass_all()

    alone = await read_positions(trigger.leases, trigger.data)
    await trigger.store()
    beside_the_relays = await read_positions(trigger.leases, trigger.data)

    assert await alone.passed(KEYS[0], written[KEYS[0]]) is True
    assert await beside_the_relays.passed(KEYS[0], written[KEYS[0]]) is False


async def test_where_leases_overlap_the_one_behind_counts(account: CosmosClient, trigger: TriggerLeases) -> None:
    written = await write(trigger, "first")
    await TriggerLeases(account, prefix="blue-").pass_all()
    await TriggerLeases(account, prefix="green-").store()

    positions = await read_positions(trigger.leases, trigger.data)

    assert await positions.passed(KEYS[0], written[KEYS[0]]) is None
    assert await positions.has_passed(KEYS[0], written[KEYS[0]]) is False


async def test_a_lease_that_no_current_host_has_acquired_covers_nothing(trigger: TriggerLeases) -> None:
    written = await write(trigger, "first")
    for lease in await trigger.pass_all():
        document: dict[str, Any] = {name: value for name, value in lease.document.items() if name != "FeedRange"}
        await trigger.leases.replace_item(lease.id, document)

    positions = await read_positions(trigger.leases, trigger.data)

    assert await positions.passed(KEYS[0], written[KEYS[0]]) is None


async def test_another_trigger_that_lags_does_not_hold_back_the_relay(
    account: CosmosClient, trigger: TriggerLeases
) -> None:
    written = await write(trigger, "first")
    await trigger.pass_all()
    await TriggerLeases(account, prefix="projection-").store()

    positions = await read_positions(trigger.leases, trigger.data)

    assert await positions.passed(KEYS[0], written[KEYS[0]]) is True
