"""The reaction of azure-cosmos to the service's misbehaviour, and the content of the container afterwards.

The counts of attempts and the outcomes are those of azure-cosmos 4.17.1: what callers must expect. Its
asynchronous client takes a connection that broke off for a request that was never sent, and repeats writes too;
the synchronous one does not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from azure.core import MatchConditions
from azure.core.exceptions import ServiceRequestError, ServiceResponseError
from azure.cosmos import ContainerProxy as SyncContainerProxy
from azure.cosmos import CosmosClient as SyncCosmosClient
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import (
    CosmosAccessConditionFailedError,
    CosmosBatchOperationError,
    CosmosHttpResponseError,
    CosmosResourceExistsError,
)

from outbox_relay.emulators.cosmos.faults import Faults
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.testing import FaultClient, RawClient
from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S

BATCH = [("create", ({"id": "contact", "pk": "a"},)), ("create", ({"id": "event", "pk": "a"},))]
ITEMS = "/dbs/outbox/colls/data/docs"
KEY = {"x-ms-documentdb-partitionkey": '["a"]'}


@pytest.fixture
async def sync_container(server: CosmosServer, container: ContainerProxy) -> AsyncIterator[SyncContainerProxy]:
    client = await asyncio.to_thread(SyncCosmosClient, server.endpoint, server.key)
    found = client.get_database_client("outbox").get_container_client("data")
    # The client learns about the container by its first request, which no fault of a test is meant for.
    await asyncio.to_thread(found.upsert_item, {"id": "warm", "pk": "sync"})
    yield found
    await asyncio.to_thread(client.__exit__)


@pytest.fixture
async def warm(container: ContainerProxy) -> ContainerProxy:
    """A container whose client knows about it, and has a connection."""
    await container.upsert_item({"id": "warm", "pk": "warm"})
    return container


async def _ids(container: ContainerProxy, key: str = "a") -> list[str]:
    return [item["id"] async for item in container.query_items("SELECT * FROM c", partition_key=key)]


async def _feed(container: ContainerProxy, key: str = "a") -> list[str]:
    changes = container.query_items_change_feed(partition_key=key, start_time="Beginning")
    return [item["id"] async for item in changes]


@pytest.mark.usefixtures("container")
async def test_a_throttled_request_gets_the_services_answer(raw: RawClient, faults: FaultClient) -> None:
    await faults.add("throttle", retry_after_ms=250)

    answer = await raw.send("POST", ITEMS, headers=KEY, body='{"id":"1","pk":"a"}')

    assert answer.status == 429
    assert answer.headers["x-ms-retry-after-ms"] == "250"
    assert answer.headers["x-ms-substatus"] == "3200"
    assert answer.body["code"] == "429"
    assert "Request rate is large" in answer.body["message"]
    assert answer.headers["x-ms-activity-id"] in answer.body["message"]


@pytest.mark.usefixtures("container")
@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [("unavailable", 503, "ServiceUnavailable"), ("timeout", 408, "RequestTimeout"), ("gone", 410, "Gone")],
)
async def test_a_refused_request_gets_the_services_answer_and_changes_nothing(
    raw: RawClient, faults: FaultClient, kind: str, status: int, code: str
) -> None:
    await faults.add(kind)

    answer = await raw.send("POST", ITEMS, headers=KEY, body='{"id":"1","pk":"a"}')

    assert (answer.status, answer.body["code"]) == (status, code)
    assert (await raw.send("GET", f"{ITEMS}/1", headers=KEY)).status == 404


@pytest.mark.usefixtures("container")
@pytest.mark.parametrize(("kind", "status"), [("drop", 404), ("drop-after", 200)])
async def test_a_dropped_connection_answers_nothing_before_or_after_the_request_was_applied(
    raw: RawClient, faults: FaultClient, kind: str, status: int
) -> None:
    await faults.add(kind)

    with pytest.raises(aiohttp.ServerDisconnectedError):
        await raw.send("POST", ITEMS, headers=KEY, body='{"id":"1","pk":"a"}')

    assert (await raw.send("GET", f"{ITEMS}/1", headers=KEY)).status == status


@pytest.mark.parametrize(("kind", "attempts"), [("throttle", 1), ("unavailable", 1), ("drop", 2)])
async def test_a_batch_that_was_not_applied_is_repeated_and_then_applied(
    warm: ContainerProxy, faults: FaultClient, kind: str, attempts: int
) -> None:
    fault = await faults.add(kind, "batch", "data", count=attempts)

    await warm.execute_item_batch(BATCH, "a")

    assert await _ids(warm) == ["contact", "event"]
    assert await faults.applied(fault) == attempts


@pytest.mark.parametrize(
    ("kind", "options", "status", "attempts"),
    [("throttle", {"retry_after_ms": 1}, 429, 10), ("unavailable", {}, 503, 2)],
)
async def test_a_batch_refused_for_long_fails_and_changes_nothing(
    warm: ContainerProxy, faults: FaultClient, kind: str, options: dict[str, Any], status: int, attempts: int
) -> None:
    fault = await faults.add(kind, "batch", count=50, **options)

    with pytest.raises(CosmosHttpResponseError) as caught:
        await warm.execute_item_batch(BATCH, "a")

    assert (caught.value.status_code, await faults.applied(fault)) == (status, attempts)
    assert await _ids(warm) == []


async def test_the_wait_between_attempts_is_the_one_the_service_asks_for(
    warm: ContainerProxy, faults: FaultClient
) -> None:
    await faults.add("throttle", "create", count=2, retry_after_ms=150)

    started = time.monotonic()
    await warm.create_item({"id": "1", "pk": "a"})

    assert time.monotonic() - started >= 0.3


@pytest.mark.parametrize(("applies", "stored"), [(False, []), (True, ["contact", "event"])])
async def test_a_batch_that_timed_out_fails_at_once_and_may_have_been_applied(
    warm: ContainerProxy, faults: FaultClient, applies: bool, stored: list[str]
) -> None:
    fault = await faults.add("timeout", "batch", count=5, applies=applies)

    with pytest.raises(CosmosHttpResponseError) as caught:
        await warm.execute_item_batch(BATCH, "a")

    assert (caught.value.status_code, await faults.applied(fault)) == (408, 1)
    assert await _ids(warm) == stored


async def test_a_timeout_comes_as_late_as_it_was_asked_for(warm: ContainerProxy, faults: FaultClient) -> None:
    await faults.add("timeout", "create", hang_ms=200)

    started = time.monotonic()
    with pytest.raises(CosmosHttpResponseError):
        await warm.create_item({"id": "1", "pk": "a"})

    assert time.monotonic() - started >= 0.2


async def test_a_batch_whose_answer_was_lost_is_repeated_by_the_client_and_conflicts_with_itself(
    warm: ContainerProxy, faults: FaultClient
) -> None:
    await faults.add("drop-after", "batch", "data")

    with pytest.raises(CosmosBatchOperationError) as caught:
        await warm.execute_item_batch(BATCH, "a")

    assert (caught.value.status_code, caught.value.error_index) == (409, 0)
    assert await _ids(warm) == ["contact", "event"]


async def test_an_item_whose_creation_was_not_confirmed_conflicts_with_itself(
    warm: ContainerProxy, faults: FaultClient
) -> None:
    await faults.add("drop-after", "create")

    with pytest.raises(CosmosResourceExistsError):
        await warm.create_item({"id": "1", "pk": "a"})

    assert await _ids(warm) == ["1"]


async def test_a_replacement_whose_answer_was_lost_fails_on_the_etag_it_changed_itself(
    warm: ContainerProxy, faults: FaultClient
) -> None:
    item = await warm.create_item({"id": "1", "pk": "a", "n": 1})
    await faults.add("drop-after", "replace")

    with pytest.raises(CosmosAccessConditionFailedError):
        await warm.replace_item(
            "1",
            {"id": "1", "pk": "a", "n": 2},
            etag=item["_etag"],
            match_condition=MatchConditions.IfNotModified,
        )

    assert (await warm.read_item("1", "a"))["n"] == 2


async def test_an_upsert_whose_answer_was_lost_is_repeated_unnoticed(
    warm: ContainerProxy, faults: FaultClient
) -> None:
    fault = await faults.add("drop-after", "upsert")

    await warm.upsert_item({"id": "1", "pk": "a"})

    assert await _ids(warm) == ["1"]
    assert await faults.applied(fault) == 1


# urllib3 leaves the socket of a response that was cut to the garbage collector.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("kind", "stored"), [("drop", []), ("drop-after", ["contact", "event"])])
async def test_the_synchronous_client_repeats_no_batch_and_does_not_know_whether_it_was_applied(
    warm: ContainerProxy,
    sync_container: SyncContainerProxy,
    faults: FaultClient,
    kind: str,
    stored: list[str],
) -> None:
    await faults.add(kind, "batch", count=5)

    with pytest.raises(ServiceResponseError):
        await asyncio.to_thread(sync_container.execute_item_batch, BATCH, "a")

    assert await _ids(warm) == stored


@pytest.mark.parametrize("kind", ["throttle", "unavailable", "timeout", "drop", "drop-after"])
async def test_a_read_of_the_change_feed_is_repeated_whatever_befell_it(
    warm: ContainerProxy, faults: FaultClient, kind: str
) -> None:
    await warm.create_item({"id": "1", "pk": "a"})
    fault = await faults.add(kind, "read-feed", "data")

    assert await _feed(warm) == ["1"]
    assert await faults.applied(fault) == 1


async def test_the_change_feed_is_read_again_after_an_outage_that_outlasted_the_client(
    warm: ContainerProxy, faults: FaultClient
) -> None:
    await warm.create_item({"id": "1", "pk": "a"})
    fault = await faults.add("drop", "read-feed", count=100)

    with pytest.raises(ServiceRequestError):
        await _feed(warm)
    await faults.remove(fault)

    assert await _feed(warm) == ["1"]


async def test_an_account_that_cannot_be_read_lets_nobody_in_until_it_can(
    server: CosmosServer, faults: FaultClient
) -> None:
    fault = await faults.add("unavailable", "metadata", count=100)
    client = CosmosClient.from_connection_string(server.connection_string)
    try:
        with pytest.raises(CosmosHttpResponseError) as caught:
            await client.__aenter__()
    finally:
        await client.close()
    assert caught.value.status_code == 503

    await faults.remove(fault)
    async with CosmosClient.from_connection_string(server.connection_string) as later:
        assert [database async for database in later.list_databases()] == []


async def test_other_containers_and_operations_are_served_meanwhile(
    warm: ContainerProxy, faults: FaultClient
) -> None:
    fault = await faults.add("unavailable", "replace", "leases", for_ms=60_000)

    await warm.upsert_item({"id": "1", "pk": "a"})
    await warm.replace_item("1", {"id": "1", "pk": "a"})

    assert await faults.applied(fault) == 0


async def test_unsigned_requests_use_no_fault_up(raw: RawClient, faults: FaultClient) -> None:
    fault = await faults.add("unavailable")

    assert (await raw.send("GET", "/dbs", sign=False)).status == 401
    assert await faults.applied(fault) == 0


async def test_what_is_pending_and_what_was_applied_can_be_read(warm: ContainerProxy, faults: FaultClient) -> None:
    throttled = await faults.add("throttle", "create", "data", retry_after_ms=1)
    dropped = await faults.add("drop", "batch", count=3)
    await warm.create_item({"id": "1", "pk": "a"})

    listed = (await faults.send("GET")).body

    assert listed["applied"] == {"throttle": 1}
    assert listed["pending"] == [
        {
            "id": dropped,
            "kind": "drop",
            "match": {"container": None, "operation": "batch"},
            "count": 3,
            "for_ms": None,
            "pending": True,
            "applied": 0,
            "count_left": 3,
            "ms_left": None,
        }
    ]
    ended = await faults.get(throttled)
    assert (ended["pending"], ended["applied"], ended["count_left"]) == (False, 1, 0)


async def test_a_fault_that_was_ended_is_applied_no_more(warm: ContainerProxy, faults: FaultClient) -> None:
    one = await faults.add("unavailable", count=100)
    assert (await faults.remove(one))["pending"] is False
    await faults.add("unavailable", for_ms=60_000)
    await faults.add("drop", for_ms=60_000)
    assert (await faults.send("DELETE")).body == {"pending": [], "applied": {}}

    await warm.create_item({"id": "1", "pk": "a"})


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "", b"{", 400),
        ("POST", "", {"kind": "drop"}, 400),
        ("PUT", "", None, 405),
        ("POST", "/1", None, 404),
        ("GET", "/99", None, 404),
        ("DELETE", "/99", None, 404),
        ("GET", "/one", None, 404),
    ],
)
async def test_what_the_admin_port_cannot_do_it_refuses_with_the_reason(
    faults: FaultClient, method: str, path: str, body: object, status: int
) -> None:
    answer = await faults.send(method, path, body)

    assert answer.status == status
    assert answer.body["error"]


async def test_a_server_that_stops_waits_for_nobody_who_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = asyncio.Event()
    hang = Faults.hang

    async def hang_and_signal(faults: Faults, milliseconds: int) -> None:
        hanging.set()
        await hang(faults, milliseconds)

    monkeypatch.setattr(Faults, "hang", hang_and_signal)
    async with CosmosServer() as server, aiohttp.ClientSession() as session:
        await FaultClient(session, server.endpoint).add("timeout", hang_ms=60_000)
        request = asyncio.create_task(RawClient(session, server.endpoint, server.key).send("GET", "/dbs"))
        async with asyncio.timeout(WATCHDOG_S):
            await hanging.wait()
            await server.stop()
            answer = await request
    assert answer.status == 408


@pytest.mark.parametrize(("kind", "status"), [("silent", 404), ("silent-midway", 200)])
async def test_silence_lasts_as_long_as_the_connection_and_others_are_served(
    raw: RawClient, faults: FaultClient, container: ContainerProxy, kind: str, status: int
) -> None:
    await container.upsert_item({"id": "warm", "pk": "a"})
    await faults.add(kind, "create")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await raw.send("POST", ITEMS, headers=KEY, body='{"id":"1","pk":"a"}')

    assert (await raw.send("GET", f"{ITEMS}/1", headers=KEY)).status == status


async def test_a_silent_account_never_answers_and_does_after_the_fault(
    warm: ContainerProxy, faults: FaultClient
) -> None:
    fault = await faults.inject("silent", match={"container": "data"}, for_ms=60_000)
    waiting = asyncio.ensure_future(warm.create_item({"id": "1", "pk": "a"}))
    while not await faults.applied(fault):
        await look_again()

    await faults.remove(fault)
    done, _ = await asyncio.wait([waiting], timeout=0.5)

    assert not done
    assert await _ids(warm) == []
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_a_silent_answer_may_hide_a_write(warm: ContainerProxy, faults: FaultClient) -> None:
    await faults.add("silent", "create", applies=True)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await warm.create_item({"id": "1", "pk": "a"})

    assert await _ids(warm) == ["1"]


async def test_silence_is_that_of_the_chosen_container_and_operation(
    warm: ContainerProxy, faults: FaultClient
) -> None:
    leases = await faults.inject("silent", match={"container": "leases"}, count=1)
    feed = await faults.inject("silent", match={"container": "data", "operation": "read-feed"}, count=1)

    await warm.create_item({"id": "1", "pk": "a"})
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await _feed(warm)

    assert (await faults.applied(leases), await faults.applied(feed)) == (0, 1)


async def test_a_request_that_waits_in_silence_does_not_keep_the_server_from_stopping() -> None:
    async with asyncio.timeout(WATCHDOG_S):
        async with CosmosServer() as server, aiohttp.ClientSession() as session:
            await FaultClient(session, server.endpoint).inject("silent", count=1)
            asking = asyncio.create_task(RawClient(session, server.endpoint, server.key).send("GET", "/"))
            while await server_faults(session, server):
                await look_again()
        await asyncio.gather(asking, return_exceptions=True)


async def server_faults(session: aiohttp.ClientSession, server: CosmosServer) -> list[Any]:
    async with session.get(f"{server.endpoint}admin/faults") as answer:
        return list((await answer.json())["pending"])
