"""The requests that leases cost, as Microsoft.Azure.Cosmos 3.64.0 was recorded to make them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import AzureError
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient

from outbox_relay.emulators.functions.edges import Edges
from outbox_relay.emulators.functions.feed import PartitionRange
from outbox_relay.emulators.functions.leases import Lease, LeaseStore
from packages.emulators.tests.integration.apps import Recorder, eventually, stored_leases, write_app
from packages.emulators.tests.integration.conftest import HostFactory
from tests.support.watchdog import WATCHDOG_S

RANGES = [PartitionRange("0", "", "80"), PartitionRange("1", "80", "FF")]


class Observed:
    """A container that records its requests and their outcomes."""

    def __init__(self, container: ContainerProxy) -> None:
        self._container = container
        self.requests: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._container, name)

        def query(*arguments: Any, **options: Any) -> Any:
            self.requests.append("query")
            return method(*arguments, **options)

        async def request(item: Any, *arguments: Any, **options: Any) -> Any:
            id_ = item["id"] if isinstance(item, dict) else item
            what = f"{name.removesuffix('_item')} {id_.removeprefix('prefix')}"
            try:
                answer = await method(item, *arguments, **options)
            except AzureError as error:
                self.requests.append(f"{what}: {getattr(error, 'status_code', None)}")
                raise
            self.requests.append(what)
            return answer

        return query if name == "query_items" else request

    def taken(self) -> list[str]:
        requests, self.requests = self.requests, []
        return requests


def _store(observed: Observed, edges: Edges | None = None, owner: str = "mine") -> LeaseStore:
    return LeaseStore(
        observed,  # type: ignore[arg-type]
        prefix="prefix",
        owner=owner,
        partitioned_by_id=True,
        edges=edges or Edges(None),
    )


async def _initialize(store: LeaseStore, awaited: Callable[[], None] = lambda: None) -> None:
    async def ranges() -> list[PartitionRange]:
        return RANGES

    await store.initialize(ranges, wait_s=0.05, stopping=asyncio.Event(), awaited=awaited)


@pytest.fixture
def observed(leases: ContainerProxy) -> Observed:
    return Observed(leases)


async def test_leases_are_created_under_a_lock_and_once(observed: Observed) -> None:
    await _initialize(_store(observed))

    assert observed.taken() == [
        "read .info: 404",
        "create .lock",
        "query",
        "create ..0",
        "create ..1",
        "create .info",
        "delete .lock",
    ]
    await _initialize(_store(observed))
    assert observed.taken() == ["read .info"]


async def test_a_partition_that_leases_by_range_cover_gets_none_of_its_own(
    observed: Observed, leases: ContainerProxy
) -> None:
    for minimum, maximum in (("", "40"), ("40", "80")):
        token = f"{minimum}-{maximum}"
        bounds = {"Range": {"min": minimum, "max": maximum}}
        await leases.create_item(
            {"id": f"prefix..{token}", "version": 1, "LeaseToken": token, "FeedRange": bounds}
        )

    await _initialize(_store(observed))

    assert [lease.token for lease in await _leases(observed)] == ["-40", "1", "40-80"]


async def test_the_lock_lives_for_30_seconds(observed: Observed, leases: ContainerProxy) -> None:
    lock: dict[str, Any] = {}
    store = _store(observed)

    async def ranges() -> list[PartitionRange]:
        lock.update(await leases.read_item("prefix.lock", partition_key="prefix.lock"))
        return RANGES

    await store.initialize(ranges, wait_s=0.05, stopping=asyncio.Event(), awaited=lambda: None)

    assert lock["ttl"] == 30


async def test_every_checkpoint_is_three_requests_and_a_renewal_or_release_two(observed: Observed) -> None:
    edges = Edges(None)
    store = _store(observed, edges)
    await _initialize(store)
    (lease, _) = await store.all()
    observed.taken()

    acquired = lease = await store.acquire(lease)
    assert observed.taken() == ["replace ..0"]
    for continuation in ('"1"', '"2"'):
        lease = await store.checkpoint(lease, continuation)
        assert observed.taken() == ["replace ..0: 412", "read ..0", "replace ..0"]
    # The renewal keeps the checkpoints that were written since the lease was acquired.
    await store.renew(acquired)
    assert observed.taken() == ["read ..0", "replace ..0"]
    await store.release(lease)
    assert observed.taken() == ["read ..0", "replace ..0"]
    (lease, _) = await store.all()
    assert (lease.owner, lease.continuation) == (None, '"2"')
    assert edges.as_json()["edges"] == {"checkpoint-conflict": 2}


SPLIT_AND_MERGED = [
    PartitionRange("2", "", "40", parents=frozenset("0")),
    PartitionRange("4", "40", "C0", parents=frozenset("01")),
    PartitionRange("3", "C0", "FF", parents=frozenset("1")),
]


@pytest.mark.parametrize("first", ["0", "1"])
async def test_of_two_divisions_that_meet_in_a_partition_the_first_decides_where_its_lease_begins(
    observed: Observed, first: str
) -> None:
    """The processor so loses what the other lease had not passed (two splits and a merge)."""
    store = _store(observed)
    await _initialize(store)
    leases = await store.all()
    for lease in leases if first == "0" else reversed(leases):
        await store.divide(lease, lease.partition.successors(SPLIT_AND_MERGED), f'"{lease.token}"')

    assert {lease.token: lease.continuation for lease in await _leases(observed)} == {
        "2": '"0"',
        "3": '"1"',
        "4": f'"{first}"',
    }


async def test_the_leases_of_a_division_are_created_in_an_order_that_is_drawn(observed: Observed) -> None:
    orders = set()
    for seed in (None, 1, 2, 3, 4):
        store = _store(observed, Edges(seed))
        await store.divide((await _made(store)), SPLIT_AND_MERGED, '"1"')
        made = tuple(each[-1] for each in observed.taken() if each.startswith("create ..") and each[-1] != "0")
        if seed is None:
            assert made == ("2", "4", "3")
        orders.add(made)
        for lease in await store.all():
            await observed.delete_item(lease.id, partition_key=lease.id)

    assert len(orders) > 1
    assert {tuple(sorted(order)) for order in orders} == {("2", "3", "4")}


async def _made(store: LeaseStore) -> Lease:
    """The lease of the first partition."""
    await store._create(store._new_document(RANGES[0]))
    [lease] = [each for each in await store.all() if each.token == "0"]
    return lease


@pytest.mark.parametrize(("present", "made"), [("0", ["0", "3"]), ("1", ["1", "2"]), ("5", ["2", "3", "4", "5"])])
async def test_a_partition_of_which_a_parent_has_a_lease_gets_none_before_that_is_divided(
    observed: Observed, leases: ContainerProxy, present: str, made: list[str]
) -> None:
    await leases.create_item({"id": f"prefix..{present}", "version": 0, "LeaseToken": present})
    store = _store(observed)

    async def ranges() -> list[PartitionRange]:
        return SPLIT_AND_MERGED

    await store.initialize(ranges, wait_s=0.05, stopping=asyncio.Event(), awaited=lambda: None)

    assert [lease.token for lease in await _leases(observed)] == made


async def test_a_lock_that_another_host_holds_is_waited_for(observed: Observed, leases: ContainerProxy) -> None:
    edges, waits = Edges(None), asyncio.Event()
    await leases.create_item({"id": "prefix.lock", "ttl": 30})
    waiting = asyncio.create_task(_initialize(_store(observed, edges), waits.set))
    await waits.wait()
    assert "lock-awaited" in edges.as_json()["edges"]

    await leases.delete_item("prefix.lock", partition_key="prefix.lock")
    async with asyncio.timeout(WATCHDOG_S):
        await waiting
    assert [lease.token for lease in await _leases(observed)] == ["0", "1"]


async def _leases(observed: Observed) -> list[Lease]:
    return await _store(observed).all()


@asynccontextmanager
async def lock_left_behind(container: ContainerProxy, data: ContainerProxy) -> AsyncIterator[str]:
    """The lock of a host that died as it started; one that lives for one or two seconds rather than 30."""
    properties = await data.read()
    database = await data.client_connection.ReadDatabase(data.container_link.split("/colls")[0])
    lock = f"127.0.0.1_{database['_rid']}_{properties['_rid']}.lock"
    await container.create_item({"id": lock, "ttl": 2})
    yield lock


@pytest.mark.usefixtures("recorder")
async def test_without_a_ttl_on_the_container_a_stale_lock_keeps_every_host_waiting_in_silence(
    tmp_path: Path,
    account: CosmosClient,
    data: ContainerProxy,
    host_of: HostFactory,
    caplog: pytest.LogCaptureFixture,
) -> None:
    database = account.get_database_client("outbox")
    container = await database.create_container("leases", PartitionKey("/id"))
    caplog.set_level(logging.INFO, "outbox_relay.emulators.functions")
    async with lock_left_behind(container, data) as lock:
        host = host_of(write_app(tmp_path))
        await host.start()
        await eventually(lambda: host.edges.as_json()["edges"]["lock-awaited"] > 25)  # longer than its ttl

        assert await stored_leases(container) == []
        assert host.status()["functions"][0]["last_error"] is None
        records = [
            record for record in caplog.records if record.name.startswith("outbox_relay.emulators.functions")
        ]
        assert [record.message for record in records] == ["1 functions loaded", "Job host started"]

        await container.delete_item(lock, partition_key=lock)
        await eventually(lambda: len(host.status()["functions"][0]["leases"]) == 4)


@pytest.mark.usefixtures("leases")
async def test_with_a_default_ttl_the_lock_of_a_dead_host_expires(
    tmp_path: Path, data: ContainerProxy, leases: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    await data.create_item({"id": "1", "partitionKey": "a"})
    async with lock_left_behind(leases, data):
        host = host_of(write_app(tmp_path))
        await host.start()

        await recorder.until(lambda: recorder.succeeded_ids() == ["1"])
    assert host.edges.as_json()["edges"]["lock-awaited"] > 0
