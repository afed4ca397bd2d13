"""The outbox's requirements of Cosmos DB: transactional batches, ETags and the change feed."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import uuid4

import pytest
from azure.core import MatchConditions
from azure.cosmos.exceptions import CosmosAccessConditionFailedError, CosmosBatchOperationError

from outbox_relay.outbox import Conflict, PreconditionFailed
from tests.acceptance.parcels import TTL_S, Parcel, ParcelScanned
from tests.acceptance.services import Services
from tests.acceptance.target import needs

# An upper bound for the clock skew between the target and this machine.
CLOCKS_S = 600


def document(key: str, identifier: str, **data: Any) -> dict[str, Any]:
    return {"id": identifier, "partitionKey": key, "type": "acceptanceNote", "data": data, "ttl": TTL_S}


def ids(documents: list[dict[str, Any]]) -> list[str]:
    return [each["id"] for each in documents]


async def test_the_change_feed_returns_the_documents_of_a_commit_with_system_properties(
    services: Services,
) -> None:
    key = services.new_key()
    parcel, scan = Parcel("Kraków", partition_key=key), ParcelScanned(1, {"weight": 0.1})
    await services.commit(parcel, scan)

    entity, accepted, scanned = await services.changes(key)

    assert ids([entity, scanned]) == [parcel.id, scan.id]
    assert entity["data"] == {"destination": "Kraków", "receiver": None, "id": parcel.id, "deleted": False}
    assert (accepted["data"]["action"], scanned["data"]["action"]) == ("ParcelAccepted", "ParcelScanned")
    assert scanned["data"]["note"] == {"weight": 0.1}
    for each in (entity, accepted, scanned):
        assert (each["partitionKey"], each["ttl"]) == (key, TTL_S)
        assert isinstance(each["_ts"], int)
        assert abs(each["_ts"] - time.time()) < CLOCKS_S
        assert each["_etag"]
    assert entity["_etag"] == parcel.etag


async def test_an_events_own_time_to_live_is_kept(services: Services) -> None:
    key = services.new_key()

    await services.outbox.create_item({**document(key, str(uuid4())), "ttl": 1234})

    assert [each["ttl"] for each in await services.changes(key)] == [1234]


async def test_the_feed_continues_from_its_continuation(services: Services) -> None:
    key = services.new_key()
    parcel = Parcel("Kraków", partition_key=key)
    await services.commit(parcel, ParcelScanned(1))
    documents, continuation = await services.read_feed(partition_key=key, start_time="Beginning")
    assert len(documents) == 3
    later = ParcelScanned(2)
    await services.commit(parcel, later)

    documents, continuation = await services.read_feed(continuation=continuation)

    assert set(ids(documents)) == {parcel.id, later.id}
    assert (await services.read_feed(continuation=continuation))[0] == []


async def test_the_feed_from_now_has_only_later_documents(services: Services) -> None:
    key = services.new_key()
    parcel = Parcel("Kraków", partition_key=key)
    await services.commit(parcel)
    documents, now = await services.read_feed(partition_key=key, start_time="Now")
    assert documents == []
    later = ParcelScanned(1)
    await services.commit(parcel, later)

    documents, _ = await services.read_feed(continuation=now)

    assert set(ids(documents)) == {parcel.id, later.id}


async def test_a_changed_entity_appears_once_in_its_latest_version(
    services: Services,
) -> None:
    key = services.new_key()
    parcel = Parcel("Kraków", partition_key=key)
    await services.commit(parcel)
    async with services.unit_of_work() as work:
        read = await work.repository(Parcel).read(parcel.id, partition_key=key)
        read.deliver("Zoë")
        await work.commit()

    documents = await services.changes(key)

    assert [each["data"].get("receiver") for each in documents] == [None, "Zoë", "Zoë"]
    assert ids(documents[1:2]) == [parcel.id]
    assert documents[1]["_etag"] == read.etag != parcel.etag


async def test_a_batch_with_a_failing_operation_writes_nothing(services: Services) -> None:
    key = services.new_key()
    first, taken, third = (document(key, str(uuid4())) for _ in range(3))
    await services.outbox.create_item(taken)
    stamped = await services.changes(key)

    with pytest.raises(CosmosBatchOperationError) as raised:
        await services.outbox.execute_item_batch(
            [("create", (each,)) for each in (first, taken, third)], partition_key=key
        )

    assert (raised.value.error_index, raised.value.status_code) == (1, 409)
    assert await services.changes(key) == stamped


async def test_a_commit_with_an_id_in_use_writes_no_event(services: Services) -> None:
    key = services.new_key()
    parcel = Parcel("Kraków", partition_key=key)
    await services.commit(parcel)
    before = await services.changes(key)

    with pytest.raises(Conflict):
        await services.commit(Parcel("Brno", id=parcel.id, partition_key=key), ParcelScanned(1))

    assert await services.changes(key) == before


@needs("batch-isolation")
async def test_of_concurrent_commits_that_create_one_entity_one_is_applied_and_the_others_write_nothing(
    services: Services,
) -> None:
    key, identifier = services.new_key(), str(uuid4())
    scans = [ParcelScanned(number) for number in range(8)]

    outcomes = await asyncio.gather(
        *(services.commit(Parcel("Brno", id=identifier, partition_key=key), scan) for scan in scans),
        return_exceptions=True,
    )

    done = [scan.id for scan, outcome in zip(scans, outcomes, strict=True) if outcome is None]
    assert len(done) == 1
    assert all(isinstance(outcome, Conflict) for outcome in outcomes if outcome is not None)
    assert len(await services.changes(key)) == 3
    assert [event["id"] for event in await services.events(key) if "step" in event["data"]] == done


@needs("batch-etags")
async def test_a_commit_on_a_stale_version_fails_and_writes_nothing(
    services: Services,
) -> None:
    key = services.new_key()
    parcel = Parcel("Kraków", partition_key=key)
    await services.commit(parcel)
    async with services.unit_of_work() as slow, services.unit_of_work() as quick:
        late = await slow.repository(Parcel).read(parcel.id, partition_key=key)
        first = await quick.repository(Parcel).read(parcel.id, partition_key=key)
        first.deliver("Zoë")
        await quick.commit()
        before = await services.changes(key)
        late.deliver("Ada")

        with pytest.raises(PreconditionFailed):
            await slow.commit()

    assert await services.changes(key) == before


async def test_a_single_replacement_requires_its_etag(services: Services) -> None:
    key = services.new_key()
    written = await services.outbox.create_item(document(key, str(uuid4()), version=1))
    await services.outbox.replace_item(written["id"], document(key, written["id"], version=2))

    with pytest.raises(CosmosAccessConditionFailedError):
        await services.outbox.replace_item(
            written["id"],
            document(key, written["id"], version=3),
            etag=written["_etag"],
            match_condition=MatchConditions.IfNotModified,
        )

    assert [each["data"] for each in await services.changes(key)] == [{"version": 2}]


async def test_entities_of_a_partition_key_are_listed_by_page(services: Services) -> None:
    key = services.new_key()
    parcels = [Parcel("Kraków" if number % 2 else "Brno", partition_key=key) for number in range(6)]
    for parcel in parcels:
        await services.commit(parcel)

    found: list[str] = []
    continuation = None
    async with services.unit_of_work() as work:
        while True:
            page = await work.repository(Parcel).read_page(
                2,
                continuation,
                partition_key=key,
                where="c.data.destination = @there",
                parameters={"@there": "Brno"},
            )
            found += [parcel.id for parcel in page.items]
            if not page.has_more:
                break
            continuation = page.continuation

    assert sorted(found) == sorted(parcel.id for parcel in parcels[::2])
