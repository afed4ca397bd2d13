"""Leases: their documents, and how hosts share, take over and lose them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient

from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.functions.errors import HostError
from outbox_relay.emulators.functions.host import Host
from outbox_relay.emulators.testing import FaultClient
from packages.emulators.tests.integration.apps import (
    Delivery,
    checkpoint_written,
    eventually,
    stored_leases,
)
from packages.emulators.tests.integration.conftest import Outbox, status_of
from tests.support.waiting import elapse


async def _write(outbox: Outbox, numbers: range) -> None:
    for number in numbers:
        await outbox.write(number, key=f"key-{number}")


def _leases_of(host: Host) -> list[str]:
    return list(status_of(host)["leases"])


async def test_a_lease_document_has_the_shape_of_the_dotnet_processors(outbox: Outbox) -> None:
    await outbox.write("1")
    await outbox.start({"WHO": "mine"}, app={"lease_container_prefix": "%WHO%-"}, instance="one")
    await outbox.until_checkpointed()
    stored = await outbox.stored_leases()
    rid = (await outbox.data.read())["_rid"]
    assert [lease["LeaseToken"] for lease in stored] == ["0", "1", "2", "3"]
    for lease in stored:
        assert lease["id"].startswith("mine-127.0.0.1_")
        assert lease["id"].endswith(f"_{rid}..{lease['LeaseToken']}")
        assert (lease["Owner"], lease["version"], lease["Mode"]) == ("one-relay", 0, "Incremental Feed")
        assert lease["timestamp"].endswith("Z")
        assert lease["properties"] == {}
    ranges = [lease["FeedRange"]["Range"] for lease in stored]
    assert (ranges[0]["min"], ranges[3]["max"]) == ("", "FF")
    assert [range_["max"] for range_ in ranges[:3]] == [range_["min"] for range_ in ranges[1:]]
    tokens = [lease["ContinuationToken"] for lease in stored if lease["ContinuationToken"]]
    assert [token.strip('"').isdigit() for token in tokens] == [True]


async def test_two_hosts_share_four_leases_equally_and_lose_nothing(outbox: Outbox) -> None:
    # Neither host takes a lease because the other renews it late: only to balance them.
    one, two = (outbox.host(name=name, instance=name, lease_expiration_ms=60_000) for name in ("one", "two"))
    await one.start()
    await _write(outbox, range(10))
    await two.start()

    await eventually(lambda: len(_leases_of(one)) == len(_leases_of(two)) == 2)
    await _write(outbox, range(10, 30))
    await outbox.until_all_succeeded(range(30))
    owners = [lease["Owner"] for lease in await outbox.stored_leases()]
    assert sorted(owners) == ["one-relay", "one-relay", "two-relay", "two-relay"]
    assert set(_leases_of(one)).isdisjoint(_leases_of(two))


async def test_a_host_that_stops_leaves_its_leases_to_the_other_at_once(outbox: Outbox) -> None:
    hours: dict[str, Any] = {"lease_expiration_ms": 3_600_000}
    one, two = (outbox.host(name=name, instance=name, **hours) for name in ("one", "two"))
    await one.start()
    await two.start()
    await one.stop()

    await eventually(lambda: len(_leases_of(two)) == 4)
    await _write(outbox, range(8))
    await outbox.recorder.until(lambda: len(outbox.recorder.succeeded_ids("two")) == 8)


async def test_leases_that_nobody_renews_are_taken_over_after_their_expiry(outbox: Outbox) -> None:
    never = asyncio.Event()

    async def hang(delivery: Delivery) -> None:
        if delivery.app == "dead":
            await never.wait()

    outbox.recorder.behaviour = hang
    await outbox.write("1")
    dead = await outbox.start(name="dead", shutdown_timeout_s=0.05)
    await outbox.until_delivered()
    await dead.stop()
    await outbox.start(name="heir")
    await outbox.until_succeeded("1", app="heir")


async def test_a_host_takes_back_what_a_host_of_the_same_name_left_behind(outbox: Outbox) -> None:
    never = asyncio.Event()

    async def hang_at_first(_: Delivery) -> None:
        if len(outbox.recorder.deliveries) == 1:
            await never.wait()

    outbox.recorder.behaviour = hang_at_first
    await outbox.write("1")
    options: dict[str, Any] = {"instance": "same", "lease_expiration_ms": 3_600_000}
    dead = await outbox.start(shutdown_timeout_s=0.05, **options)
    await outbox.until_delivered()
    await dead.stop()
    await outbox.start(**options)
    await outbox.until_succeeded("1")


async def test_when_a_lease_is_stolen_during_an_invocation_both_deliver_and_only_the_thief_checkpoints(
    outbox: Outbox,
) -> None:
    release = asyncio.Event()

    async def hold_the_old_owner(delivery: Delivery) -> None:
        if delivery.app == "old":
            await release.wait()

    outbox.recorder.behaviour = hold_the_old_owner
    await outbox.write("1")
    # It neither notices by itself that it has lost its leases, nor steals them back.
    oblivious: dict[str, Any] = {"lease_renew_ms": 3_600_000, "lease_acquire_ms": 3_600_000}
    old = await outbox.start(name="old", instance="old", **oblivious)
    await outbox.until_delivered()
    await outbox.start(name="new", instance="new")
    await outbox.until_succeeded("1", app="new")
    await outbox.until_checkpointed()
    before = await outbox.stored_leases()
    release.set()
    await outbox.until_succeeded("1", app="old")
    (checkpointed,) = [lease["LeaseToken"] for lease in before if lease["ContinuationToken"]]
    await eventually(lambda: checkpointed not in _leases_of(old))
    after = await outbox.stored_leases()
    assert [lease["ContinuationToken"] for lease in after] == [lease["ContinuationToken"] for lease in before]
    assert {lease["Owner"] for lease in after} == {"new-relay"}
    assert (status_of(old)["documents_lost"], status_of(old)["last_error"]) == (0, None)
    await outbox.write("2")
    await outbox.until_succeeded("1", "2", app="new")
    assert outbox.recorder.succeeded_ids("old") == ["1"]


async def test_a_host_that_finds_its_lease_stolen_during_an_invocation_leaves_it_alone(outbox: Outbox) -> None:
    release = asyncio.Event()

    async def hold(_: Delivery) -> None:
        await release.wait()

    outbox.recorder.behaviour = hold
    host = await outbox.start(instance="old")
    await outbox.write("1")
    await outbox.until_delivered()
    (token,) = status_of(host)["invoking"]
    [stolen] = [lease for lease in await outbox.stored_leases() if lease["LeaseToken"] == token]
    await outbox.leases.replace_item(
        stolen["id"], {**stolen, "Owner": "thief", "timestamp": "2999-01-01T00:00:00Z"}
    )

    await eventually(lambda: host.edges.as_json()["edges"].get("lease-lost-mid-invocation") == 1)
    release.set()
    await eventually(lambda: _leases_of(host) == sorted({"0", "1", "2", "3"} - {token}))
    owners = {lease["LeaseToken"]: lease["Owner"] for lease in await outbox.stored_leases()}
    assert owners[token] == "thief"


async def test_a_renewal_that_fails_costs_no_lease(
    outbox: Outbox, faults: FaultClient, caplog: pytest.LogCaptureFixture
) -> None:
    host = await outbox.start(lease_expiration_ms=3_600_000)
    await faults.add("timeout", "replace", "leases")

    await eventually(lambda: "could not be renewed" in caplog.text)
    await elapse(0.3)  # a renewal of each lease
    assert len(_leases_of(host)) == 4


async def test_leases_that_are_deleted_while_they_are_processed_end_that_in_silence(
    outbox: Outbox, caplog: pytest.LogCaptureFixture
) -> None:
    host = await outbox.start()
    for lease in await outbox.stored_leases():
        await outbox.leases.delete_item(lease["id"], partition_key=lease["id"])

    await eventually(lambda: _leases_of(host) == [])
    await outbox.write("1")
    await elapse(0.3)  # several acquire intervals

    assert (await outbox.stored_leases(), outbox.recorder.deliveries) == ([], [])
    assert not [record for record in caplog.records if record.levelno > logging.WARNING]


async def test_the_lease_container_is_created_where_the_trigger_says_so(
    outbox: Outbox, account: CosmosClient
) -> None:
    database = account.get_database_client("outbox")
    await database.delete_container("leases")
    await outbox.start(app={"create_lease_container_if_not_exists": True})
    container = database.get_container_client("leases")
    properties = await container.read()
    assert (properties["partitionKey"]["paths"], properties["defaultTtl"]) == (["/id"], -1)
    assert len(await stored_leases(container)) == 4


async def test_a_lease_container_may_be_partitioned_by_partition_key(
    outbox: Outbox, account: CosmosClient
) -> None:
    database = account.get_database_client("outbox")
    container = await database.create_container("gremlin", PartitionKey("/partitionKey"))
    await outbox.write("1")
    await outbox.start(app={"lease_container_name": "gremlin"})
    await checkpoint_written(container)
    assert all(lease["partitionKey"] == lease["id"] for lease in await stored_leases(container))


@pytest.mark.parametrize(
    ("missing", "named", "remedy"),
    [
        ({"lease_container_name": "data"}, "data", "cannot hold its own leases"),
        ({"lease_container_name": "other"}, "'other'", "/id"),
    ],
)
async def test_an_unsuitable_container_is_named_with_the_remedy(
    outbox: Outbox, account: CosmosClient, missing: dict[str, Any], named: str, remedy: str
) -> None:
    await account.get_database_client("outbox").create_container("other", PartitionKey("/else"))
    with pytest.raises(HostError) as raised:
        await outbox.start(app=missing)
    assert named in str(raised.value)
    assert remedy in str(raised.value)


async def test_with_a_wrong_account_key_the_host_stays_up_and_tries_again(
    outbox: Outbox, server: CosmosServer, caplog: pytest.LogCaptureFixture
) -> None:
    connection = f"AccountEndpoint={server.endpoint};AccountKey=d3Jvbmc=;"
    host = await outbox.start({"COSMOS": connection})

    await eventually(lambda: caplog.text.count("unable to start. the connection 'COSMOS' does not work: 401") > 1)
    assert status_of(host)["leases"] == []


async def test_with_a_start_time_without_a_zone_the_host_stays_up_and_listens_to_nothing(
    outbox: Outbox, caplog: pytest.LogCaptureFixture
) -> None:
    unzoned = {"start_from_time": "2021-02-16T14:19:29", "start_from_beginning": None}
    host = await outbox.start(app=unzoned)

    await eventually(lambda: caplog.text.count("StartTime cannot have DateTimeKind.Unspecified") > 1)
    assert status_of(host)["leases"] == []
