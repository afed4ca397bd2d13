"""The contract of a consumer's store, in each kind of database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_relay import inbox
from tests.support import inbox_stores
from tests.support.inbox_stores import Harness, InMemory, InSqlite, gap, handle, message
from tests.support.waiting import elapse
from tests.support.watchdog import WATCHDOG_S


@pytest.fixture(params=inbox_stores.STORES)
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    async with inbox_stores.OPEN[request.param](request) as opened:
        yield opened


async def test_a_message_is_first_once(harness: Harness) -> None:
    arrivals = [await handle(harness, identifier) for identifier in ("a", "b", "a", "a")]

    assert [arrival.first for arrival in arrivals] == [True, True, False, False]
    assert not any("connection" in repr(arrival) for arrival in arrivals)
    assert await harness.effects() == ["a", "b"]


async def test_the_same_id_in_another_key_or_topic_is_another_event(harness: Harness) -> None:
    places = [("k", "events"), ("l", "events"), ("k", "orders")]
    for expected in (True, False):
        arrivals = [await handle(harness, "a", 1, key=key, topic=topic) for key, topic in places]
        assert [arrival.first for arrival in arrivals] == [expected] * 3

    assert await harness.effects() == ["a", "a", "a"]


async def test_a_message_whose_block_raises_was_never_seen(harness: Harness) -> None:
    async def fail(error: BaseException) -> None:
        async with harness.store.once(message("a", 5)) as arrival:
            assert arrival == inbox.Arrival(first=True)
            raise error

    for error in (OSError(), asyncio.CancelledError()):
        with pytest.raises(type(error)):
            await fail(error)

    assert await handle(harness, "a", 7) == inbox.Arrival(first=True)
    assert await harness.store.gaps() == []


async def test_of_two_deliveries_at_once_one_is_the_first(harness: Harness) -> None:
    inside, leave = asyncio.Event(), asyncio.Event()

    async def slow() -> bool:
        async with harness.store.once(message("a")) as arrival:
            inside.set()
            await leave.wait()
            return arrival.first

    first = asyncio.create_task(slow())
    await asyncio.wait_for(inside.wait(), WATCHDOG_S)
    second = asyncio.create_task(handle(harness, "a"))
    if harness.locks:
        await elapse(0.01)
        assert not second.done()
        leave.set()
        assert await first
        assert not (await second).first
    else:
        assert (await second).first
        leave.set()
        with pytest.raises(inbox.Conflict):
            await first
    assert not (await handle(harness, "a")).first


async def test_skipped_numbers_are_missing_until_they_arrive(harness: Harness) -> None:
    arrivals = [await handle(harness, f"e{sequence}", sequence) for sequence in (4, 5, 9, 10, 12)]
    assert [arrival.missing for arrival in arrivals if arrival.missing] == [range(6, 9), range(11, 12)]
    assert await harness.store.gaps() == [gap("k", 6, 8), gap("k", 11, 11)]

    assert await handle(harness, "e7", 7) == inbox.Arrival(first=True, late=True, was_missing=True)
    assert await handle(harness, "e7", 7) == inbox.Arrival(first=False)
    assert await harness.store.gaps() == [gap("k", 6, 6), gap("k", 8, 8), gap("k", 11, 11)]

    for sequence in (6, 8, 11):
        await handle(harness, f"e{sequence}", sequence)
    assert await harness.store.gaps() == []
    assert await handle(harness, "e13", 13) == inbox.Arrival(first=True)


async def test_a_number_that_was_never_missing_is_late_and_fills_nothing(harness: Harness) -> None:
    for sequence in (3, 5):
        await handle(harness, f"e{sequence}", sequence)

    assert (await handle(harness, "again", 3)).late
    assert (await handle(harness, "before the first", 1)).late
    assert await harness.store.gaps() == [gap("k", 4, 4)]


async def test_a_gap_costs_the_same_whatever_its_size(harness: Harness) -> None:
    await handle(harness, "a", 1)
    await handle(harness, "b", 10**15)

    assert await harness.store.gaps() == [gap("k", 2, 10**15 - 1)]


async def test_entities_count_by_themselves(harness: Harness) -> None:
    await handle(harness, "a1", 1, key="a")
    await handle(harness, "b2", 2, key="b")
    await handle(harness, "b4", 4, key="b")
    await handle(harness, "x1", 1, key="a", entity="x")
    await handle(harness, "x3", 3, key="a", entity="x")
    await handle(harness, "a2", 2, key="a")
    await handle(harness, "unnumbered", None, key="a")

    assert await harness.store.gaps() == [gap("b", 3, 3), gap("x", 2, 2, key="a")]


async def test_an_entity_of_another_key_or_topic_is_another_entity(harness: Harness) -> None:
    for sequence in (1, 3):
        await handle(harness, f"{sequence}", sequence, key="a", entity="x")
    for place in ({"key": "b"}, {"key": "a", "topic": "orders"}):
        arrivals = [await handle(harness, f"{sequence}", sequence, entity="x", **place) for sequence in (5, 6)]
        assert arrivals == [inbox.Arrival(first=True)] * 2

    assert await harness.store.gaps() == [gap("x", 2, 2, key="a")]


async def test_a_task_inside_a_block_does_not_wait_for_itself(harness: Harness) -> None:
    async def nested() -> None:
        async with harness.store.once(message("a")), harness.store.once(message("b")):
            pass

    with pytest.raises(RuntimeError, match="already inside a block"):
        await asyncio.wait_for(nested(), WATCHDOG_S)
    async with harness.store.once(message("a", 1)):
        assert await asyncio.wait_for(harness.store.gaps(), WATCHDOG_S) == []


async def test_a_task_that_outlives_its_block_may_enter_the_next(harness: Harness) -> None:
    left = asyncio.Event()

    async def later() -> bool:
        await left.wait()
        return (await handle(harness, "b")).first

    async with harness.store.once(message("a")):
        task = asyncio.create_task(later())
    left.set()

    assert await asyncio.wait_for(task, WATCHDOG_S)


async def test_a_number_that_no_database_stores_is_dead_lettered(harness: Harness) -> None:
    for number in (2**63, 2**64 - 1, -(2**63), harness.max_sequence + 1, -harness.max_sequence - 1):
        with pytest.raises(inbox.DeadLetter) as refused:
            await handle(harness, "a", number)
        assert refused.value.reason == "invalid-sequence"

    assert (await handle(harness, "a", harness.max_sequence)).first
    assert (await handle(harness, "b", -harness.max_sequence)).late
    assert await harness.effects() == ["a", "b"]


@given(numbers=st.lists(st.integers(1, 30), max_size=60))
async def test_gaps_are_what_a_set_of_numbers_says(numbers: list[int]) -> None:
    with TemporaryDirectory() as folder, closing(InSqlite(Path(folder) / "store.sqlite")) as in_sqlite:
        harnesses: list[Harness] = [InMemory(), in_sqlite]
        seen: set[int] = set()
        for index, number in enumerate(numbers):
            missing = range(max(seen, default=number) + 1, number) if seen else range(0)
            is_late = bool(seen) and number <= max(seen)
            closes = is_late and number > numbers[0] and number not in seen
            expected = inbox.Arrival(True, missing or range(0), is_late, closes)
            for harness in harnesses:
                assert await handle(harness, f"e{index}", number) == expected
            seen.add(number)
        lost = set(range(numbers[0] if numbers else 0, max(seen, default=0))) - seen
        for harness in harnesses:
            found = [number for each in await harness.store.gaps() for number in range(each.first, each.last + 1)]
            # Below the first event, nothing counts as missing.
            assert found == sorted(lost)


async def test_every_store_gives_the_answers_of_the_one_in_memory(harness: Harness) -> None:
    model = InMemory()
    for index, number in enumerate(
        (7, 8, 8, 12, 20, 3, 10, 14, 14, 19, 13, 9, 11, 30, 29, 21, 15, 25, 18, 16, 17)
    ):
        arrivals = [await handle(each, f"e{index}", number) for each in (harness, model)]
        assert arrivals[0] == arrivals[1], number
        assert await harness.store.gaps() == await model.store.gaps(), number


async def test_what_one_process_has_handled_another_skips(harness: Harness) -> None:
    await handle(harness, "a", 1)
    await handle(harness, "b", 3)

    harness = harness.another()

    assert not (await handle(harness, "a", 1)).first
    assert await harness.store.gaps() == [gap("k", 2, 2)]
    assert await handle(harness, "c", 4) == inbox.Arrival(first=True)


async def test_entities_are_told_apart_by_every_character(harness: Harness) -> None:
    keys = ["k", "K", "k ", " k", "k\u0301", "\u1e31", "key/with?all#of\\them", "x" * 128]
    for key in keys:
        assert (await handle(harness, "a", 1, key=key)).first
        assert (await handle(harness, "b", 3, key=key)).missing == range(2, 3)

    assert await harness.store.gaps() == [gap(key, 2, 2) for key in sorted(keys)]


async def test_a_key_that_the_database_cannot_hold_is_dead_lettered_and_any_other_is_handled(
    harness: Harness,
) -> None:
    for key in ("a\0b", "x" * 600):
        try:
            arrival = await handle(harness, "a", 1, key=key)
        except inbox.DeadLetter as refused:
            assert refused.reason == "invalid-identity"  # noqa: PT017 - either is right, and nothing else is
        else:
            assert arrival.first
            assert not (await handle(harness, "a", 1, key=key)).first
    assert (await handle(harness, "a", 1)).first


async def test_forgotten_ids_are_first_again_and_gaps_stay(harness: Harness) -> None:
    await handle(harness, "a", 1)
    await handle(harness, "b", 3)

    assert await harness.store.forget(timedelta(hours=1)) == 0
    assert not (await handle(harness, "a", 1)).first
    assert await harness.store.forget(timedelta(seconds=-1)) == 2
    assert await harness.store.gaps() == [gap("k", 2, 2)]
    assert await handle(harness, "a", 1) == inbox.Arrival(first=True, late=True)


async def test_a_message_without_an_id_is_refused(harness: Harness) -> None:
    with pytest.raises(inbox.DeadLetter, match="no-message-id"):
        await handle(harness, "")


async def test_half_a_surrogate_pair_is_dead_lettered(harness: Harness) -> None:
    parts = {"identifier": "a", "key": "k", "topic": "events", "entity": "e"}
    for part, name in (("id", "identifier"), ("key", "key"), ("topic", "topic"), ("entity", "entity")):
        with pytest.raises(inbox.DeadLetter, match=f"invalid-identity: The {part} "):
            await handle(harness, sequence=1, **{**parts, name: "\ud800"})
    assert await harness.effects() == []
