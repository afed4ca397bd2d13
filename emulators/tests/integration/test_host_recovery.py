"""How many failed reads cost a lease: as many as the trigger's own client needs, not as azure-cosmos does."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from azure.cosmos.aio import ContainerProxy

from emulators.tests.integration.apps import Delivery, Recorder, eventually, stored_leases, write_app
from emulators.tests.integration.conftest import HostFactory
from outbox_emulators.cosmos.server import CosmosServer
from outbox_emulators.functions.host import Host
from outbox_emulators.testing import FaultClient

pytestmark = pytest.mark.usefixtures("leases")

NO_RENEWALS = {"lease_acquire_ms": 3_600_000, "lease_renew_ms": 3_600_000, "lease_expiration_ms": 3_600_000}


@pytest.fixture
async def server() -> AsyncIterator[CosmosServer]:
    """With one physical partition, so that each failed read is of the same lease."""
    async with CosmosServer(physical_partitions=1) as started:
        yield started


def given_up(host: Host) -> int:
    return int(host.edges.as_json()["edges"].get("lease-given-up", 0))


@pytest.mark.usefixtures("data", "recorder")
@pytest.mark.parametrize(("kind", "reads"), [("throttle", 10), ("unavailable", 1), ("timeout", 1)])
async def test_a_lease_is_given_up_after_as_many_failed_reads_as_by_the_trigger(
    tmp_path: Path, host_of: HostFactory, faults: FaultClient, kind: str, reads: int
) -> None:
    host = host_of(write_app(tmp_path), **NO_RENEWALS)
    await host.start()

    fault = await faults.add(kind, "read-feed", "data", for_ms=60_000)
    await eventually(lambda: given_up(host) == 1)

    assert await faults.applied(fault) == reads


@pytest.mark.usefixtures("data")
async def test_dropped_connections_never_cost_a_lease(
    tmp_path: Path, data: ContainerProxy, recorder: Recorder, host_of: HostFactory, faults: FaultClient
) -> None:
    host = host_of(write_app(tmp_path), **NO_RENEWALS)
    await host.start()
    fault = await faults.add("drop", "read-feed", "data", count=10)
    await data.create_item({"id": "1", "partitionKey": "a"})

    await recorder.until(lambda: recorder.succeeded_ids() == ["1"])

    assert await faults.applied(fault) == 10
    assert given_up(host) == 0


@pytest.mark.usefixtures("data", "recorder")
async def test_a_host_without_a_connection_stops_without_delay(
    tmp_path: Path, host_of: HostFactory, faults: FaultClient
) -> None:
    host = host_of(write_app(tmp_path), shutdown_timeout_s=60.0, **NO_RENEWALS)
    await host.start()
    fault = await faults.add("drop", for_ms=60_000)

    async def is_applied() -> bool:
        return await faults.applied(fault) > 3

    await eventually(is_applied)
    await host.stop()


@pytest.mark.usefixtures("data", "recorder")
async def test_two_reads_of_a_partition_that_is_gone_end_its_lease(
    tmp_path: Path, host_of: HostFactory, faults: FaultClient, leases: ContainerProxy
) -> None:
    host = host_of(write_app(tmp_path), **NO_RENEWALS)
    await host.start()
    fault = await faults.add("gone", "read-feed", "data", count=2)

    async def by_range() -> bool:
        return [lease["version"] for lease in await stored_leases(leases)] == [1]

    await eventually(by_range)
    assert await faults.applied(fault) == 2


async def test_leases_and_waits_for_a_retry_are_logged_at_debug_as_by_the_real_host(
    tmp_path: Path,
    data: ContainerProxy,
    recorder: Recorder,
    host_of: HostFactory,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail_once(delivery: Delivery) -> None:
        if delivery.retry_count == 0:
            raise RuntimeError("once")

    recorder.behaviour = fail_once
    caplog.set_level(logging.DEBUG, "outbox_emulators.functions")
    await data.create_item({"id": "1", "partitionKey": "a"})
    await host_of(write_app(tmp_path)).start()
    await recorder.until(lambda: recorder.succeeded_ids() == ["1"])

    levels = {record.getMessage()[:11]: record.levelno for record in caplog.records}
    assert (levels["Waiting for"], levels["Lease 0 was"]) == (logging.DEBUG, logging.DEBUG)
