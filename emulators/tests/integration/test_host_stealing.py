"""A lease stolen while its owner is still sending: two hosts at the same documents, and nothing lost by it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from azure.cosmos.aio import ContainerProxy

from emulators.tests.integration.apps import (
    WITHIN_S,
    Delivery,
    Recorder,
    checkpoint_written,
    eventually,
    stored_leases,
    write_app,
)
from emulators.tests.integration.conftest import HostFactory
from outbox_emulators.functions.admin import served
from outbox_emulators.functions.edges import Edges
from outbox_emulators.functions.host import Host
from outbox_emulators.functions.leases import Lease, LeaseStore
from outbox_emulators.testing import FaultClient

# Neither host takes or renews a lease by itself during a test.
QUIET = {"lease_acquire_ms": 3_600_000, "lease_renew_ms": 3_600_000, "lease_expiration_ms": 3_600_000}


def _hosts(tmp_path: Path, host_of: HostFactory, **timings: int) -> tuple[Host, Host]:
    owner, thief = (
        host_of(write_app(tmp_path / name, name=name), instance=name, **(timings or QUIET))
        for name in ("owner", "thief")
    )
    return owner, thief


def _status(host: Host) -> dict[str, Any]:
    status: dict[str, Any] = host.status()["functions"][0]
    return status


def _holding(release: asyncio.Event, app: str = "owner") -> Callable[[Delivery], Awaitable[None]]:
    async def hold(delivery: Delivery) -> None:
        if delivery.app == app:
            await release.wait()

    return hold


async def _owner_of(leases: ContainerProxy, token: str) -> tuple[str, str]:
    (lease,) = [lease for lease in await stored_leases(leases) if lease["LeaseToken"] == token]
    return lease["Owner"], lease["ContinuationToken"]


async def test_a_lease_stolen_during_an_invocation_is_delivered_by_both_and_its_first_owner_checkpoints_nothing(
    tmp_path: Path, data: ContainerProxy, leases: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    release = asyncio.Event()
    recorder.behaviour = _holding(release)
    owner, thief = _hosts(tmp_path, host_of)
    await owner.start()
    await thief.start()
    await data.create_item({"id": "1", "partitionKey": "a"})
    await recorder.until(lambda: len(recorder.deliveries) == 1)
    (token,) = _status(owner)["invoking"]

    stolen = await thief.steal(token)

    assert stolen == [{"function": "relay", "lease": token, "from": "owner-relay", "stolen": True}]
    await recorder.until(lambda: recorder.succeeded_ids("thief") == ["1"])
    await data.create_item({"id": "2", "partitionKey": "a"})
    await recorder.until(lambda: recorder.succeeded_ids("thief") == ["1", "2"])
    await checkpoint_written(leases)
    await eventually(lambda: _status(thief)["invoking"] == [])
    assert _status(owner)["invoking"] == [token]
    before = await _owner_of(leases, token)

    release.set()

    await recorder.until(lambda: recorder.succeeded_ids("owner") == ["1"])
    await eventually(lambda: token not in _status(owner)["leases"])
    assert before[0] == "thief-relay"
    assert await _owner_of(leases, token) == before
    assert (_status(owner)["documents_lost"], _status(owner)["last_error"]) == (0, None)
    await data.create_item({"id": "3", "partitionKey": "a"})
    await recorder.until(lambda: recorder.succeeded_ids("thief") == ["1", "2", "3"])
    assert recorder.succeeded_ids("owner") == ["1"]


async def test_an_owner_that_fails_and_retries_goes_on_beside_the_thief(
    tmp_path: Path, data: ContainerProxy, recorder: Recorder, host_of: HostFactory, leases: ContainerProxy
) -> None:
    stolen = asyncio.Event()

    async def fail_until_stolen(delivery: Delivery) -> None:
        if delivery.app == "owner" and not stolen.is_set():
            raise ConnectionError("the broker is away")

    recorder.behaviour = fail_until_stolen
    owner, thief = _hosts(tmp_path, host_of)
    await owner.start()
    await thief.start()
    await data.create_item({"id": "1", "partitionKey": "a"})
    await recorder.until(lambda: len(recorder.deliveries) >= 2)

    await thief.steal(None)
    await recorder.until(lambda: recorder.succeeded_ids("thief") == ["1"])
    stolen.set()

    await recorder.until(lambda: recorder.succeeded_ids("owner") == ["1"])
    await eventually(lambda: len(_status(owner)["leases"]) < 4)
    assert len([lease for lease in await stored_leases(leases) if lease["Owner"] == "thief-relay"]) == 4


@pytest.mark.usefixtures("leases")
async def test_all_leases_can_be_stolen_at_once(
    tmp_path: Path, data: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    owner, thief = _hosts(tmp_path, host_of)
    await owner.start()
    await thief.start()
    own = _status(thief)["leases"]

    stolen = await thief.steal(None)

    assert [theft["lease"] for theft in stolen] == ["0", "1", "2", "3"]
    assert [theft["lease"] for theft in stolen if not theft["stolen"]] == own
    assert {theft["from"] for theft in stolen if theft["stolen"]} == {"owner-relay"}
    assert _status(thief)["leases"] == ["0", "1", "2", "3"]
    for number in range(8):
        await data.create_item({"id": str(number), "partitionKey": f"key-{number}"})
    await recorder.until(lambda: set(recorder.succeeded_ids("thief")) == {str(number) for number in range(8)})


@pytest.mark.usefixtures("leases")
async def test_hosts_that_go_on_stealing_from_each_other_lose_nothing_and_end_in_balance(
    tmp_path: Path, data: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    quick = {"lease_acquire_ms": 50, "lease_renew_ms": 100, "lease_expiration_ms": 2_000}
    one, two = _hosts(tmp_path, host_of, **quick)
    await one.start()
    await two.start()

    for number in range(60):
        await data.create_item({"id": str(number), "partitionKey": f"key-{number % 7}"})
        if number % 5 == 0:
            await (one if number % 10 else two).steal(None)

    await recorder.until(lambda: set(recorder.succeeded_ids()) == {str(number) for number in range(60)})
    await eventually(lambda: len(_status(one)["leases"]) == len(_status(two)["leases"]) == 2)
    for key in range(7):
        firsts = list(dict.fromkeys(int(id_) for id_ in recorder.succeeded_ids() if int(id_) % 7 == key))
        assert firsts == sorted(firsts)


@pytest.mark.timeout(150)
@pytest.mark.usefixtures("leases")
async def test_hosts_that_share_take_leases_from_each_other_now_and_then_in_the_midst_of_invocations(
    tmp_path: Path, data: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    one, two = (
        host_of(write_app(tmp_path / name, name=name), instance=name, lease_expiration_ms=5_000, edges=Edges(seed))
        for seed, name in enumerate(("one", "two"))
    )

    async def take_a_while(_: Delivery) -> None:
        await asyncio.sleep(0.15)

    recorder.behaviour = take_a_while
    await one.start()
    await two.start()

    def lost() -> int:
        return sum(host.edges.as_json()["edges"].get("lease-lost-mid-invocation", 0) for host in (one, two))

    numbers = itertools.count()
    async with asyncio.timeout(3 * WITHIN_S):
        while lost() < 3:
            number = next(numbers)
            await data.create_item({"id": str(number), "partitionKey": f"key-{number % 7}"})
    written = {str(number) for number in range(next(numbers))}

    await recorder.until(lambda: set(recorder.succeeded_ids()) == written)


@pytest.mark.usefixtures("leases", "data", "recorder")
async def test_a_lease_wanted_twice_at_once_gets_one_processor(
    tmp_path: Path, host_of: HostFactory, faults: FaultClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = host_of(write_app(tmp_path), **QUIET)
    # Of one lease the host does not learn that it has acquired it: so no owner but itself stands in the way.
    await faults.add("drop-after", "replace", "leases")
    await host.start()
    (token,) = {"0", "1", "2", "3"} - set(_status(host)["leases"])
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
    assert _status(host)["leases"] == ["0", "1", "2", "3"]


@pytest.mark.usefixtures("leases", "data", "recorder")
async def test_a_host_that_stops_steals_nothing(tmp_path: Path, host_of: HostFactory) -> None:
    owner, thief = _hosts(tmp_path, host_of)
    await owner.start()
    await thief.start()
    await thief.stop()

    assert await thief.steal(None) == []
    assert len(_status(owner)["leases"]) >= 2


@pytest.mark.usefixtures("leases", "data", "recorder")
async def test_the_admin_port_makes_a_host_steal(
    tmp_path: Path, host_of: HostFactory, faults: FaultClient
) -> None:
    owner, thief = _hosts(tmp_path, host_of)
    await owner.start()
    await thief.start()
    token = next(token for token in _status(owner)["leases"] if token not in _status(thief)["leases"])
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
