"""A host whose Cosmos DB misbehaves at the wire, and one that dies at a chosen point: nothing is lost."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from outbox_relay.emulators.functions.crashing import Crash, CrashPoint, Victim
from outbox_relay.emulators.testing import FaultClient
from packages.emulators.tests.integration.apps import (
    eventually,
)
from packages.emulators.tests.integration.conftest import QUIET, Outbox, status_of

pytestmark = [pytest.mark.slow, pytest.mark.weekly]


@pytest.mark.parametrize("kind", ["throttle", "unavailable", "timeout", "drop", "drop-after"])
async def test_each_document_arrives_once_after_any_fault_of_the_feed(
    outbox: Outbox, faults: FaultClient, kind: str
) -> None:
    await outbox.start()
    fault = await faults.add(kind, "read-feed", "data", count=4)
    await outbox.write(*range(8))

    await outbox.recorder.until(lambda: len(outbox.recorder.succeeded_ids()) == 8)

    assert outbox.recorder.succeeded_ids() == [str(number) for number in range(8)]
    assert await faults.applied(fault) == 4


async def test_a_checkpoint_whose_answer_was_lost_is_written_all_the_same(
    outbox: Outbox, faults: FaultClient
) -> None:
    host = await outbox.start(**QUIET)
    fault = await faults.add("drop-after", "replace", "leases")

    await outbox.write("1")
    await outbox.until_checkpointed()
    await outbox.write("2")
    await outbox.recorder.until(lambda: "2" in outbox.recorder.succeeded_ids())

    assert outbox.recorder.succeeded_ids() == ["1", "2"]
    assert await faults.applied(fault) == 1
    assert status_of(host)["leases"] == ["0", "1", "2", "3"]


async def test_a_checkpoint_that_timed_out_costs_the_lease_and_what_was_not_recorded_is_delivered_again(
    outbox: Outbox, faults: FaultClient
) -> None:
    host = await outbox.start(lease_renew_ms=3_600_000)
    await faults.add("timeout", "replace", "leases")

    await outbox.write("1")
    await eventually(lambda: "408" in (status_of(host)["last_error"] or ""))
    await eventually(lambda: len(status_of(host)["leases"]) == 4)
    await outbox.write("2")
    await outbox.recorder.until(lambda: "2" in outbox.recorder.succeeded_ids())

    assert outbox.recorder.succeeded_ids() == ["1", "1", "2"]
    assert host.edges.as_json()["edges"]["lease-given-up"] == 1


async def test_a_read_that_the_sdk_gives_up_costs_the_lease_until_the_next_acquire_interval(
    outbox: Outbox, faults: FaultClient
) -> None:
    host = await outbox.start()
    outage = await faults.add("unavailable", "read-feed", "data", for_ms=60_000)
    await outbox.write("1")

    await eventually(lambda: host.edges.as_json()["edges"].get("lease-given-up", 0) >= 1)
    await faults.remove(outage)

    await outbox.until_succeeded("1")
    await eventually(lambda: len(status_of(host)["leases"]) == 4)


async def test_a_lease_that_cannot_even_be_released_is_left_to_expire(outbox: Outbox, faults: FaultClient) -> None:
    host = await outbox.start(instance="mine", lease_renew_ms=3_600_000, lease_expiration_ms=3_600_000)
    outage = await faults.add("timeout", "replace", "leases", for_ms=60_000)
    await faults.add("timeout", "read-feed", "data", count=40)

    await eventually(lambda: host.edges.as_json()["edges"].get("lease-left-to-expire", 0) == 4)
    await faults.remove(outage)
    await asyncio.sleep(0.3)  # several acquire intervals

    assert status_of(host)["leases"] == []
    assert {lease["Owner"] for lease in await outbox.stored_leases()} == {"mine-relay"}


async def test_a_lease_whose_acquisition_was_not_confirmed_is_taken_once_it_has_expired(
    outbox: Outbox, faults: FaultClient
) -> None:
    await outbox.write("1")
    await faults.add("drop-after", "replace", "leases", count=4)
    host = await outbox.start(instance="mine")

    assert len(status_of(host)["leases"]) < 4
    await eventually(lambda: len(status_of(host)["leases"]) == 4)
    await outbox.until_succeeded("1")


async def test_what_was_delivered_while_nothing_could_be_checkpointed_is_delivered_again_until_it_can(
    outbox: Outbox, faults: FaultClient
) -> None:
    hosts = [outbox.host(name=name, instance=name) for name in ("one", "two")]
    for host in hosts:
        await host.start()
    outage = await faults.add("timeout", "replace", "leases", for_ms=60_000)

    for number in range(20):
        await outbox.write(number, key=f"key-{number % 5}")
    await eventually(lambda: any("408" in (status_of(host)["last_error"] or "") for host in hosts))
    await faults.remove(outage)

    await outbox.until_all_succeeded(range(20))
    await eventually(lambda: sum(len(status_of(host)["leases"]) for host in hosts) == 4)
    for key in range(5):
        firsts = dict.fromkeys(int(id_) for id_ in outbox.recorder.succeeded_ids() if int(id_) % 5 == key)
        assert list(firsts) == sorted(firsts)


def test_death_comes_once_and_only_at_the_point_that_is_armed() -> None:
    deaths: list[Victim] = []
    crash = Crash({victim: partial(deaths.append, victim) for victim in Victim})

    crash.reached(CrashPoint.BEFORE_CHECKPOINT)
    assert deaths == []
    crash.arm(CrashPoint.BEFORE_CHECKPOINT)
    crash.reached(CrashPoint.BEFORE_INVOCATION)
    assert deaths == []
    crash.reached(CrashPoint.BEFORE_CHECKPOINT)
    crash.reached(CrashPoint.BEFORE_CHECKPOINT)
    assert deaths == [Victim.MACHINE]
    crash.arm(CrashPoint.AFTER_CHECKPOINT, Victim.WORKER)
    crash.disarm()
    crash.reached(CrashPoint.AFTER_CHECKPOINT)
    assert deaths == [Victim.MACHINE]
    crash.arm(CrashPoint.AFTER_CHECKPOINT, Victim.WORKER)
    crash.reached(CrashPoint.AFTER_CHECKPOINT)
    assert deaths == [Victim.MACHINE, Victim.WORKER]
