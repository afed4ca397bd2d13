"""What the outbox rests on in Cosmos DB: transactional batches, ETags and the change feed, wherever it is."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import uuid4

import pytest
from azure.core import MatchConditions
from azure.cosmos.exceptions import CosmosAccessConditionFailedError, CosmosBatchOperationError

from outbox import Conflict, PreconditionFailed
from tests.acceptance.parcels import TTL_S, Parcel, ParcelScanned
from tests.acceptance.services import Services
from tests.acceptance.target import needs

# How far the clocks of the target and of this machine may be apart, and then some.
CLOCKS_S = 600


def document(key: str, identifier: str, **data: Any) -> dict[str, Any]:
    return {"id": identifier, "partitionKey": key, "type": "acceptanceNote", "data": data, "ttl": TTL_S}


def ids(documents: list[dict[str, Any]]) -> list[str]:
    return [each["id"] for each in documents]


async def test_the_change_feed_has_a_commits_documents_as_written_and_stamped(services: Services) -> None:
    key = services.new_key()
    parcel, scan = Parcel("Kraków", partition_key=key), ParcelScanned(1, {"weight": 0.1})
    await services.tell(parcel, scan)

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


async def test_the_feed_goes_on_where_it_was_read_to(services: Services) -> None:
    key = services.new_key()
    parcel = Parcel("Kraków", partition_key=key)
    await services.tell(parcel, ParcelScanned(1))
    documents, place = await services.read_feed(partition_key=key, start_time="Beginning")
    assert len(documents) == 3
    later = ParcelScanned(2)
    await services.tell(parcel, later)

    documents, place = await services.read_feed(continuation=place)

    assert set(ids(documents)) == {parcel.id, later.id}
    assert (await services.read_feed(continuation=place))[0] == []


async def test_the_feed_from_now_has_only_what_comes_later(services: Services) -> None:
    key = services.new_key()
    parcel = Parcel("Kraków", partition_key=key)
    await services.tell(parcel)
    documents, now = await services.read_feed(partition_key=key, start_time="Now")
    assert documents == []
    later = ParcelScanned(1)
    await services.tell(parcel, later)

    documents, _ = await services.read_feed(continuation=now)

    assert set(ids(documents)) == {parcel.id, later.id}


async def test_an_entity_that_was_changed_comes_once_with_its_latest_version_among_its_events(
    services: Services,
) -> None:
    key = services.new_key()
    parcel = Parcel("Kraków", partition_key=key)
    await services.tell(parcel)
    async with services.unit_of_work() as work:
        read = await work.repository(Parcel).read(parcel.id, partition_key=key)
        read.deliver("Zoë")
        await work.commit()

    documents = await services.changes(key)

    assert [each["data"].get("receiver") for each in documents] == [None, "Zoë", "Zoë"]
    assert ids(documents[1:2]) == [parcel.id]
    assert documents[1]["_etag"] == read.etag != parcel.etag


async def test_a_batch_with_an_operation_that_fails_leaves_nothing(services: Services) -> None:
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


async def test_a_commit_under_an_id_that_is_taken_leaves_no_event(services: Services) -> None:
    key = services.new_key()
    parcel = Parcel("Kraków", partition_key=key)
    await services.tell(parcel)
    before = await services.changes(key)

    with pytest.raises(Conflict):
        await services.tell(Parcel("Brno", id=parcel.id, partition_key=key), ParcelScanned(1))

    assert await services.changes(key) == before


@needs("batch-isolation")
async def test_of_commits_that_create_the_same_entity_at_once_one_is_done_and_the_others_leave_nothing(
    services: Services,
) -> None:
    key, identifier = services.new_key(), str(uuid4())
    scans = [ParcelScanned(number) for number in range(8)]

    outcomes = await asyncio.gather(
        *(services.tell(Parcel("Brno", id=identifier, partition_key=key), scan) for scan in scans),
        return_exceptions=True,
    )

    done = [scan.id for scan, outcome in zip(scans, outcomes, strict=True) if outcome is None]
    assert len(done) == 1
    assert all(isinstance(outcome, Conflict) for outcome in outcomes if outcome is not None)
    assert len(await services.changes(key)) == 3
    assert [event["id"] for event in await services.events(key) if "step" in event["data"]] == done


@needs("batch-etags")
async def test_a_commit_on_a_version_that_was_changed_since_is_refused_and_leaves_nothing(
    services: Services,
) -> None:
    key = services.new_key()
    parcel = Parcel("Kraków", partition_key=key)
    await services.tell(parcel)
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


async def test_a_replacement_outside_of_a_batch_is_held_to_its_etag(services: Services) -> None:
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


async def test_entities_of_a_partition_are_listed_page_by_page(services: Services) -> None:
    key = services.new_key()
    parcels = [Parcel("Kraków" if number % 2 else "Brno", partition_key=key) for number in range(6)]
    for parcel in parcels:
        await services.tell(parcel)

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
