"""From a commit through the change feed and the relay to a subscription."""

from __future__ import annotations

import asyncio
from itertools import chain

import orjson
import pytest
from opentelemetry import trace

from tests.acceptance.conftest import RelayMaker
from tests.acceptance.parcels import TTL_S, Parcel, ParcelScanned
from tests.acceptance.services import Services
from tests.acceptance.target import needs
from tests.support.subscriber import body, properties

SPAN = trace.NonRecordingSpan(
    trace.SpanContext(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, False, trace.TraceFlags(1))
)

# Cosmos DB stores a number as an IEEE 754 double, so not every target can store an integer beyond 2**53.
SHAPES = {
    "dates": ["2021-09-22T11:07:37.3022907+02:00", "2019-01-01T00:00:01.0000000Z", "2019-01-01"],
    "numbers": [0, -1, 0.1, 1e-7, 12_345_678_901, 2**53 - 1, -(2**53 - 1), 1.5e300],
    "text": ["", "é e\u0301", "美咲 😀", "\u2028\u2029", "\x01\t\r\n\x7f", '\\u0041 "\\', "007"],
    "others": [True, False, None, {}, [], [[{"a": {}}]]],
    "names": {"$type": "System.String", "_ts": 1, "id": "nobody's", "ключ": 1, "with.dot/slash": 2},
}


async def test_the_events_of_a_commit_arrive_once_in_order_and_unchanged(
    services: Services, make_relay: RelayMaker
) -> None:
    key = services.new_key()
    parcel = Parcel("Kraków", partition_key=key)
    await services.commit(parcel, *(ParcelScanned(step, SHAPES) for step in range(5)))
    documents = await services.changes(key)

    outcome = await make_relay().handle(documents, "acceptance")

    assert (outcome.published, outcome.ignored, outcome.quarantined) == (6, 1, {})
    events = await services.events(key)
    assert [event["data"].get("step") for event in events] == [None, 0, 1, 2, 3, 4]
    assert all(event["data"]["note"] == SHAPES for event in events[1:])
    messages = await services.received(key)
    assert [message.message_id for message in messages] == [event["id"] for event in events]
    assert [body(message) for message in messages] == [orjson.dumps(event["data"]) for event in events]


@needs("null-character")
async def test_the_null_character_is_relayed(services: Services, make_relay: RelayMaker) -> None:
    key = services.new_key()
    await services.commit(Parcel("a\x00b", partition_key=key))

    await make_relay().handle(await services.changes(key), "acceptance")

    (message,) = await services.received(key)
    assert orjson.loads(body(message))["destination"] == "a\x00b"


async def test_a_message_follows_the_contract(services: Services, make_relay: RelayMaker) -> None:
    key = services.new_key()
    with trace.use_span(SPAN):
        await services.commit(Parcel("Kraków", partition_key=key))

    await make_relay().handle(await services.changes(key), "acceptance")

    (event,) = await services.events(key)
    (message,) = await services.received(key)
    assert (message.message_id, message.session_id, message.partition_key) == (event["id"], key, key)
    assert (message.subject, message.content_type) == ("ParcelAccepted", "application/json")
    assert properties(message) == {
        "type": services.settings.policy.event_type,
        "cosmosTimestamp": event["_ts"],
        "createdAt": event["data"]["createdAt"],
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "sequence": event["sequence"],
    }


async def test_the_topic_drops_what_another_relay_publishes_again(
    services: Services, make_relay: RelayMaker
) -> None:
    key = services.new_key()
    await services.commit(Parcel("Kraków", partition_key=key), *map(ParcelScanned, range(9)))
    documents = await services.changes(key)
    await make_relay().handle(documents, "first")
    assert len(await services.received(key)) == 10

    # The second relay does not know what the first one published: the topic drops the duplicates.
    again = await make_relay().handle(documents, "second")

    assert (again.published, again.already_published) == (10, 0)
    assert await services.received(key) == []


async def test_concurrent_keys_keep_their_order(services: Services, make_relay: RelayMaker) -> None:
    keys = [services.new_key() for _ in range(12)]

    async def write(key: str) -> None:
        parcel = Parcel("Kraków", partition_key=key)
        for commit in range(3):
            await services.commit(parcel, *(ParcelScanned(commit * 3 + number) for number in range(3)))

    async with asyncio.TaskGroup() as tasks:
        for key in keys:
            tasks.create_task(write(key))
    feeds = [await services.events(key) for key in keys]
    interleaved = chain.from_iterable(zip(*feeds, strict=True))

    outcome = await make_relay().handle(interleaved, "acceptance")

    assert (outcome.published, outcome.partition_keys) == (120, 12)
    for feed, messages in zip(feeds, await services.received_of_each(keys), strict=True):
        assert [event["data"].get("step") for event in feed] == [None, *range(9)]
        assert [message.message_id for message in messages] == [event["id"] for event in feed]


async def test_more_events_than_a_batch_holds_arrive_once_and_in_order(
    services: Services, make_relay: RelayMaker
) -> None:
    key = services.new_key()
    # 800 KB: at least four batches on Standard, and within one transactional batch of Cosmos DB.
    scans = [ParcelScanned(step, "x" * 20_000) for step in range(40)]
    await services.commit(Parcel("Kraków", partition_key=key), *scans)

    outcome = await make_relay().handle(await services.changes(key), "acceptance")

    assert outcome.published == 41
    messages = await services.received(key)
    assert [message.message_id for message in messages[1:]] == [scan.id for scan in scans]
    assert [orjson.loads(body(message)).get("step") for message in messages] == [None, *range(40)]


@needs("message-limit")
async def test_a_message_too_large_for_the_link_is_quarantined_and_the_others_arrive(
    services: Services, make_relay: RelayMaker
) -> None:
    key = services.new_key()
    async with services.sender() as sender:
        limit = (await sender.create_message_batch()).max_size_in_bytes
    parcel = Parcel("Kraków", partition_key=key)
    await services.commit(parcel, ParcelScanned(0), ParcelScanned(1, "x" * limit), ParcelScanned(2))
    events = await services.events(key)

    outcome = await make_relay().handle(events, "acceptance")

    assert (outcome.published, outcome.quarantined) == (3, {"message-too-large": 1})
    (record,) = await services.quarantined(key)
    assert (record["reason"], record["invocationId"]) == ("message-too-large", "acceptance")
    assert record["document"] == events[2]
    messages = await services.received(key)
    assert [message.message_id for message in messages] == [events[place]["id"] for place in (0, 1, 3)]


@pytest.mark.parametrize(
    ("data", "reason"),
    [(["2019-01-01T00:00:01.0000000Z", 0.1], "data-not-object"), ({"text": "ü"}, "action-not-string")],
    ids=["no object", "no action"],
)
async def test_a_malformed_event_is_quarantined_unchanged_and_once(
    services: Services, make_relay: RelayMaker, data: object, reason: str
) -> None:
    key = services.new_key()
    parcel = Parcel("Kraków", partition_key=key)
    await services.commit(parcel)
    malformed = {"id": f"{key}-malformed", "partitionKey": key, "type": services.settings.policy.event_type}
    await services.outbox.create_item({**malformed, "data": data, "ttl": TTL_S})
    await services.commit(parcel, ParcelScanned(1))
    events = await services.events(key)

    outcome = await make_relay().handle(events, "first")
    await make_relay().handle(events, "second")

    assert (outcome.published, outcome.quarantined) == (2, {reason: 1})
    (record,) = await services.quarantined(key)
    assert (record["reason"], record["invocationId"]) == (reason, "first")
    assert record["document"] == events[1]
    assert events[1]["data"] == data
    messages = await services.received(key)
    assert [message.message_id for message in messages] == [events[0]["id"], events[2]["id"]]
