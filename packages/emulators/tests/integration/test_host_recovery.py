"""How many failed reads cost a lease: as many as the trigger's own client needs, not as azure-cosmos does."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest

from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.functions.host import Host
from outbox_relay.emulators.testing import FaultClient
from packages.emulators.tests.integration.apps import Delivery, eventually
from packages.emulators.tests.integration.conftest import QUIET, Outbox


@pytest.fixture
async def server() -> AsyncIterator[CosmosServer]:
    """With one physical partition, so that each failed read is of the same lease."""
    async with CosmosServer(physical_partitions=1) as started:
        yield started


def given_up(host: Host) -> int:
    return int(host.edges.as_json()["edges"].get("lease-given-up", 0))


@pytest.mark.parametrize(("kind", "reads"), [("throttle", 10), ("unavailable", 1), ("timeout", 1)])
async def test_a_lease_is_given_up_after_as_many_failed_reads_as_by_the_trigger(
    outbox: Outbox, faults: FaultClient, kind: str, reads: int
) -> None:
    host = await outbox.start(**QUIET)

    fault = await faults.add(kind, "read-feed", "data", for_ms=60_000)
    await eventually(lambda: given_up(host) == 1)

    assert await faults.applied(fault) == reads


async def test_dropped_connections_never_cost_a_lease(outbox: Outbox, faults: FaultClient) -> None:
    host = await outbox.start(**QUIET)
    fault = await faults.add("drop", "read-feed", "data", count=10)
    await outbox.write("1")

    await outbox.until_succeeded("1")

    assert await faults.applied(fault) == 10
    assert given_up(host) == 0


async def test_a_host_without_a_connection_stops_without_delay(outbox: Outbox, faults: FaultClient) -> None:
    host = await outbox.start(shutdown_timeout_s=60.0, **QUIET)
    fault = await faults.add("drop", for_ms=60_000)

    async def is_applied() -> bool:
        return await faults.applied(fault) > 3

    await eventually(is_applied)
    await host.stop()


async def test_two_reads_of_a_partition_that_is_gone_end_its_lease(outbox: Outbox, faults: FaultClient) -> None:
    await outbox.start(**QUIET)
    fault = await faults.add("gone", "read-feed", "data", count=2)

    async def by_range() -> bool:
        return [lease["version"] for lease in await outbox.stored_leases()] == [1]

    await eventually(by_range)
    assert await faults.applied(fault) == 2


async def test_leases_and_waits_for_a_retry_are_logged_at_debug_as_by_the_real_host(
    outbox: Outbox, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail_once(delivery: Delivery) -> None:
        if delivery.retry_count == 0:
            raise RuntimeError("once")

    outbox.recorder.behaviour = fail_once
    caplog.set_level(logging.DEBUG, "outbox_relay.emulators.functions")
    await outbox.write("1")
    await outbox.start()
    await outbox.until_succeeded("1")

    levels = {record.getMessage()[:11]: record.levelno for record in caplog.records}
    assert (levels["Waiting for"], levels["Lease 0 was"]) == (logging.DEBUG, logging.DEBUG)
