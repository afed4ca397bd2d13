"""The contract of a store that parks keys."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import async_sessionmaker

from outbox_relay import inbox
from outbox_relay.inbox.parking import Cause, ClaimLost, Kept, NotReleased, ParkedMessage, Parking, encode
from outbox_relay.inbox.stores.opening import StoreNotOpened, opened
from outbox_relay.inbox.stores.sql.dialects import Postgres, Sqlite
from outbox_relay.inbox.stores.sql.recording import migrations
from tests.support.closing import CloseLater
from tests.support.inbox_stores import add_migration, cosmos_container, engine_of, pool_of
from tests.support.postgresql import PostgresServer

MINUTE, OVER = timedelta(minutes=1), timedelta(seconds=-1)
CAUSE = Cause("unknown-title", "DeadLetter", "Nobody knows 'Frankenstein'.")


class Store(inbox.Store, Parking, Protocol):
    """A store that parks keys, too."""


_tests = itertools.count()


@pytest.fixture(scope="module")
def parking_database(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a database in which each test has consumers of its own."""
    name = postgres_server.create_database()
    yield postgres_server.url(name)
    postgres_server.drop_database(name)


def connecting(url: str) -> Callable[[], AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]]:
    @asynccontextmanager
    async def connect() -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            yield connection

    return connect


@asynccontextmanager
async def in_memory(_: pytest.FixtureRequest) -> AsyncIterator[Callable[[str], Store]]:
    made: dict[str, Store] = {}
    yield lambda consumer: made.setdefault(consumer, inbox.MemoryStore())


@asynccontextmanager
async def in_sqlite(request: pytest.FixtureRequest) -> AsyncIterator[Callable[[str], Store]]:
    folder, close_later = (request.getfixturevalue(name) for name in ("tmp_path", "close_later"))

    def opened(consumer: str) -> Store:
        connection = close_later(inbox.SqliteConnection(folder / "store.sqlite"))
        return inbox.SqliteStore(connection, consumer=consumer)

    yield opened


@asynccontextmanager
async def in_postgres(request: pytest.FixtureRequest) -> AsyncIterator[Callable[[str], Store]]:
    async with pool_of(request.getfixturevalue("parking_database")) as pool:
        apart = f" of test {next(_tests)}"
        yield lambda consumer: inbox.PostgresStore(pool.connection, consumer=consumer + apart)


@asynccontextmanager
async def in_sqlalchemy_postgres(request: pytest.FixtureRequest) -> AsyncIterator[Callable[[str], Store]]:
    url = request.getfixturevalue("parking_database").replace("postgresql://", "postgresql+psycopg://")
    async with engine_of(url) as engine:
        apart = f" of test {next(_tests)}"
        yield lambda consumer: inbox.SqlAlchemyStore(engine, consumer=consumer + apart)


@asynccontextmanager
async def in_sqlalchemy_sqlite(request: pytest.FixtureRequest) -> AsyncIterator[Callable[[str], Store]]:
    async with engine_of(f"sqlite+aiosqlite:///{request.getfixturevalue('tmp_path') / 'store.sqlite'}") as engine:
        yield lambda consumer: inbox.SqlAlchemyStore(async_sessionmaker(engine), consumer=consumer)


@asynccontextmanager
async def in_cosmos(_: pytest.FixtureRequest) -> AsyncIterator[Callable[[str], Store]]:
    async with cosmos_container() as (container, _server):
        yield lambda consumer: inbox.CosmosStore(container, consumer=consumer)


OPEN: dict[str, Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[Callable[[str], Store]]]] = {
    "in memory": in_memory,
    "SQLite": in_sqlite,
    "PostgreSQL": in_postgres,
    "Cosmos DB": in_cosmos,
    "SQLAlchemy on PostgreSQL": in_sqlalchemy_postgres,
    "SQLAlchemy on SQLite": in_sqlalchemy_sqlite,
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


async def discarded(store: Parking, count: int) -> Sequence[ParkedMessage]:
    """Discard the first messages of the key `k`, as an operator is shown them."""
    return await store.discard("events", "k", await store.messages("events", "k", limit=count))


async def claimed(store: Parking, key: str = "k", lasts: timedelta = MINUTE) -> inbox.parking.Claim:
    """Release a key, and claim it."""
    assert await store.release("events", key)
    claim = await store.claim("events", lasts)
    assert claim is not None
    assert (claim.topic, claim.key) == ("events", key)
    return claim


async def test_what_follows_a_parked_message_is_set_aside_behind_it_whole_and_in_order(store: Store) -> None:
    began = datetime.now(UTC).replace(microsecond=0)
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
    eighth = (await store.messages("events", "k"))[1]
    assert await store.messages("events", "k", after=eighth, limit=1) == [parked(9)]
    [key] = await store.keys()
    assert (key.topic, key.key, key.cause, key.messages, key.is_released) == ("events", "k", CAUSE, 4, False)
    assert began <= key.since <= datetime.now(UTC)


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
    done = await store.next(claim)
    assert done == replace(parked(1), attempts=3)
    for number in (2, 3, 4):
        done = await store.next(claim, done)
        assert done == replace(parked(number), attempts=1)
    assert await store.next(claim, done) is None

    assert await store.keys() == []
    assert await store.set_aside(parked(5)) is Kept.NOT_PARKED
    with pytest.raises(ClaimLost):
        await store.next(claim)


async def test_a_message_that_fails_again_parks_the_key_again(store: Store) -> None:
    await store.park(parked(1), CAUSE)
    await store.set_aside(parked(2))
    claim = await claimed(store)
    await store.next(claim, await store.next(claim))
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
    handled = await store.next(first)
    assert handled is not None
    taken = await other.claim("events", MINUTE)
    assert taken is not None
    assert (taken.key, taken.token != first.token) == (first.key, True)
    assert not await store.renew(first, MINUTE)
    for attempt in (store.next(first, handled), store.fail(first, CAUSE), store.give_back(first, handled)):
        with pytest.raises(ClaimLost):
            await attempt
    assert await numbers(store, first.key) == [1]

    await other.give_back(taken)
    back = await store.claim("events", MINUTE)
    assert back is not None
    await store.give_back(back, await store.next(back))
    assert not await store.is_parked("events", back.key)


async def test_what_is_discarded_counts_as_handled(store: Store) -> None:
    await store.park(parked(1), CAUSE)
    for number in (2, 3, 4):
        await store.set_aside(parked(number))

    assert await discarded(store, 1) == [parked(1)]
    assert await store.set_aside(parked(1)) is Kept.HANDLED  # delivered again, as its completion was lost
    assert await store.park(parked(1), CAUSE) is Kept.HANDLED
    assert await numbers(store) == [2, 3, 4]
    claim = await claimed(store)
    handled = await store.next(claim)
    assert handled == replace(parked(2), attempts=1)
    rest = [replace(parked(2), attempts=1), parked(3), parked(4)]
    assert await discarded(store, 10) == rest
    assert await store.discard("events", "k", rest) == []
    assert await store.keys() == []
    with pytest.raises(ClaimLost):
        await store.next(claim, handled)

    for number in range(1, 5):
        async with store.once(message(number)) as arrival:
            assert not arrival.first
    assert await store.park(parked(4), CAUSE) is Kept.HANDLED
    assert not await store.is_parked("events", "k")


async def test_only_what_was_shown_is_discarded(store: Store) -> None:
    for number in (1, 2, 3):
        await store.park(parked(number), CAUSE)
    shown = await store.messages("events", "k")
    claim = await claimed(store)
    await store.give_back(claim, await store.next(claim))

    assert await store.discard("events", "k", shown[:1]) == []
    assert await numbers(store) == [2, 3]
    for number in (4, 5):
        await store.set_aside(parked(number))
    assert await store.discard("events", "k", shown[:2]) == [parked(2)]
    assert await numbers(store) == [3, 4, 5]

    # Another message has the position and the number of one that was shown.
    last = await store.messages("events", "k")
    await store.discard("events", "k", last)
    await store.park(replace(parked(1), id="new"), CAUSE)
    await store.set_aside(replace(parked(2), id="newer"))
    assert await store.discard("events", "k", shown) == []
    assert await ids(store) == ["new", "newer"]
    async with store.once(replace(message(1), id="new")) as arrival:
        assert arrival.first


async def test_many_messages_are_discarded_at_once(store: Store) -> None:
    # More than a batch of Cosmos DB takes, with two operations for each.
    for number in range(1, 52):
        await store.park(parked(number), CAUSE)

    assert len(await discarded(store, 51)) == 51
    assert await store.keys() == []


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
    assert await discarded(store, 1) == [place]
    assert await store.next(await claimed(store)) == replace(parked(2), attempts=1)


async def test_the_content_of_a_message_is_not_taken_for_stored_when_its_place_is(store: Store) -> None:
    """Delivered again, since the process ended before the message was in the dead-letter queue."""
    place = replace(parked(2), message=None)
    await store.park(parked(1), CAUSE)
    assert await store.set_aside(place) is Kept.ASIDE

    for again in (store.set_aside(parked(2)), store.park(parked(2), CAUSE)):
        with pytest.raises(inbox.NotStorable, match="Only its place is kept"):
            await again
    assert await store.set_aside(place) is Kept.ASIDE
    assert await store.set_aside(parked(1)) is Kept.ASIDE
    assert await store.messages("events", "k") == [parked(1), place]


def received(identifier: str, number: int, subscription: str, second: int, body: bytes = b"{}") -> ParkedMessage:
    """A message of the key `k`, as a subscription gives it."""
    return ParkedMessage.of(
        inbox.Message(
            id=identifier,
            key="k",
            body=body,
            sequence_number=number,
            enqueued_at=datetime(2026, 11, 26, 11, 5, second, tzinfo=UTC),
            topic="events",
            subscription=subscription,
        )
    )


async def ids(store: Parking) -> list[str]:
    return [each.id for each in await store.messages("events", "k")]


async def test_two_subscriptions_of_a_topic_have_the_same_numbers_and_lose_nothing(store: Store) -> None:
    loans = [received(f"l{number}", number, "loans", number) for number in (5, 6, 7)]
    sales = [received(f"s{number}", number, "sales", number) for number in (4, 5, 6)]
    assert await store.park(loans[0], CAUSE) is Kept.ASIDE
    for _ in range(2):  # as after a kill before the completion
        for each in (sales[0], loans[1], sales[1], sales[2], loans[2]):
            assert await store.set_aside(each) is Kept.ASIDE
    came = ["l5", "s4", "l6", "s5", "s6", "l7"]

    assert await ids(store) == came
    claim, done = await claimed(store), None
    for expected in came:
        done = await store.next(claim, done)
        assert done is not None
        assert done.id == expected
    assert await store.next(claim, done) is None


async def test_numbers_that_begin_again_follow_what_is_parked(store: Store) -> None:
    for index, number in enumerate((5, 6, 7)):
        await store.park(received(f"x{number}", number, "all", index), CAUSE)
    for _ in range(2):
        for index, number in enumerate((1, 2, 6, 5, 9, 8)):  # 5 and 8 by a receiver that has lost its session
            time = 60 - 10 + number if number in (8, 9) else 10 + index
            assert await store.set_aside(received(f"y{number}", number, "all", time)) is Kept.ASIDE

    assert await ids(store) == ["x5", "x6", "x7", "y1", "y2", "y6", "y5", "y8", "y9"]
    claim = await claimed(store)
    first = await store.next(claim)
    assert first is not None
    await store.give_back(claim, first)
    assert await ids(store) == ["x6", "x7", "y1", "y2", "y6", "y5", "y8", "y9"]
    assert [each.id for each in await discarded(store, 2)] == ["x6", "x7"]
    async with store.once(inbox.Message(id="y6", key="k", body=b"", topic="events")) as arrival:
        assert arrival.first


async def test_what_a_lost_session_brings_precedes_all_that_came_after_it(store: Store) -> None:
    await store.park(received("e1", 1, "all", 1), CAUSE)
    for number in (8, 9, 7):
        await store.set_aside(received(f"e{number}", number, "all", number))

    assert await ids(store) == ["e1", "e7", "e8", "e9"]


async def test_a_number_that_another_message_without_an_id_has_is_no_repetition(store: Store) -> None:
    """Neither a place nor a message has to have an id; then the time tells two apart that have one number."""
    place = ParkedMessage("events", "k", "", 1, None, enqueued_at=datetime(2026, 11, 26, tzinfo=UTC))
    other = replace(place, enqueued_at=datetime(2026, 11, 27, tzinfo=UTC))
    unstorable = received("\0" + "x" * 600, 1, "", 59)
    for _ in range(2):
        await store.park(place, CAUSE)
        await store.set_aside(other)
        await store.set_aside(unstorable)

    assert [each.message is None for each in await store.messages("events", "k")] == [True, True, False]


async def test_pages_have_each_message_once(store: Store) -> None:
    came = [("a", 3, "loans"), ("b", 3, "sales"), ("c", 4, "sales"), ("d", 1, "all"), ("e", 4, "loans")]
    for index, (identifier, number, subscription) in enumerate(came):
        await store.park(received(identifier, number, subscription, index), CAUSE)

    found: list[str] = []
    last: ParkedMessage | None = None
    while page := await store.messages("events", "k", after=last, limit=2):
        found += [each.id for each in page]
        last = page[-1]
    assert found == ["a", "b", "c", "d", "e"]


async def test_a_page_has_a_thousand_messages_by_default() -> None:
    store = inbox.MemoryStore()
    for number in range(1001):
        await store.park(received(f"e{number}", number, "loans", 0), CAUSE)

    assert len(await store.messages("events", "k")) == 1000


async def test_keys_are_told_apart_by_every_character(store: Store) -> None:
    keys = ["", "k", "K", "k ", " k", "k\u0301", "\u1e31", "\u00df", "ss", "key/with?all#of\\them", "x" * 128]
    same = [replace(parked(1, key), id="a") for key in keys]
    for each in same:
        await store.park(each, CAUSE)

    assert [each.key for each in await store.keys()] == sorted(keys)
    for each in same:
        claim = await claimed(store, each.key)
        found = await store.next(claim)
        assert found is not None
        assert (found.key, found.message) == (each.key, each.message)
        assert await store.next(claim, found) is None
        keys.remove(each.key)
        assert [other.key for other in await store.keys()] == sorted(keys)


async def test_consumers_are_apart(of: Callable[[str], Store]) -> None:
    one, other = of("one"), of("other")
    await one.park(parked(1), CAUSE)
    await one.release("events", "k")

    assert not await other.is_parked("events", "k")
    assert await other.set_aside(parked(2)) is Kept.NOT_PARKED
    assert await other.claim("events", MINUTE) is None
    assert not await other.release("events", "k")
    assert await other.discard("events", "k", await one.messages("events", "k")) == []
    assert await other.keys() == []
    assert await numbers(other) == []
    assert await numbers(one) == [1]


@pytest.mark.parametrize("name", ["PostgreSQL", "Cosmos DB"])
async def test_the_commands_open_it_by_its_address_once_a_consumer_has_used_it(
    name: str, request: pytest.FixtureRequest
) -> None:
    async with AsyncExitStack() as stack:
        store: Store
        if name == "PostgreSQL":
            address = request.getfixturevalue("postgres_database")
            pool = await stack.enter_async_context(pool_of(address))
            store = inbox.PostgresStore(pool.connection, consumer="loans", schema="app")
            with pytest.raises(StoreNotOpened, match="no tables of inbox"):
                async with opened(address, "loans", "app"):
                    pass
            async with pool.connection() as connection:
                await connection.execute("create schema app")
            schema = "app"
        else:
            container, server = await stack.enter_async_context(cosmos_container())
            address = f"{server.connection_string};Database=consumer;Container=state"
            store, schema = inbox.CosmosStore(container, consumer="loans"), None
        await store.park(parked(1), CAUSE)
        async with opened(address, "loans", schema) as parking:
            assert [each.key for each in await parking.keys()] == ["k"]
            assert await parking.has_records()
        async with opened(address, "default", schema) as parking:
            assert await parking.keys() == []
            assert not await parking.has_records()


async def test_the_commands_refuse_a_store_whose_rows_a_policy_hides(
    postgres_server: PostgresServer, postgres_database: str
) -> None:
    async with pool_of(postgres_database) as pool:
        await inbox.PostgresStore(pool.connection).park(parked(1), CAUSE)
    address = postgres_server.url(str(conninfo_to_dict(postgres_database)["dbname"]), "operator")

    async def use() -> None:
        async with opened(address, "default") as store:
            await store.discard("events", "k", await store.messages("events", "k"))
            await store.has_records()
            await store.keys()

    with psycopg.connect(postgres_database, autocommit=True) as owner:
        owner.execute("create role operator login")
        owner.execute("grant select, insert, update, delete on all tables in schema public to operator")
        for table in ("inbox_parked_keys", "inbox_parked_messages", "inbox_handled"):
            owner.execute(f"create policy hidden on {table} using (false)".encode())
            owner.execute(f"alter table {table} enable row level security".encode())
            with pytest.raises(StoreNotOpened, match="a policy of row-level security hides rows"):
                await use()
            owner.execute(f"alter table {table} disable row level security".encode())
    await use()


ENDS_OF_THE_CALENDAR = {
    "9999-12-31 23:59:59+00": datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
    "0001-01-01 00:00:00+00": datetime(1, 1, 1, tzinfo=UTC),
    "infinity": datetime.max.replace(tzinfo=UTC),
    "-infinity": datetime.min.replace(tzinfo=UTC),
    "2026-11-26 11:05:04.123456+00": datetime(2026, 11, 26, 11, 5, 4, 123456, tzinfo=UTC),
}


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
async def test_a_key_that_is_parked_since_the_end_of_the_calendar_is_listed(
    zone: str, postgres_database: str
) -> None:
    async with pool_of(postgres_database, kwargs={"options": f"-c timezone={zone} -c datestyle=German"}) as pool:
        store = inbox.PostgresStore(pool.connection)
        await store.park(parked(1), CAUSE)
        for since, read in ENDS_OF_THE_CALENDAR.items():
            async with pool.connection() as connection:
                await connection.execute("update inbox_parked_keys set since = %s", (since,))

            assert [each.since for each in await store.keys()] == [read]


async def test_a_key_that_is_parked_since_no_time_is_listed(tmp_path: Path, close_later: CloseLater) -> None:
    connection = close_later(inbox.SqliteConnection(tmp_path / "store.sqlite"))
    store = inbox.SqliteStore(connection)
    await store.park(parked(1), CAUSE)
    for since, year in ((1e300, 9999), (float("inf"), 9999), (-1e300, 1)):
        connection.execute("update inbox_parked_keys set since = ?", (since,))

        assert [each.since.year for each in await store.keys()] == [year]


async def test_opening_a_store_that_lacks_a_migration_changes_nothing(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await inbox.PostgresStore(connecting(postgres_database)).prepare()
    add_migration(monkeypatch, _ANOTHER)

    with pytest.raises(StoreNotOpened, match="version 3, and this library knows 4: they are migrated when"):
        async with opened(postgres_database, "default"):
            pass

    with psycopg.connect(postgres_database) as other:
        assert other.execute("select version from inbox_schema").fetchall() == [(3,)]


async def test_opening_a_store_of_another_version_changes_nothing(postgres_database: str) -> None:
    async with pool_of(postgres_database) as pool:
        await inbox.PostgresStore(pool.connection).prepare()
        tables = "select table_name from information_schema.tables where table_name like 'inbox%' order by 1"
        async with pool.connection() as connection:
            before = await (await connection.execute(tables)).fetchall()
            for change, complaint in (
                ("update inbox_schema set version = 1", "version 1, .* before 0.1.0, .* app-v0"),
                ("insert into inbox_schema values (99)", "version 99.*update it"),
                ("drop table inbox_schema, inbox_handled", "no tables of inbox"),
            ):
                await connection.execute(change.encode())
                await connection.commit()
                with pytest.raises(StoreNotOpened, match=complaint):
                    async with opened(postgres_database, "default"):
                        pass
            after = await (await connection.execute(tables)).fetchall()
        assert len(after) == len(before) - 2


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("AccountEndpoint=https://localhost:1/;AccountKey=a2V5", "no Container"),
        ("AccountEndpoint=https://localhost:1/;AccountKey=a2V5;Database=d;Container=c", "does not answer"),
        ("AccountEndpoint=http://[;AccountKey=a2V5;Database=d;Container=c", "is no URL"),
        ("postgresql://localhost:1/nothing", "does not answer"),
        ("postgresql://[", "does not answer"),
        ("/nowhere/store.sqlite", "There is no file /nowhere/store.sqlite"),
    ],
)
async def test_an_address_that_leads_to_no_store_is_a_sentence(address: str, complaint: str) -> None:
    with pytest.raises(StoreNotOpened, match=complaint):
        async with opened(address, "loans"):
            pass


async def test_an_address_of_an_account_that_is_wrong_is_a_sentence() -> None:
    async with cosmos_container() as (_, server):
        for replaced, by, complaint in (
            ("AccountKey=", "AccountKey=abc", "no Base64"),
            ("Container=state", "Container=other", "status 404"),
            ("Database=consumer", "Database=other", "status 404"),
        ):
            address = f"{server.connection_string};Database=consumer;Container=state".replace(replaced, by)
            with pytest.raises(StoreNotOpened, match=complaint):
                async with opened(address, "loans"):
                    pass


@pytest.mark.parametrize(
    ("consumer", "schema", "complaint"),
    [("", None, "consumer is ''"), ("loans", "a b", "schema is 'a b'")],
)
async def test_a_name_that_no_store_can_have_is_a_sentence(
    consumer: str, schema: str | None, complaint: str
) -> None:
    with pytest.raises(StoreNotOpened, match=complaint):
        async with opened("postgresql://localhost:1/nothing", consumer, schema):
            pass


# Messages that a version has parked which told them apart by their numbers.


_EARLIER_KEY = (
    "insert into inbox_parked_keys (consumer, topic, key, since, reason, error, detail, released)"
    " values ('default', 'events', 'k', {now}, 'handler-failed', 'OSError', '', 0)"
)
_EARLIER_MESSAGE = (
    "insert into inbox_parked_messages"
    " (consumer, topic, key, position, subscription, sequence_number, id, message, attempts)"
    " values ('default', 'events', 'k', {position}, '', {number}, 'k-{number}', {message}, 0)"
)


def _of_earlier_version(now: str) -> list[str]:
    """Return the statements that park what release 0.1.0 left of it: without subscriptions and times."""
    messages = ["null", *(f"'{encode(message(number))}'" for number in (8, 9))]
    return [
        _EARLIER_KEY.format(now=now),
        *(
            _EARLIER_MESSAGE.format(position=number - 6, number=number, message=text)
            for number, text in enumerate(messages, 7)
        ),
    ]


async def sqlite_of_earlier_version(request: pytest.FixtureRequest) -> Store:
    path, close_later = (request.getfixturevalue(name) for name in ("tmp_path", "close_later"))
    connection = close_later(inbox.SqliteConnection(path / "store.sqlite"))
    store = inbox.SqliteStore(connection)
    for statement in _of_earlier_version("0"):
        connection.execute(statement)
    return store


async def postgres_of_earlier_version(request: pytest.FixtureRequest) -> Store:
    url = request.getfixturevalue("postgres_database")
    store = inbox.PostgresStore(connecting(url))
    await store.prepare()
    with psycopg.connect(url, autocommit=True) as earlier:
        for statement in _of_earlier_version("clock_timestamp()"):
            earlier.execute(statement.encode())
    return store


async def cosmos_of_earlier_version(request: pytest.FixtureRequest) -> Store:
    container, _ = await request.getfixturevalue("stack").enter_async_context(cosmos_container())
    store = inbox.CosmosStore(container)
    key = {"consumer": "default", "topic": "events", "key": "k", "partitionKey": "k"}
    identifier = store._identifier("inboxParkedKey", "default", "events", "k")
    reason = {"reason": "handler-failed", "error": "OSError", "detail": "", "since": "2026-11-26T11:05:04+00:00"}
    claim = {"released": False, "token": "", "until": 0, "messages": 3}
    await container.create_item({"id": identifier, "type": "inboxParkedKey", **key, **reason, **claim})
    for number in (9, 8, 7):
        await container.create_item(
            {
                "id": f"inboxParked-{identifier}-{number:020d}",
                "type": "inboxParked",
                **key,
                "number": f"{number:020d}",
                "messageId": f"k-{number}",
                "message": None if number == 7 else encode(message(number)),
                "attempts": 0,
            }
        )
    return store


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.mark.parametrize(
    "of_earlier_version", [sqlite_of_earlier_version, postgres_of_earlier_version, cosmos_of_earlier_version]
)
@pytest.mark.usefixtures("stack")
async def test_what_an_earlier_version_has_parked_is_handed_over_first_and_once(
    of_earlier_version: Callable[[pytest.FixtureRequest], Awaitable[Store]], request: pytest.FixtureRequest
) -> None:
    store = await of_earlier_version(request)
    assert [(each.number, each.id) for each in await store.messages("events", "k")] == [
        (7, "k-7"),
        (8, "k-8"),
        (9, "k-9"),
    ]

    again = replace(message(9), subscription="all")  # it was not completed before the update
    assert await store.set_aside(ParkedMessage.of(again)) is Kept.ASIDE
    unreadable = received("k-7", 7, "all", 10)  # a place has no time
    with pytest.raises(inbox.NotStorable):
        await store.set_aside(unreadable)
    assert await store.set_aside(replace(unreadable, message=None)) is Kept.ASIDE
    for identifier, number in (("new-1", 1), ("new-8", 8), ("new-9", 9)):  # of a subscription that was made anew
        assert await store.set_aside(received(identifier, number, "all", 30)) is Kept.ASIDE
    assert await ids(store) == ["k-7", "k-8", "k-9", "new-1", "new-8", "new-9"]

    assert [each.id for each in await discarded(store, 1)] == ["k-7"]
    claim, done = await claimed(store), None
    for expected in ("k-8", "k-9", "new-1", "new-8", "new-9"):
        done = await store.next(claim, done)
        assert done is not None
        assert done.id == expected
        assert done.message is not None
    assert await store.next(claim, done) is None
    assert await store.keys() == []


# Migrations.


_ANOTHER = "create table inbox_another (number integer)"


@pytest.mark.parametrize("installed", [False, True])
async def test_a_migration_that_ends_before_any_statement_is_done_by_the_next_process(
    installed: bool, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if installed:
        await inbox.PostgresStore(connecting(postgres_database)).prepare()
    known = [migration.version for migration in migrations(Postgres())]
    add_migration(monkeypatch, _ANOTHER, "alter table inbox_another add column text text")
    store: Any = inbox.PostgresStore(connecting(postgres_database))
    execute, left = store._execute, 0

    async def execute_some(*arguments: Any) -> Any:
        nonlocal left
        if left == 0:
            raise ConnectionAbortedError
        left -= 1
        return await execute(*arguments)

    with psycopg.connect(postgres_database, autocommit=True) as other, monkeypatch.context() as patch:
        patch.setattr(store, "_execute", execute_some)
        for ended in itertools.count():
            left = ended
            with suppress(ConnectionAbortedError):
                await store.prepare()
                break
            found = other.execute("select tablename from pg_tables where tablename = 'inbox_another'").fetchall()
            assert found == []
        versions = other.execute("select version from inbox_schema order by 1").fetchall()

    assert ended > 5
    assert versions == [(version,) for version in [*known, known[-1] + 1]]
    assert await store.set_aside(parked(1)) is Kept.NOT_PARKED


@pytest.mark.parametrize("installed", [False, True])
async def test_a_migration_of_a_file_that_ends_before_any_statement_is_done_by_the_next_process(
    installed: bool, tmp_path: Path, close_later: CloseLater, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, left = tmp_path / "store.sqlite", 0
    if installed:
        inbox.SqliteStore(close_later(inbox.SqliteConnection(path)))
    known = [migration.version for migration in migrations(Sqlite())]
    add_migration(monkeypatch, _ANOTHER, "alter table inbox_another add column text text")

    class Ending(inbox.SqliteConnection):
        def execute(self, *arguments: Any) -> sqlite3.Cursor:
            nonlocal left
            # Without the process, SQLite rolls back by itself.
            if left == 0 and not str(arguments[0]).startswith("ROLLBACK"):
                raise ConnectionAbortedError
            left -= 1
            return super().execute(*arguments)

    other = close_later(sqlite3.connect(path, isolation_level=None))
    for ended in itertools.count():
        left, connection = ended, Ending(path)
        with suppress(ConnectionAbortedError):
            inbox.SqliteStore(connection)
            break
        connection.close()
        assert other.execute("select name from sqlite_master where name = 'inbox_another'").fetchall() == []

    assert ended > 5
    connection.close()
    versions = other.execute("select version from inbox_schema order by 1").fetchall()
    assert versions == [(version,) for version in [*known, known[-1] + 1]]
    store = inbox.SqliteStore(close_later(inbox.SqliteConnection(path)))
    assert await store.set_aside(parked(1)) is Kept.NOT_PARKED
