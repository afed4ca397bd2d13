"""Leases: their documents, and how hosts share, take over and lose them."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient

from emulators.tests.integration.apps import (
    Delivery,
    Recorder,
    checkpoint_written,
    eventually,
    stored_leases,
    write_app,
)
from emulators.tests.integration.conftest import HostFactory
from outbox_emulators.cosmos.server import CosmosServer
from outbox_emulators.functions.errors import HostError
from outbox_emulators.functions.host import Host


async def _write(data: ContainerProxy, numbers: range) -> None:
    for number in numbers:
        await data.create_item({"id": str(number), "partitionKey": f"key-{number}"})


def _leases_of(host: Host) -> list[str]:
    return list(host.status()["functions"][0]["leases"])


async def test_a_lease_document_has_the_shape_of_the_dotnet_processors(
    tmp_path: Path,
    server: CosmosServer,
    data: ContainerProxy,
    leases: ContainerProxy,
    recorder: Recorder,
    host_of: HostFactory,
) -> None:
    await data.create_item({"id": "1", "partitionKey": "a"})
    await host_of(write_app(tmp_path, lease_container_prefix="%WHO%-"), {"WHO": "mine"}, instance="one").start()
    await checkpoint_written(leases)
    stored = await stored_leases(leases)
    rid = (await data.read())["_rid"]
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


async def test_two_hosts_share_four_leases_equally_and_lose_nothing(
    tmp_path: Path, data: ContainerProxy, leases: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    # Neither host takes a lease because the other renews it late: only to balance them.
    one, two = (
        host_of(write_app(tmp_path / name, name=name), instance=name, lease_expiration_ms=60_000)
        for name in ("one", "two")
    )
    await one.start()
    await _write(data, range(20))
    await two.start()

    await eventually(lambda: len(_leases_of(one)) == len(_leases_of(two)) == 2)
    await _write(data, range(20, 60))
    await recorder.until(lambda: set(recorder.succeeded_ids()) == {str(number) for number in range(60)})
    owners = [lease["Owner"] for lease in await stored_leases(leases)]
    assert sorted(owners) == ["one-relay", "one-relay", "two-relay", "two-relay"]
    assert set(_leases_of(one)).isdisjoint(_leases_of(two))


@pytest.mark.usefixtures("leases")
async def test_a_host_that_stops_leaves_its_leases_to_the_other_at_once(
    tmp_path: Path, data: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    hours = {"lease_expiration_ms": 3_600_000}
    one, two = (host_of(write_app(tmp_path / name, name=name), instance=name, **hours) for name in ("one", "two"))
    await one.start()
    await two.start()
    await one.stop()

    await eventually(lambda: len(_leases_of(two)) == 4)
    await _write(data, range(8))
    await recorder.until(lambda: len(recorder.succeeded_ids("two")) == 8)


@pytest.mark.usefixtures("leases")
async def test_leases_that_nobody_renews_are_taken_over_after_their_expiry(
    tmp_path: Path, data: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    never = asyncio.Event()

    async def hang(delivery: Delivery) -> None:
        if delivery.app == "dead":
            await never.wait()

    recorder.behaviour = hang
    await data.create_item({"id": "1", "partitionKey": "a"})
    dead = host_of(write_app(tmp_path / "dead", name="dead"), shutdown_timeout_s=0.05)
    await dead.start()
    await recorder.until(lambda: len(recorder.deliveries) == 1)
    await dead.stop()
    await host_of(write_app(tmp_path / "heir", name="heir")).start()
    await recorder.until(lambda: recorder.succeeded_ids("heir") == ["1"])


@pytest.mark.usefixtures("leases")
async def test_a_host_takes_back_what_a_host_of_the_same_name_left_behind(
    tmp_path: Path, data: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    never = asyncio.Event()

    async def hang_at_first(_: Delivery) -> None:
        if len(recorder.deliveries) == 1:
            await never.wait()

    recorder.behaviour = hang_at_first
    await data.create_item({"id": "1", "partitionKey": "a"})
    app = write_app(tmp_path)
    options = {"instance": "same", "lease_expiration_ms": 3_600_000}
    dead = host_of(app, shutdown_timeout_s=0.05, **options)
    await dead.start()
    await recorder.until(lambda: len(recorder.deliveries) == 1)
    await dead.stop()
    await host_of(app, **options).start()
    await recorder.until(lambda: recorder.succeeded_ids() == ["1"])


async def test_when_a_lease_is_stolen_during_an_invocation_both_deliver_and_only_the_thief_checkpoints(
    tmp_path: Path, data: ContainerProxy, leases: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    release = asyncio.Event()

    async def hold_the_old_owner(delivery: Delivery) -> None:
        if delivery.app == "old":
            await release.wait()

    recorder.behaviour = hold_the_old_owner
    await data.create_item({"id": "1", "partitionKey": "a"})
    # It neither notices by itself that it has lost its leases, nor steals them back.
    oblivious = {"lease_renew_ms": 3_600_000, "lease_acquire_ms": 3_600_000}
    old = host_of(write_app(tmp_path / "old", name="old"), instance="old", **oblivious)
    await old.start()
    await recorder.until(lambda: len(recorder.deliveries) == 1)
    await host_of(write_app(tmp_path / "new", name="new"), instance="new").start()
    await recorder.until(lambda: recorder.succeeded_ids("new") == ["1"])
    await checkpoint_written(leases)
    before = await stored_leases(leases)
    release.set()
    await recorder.until(lambda: recorder.succeeded_ids("old") == ["1"])
    (checkpointed,) = [lease["LeaseToken"] for lease in before if lease["ContinuationToken"]]
    await eventually(lambda: checkpointed not in _leases_of(old))
    after = await stored_leases(leases)
    assert [lease["ContinuationToken"] for lease in after] == [lease["ContinuationToken"] for lease in before]
    assert {lease["Owner"] for lease in after} == {"new-relay"}


async def test_a_host_that_finds_its_lease_stolen_stops_reading_and_leaves_it_alone(
    tmp_path: Path, data: ContainerProxy, leases: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    host = host_of(write_app(tmp_path), instance="old")
    await host.start()
    (stolen, *_) = await stored_leases(leases)
    await leases.replace_item(stolen["id"], {**stolen, "Owner": "thief", "timestamp": "2999-01-01T00:00:00Z"})

    await eventually(lambda: _leases_of(host) == ["1", "2", "3"])
    assert (await stored_leases(leases))[0]["Owner"] == "thief"


async def test_leases_that_are_deleted_while_they_are_processed_end_that_in_silence(
    tmp_path: Path,
    data: ContainerProxy,
    leases: ContainerProxy,
    recorder: Recorder,
    host_of: HostFactory,
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = host_of(write_app(tmp_path))
    await host.start()
    for lease in await stored_leases(leases):
        await leases.delete_item(lease["id"], partition_key=lease["id"])

    await eventually(lambda: _leases_of(host) == [])
    await data.create_item({"id": "1", "partitionKey": "a"})
    await asyncio.sleep(0.3)  # several acquire intervals

    assert (await stored_leases(leases), recorder.deliveries) == ([], [])
    assert not [record for record in caplog.records if record.levelno > logging.WARNING]


@pytest.mark.usefixtures("data")
async def test_the_lease_container_is_created_where_the_trigger_says_so(
    tmp_path: Path, account: CosmosClient, recorder: Recorder, host_of: HostFactory
) -> None:
    await host_of(write_app(tmp_path, create_lease_container_if_not_exists=True)).start()
    container = account.get_database_client("outbox").get_container_client("leases")
    properties = await container.read()
    assert (properties["partitionKey"]["paths"], properties["defaultTtl"]) == (["/id"], -1)
    assert len(await stored_leases(container)) == 4


async def test_a_lease_container_may_be_partitioned_by_partition_key(
    tmp_path: Path, account: CosmosClient, data: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    database = account.get_database_client("outbox")
    container = await database.create_container("gremlin", PartitionKey("/partitionKey"))
    await data.create_item({"id": "1", "partitionKey": "a"})
    await host_of(write_app(tmp_path, lease_container_name="gremlin")).start()
    await checkpoint_written(container)
    assert all(lease["partitionKey"] == lease["id"] for lease in await stored_leases(container))


@pytest.mark.parametrize(
    ("missing", "named", "remedy"),
    [
        ({"lease_container_name": "data"}, "data", "cannot hold its own leases"),
        ({"lease_container_name": "other"}, "'other'", "/id"),
    ],
)
@pytest.mark.usefixtures("leases", "data", "recorder")
async def test_an_unsuitable_container_is_named_with_the_remedy(
    tmp_path: Path, account: CosmosClient, host_of: HostFactory, missing: dict[str, Any], named: str, remedy: str
) -> None:
    await account.get_database_client("outbox").create_container("other", PartitionKey("/else"))
    with pytest.raises(HostError) as raised:
        await host_of(write_app(tmp_path, **missing)).start()
    assert named in str(raised.value)
    assert remedy in str(raised.value)


@pytest.mark.usefixtures("leases", "data", "recorder")
async def test_with_a_wrong_account_key_the_host_stays_up_and_tries_again(
    tmp_path: Path, server: CosmosServer, host_of: HostFactory, caplog: pytest.LogCaptureFixture
) -> None:
    connection = f"AccountEndpoint={server.endpoint};AccountKey=d3Jvbmc=;"
    host = host_of(write_app(tmp_path), {"COSMOS": connection})
    await host.start()

    await eventually(lambda: caplog.text.count("unable to start. the connection 'COSMOS' does not work: 401") > 1)
    assert host.status()["functions"][0]["leases"] == []


@pytest.mark.usefixtures("leases", "data", "recorder")
async def test_with_a_start_time_without_a_zone_the_host_stays_up_and_listens_to_nothing(
    tmp_path: Path, host_of: HostFactory, caplog: pytest.LogCaptureFixture
) -> None:
    app = write_app(tmp_path, start_from_time="2021-02-16T14:19:29", start_from_beginning=None)
    host = host_of(app)
    await host.start()

    await eventually(lambda: caplog.text.count("StartTime cannot have DateTimeKind.Unspecified") > 1)
    assert host.status()["functions"][0]["leases"] == []
