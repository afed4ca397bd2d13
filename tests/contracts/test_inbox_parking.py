"""The contract of a store that parks keys."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Protocol
from uuid import UUID

import pytest

import inbox
from inbox.parked import Cause, Kept, ParkedMessage
from inbox.parking import ClaimLost, NotReleased, Parking
from inbox.stores.opening import StoreNotOpened, opened
from tests.support.inbox_stores import cosmos_container, pool_of

MINUTE, OVER = timedelta(minutes=1), timedelta(seconds=-1)
CAUSE = Cause("unknown-title", "DeadLetter", "Nobody knows 'Frankenstein'.")


class Store(inbox.Store, Parking, Protocol):
    """A store that parks keys, too."""


@asynccontextmanager
async def in_memory(_: pytest.FixtureRequest) -> AsyncIterator[Callable[[str], Store]]:
    made: dict[str, Store] = {}
    yield lambda consumer: made.setdefault(consumer, inbox.MemoryStore())


@asynccontextmanager
async def in_sqlite(request: pytest.FixtureRequest) -> AsyncIterator[Callable[[str], Store]]:
    folder = request.getfixturevalue("tmp_path")

    def opened(consumer: str) -> Store:
        return inbox.SqliteStore(inbox.SqliteConnection(folder / "store.sqlite"), consumer=consumer)

    yield opened


@asynccontextmanager
async def in_postgres(request: pytest.FixtureRequest) -> AsyncIterator[Callable[[str], Store]]:
    async with pool_of(request.getfixturevalue("postgres_database")) as pool:
        yield lambda consumer: inbox.PostgresStore(pool.connection, consumer=consumer)


@asynccontextmanager
async def in_cosmos(_: pytest.FixtureRequest) -> AsyncIterator[Callable[[str], Store]]:
    async with cosmos_container() as (container, _server):
        yield lambda consumer: inbox.CosmosStore(container, consumer=consumer)


OPEN: dict[str, Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[Callable[[str], Store]]]] = {
    "in memory": in_memory,
    "SQLite": in_sqlite,
    "PostgreSQL": in_postgres,
    "Cosmos DB": in_cosmos,
}
"""By the store's name: opens it for a consumer, on a connection of its own each time."""


@pytest.fixture(params=OPEN)
async def of(request: pytest.FixtureRequest) -> AsyncIterator[Callable[[str], Store]]:
    async with OPEN[request.param](request) as opened:
        yield opened


@pytest.fixture
def store(of: Callable[[str], Store]) -> Store:
    return of("default")


def message(number: int, key: str = "k", topic: str = "events") -> inbox.Message:
    return inbox.Message(
        id=f"{key}-{number}",
        key=key,
        body=b"\xff{}",
        action="Counted",
        sequence=number,
        properties={"sequence": number, "by": UUID(int=5), "n": float("inf"), "$": b"\x00"},
        sequence_number=number,
        enqueued_at=datetime(2026, 11, 26, 11, 5, 4, 123456, UTC),
        topic=topic,
    )


def parked(number: int, key: str = "k", topic: str = "events") -> ParkedMessage:
    return ParkedMessage.of(message(number, key, topic))


async def numbers(store: Parking, key: str = "k") -> list[int]:
    return [each.number for each in await store.messages("events", key)]


async def claimed(store: Parking, key: str = "k", lasts: timedelta = MINUTE) -> inbox.parked.Claim:
    """Release a key, and claim it."""
    assert await store.release("events", key)
    claim = await store.claim("events", lasts)
    assert claim is not None
    assert (claim.topic, claim.key) == ("events", key)
    return claim


async def test_what_follows_a_parked_message_is_set_aside_behind_it_whole_and_in_order(store: Store) -> None:
    assert not await store.is_parked("events", "k")
    assert await store.set_aside(parked(1)) is Kept.NOT_PARKED

    for _ in range(2):  # as after a kill before the completion
        assert await store.park(parked(7), CAUSE) is Kept.ASIDE
        for number in (10, 9, 8):
            assert await store.set_aside(parked(number)) is Kept.ASIDE
    assert await store.set_aside(parked(9, topic="orders")) is Kept.NOT_PARKED
    assert await store.set_aside(parked(9, key="l")) is Kept.NOT_PARKED

    assert await store.is_parked("events", "k")
    assert await store.messages("events", "k") == [parked(number) for number in (7, 8, 9, 10)]
    assert await store.messages("events", "k", after=8, limit=1) == [parked(9)]
    [key] = await store.keys()
    assert (key.topic, key.key, key.cause, key.messages, key.is_released) == ("events", "k", CAUSE, 4, False)
    assert abs(datetime.now(UTC) - key.since) < MINUTE


async def test_a_released_key_is_handed_over_in_order_and_then_no_longer_parked(store: Store) -> None:
    await store.park(parked(1), CAUSE)
    await store.set_aside(parked(2))
    assert await store.claim("events", MINUTE) is None
    claim = await claimed(store)
    assert (await store.keys())[0].is_released

    assert await store.next(claim) == replace(parked(1), attempts=1)
    assert await store.next(claim) == replace(parked(1), attempts=2)
    assert await store.set_aside(parked(3)) is Kept.ASIDE
    assert await store.park(parked(4), Cause("later")) is Kept.ASIDE  # by a receiver that has lost its session
    for done in (1, 2, 3):
        assert await store.next(claim, done) == replace(parked(done + 1), attempts=1)
    assert await store.next(claim, 4) is None

    assert await store.keys() == []
    assert await store.set_aside(parked(5)) is Kept.NOT_PARKED
    with pytest.raises(ClaimLost):
        await store.next(claim)


async def test_a_message_that_fails_again_parks_the_key_again(store: Store) -> None:
    await store.park(parked(1), CAUSE)
    await store.set_aside(parked(2))
    claim = await claimed(store)
    await store.next(claim)
    await store.next(claim, 1)
    again = Cause("handler-failed", "OSError", "the disk is full")
    await store.fail(claim, again)

    [key] = await store.keys()
    assert (key.cause, key.is_released, await numbers(store)) == (again, False, [2])
    assert await store.claim("events", MINUTE) is None
    for attempt in (store.next(claim), store.fail(claim, again), store.give_back(claim)):
        with pytest.raises(ClaimLost):
            await attempt
    assert not await store.renew(claim, MINUTE)
    # Attempts count from the release.
    assert await store.next(await claimed(store)) == replace(parked(2), attempts=1)


async def test_one_at_a_time_has_a_claim_until_its_time_is_over(of: Callable[[str], Store]) -> None:
    store, other = of("default"), of("default")
    for key in ("k", "l"):
        await store.park(parked(1, key), CAUSE)
        await store.release("events", key)
    assert await store.claim("orders", MINUTE) is None
    claims = [await each.claim("events", MINUTE) for each in (store, other, store)]
    assert [each and each.key for each in claims] in (["k", "l", None], ["l", "k", None])
    first = claims[0]
    assert first is not None

    assert await store.renew(first, OVER)  # its time is over, and nobody has noticed
    assert await store.next(first) is not None
    taken = await other.claim("events", MINUTE)
    assert taken is not None
    assert (taken.key, taken.token != first.token) == (first.key, True)
    assert not await store.renew(first, MINUTE)
    for attempt in (store.next(first, 1), store.fail(first, CAUSE), store.give_back(first, 1)):
        with pytest.raises(ClaimLost):
            await attempt
    assert await numbers(store, first.key) == [1]

    await other.give_back(taken)
    back = await store.claim("events", MINUTE)
    assert back is not None
    assert (await store.next(back)) is not None
    await store.give_back(back, 1)
    assert not await store.is_parked("events", back.key)


async def test_what_is_discarded_counts_as_handled(store: Store) -> None:
    await store.park(parked(1), CAUSE)
    for number in (2, 3, 4):
        await store.set_aside(parked(number))

    assert await store.discard("events", "k") == [parked(1)]
    assert await store.set_aside(parked(1)) is Kept.HANDLED  # delivered again, as its completion was lost
    assert await store.park(parked(1), CAUSE) is Kept.HANDLED
    assert await numbers(store) == [2, 3, 4]
    claim = await claimed(store)
    assert await store.next(claim) == replace(parked(2), attempts=1)
    assert await store.discard("events", "k", limit=10) == [
        replace(parked(2), attempts=1),
        parked(3),
        parked(4),
    ]
    assert await store.discard("events", "k") == []
    assert await store.keys() == []
    with pytest.raises(ClaimLost):
        await store.next(claim, 2)

    for number in range(1, 5):
        async with store.once(message(number)) as arrival:
            assert not arrival.first
    assert await store.park(parked(4), CAUSE) is Kept.HANDLED
    assert not await store.is_parked("events", "k")


async def test_what_was_handled_is_not_set_aside_again(store: Store) -> None:
    async with store.once(message(1)):
        pass

    assert await store.park(parked(1), CAUSE) is Kept.HANDLED
    assert await store.keys() == []
    await store.park(parked(2), CAUSE)
    assert await store.set_aside(parked(1)) is Kept.HANDLED


async def test_a_place_holds_its_key_until_it_is_discarded(store: Store) -> None:
    place = ParkedMessage("events", "k", "", 1, None)
    unreadable = Cause("unreadable", "DeadLetter")
    await store.park(place, unreadable)
    await store.set_aside(parked(2))

    with pytest.raises(NotReleased):
        await store.release("events", "k")
    assert await store.messages("events", "k") == [place, parked(2)]
    assert await store.discard("events", "k") == [place]
    assert await store.next(await claimed(store)) == replace(parked(2), attempts=1)


async def test_consumers_are_apart(of: Callable[[str], Store]) -> None:
    one, other = of("one"), of("other")
    await one.park(parked(1), CAUSE)
    await one.release("events", "k")

    assert not await other.is_parked("events", "k")
    assert await other.set_aside(parked(2)) is Kept.NOT_PARKED
    assert await other.claim("events", MINUTE) is None
    assert not await other.release("events", "k")
    assert await other.discard("events", "k") == []
    assert await other.keys() == []
    assert await numbers(other) == []
    assert await numbers(one) == [1]


@pytest.mark.parametrize("name", ["PostgreSQL", "Cosmos DB"])
async def test_the_commands_open_it_by_its_address(name: str, request: pytest.FixtureRequest) -> None:
    async with AsyncExitStack() as stack:
        if name == "PostgreSQL":
            address = request.getfixturevalue("postgres_database")
        else:
            _, server = await stack.enter_async_context(cosmos_container())
            address = f"{server.connection_string};Database=consumer;Container=state"
        async with opened(address, "loans") as parking:
            await parking.park(parked(1), CAUSE)
        async with opened(address, "loans") as parking:
            assert [each.key for each in await parking.keys()] == ["k"]
        async with opened(address, "default") as parking:
            assert await parking.keys() == []


async def test_a_container_that_is_not_named_is_asked_for() -> None:
    with pytest.raises(StoreNotOpened, match="no Container"):
        async with opened("AccountEndpoint=https://localhost:1/;AccountKey=a2V5", "loans"):
            pass
