"""The contract of every store of a timeline: the one in memory, and the adapters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from relay.core.errors import RulesError
from relay.routes.generations import Timeline
from relay.routes.rulebook import Rulebook, StoredTimeline, TimelineChanged, Timelines
from tests.support import timelines
from tests.support.timelines import TimelineStore

FIRST = Timeline.of('{"types":["a"],"routes":"\\u0000 \\ud83d\\ude00 é"}').extend(100)
SECOND = FIRST.change("two", 50).extend(160)


@pytest.fixture(params=timelines.STORES)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[TimelineStore]:
    async with timelines.OPEN[request.param](request) as opened:
        yield opened


async def read(store: Timelines) -> StoredTimeline:
    found = await store.read()
    assert found is not None
    return found


async def test_at_first_there_is_no_timeline(store: TimelineStore) -> None:
    assert await store.timelines.read() is None


async def test_a_timeline_is_read_as_it_was_created_by_every_process(store: TimelineStore) -> None:
    await store.timelines.create(FIRST)

    assert (await read(store.timelines)).timeline == FIRST
    assert (await read(store.others)).timeline == FIRST


async def test_a_timeline_is_created_once(store: TimelineStore) -> None:
    await store.timelines.create(FIRST)

    with pytest.raises(TimelineChanged):
        await store.others.create(SECOND)

    assert (await read(store.timelines)).timeline == FIRST


async def test_a_timeline_is_replaced_by_its_etag_alone(store: TimelineStore) -> None:
    await store.timelines.create(FIRST)
    old = (await read(store.timelines)).etag

    await store.others.replace(SECOND, old)
    with pytest.raises(TimelineChanged):
        await store.timelines.replace(FIRST.extend(900), old)

    found = await read(store.timelines)
    assert found.timeline == SECOND
    assert found.etag != old


async def test_the_same_timeline_written_again_has_another_etag(store: TimelineStore) -> None:
    await store.timelines.create(FIRST)
    old = (await read(store.timelines)).etag

    await store.timelines.replace(FIRST, old)

    with pytest.raises(TimelineChanged):
        await store.timelines.replace(SECOND, old)


async def test_a_timeline_that_is_not_there_cannot_be_replaced(store: TimelineStore) -> None:
    await store.elsewhere.create(FIRST)
    etag = (await read(store.elsewhere)).etag

    with pytest.raises(TimelineChanged):
        await store.timelines.replace(SECOND, etag)


async def test_each_outbox_has_its_own_timeline(store: TimelineStore) -> None:
    await store.timelines.create(FIRST)
    await store.elsewhere.create(SECOND)

    assert (await read(store.timelines)).timeline == FIRST
    assert (await read(store.elsewhere)).timeline == SECOND


async def test_a_large_timeline_is_stored(store: TimelineStore) -> None:
    large = FIRST.change("\N{SNOWMAN}" * 100_000, 50)

    await store.timelines.create(large)

    assert (await read(store.others)).timeline == large


async def test_of_two_changes_at_a_time_one_counts(store: TimelineStore) -> None:
    await store.timelines.create(FIRST)
    etag = (await read(store.timelines)).etag

    results = await asyncio.gather(
        store.timelines.replace(FIRST.extend(200), etag),
        store.others.replace(FIRST.extend(300), etag),
        return_exceptions=True,
    )

    assert sorted(map(type, results), key=str) == sorted([type(None), TimelineChanged], key=str)
    kept = 200 if results[0] is None else 300
    assert (await read(store.timelines)).timeline.final_until == kept


async def test_processes_that_start_at_a_time_agree(store: TimelineStore) -> None:
    books = [Rulebook(each, rules, lambda: 1000) for each in (store.timelines, store.others) for rules in "ab"]

    known = await asyncio.gather(*(each.timeline(990) for each in books))

    stored = (await read(store.timelines)).timeline
    assert all(stored.continues(each) for each in known)
    assert {each.rules for each in stored.generations} <= {"a", "b"}


async def test_a_store_that_cannot_be_reached_says_so(store: TimelineStore) -> None:
    await store.timelines.create(FIRST)
    etag = (await read(store.timelines)).etag
    await store.break_down()

    for request in (store.timelines.read(), store.others.create(FIRST), store.timelines.replace(SECOND, etag)):
        with pytest.raises(RulesError) as caught:
            await request
        assert not isinstance(caught.value, TimelineChanged)
