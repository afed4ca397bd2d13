"""A lease stolen while its owner is still sending: two hosts at the same documents, and nothing lost by it."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import aiohttp
import pytest

from outbox_relay.emulators.functions.admin import served
from outbox_relay.emulators.functions.edges import Edges
from outbox_relay.emulators.functions.host import Host
from outbox_relay.emulators.functions.leases import Lease, LeaseStore
from outbox_relay.emulators.testing import FaultClient
from packages.emulators.tests.integration.apps import (
    Delivery,
    eventually,
)
from packages.emulators.tests.integration.conftest import QUIET, Outbox, status_of
from tests.support.watchdog import WATCHDOG_S

pytestmark = [pytest.mark.slow, pytest.mark.weekly]


async def _started(outbox: Outbox, **timings: Any) -> tuple[Host, Host]:
    owner, thief = [
        await outbox.start(name=name, instance=name, **(timings or QUIET)) for name in ("owner", "thief")
    ]
    return owner, thief


async def test_an_owner_that_fails_and_retries_goes_on_beside_the_thief(outbox: Outbox) -> None:
    stolen = asyncio.Event()

    async def fail_until_stolen(delivery: Delivery) -> None:
        if delivery.app == "owner" and not stolen.is_set():
            raise ConnectionError("the broker is away")

    outbox.recorder.behaviour = fail_until_stolen
    owner, thief = await _started(outbox)
    await outbox.write("1")
    await outbox.recorder.until(lambda: len(outbox.recorder.deliveries) >= 2)

    await thief.steal(None)
    await outbox.until_succeeded("1", app="thief")
    stolen.set()

    await outbox.until_succeeded("1", app="owner")
    await eventually(lambda: len(status_of(owner)["leases"]) < 4)
    assert len([lease for lease in await outbox.stored_leases() if lease["Owner"] == "thief-relay"]) == 4


async def test_all_leases_can_be_stolen_at_once(outbox: Outbox) -> None:
    _, thief = await _started(outbox)
    own = status_of(thief)["leases"]

    stolen = await thief.steal(None)

    assert [theft["lease"] for theft in stolen] == ["0", "1", "2", "3"]
    assert [theft["lease"] for theft in stolen if not theft["stolen"]] == own
    assert {theft["from"] for theft in stolen if theft["stolen"]} == {"owner-relay"}
    assert status_of(thief)["leases"] == ["0", "1", "2", "3"]
    for number in range(8):
        await outbox.write(number, key=f"key-{number}")
    await outbox.until_all_succeeded(range(8), app="thief")


async def test_hosts_that_go_on_stealing_from_each_other_lose_nothing_and_end_in_balance(outbox: Outbox) -> None:
    quick = {"lease_acquire_ms": 50, "lease_renew_ms": 100, "lease_expiration_ms": 2_000}
    one, two = await _started(outbox, **quick)

    for number in range(60):
        await outbox.write(number, key=f"key-{number % 7}")
        if number % 5 == 0:
            await (one if number % 10 else two).steal(None)

    await outbox.until_all_succeeded(range(60))
    await eventually(lambda: len(status_of(one)["leases"]) == len(status_of(two)["leases"]) == 2)
    for key in range(7):
        firsts = list(dict.fromkeys(int(id_) for id_ in outbox.recorder.succeeded_ids() if int(id_) % 7 == key))
        assert firsts == sorted(firsts)


async def test_hosts_that_share_take_leases_from_each_other_now_and_then_in_the_midst_of_invocations(
    outbox: Outbox,
) -> None:
    one, two = (
        outbox.host(name=name, instance=name, lease_expiration_ms=5_000, edges=Edges(seed))
        for seed, name in enumerate(("one", "two"))
    )

    async def take_a_while(_: Delivery) -> None:
        await asyncio.sleep(0.15)

    outbox.recorder.behaviour = take_a_while
    await one.start()
    await two.start()

    def lost() -> int:
        return sum(host.edges.as_json()["edges"].get("lease-lost-mid-invocation", 0) for host in (one, two))

    numbers = itertools.count()
    async with asyncio.timeout(WATCHDOG_S):
        while lost() < 3:
            number = next(numbers)
            await outbox.write(number, key=f"key-{number % 7}")
    written = {str(number) for number in range(next(numbers))}

    await outbox.recorder.until(lambda: set(outbox.recorder.succeeded_ids()) == written)


async def test_a_lease_wanted_twice_at_once_gets_one_processor(
    outbox: Outbox, faults: FaultClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = outbox.host(**QUIET)
    # Of one lease the host does not learn that it has acquired it: so no owner but itself stands in the way.
    await faults.add("drop-after", "replace", "leases")
    await host.start()
    (token,) = {"0", "1", "2", "3"} - set(status_of(host)["leases"])
    readers = 0
    both_have_read = asyncio.Event()
    read, acquire = LeaseStore.all, LeaseStore.acquire

    async def read_and_count(store: LeaseStore) -> list[Lease]:
        nonlocal readers
        leases = await read(store)
        readers += 1
        if readers == 2:
            both_have_read.set()
        return leases

    async def acquire_when_both_have_read(store: LeaseStore, lease: Lease) -> Lease:
        await both_have_read.wait()
        return await acquire(store, lease)

    monkeypatch.setattr(LeaseStore, "all", read_and_count)
    monkeypatch.setattr(LeaseStore, "acquire", acquire_when_both_have_read)
    attempts = await asyncio.gather(host.steal(token), host.steal(token))

    assert sorted(theft["stolen"] for (theft,) in attempts) == [False, True]
    assert status_of(host)["leases"] == ["0", "1", "2", "3"]


async def test_a_host_that_stops_steals_nothing(outbox: Outbox) -> None:
    owner, thief = await _started(outbox)
    await thief.stop()

    assert await thief.steal(None) == []
    assert len(status_of(owner)["leases"]) >= 2


async def test_the_admin_port_makes_a_host_steal(outbox: Outbox, faults: FaultClient) -> None:
    owner, thief = await _started(outbox)
    token = next(token for token in status_of(owner)["leases"] if token not in status_of(thief)["leases"])
    nonsense: list[Any] = [{"lease": 1}, {"leases": ["0"]}, [], "0"]
    async with served(thief, 0) as port, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:

        async def post(path: str, body: Any) -> tuple[int, Any]:
            async with http.post(path, json=body) as response:
                return response.status, await response.json()

        one = await post("/admin/steal", {"lease": token})
        again = await post("/admin/steal", {"lease": token})
        every = await post("/admin/steal", {})
        assert (await post("/admin/steal", {"lease": "9"}))[0] == 404
        for body in nonsense:
            assert (await post("/admin/steal", body))[0] == 400
        await faults.add("unavailable", "query", "leases", count=10)
        status, answer = await post("/admin/steal", {})

    taken = {"function": "relay", "lease": token, "from": "owner-relay", "stolen": True}
    assert one == (200, {"leases": [taken]})
    assert again == (200, {"leases": [taken | {"from": "thief-relay", "stolen": False}]})
    assert [lease["lease"] for lease in every[1]["leases"]] == ["0", "1", "2", "3"]
    assert (status, answer["error"].startswith("the leases cannot be taken: 503 ")) == (503, True)
