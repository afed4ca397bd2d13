"""The contract of a database with a feed: what the model that is simulated promises, PostgreSQL does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outbox_relay.changefeed import (
    START,
    ArgumentError,
    AsyncConsumer,
    AsyncFeed,
    Claim,
    ClaimLostError,
    CursorChangedError,
    CursorError,
    CursorPrunedError,
    DatabaseError,
    FeedBusyError,
    Page,
)
from outbox_relay.changefeed.ulid import milliseconds
from tests.support.feed_databases import FeedDatabase, Writer, on_each
from tests.support.sql_outbox import TABLE
from tests.support.waiting import elapse

ONE, TWO = (bytes(15) + bytes([number]) for number in (1, 2))
_HOUR_S = 3600.0


async def feed_of(database: FeedDatabase) -> AsyncFeed:
    return AsyncFeed(await database.session(), TABLE)


async def consumer_of(database: FeedDatabase, name: str = "relay") -> AsyncConsumer:
    return AsyncConsumer(await database.session(), TABLE, name)


async def write(database: FeedDatabase, *identifiers: str, shard: int = 0, **more: Any) -> Writer:
    """Commit events in one transaction."""
    writer = await database.writer()
    await writer.begin()
    for identifier in identifiers:
        await writer.append(identifier, shard, **more)
    await writer.commit()
    return writer


def ids(page: Page) -> list[Any]:
    return [(each.row or each.key)["id"] for each in page.entries]


# Reading


@on_each
async def test_events_are_read_in_the_order_of_their_transactions(database: FeedDatabase) -> None:
    await write(database, "a", "b")
    await write(database, "c")
    feed = await feed_of(database)

    first = await feed.read(0, START, 2)
    second = await feed.read(0, first.cursor, 2)

    assert (ids(first), ids(second)) == (["a", "b"], ["c"])
    positions = [each.ulid for each in (*first.entries, *second.entries)]
    assert positions == sorted(set(positions))
    assert second.cursor == positions[-1]
    assert (await feed.read(0, second.cursor)).entries == []


@on_each
async def test_positions_stay_as_they_were_given(database: FeedDatabase) -> None:
    await write(database, "a", "b", "c")
    first = await (await feed_of(database)).read(0)

    again = await (await feed_of(database)).read(0)

    assert again == first


@on_each
async def test_a_row_comes_with_its_columns_and_json_as_text(database: FeedDatabase) -> None:
    await write(database, "a", data='{"action": "Changed"}')

    (entry,) = (await (await feed_of(database)).read(0)).entries

    assert entry.row is not None
    assert {name: entry.row[name] for name in ("id", "partition_key", "type", "data")} == {
        "id": "a",
        "partition_key": "k",
        "type": "domainEvent",
        "data": '{"action": "Changed"}',
    }


@on_each
async def test_of_a_row_that_was_deleted_the_key_is_left(database: FeedDatabase) -> None:
    await write(database, "a", "b")
    await database.delete("a")

    page = await (await feed_of(database)).read(0)

    assert [(each.row is None, dict(each.key)) for each in page.entries] == [(True, {"id": "a"}), (False, {})]


@on_each
async def test_what_commits_late_is_read_behind_what_was_read_before(database: FeedDatabase) -> None:
    late = await database.writer()
    await late.begin()
    await late.append("late")
    await write(database, "early")
    feed = await feed_of(database)
    first = await feed.read(0)

    await late.commit()
    second = await feed.read(0, first.cursor)

    assert (ids(first), ids(second)) == (["early"], ["late"])


@on_each
async def test_rows_of_one_look_come_in_the_order_of_their_numbers(database: FeedDatabase) -> None:
    first, second = await database.writer(), await database.writer()
    for writer, identifier in ((first, "first"), (second, "second")):
        await writer.begin()
        await writer.append(identifier)
    await second.commit()
    await first.commit()

    page = await (await feed_of(database)).read(0)

    assert ids(page) == ["first", "second"]


@on_each
async def test_what_is_not_committed_is_not_seen_and_never_if_it_is_rolled_back(database: FeedDatabase) -> None:
    writer = await database.writer()
    await writer.begin()
    await writer.append("a")
    feed = await feed_of(database)
    assert not await feed.wait(0, START, 0)
    assert (await feed.read(0)).entries == []

    await writer.rollback()

    assert not await feed.wait(0, START, 0)
    assert (await feed.read(0)).entries == []
    await write(database, "b")
    assert ids(await feed.read(0)) == ["b"]


@on_each
async def test_shards_have_positions_of_their_own(database: FeedDatabase) -> None:
    await write(database, "a", shard=0)
    await write(database, "b", shard=1)
    feed = await feed_of(database)

    assert [ids(await feed.read(shard)) for shard in (0, 1, 2)] == [["a"], ["b"], []]


@on_each
async def test_a_page_ends_before_it_has_too_many_bytes(database: FeedDatabase) -> None:
    await write(database, "a", "b", "c", data='"' + 1000 * "x" + '"')
    await write(database, "d", "e", data="1")
    feed = await feed_of(database)

    pages, cursor = [], START
    for _ in range(3):
        page = await feed.read(0, cursor, max_bytes=2500)
        pages.append(ids(page))
        cursor = page.cursor

    assert pages == [["a", "b"], ["c", "d", "e"], []]
    assert ids(await feed.read(0, START, max_bytes=1)) == ["a"]


@on_each
async def test_a_position_has_the_time_of_its_row_unless_that_is_ahead_or_behind(database: FeedDatabase) -> None:
    await write(database, "old", age_s=3 * _HOUR_S)
    feed = await feed_of(database)
    old = await feed.read(0)
    await write(database, "ahead", age_s=-_HOUR_S)
    ahead = await feed.read(0, old.cursor)
    await write(database, "older", age_s=4 * _HOUR_S)
    older = await feed.read(0, ahead.cursor)

    between_s = [
        (milliseconds(after.cursor) - milliseconds(before.cursor)) / 1000
        for before, after in ((old, ahead), (ahead, older))
    ]
    assert between_s == [pytest.approx(3 * _HOUR_S, abs=60), 0]
    assert old.cursor < ahead.cursor < older.cursor


@on_each
async def test_a_cursor_that_is_ahead_is_refused_and_ends_a_wait(database: FeedDatabase) -> None:
    feed = await feed_of(database)
    await write(database, "a")
    cursor = (await feed.read(0)).cursor
    ahead = bytes([0xFF] * 16)

    assert await feed.wait(0, ahead, 0)
    assert not await feed.wait(0, cursor, 0)
    with pytest.raises(CursorError):
        await feed.read(0, ahead)
    with pytest.raises(CursorError):
        await feed.read(1, cursor)


@on_each
async def test_a_page_has_between_1_and_1000_rows(database: FeedDatabase) -> None:
    feed = await feed_of(database)

    for rows in (0, 1001):
        with pytest.raises(ArgumentError):
            await feed.read(0, START, rows)


# Readers at a time


@on_each
async def test_two_readers_at_the_head_give_each_event_one_position(database: FeedDatabase) -> None:
    await write(database, "a", "b")
    sessions = [await database.session() for _ in range(2)]

    async with database.holding("outbox"):
        tasks = []
        for session in sessions:
            tasks.append(asyncio.create_task(AsyncFeed(session, TABLE).read(0)))
            await database.until_waiting(session)

    first, second = await asyncio.gather(*tasks)
    assert ids(first) == ["a", "b"]
    assert first == second


@on_each
async def test_what_is_committed_while_a_reader_waits_is_in_its_page(database: FeedDatabase) -> None:
    await write(database, "a")
    await (await feed_of(database)).read(0)
    await write(database, "b")
    session = await database.session()
    cursor = (await (await feed_of(database)).read(0, START, 1)).cursor

    async with database.holding("state"):
        reading = asyncio.create_task(AsyncFeed(session, TABLE).read(0, cursor))
        await database.until_waiting(session)
        await write(database, "c")

    assert ids(await reading) == ["b", "c"]


@on_each
async def test_what_a_killed_reader_was_numbering_is_read_by_the_next(database: FeedDatabase) -> None:
    await write(database, "a", "b")
    session = await database.session()

    async with database.holding("outbox"):
        reading = asyncio.create_task(AsyncFeed(session, TABLE).read(0))
        await database.until_waiting(session)
        await database.kill(session)
        with pytest.raises(DatabaseError) as failed:
            await reading

    assert failed.value.lost
    with pytest.raises(DatabaseError):
        await AsyncFeed(session, TABLE).read(0)
    assert ids(await (await feed_of(database)).read(0)) == ["a", "b"]


@on_each
async def test_a_shard_is_read_while_another_one_is_held(database: FeedDatabase) -> None:
    feed = await feed_of(database)
    await write(database, "a", shard=0)
    cursor = (await feed.read(0)).cursor
    await write(database, "b", shard=0)
    await write(database, "c", shard=1)

    async with database.holding("state", 0):
        assert ids(await feed.read(1)) == ["c"]
        # What has a position is read without the lock, and a look takes none.
        assert ids(await feed.read(0)) == ["a"]
        assert await feed.wait(0, cursor, 0)


@on_each
async def test_a_reader_that_waits_too_long_for_another_one_is_told_to_try_again(database: FeedDatabase) -> None:
    feed = await feed_of(database)
    await write(database, "a")
    cursor = (await feed.read(0)).cursor
    await write(database, "b")
    await database.set_lock_timeout(0.2)

    async with database.holding("state"):
        with pytest.raises(FeedBusyError):
            await feed.read(0, cursor)

    assert ids(await feed.read(0, cursor)) == ["b"]


# Waiting


@on_each
async def test_a_commit_wakes_the_reader_of_its_shard(database: FeedDatabase) -> None:
    await database.set_notify()
    feed = await feed_of(database)
    assert not await feed.wait(0, START, 0)

    waiting = asyncio.create_task(feed.wait(0, START, 15))
    # Nothing shows that a reader listens, or that a commit has not woken it.
    await elapse(0.05)
    await write(database, "other", shard=1)
    await elapse(0.05)
    assert not waiting.done()
    await write(database, "mine")

    assert await waiting


@on_each
async def test_what_another_reader_has_numbered_ends_a_wait(database: FeedDatabase) -> None:
    await write(database, "a")
    cursor = (await (await feed_of(database)).read(0)).cursor
    feed = await feed_of(database)

    assert await feed.wait(0, START, 0)
    assert not await feed.wait(0, cursor, 0)


# Retention


@on_each
async def test_nothing_is_deleted_unless_the_feed_has_a_policy(database: FeedDatabase) -> None:
    await write(database, "a", age_s=5 * _HOUR_S)
    feed = await feed_of(database)
    await feed.read(0)

    assert await feed.carry_out_retention() == 0
    await database.set_keep(1)
    assert await feed.carry_out_retention() == 1


@on_each
async def test_only_what_is_old_and_read_by_every_consumer_is_deleted(database: FeedDatabase) -> None:
    feed = await feed_of(database)
    await database.set_keep(2)
    await write(database, "a", "b", age_s=5 * _HOUR_S)
    old = await feed.read(0)
    await write(database, "c")
    first, second = await consumer_of(database, "first"), await consumer_of(database, "second")
    (mine,), (its,) = await first.claims([0]), await second.claims([0])
    await first.store(mine, (await feed.read(0)).cursor)
    assert await feed.carry_out_retention() == 0

    await second.store(its, old.entries[0].ulid)
    assert await feed.carry_out_retention() == 1
    await second.store(its, old.cursor)
    assert await feed.carry_out_retention() == 1
    assert await feed.carry_out_retention() == 0

    assert ids(await feed.read(0)) == ["c"]
    assert ids(await feed.read(0, old.cursor)) == ["c"]
    with pytest.raises(CursorPrunedError):
        await feed.read(0, old.entries[0].ulid)
    assert await feed.wait(0, old.entries[0].ulid, 0)


@on_each
async def test_a_consumer_without_a_claim_on_a_shard_has_read_nothing_of_it(database: FeedDatabase) -> None:
    feed = await feed_of(database)
    await database.set_keep(1)
    await write(database, "a", age_s=5 * _HOUR_S)
    await feed.read(0)
    await (await consumer_of(database)).claims([1])

    assert await feed.carry_out_retention() == 0


@on_each
async def test_positions_go_on_behind_what_was_deleted(database: FeedDatabase) -> None:
    feed = await feed_of(database)
    await database.set_keep(1)
    await write(database, "a", age_s=5 * _HOUR_S)
    last = (await feed.read(0)).cursor
    assert await feed.carry_out_retention() == 1

    await write(database, "b", age_s=6 * _HOUR_S)

    page = await feed.read(0, last)
    assert ids(page) == ["b"]
    assert page.cursor > last


# Claims


@on_each
async def test_claims_begin_without_an_owner_and_are_made_once(database: FeedDatabase) -> None:
    mine, its = await consumer_of(database), await consumer_of(database)
    assert await mine.existing() == {}

    found = await asyncio.gather(mine.claims([0, 1]), its.claims([1, 0]))

    assert found[0] == [Claim(shard, START, None, 0, 0, None) for shard in (0, 1)]
    assert found[1] == list(reversed(found[0]))


@on_each
async def test_one_of_several_takers_of_a_version_wins(database: FeedDatabase) -> None:
    consumers = [await consumer_of(database) for _ in range(4)]
    (seen,) = await consumers[0].claims([0])

    found = await asyncio.gather(
        *(each.take(seen, f"owner {number}") for number, each in enumerate(consumers)), return_exceptions=True
    )

    (won,) = [each for each in found if isinstance(each, Claim)]
    assert [type(each) for each in found].count(ClaimLostError) == 3
    assert (won.epoch, won.renewals) == (1, 1)
    assert await consumers[1].claims([0]) == [won]


@on_each
async def test_a_renewed_claim_is_not_taken_by_who_saw_it_before(database: FeedDatabase) -> None:
    mine, its = await consumer_of(database), await consumer_of(database)
    claim = await mine.take((await mine.claims([0]))[0], "me")
    (seen,) = await its.claims([0])
    await mine.renew(claim)

    with pytest.raises(ClaimLostError):
        await its.take(seen, "you")

    (seen,) = await its.claims([0])
    assert seen.version == (1, 2)
    assert (await its.take(seen, "you")).epoch == 2


@on_each
async def test_a_cursor_is_stored_under_its_epoch_only(database: FeedDatabase) -> None:
    mine, its = await consumer_of(database), await consumer_of(database)
    stale = await mine.take((await mine.claims([0]))[0], "me")
    await mine.store(stale, ONE)
    taken = await its.take((await its.claims([0]))[0], "you")

    for act in (
        mine.store(stale, TWO),
        mine.renew(stale),
        mine.release(stale),
        mine.ask(stale, "me"),
        mine.take(stale, "me"),
    ):
        with pytest.raises(ClaimLostError):
            await act

    assert taken.cursor == ONE
    assert await its.claims([0]) == [taken]


@on_each
async def test_a_cursor_that_somebody_else_has_changed_is_not_replaced(database: FeedDatabase) -> None:
    mine, its = await consumer_of(database), await consumer_of(database)
    claim = await mine.take((await mine.claims([0]))[0], "me")
    await its.store(claim, TWO)

    with pytest.raises(CursorChangedError) as raised:
        await mine.store(claim, ONE)

    assert (raised.value.expected, raised.value.found) == (START, TWO)
    assert (await mine.claims([0]))[0].cursor == TWO


@on_each
async def test_a_claim_is_asked_for_and_handed_over(database: FeedDatabase) -> None:
    mine, its = await consumer_of(database), await consumer_of(database)
    claim = await mine.take((await mine.claims([0]))[0], "me")
    await its.ask(claim, "you")
    (asked,) = await mine.claims([0])
    assert (asked.wanted_by, asked.version) == ("you", claim.version)

    await mine.release(claim, "you")

    assert await its.claims([0]) == [Claim(0, START, "you", 2, 2, None)]
    await its.release((await its.claims([0]))[0])
    assert await its.claims([0]) == [Claim(0, START, None, 3, 3, None)]


@on_each
async def test_consumers_have_claims_of_their_own(database: FeedDatabase) -> None:
    mine, its = await consumer_of(database, "mine"), await consumer_of(database, "its")
    claim = await mine.take((await mine.claims([0]))[0], "me")
    await mine.store(claim, ONE)

    assert await its.claims([0]) == [Claim(0, START, None, 0, 0, None)]


@on_each
async def test_a_session_that_was_ended_is_of_no_use(database: FeedDatabase) -> None:
    session = await database.session()
    mine = AsyncConsumer(session, TABLE, "relay")
    await mine.claims([0])
    await database.kill(session)

    for _ in range(2):
        with pytest.raises(DatabaseError) as failed:
            await mine.claims([0])
        assert failed.value.lost
