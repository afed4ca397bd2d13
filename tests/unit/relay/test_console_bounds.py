"""The console sends and reads little, whatever documents have and however many look."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer

import outbox_relay.operator.console.application
from outbox_relay.operator.console.application import application
from outbox_relay.operator.console.model import Arrival, Delivery, Snapshot, Subscription
from outbox_relay.operator.console.ports import Attempt
from outbox_relay.operator.console.server import loopback
from outbox_relay.operator.console.stream import encoded
from outbox_relay.operator.console.timeline import Timelines
from relay.backends.cosmos.feed import brief
from relay.backends.outbox import Committed, id_name, key_name
from relay.core.holds import parked_marker_item
from tests.support.console_deployment import NOW, Deployment, size_of
from tests.support.in_memory_outbox import InMemoryOutbox
from tests.support.outbox import plain
from tests.support.watchdog import WATCHDOG_S

MEGABYTE = 1_000_000


@dataclass
class CountingOutbox(InMemoryOutbox):
    """An outbox that counts how often a key is read."""

    read_keys: list[str] = field(default_factory=list)

    async def of_key(self, partition_key: str, limit: int, /) -> tuple[Sequence[Committed], bool]:
        self.read_keys.append(partition_key)
        return await super().of_key(partition_key, limit)


class Counted(Deployment):
    """A relay whose outbox counts."""

    def __init__(self) -> None:
        self.counting = CountingOutbox()
        super().__init__(self.counting)


@pytest.fixture
def relayed() -> Counted:
    return Counted()


def hostile(filler: str, number: int) -> dict[str, Any]:
    """A document whose texts are long, and its number as well."""
    long = f"{number}{filler * (200_000 // len(filler))}"
    return {
        "id": long,
        "partitionKey": long[:50_000],
        "type": "domainEvent",
        "sequence": 10**4000,
        "traceparent": long,
        "data": {"action": long, "createdAt": long, "text": long},
    }


@pytest.mark.parametrize("filler", ["x", "\x01", "\N{PILE OF POO}"])
async def test_fifty_hostile_events_make_no_large_answer(relayed: Counted, filler: str) -> None:
    for number in range(50):
        document = hostile(filler, number)
        relayed.outbox.store(document)
        # Without its document, which is too large for one item, the record is found by its place.
        key, detail = document["partitionKey"], document["id"][:50_000]
        relayed.quarantine(None, partitionKey=key, detail=detail, lsn=number + 1, order=0)
    relayed.outbox.pass_all()
    relayed.topic.counts = [Subscription("all", 1, 1)]
    error = f"{document['id']} set it aside: python -m relay quarantine add"
    relayed.hosts.retries = {"0": Attempt(3, error)}

    snapshot = await relayed.observer.look()
    async with TestClient(TestServer(application(relayed.observer, loopback))) as client:
        state = await (await client.get("/state.json")).read()
        html = await (await client.get("/")).read()
    key = str(relayed.outbox.documents[0]["partitionKey"])
    timeline = encoded(await relayed.observer.timeline(key, 100, data=True))

    assert {str(each.stage) for each in snapshot.recent} == {"quarantined"}
    assert len(snapshot.recent) == 50
    # A control character has six bytes in JSON; a key in an address has up to twelve for each character.
    assert len(state) < 3 * MEGABYTE
    assert len(html) < 2 * MEGABYTE
    assert len(timeline) < MEGABYTE
    [partition] = snapshot.partitions
    assert (partition.error or "").endswith("set it aside: python -m relay quarantine add")
    assert len(partition.error or "") <= 4000
    assert size_of(relayed.observer, besides=relayed) < 4 * MEGABYTE


async def test_the_data_of_a_timeline_is_cut(relayed: Counted) -> None:
    for number in range(300):
        relayed.outbox.commit(f"event-{number}", data="y" * 100_000)

    timeline = await relayed.observer.timeline("k", 1000, data=True)

    assert len(timeline.events) == 300
    assert len(encoded(timeline)) < 3 * MEGABYTE
    assert {len(each.data or "") for each in timeline.events} == {2_000_000 // 300}


def test_a_long_name_stays_one_name() -> None:
    first, second = ("x" * 5000 + end for end in "ab")

    for name, most in ((id_name, 256), (key_name, 2048)):
        assert len(name(first)) == len(name(second)) == most
        assert name(first) != name(second)
        assert name("x" * most) == "x" * most
        assert name(name(first)) == name(first)


def test_what_is_read_of_a_key_keeps_no_documents() -> None:
    text = "x" * MEGABYTE
    document = {
        "id": "e",
        "partitionKey": "k",
        "type": "domainEvent",
        "_lsn": 3,
        "_ts": 5,
        "order": 0,
        "more": text,
    }

    short = brief(plain({**document, "more": text, "data": {"action": text, "createdAt": "now", "text": text}}))

    assert len(str(short)) < 5000
    assert (short.lsn, short.fields["order"], short.created_at) == (3, 0, "now")
    assert Committed.of(short, "0", (3, 0), 5) == Committed.of(
        plain({**document, "data": {"action": text, "createdAt": "now"}}), "0", (3, 0), 5
    )
    nothing = brief(plain({"id": "e", "data": "no object"}))
    assert (nothing.fields, nothing.action, nothing.created_at) == ({"id": "e"}, None, None)


async def test_ten_requests_for_the_state_share_one_encoding(
    relayed: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def counting(value: Snapshot) -> bytes:
        made.append(value.number)
        return encoded(value)

    monkeypatch.setattr(outbox_relay.operator.console.application, "encoded", counting)
    relayed.outbox.commit("a")
    await relayed.observer.look()
    async with TestClient(TestServer(application(relayed.observer, loopback))) as client:
        answers = await asyncio.gather(*(client.get("/state.json") for _ in range(10)))
        bodies = {await answer.read() for answer in answers}
        assert (len(made), len(bodies)) == (1, 1)

        relayed.outbox.commit("b")
        await relayed.observer.look()
        state = await (await client.get("/state.json")).json()

    assert (len(made), state["flow"]["committed"]) == (2, 2)


@asynccontextmanager
async def viewers(relayed: Counted, keys: Sequence[str]) -> AsyncIterator[list[Any]]:
    """An open timeline for each of these keys, read once."""

    async def read(key: str) -> Any:
        return await relayed.observer.timeline(key, 100, data=False)

    timelines = Timelines(relayed.observer, read, lambda timeline: str([each.stage for each in timeline.events]))
    async with AsyncExitStack() as stack:
        opened = [stack.enter_context(timelines.open(key)) for key in keys]
        for each in opened:
            await each.html()
        yield opened


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outbox_relay.operator.console.timeline._PAUSE_S", 0.0)


@pytest.mark.usefixtures("no_pause")
async def test_a_hundred_timelines_are_not_read_again_for_events_of_other_keys(relayed: Counted) -> None:
    keys = [f"key-{number}" for number in range(100)]
    for key in keys:
        relayed.outbox.commit(f"{key}-1", key)
    relayed.outbox.pass_all()
    await relayed.observer.look()

    async with viewers(relayed, keys) as opened:
        assert sorted(relayed.counting.read_keys) == sorted(keys)
        relayed.counting.read_keys.clear()
        for number in range(50):
            relayed.outbox.commit(f"other-{number}", "other")
            relayed.outbox.pass_all()
            await relayed.observer.look()
            for each in opened:
                await each.html()
        assert relayed.counting.read_keys == []

        relayed.outbox.commit("key-7-2", "key-7")
        await relayed.observer.look()
        shown = [await each.html() for each in opened]
        assert relayed.counting.read_keys == ["key-7"]
        assert shown[7].count("committed") == 1


@pytest.mark.usefixtures("no_pause")
async def test_a_hundred_viewers_of_one_key_read_it_once(relayed: Counted) -> None:
    relayed.outbox.commit("a")
    await relayed.observer.look()

    async with viewers(relayed, ["k"] * 100) as opened:
        for expected in (1, 2):
            shown = await asyncio.gather(*(each.html() for each in opened))
            assert len(set(shown)) == 1
            assert len(relayed.counting.read_keys) == expected
            relayed.outbox.commit("b")
            await relayed.observer.look()


@pytest.mark.usefixtures("no_pause")
async def test_a_timeline_is_read_again_for_everything_that_happens_to_its_key(relayed: Counted) -> None:
    relayed.outbox.commit("a")
    delivery = Delivery("a", "all", Arrival.WAITING, accepted_at=NOW)
    await relayed.observer.look()

    async def is_read_again(timeline: Any) -> bool:
        relayed.counting.read_keys.clear()
        await relayed.observer.look()
        await timeline.html()
        return relayed.counting.read_keys == ["k"]

    async with viewers(relayed, ["k"]) as [timeline]:
        assert not await is_read_again(timeline)
        relayed.outbox.commit("b")
        assert await is_read_again(timeline)
        relayed.outbox.pass_all()
        assert await is_read_again(timeline)
        relayed.topic.arrivals = {"k": [delivery]}
        assert await is_read_again(timeline)
        relayed.quarantine("a")
        assert await is_read_again(timeline)
        relayed.items.put(parked_marker_item("k", "r0"))
        assert await is_read_again(timeline)
        relayed.items.take("r0", "k")
        assert await is_read_again(timeline)
        relayed.quarantine("x", partitionKey="other")
        relayed.topic.arrivals |= {"other": [delivery]}
        assert not await is_read_again(timeline)


@pytest.mark.usefixtures("no_pause")
async def test_a_timeline_that_could_not_be_read_is_tried_again(
    relayed: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    relayed.outbox.commit("a")
    await relayed.observer.look()
    relayed.topic.fails = "the namespace does not answer"
    async with viewers(relayed, ["k"]) as [timeline]:
        await timeline.html()
        assert len(relayed.counting.read_keys) == 1
        monkeypatch.setattr("outbox_relay.operator.console.timeline._RETRY_S", 0.0)
        relayed.outbox.commit("b")
        await relayed.observer.look()
        for _ in range(2):
            await timeline.html()
        assert len(relayed.counting.read_keys) == 3


async def test_events_that_are_stale_are_said_to_be_in_their_stream(relayed: Counted) -> None:
    relayed.outbox.commit("a")
    await relayed.observer.look()
    async with (
        TestClient(TestServer(application(relayed.observer, loopback))) as client,
        asyncio.timeout(WATCHDOG_S),
    ):
        response = await client.get("/events.json")
        assert b'"id":"a"' in (await next_message(response))[1]
        assert (await next_message(response))[0] == b"now"
        relayed.outbox.fails = "the account does not answer"
        await relayed.observer.look()
        name, data = await next_message(response)
        assert name == b"known"
        assert b'"stale":true' in data
        assert b'"text":"the account does not answer"' in data
        relayed.outbox.fails = None
        await relayed.observer.look()
        name, data = await next_message(response)
        assert (name, b'"stale":false' in data) == (b"known", True)


async def next_message(response: aiohttp.ClientResponse) -> tuple[bytes, bytes]:
    name = b""
    while line := await response.content.readline():
        if line.startswith(b"event: "):
            name = line.removeprefix(b"event: ").strip()
        elif line.startswith(b"data: "):
            return name, line.removeprefix(b"data: ").strip()
    raise EOFError
