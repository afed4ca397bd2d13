"""Retention: old positions go, page by page, and never those that a consumer has still to read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import changefeed
from changefeed import ArgumentError, Feed, Pruned
from tests.changefeed.fed import TABLE, Shop, shop

__all__ = ["shop"]

_OLD = datetime(2020, 1, 1, tzinfo=UTC)
_BETWEEN = datetime(2021, 1, 1, tzinfo=UTC)
_RECENT = datetime(2022, 1, 1, tzinfo=UTC)


def test_what_is_older_goes_and_the_rest_stays(shop: Shop) -> None:
    shop.put(["a", "b"], time_hint=_OLD)
    shop.put(["c"], time_hint=_RECENT)
    _, cursor = shop.read()

    assert changefeed.prune(shop.session, TABLE, _BETWEEN) == [Pruned(0, 2, None)]

    assert shop.read() == (["c"], cursor)
    assert changefeed.prune(shop.session, TABLE, _BETWEEN) == [Pruned(0, 0, None)]
    assert shop.rows("select count(*) from app.item") == [(3,)]


def test_the_time_itself_is_kept(shop: Shop) -> None:
    shop.put(["a"], time_hint=_BETWEEN - timedelta(milliseconds=1))
    shop.put(["b"], time_hint=_BETWEEN)
    shop.read()

    changefeed.prune(shop.session, TABLE, _BETWEEN)

    assert shop.read()[0] == ["b"]


def test_readers_go_on_after_everything_was_deleted(shop: Shop) -> None:
    shop.put(["a"], time_hint=_OLD)
    _, cursor = shop.read()
    changefeed.prune(shop.session, TABLE, _BETWEEN)
    shop.put(["b"])

    page = Feed(shop.session, TABLE).read(0, cursor)

    assert [entry.row and entry.row["id"] for entry in page.entries] == ["b"]
    assert page.cursor > cursor


def test_no_page_has_a_thousand_rows_and_all_are_deleted(shop: Shop) -> None:
    shop.owner.execute(
        "create table app.deleted (rows int);"
        "create function app.count() returns trigger language plpgsql as "
        "'begin insert into app.deleted select count(*) from gone; return null; end';"
        'create trigger count after delete on changefeed."feed:app.item" referencing old table as gone '
        "for each statement execute function app.count()"
    )
    for chunk in range(3):
        shop.put([f"{chunk} {number}" for number in range(666)], time_hint=_OLD)
    shop.read()

    assert changefeed.prune(shop.session, TABLE, _BETWEEN) == [Pruned(0, 1998, None)]

    assert shop.rows("select sum(rows), max(rows) < 1000 from app.deleted") == [(1998, True)]


def test_what_a_consumer_has_not_read_stays(shop: Shop) -> None:
    shop.put(["a", "b", "c"], time_hint=_OLD)
    entries = Feed(shop.session, TABLE).read(0).entries
    shop.consume("quick", 0, entries[2].ulid)
    shop.consume("slow", 0, entries[1].ulid)

    assert changefeed.prune(shop.session, TABLE, _BETWEEN) == [Pruned(0, 2, "slow")]

    assert shop.read()[0] == ["c"]


def test_a_consumer_that_has_read_all_old_rows_holds_nothing(shop: Shop) -> None:
    shop.put(["a"], time_hint=_OLD)
    shop.consume("relay", 0, shop.read()[1])

    assert changefeed.prune(shop.session, TABLE, _BETWEEN) == [Pruned(0, 1, None)]


def test_a_consumer_that_knows_other_shards_only_has_read_nothing_of_this_one(shop: Shop) -> None:
    shop.put(["a"], 0, _OLD)
    shop.put(["b"], 1, _OLD)
    shop.read(0)
    shop.consume("relay", 1, shop.read(1)[1])

    assert changefeed.prune(shop.session, TABLE, _BETWEEN) == [Pruned(0, 0, "relay"), Pruned(1, 1, None)]


def test_a_time_must_be_known_and_past(shop: Shop) -> None:
    with pytest.raises(ArgumentError, match="no time zone"):
        changefeed.prune(shop.session, TABLE, datetime(2020, 1, 1))
    with pytest.raises(ArgumentError, match="in the future"):
        changefeed.prune(shop.session, TABLE, datetime.now(UTC) + timedelta(hours=1))
    assert changefeed.prune(shop.session, TABLE, datetime(1900, 1, 1, tzinfo=UTC)) == []
    with pytest.raises(changefeed.SetupError, match=r"app\.other has no feed"):
        changefeed.prune(shop.session, "app.other", _OLD)


async def test_the_async_face_is_the_same(shop: Shop) -> None:
    shop.put(["a"], time_hint=_OLD)
    shop.read()
    session = await changefeed.connect_async(shop.url)
    try:
        assert await changefeed.prune_async(session, TABLE, _BETWEEN) == [Pruned(0, 1, None)]
    finally:
        await session.close()
