"""The status of feeds, consumers and sweep groups."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import changefeed
from changefeed import Feed, Status
from changefeed.numbered.status import ChangeShardStatus, SweepGroupStatus
from changefeed.status import ConsumerStatus, FeedStatus, ShardStatus
from tests.changefeed.fed import TABLE, Shop, shop
from tests.changefeed.numbered import START

__all__ = ["shop"]

_NO_CHANGES = [ChangeShardStatus(37, 0, START, 0, None), ChangeShardStatus(37, 1, START, 0, None)]


def test_a_feed_on_which_nothing_happened_has_no_shards(shop: Shop) -> None:
    found = changefeed.status(shop.session)

    empty = FeedStatus(TABLE, [], None, 0, found.feeds[0].bytes)
    assert found == Status([empty], [SweepGroupStatus(0, _NO_CHANGES)])
    assert 0 < empty.bytes < 100_000


def test_what_is_in_the_outbox_is_counted_with_its_age(shop: Shop) -> None:
    shop.put(["a"], 3, datetime.now(UTC) - timedelta(hours=1))
    shop.put(["b"], 3)

    (shard,) = changefeed.status(shop.session).feeds[0].shards

    assert (shard.shard_id, shard.outbox_rows, shard.last_ulid, shard.last_time) == (3, 2, None, None)
    assert shard.oldest_s is not None
    assert 3600 <= shard.oldest_s < 3660


def test_a_time_in_the_future_has_no_age(shop: Shop) -> None:
    shop.put(["a"], 0, datetime.now(UTC) + timedelta(hours=1))

    assert changefeed.status(shop.session).feeds[0].shards[0].oldest_s == 0


def test_consumers_show_their_owner_and_what_is_behind_their_cursor(shop: Shop) -> None:
    when = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    shop.put(["a", "b", "c"], time_hint=when)
    entries = Feed(shop.session, TABLE).read(0).entries
    shop.consume("relay", 0, entries[0].ulid)
    changefeed.Consumer(shop.session, TABLE, "audit").claims([0, 1])

    found = changefeed.status(shop.session).feeds[0].shards

    assert found == [
        ShardStatus(
            0,
            0,
            None,
            entries[2].ulid,
            when,
            [
                ConsumerStatus("audit", None, changefeed.START, 3),
                ConsumerStatus("relay", "a process", entries[0].ulid, 2),
            ],
        ),
        ShardStatus(1, 0, None, None, None, [ConsumerStatus("audit", None, changefeed.START, 0)]),
    ]


def test_sweep_groups_show_numbers_and_lag(shop: Shop) -> None:
    shop.owner.execute("update changefeed.shard set sweep_group = 5 where shard = 1")
    shop.append()
    changefeed.sweep(shop.session)
    shop.append()
    shop.append()

    zero, five = changefeed.status(shop.session).sweep_groups

    assert five == SweepGroupStatus(5, [ChangeShardStatus(37, 1, START, 0, None)])
    (shard,) = zero.shards
    assert (shard.feed_id, shard.shard, shard.last_change_sequence_number, shard.waiting) == (37, 0, START + 1, 2)
    assert shard.lag_s is not None
    assert 0 <= shard.lag_s < 60


async def test_the_async_face_is_the_same(shop: Shop) -> None:
    shop.put(["a"])
    shop.read()
    session = await changefeed.connect_async(shop.url)
    try:
        assert await changefeed.status_async(session) == changefeed.status(shop.session)
    finally:
        await session.close()


def test_a_cursor_ahead_of_the_last_position_is_shown(shop: Shop) -> None:
    shop.put(["a"])
    _, cursor = shop.read()
    shop.consume("relay", 0, cursor)
    shop.consume("ahead", 0, bytes([0xFF] * 16))
    shop.consume("unread", 1, bytes([0xFF] * 16))

    found = changefeed.status(shop.session).feeds[0].shards

    ahead = {one.consumer: one.ahead for shard in found for one in shard.consumers}
    assert ahead == {"relay": False, "ahead": True, "unread": True}


def test_a_feed_shows_how_long_it_keeps_positions_and_its_size(shop: Shop) -> None:
    shop.put([str(number) for number in range(100)])
    shop.read()
    shop.owner.execute("analyze")
    changefeed.set_keep(shop.session, TABLE, "30d")

    (feed,) = changefeed.status(shop.session).feeds

    assert (feed.keep, feed.rows) == ("30d", 100)
    assert feed.bytes >= 16384
