"""Retention: what is deleted is never skipped in silence, and never what a consumer has still to read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from outbox_relay import changefeed
from outbox_relay.changefeed import (
    START,
    ArgumentError,
    BackfillPlan,
    CursorError,
    CursorPrunedError,
    DatabaseError,
    Feed,
    Pruned,
    Session,
    ulid,
)
from outbox_relay.changefeed.statements import Statement
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


# What retention deletes is never skipped in silence, and never published again


_FUTURE = datetime(2099, 1, 1, tzinfo=UTC)


def names(page: changefeed.Page) -> list[str]:
    return [entry.row["id"] for entry in page.entries if entry.row is not None]


@pytest.mark.parametrize("left", [["c"], []])
def test_a_cursor_behind_the_mark_is_refused(shop: Shop, left: list[str]) -> None:
    shop.put(["a", "b"], time_hint=_OLD)
    shop.put(left, time_hint=_FUTURE)
    first, second = (entry.ulid for entry in Feed(shop.session, TABLE).read(0).entries[:2])
    changefeed.prune(shop.session, TABLE, _BETWEEN)
    feed = Feed(shop.session, TABLE)

    assert feed.wait(0, first, 0)
    with pytest.raises(CursorPrunedError, match=r"shard 0 .* low-water mark .* app\.item.*Rebuild"):
        feed.read(0, first)

    assert names(feed.read(0, second)) == left
    assert names(feed.read(0, START)) == left
    assert feed.wait(0, START, 0) is bool(left)


def test_what_is_deleted_between_the_statements_of_a_read_is_noticed(shop: Shop) -> None:
    """read_events looks for the page's rows again after read_feed has named them."""
    shop.put(["a", "b", "c"], time_hint=_OLD)
    cursor = Feed(shop.session, TABLE).read(0, START, 1).cursor
    shop.owner.execute(
        "create function app.prune() returns text language plpgsql as $$ begin "
        "perform changefeed.prune_shard('app.item', 0, changefeed.ulid(1600000000000, 0, 0), 2); "
        "return ''; end $$"
    )
    ((text,),) = shop.rows(
        "select pg_get_functiondef('changefeed.\"read_events:app.item\"(int,uuid,int,bigint)'::regprocedure)"
    )
    assert "return query" in text
    shop.owner.execute(text.replace("return query", "perform app.prune(); return query").encode())

    with pytest.raises(CursorPrunedError):
        Feed(shop.session, TABLE).read(0, cursor)


@pytest.mark.parametrize("waiting", [0, 1])
def test_what_others_number_and_delete_while_a_reader_waits_is_noticed(shop: Shop, waiting: int) -> None:
    """A backfill has old times: retention may delete its rows as soon as a consumer has read them."""
    shop.put(["a"], time_hint=_OLD)
    cursor = Feed(shop.session, TABLE).read(0).cursor
    shop.put(["b", "c"], time_hint=_OLD)
    shop.owner.execute(
        "create function app.other() returns void language plpgsql as $$ begin "
        "insert into changefeed.low_water values ('app.item', 0, changefeed.ulid(1577836800001, 2, 2)); "
        f"with one as (delete from changefeed.\"outbox:{TABLE}\" where id = 'b' or {waiting} = 0 returning id) "
        f'insert into changefeed."feed:{TABLE}" '
        f"select 0, changefeed.ulid(1577836800002, 3, 3), id from one where id = 'c'; end $$"
    )
    ((text,),) = shop.rows(
        "select pg_get_functiondef('changefeed.\"read_feed:app.item\"(int,uuid,int)'::regprocedure)"
    )
    assert "for update;" in text
    shop.owner.execute(text.replace("for update;", "for update; perform app.other();").encode())

    with pytest.raises(CursorPrunedError):
        shop.session.execute(
            Statement('select * from changefeed."read_feed:app.item"(0, ?)', (UUID(bytes=cursor),))
        )


def test_backfill_after_a_prune_publishes_nothing_again(shop: Shop) -> None:
    shop.put(["a", "b"], time_hint=_OLD)
    shop.read()
    changefeed.prune(shop.session, TABLE, _BETWEEN)

    with pytest.raises(ArgumentError, match=r"2 rows cannot be proved.*--anyway does not change this"):
        changefeed.backfill(shop.session, TABLE, BackfillPlan(["id"]), anyway=True)

    assert shop.read()[0] == []
    shop.owner.execute("delete from app.item")
    assert changefeed.backfill(shop.session, TABLE, BackfillPlan(["id"]), anyway=True) == 0


def test_a_feed_that_was_filled_by_hand_is_read_to_its_end_and_goes_on(shop: Shop) -> None:
    """Seed 004 allows it. There is no last position in `state:` then."""
    fill_by_hand(shop, ["a"])
    feed = Feed(shop.session, TABLE)
    page = feed.read(0)
    assert names(page) == ["a"]

    assert not feed.wait(0, page.cursor, 0)
    assert feed.read(0, page.cursor).entries == []
    shop.put(["b"], time_hint=_OLD)
    assert names(feed.read(0, page.cursor)) == ["b"]
    assert changefeed.prune(shop.session, TABLE, _BETWEEN) == [Pruned(0, 2, None)]


def test_a_position_put_there_by_hand_later_is_not_overtaken(shop: Shop) -> None:
    shop.put(["a"])
    feed = Feed(shop.session, TABLE)
    cursor = feed.read(0).cursor
    shop.owner.execute(
        f"insert into app.item (id) values ('b'); insert into changefeed.\"feed:{TABLE}\" (shard_id, ulid, id) "
        "values (0, changefeed.ulid(4000000000000, 1, 1), 'b')"
    )
    shop.put(["c"])

    page = feed.read(0, cursor)
    following = feed.read(0, page.cursor)

    assert names(page) + names(following) == ["b", "c"]
    assert following.cursor > page.cursor > cursor


class TestPolicy:
    """How long positions are kept."""

    def test_what_is_older_and_read_goes(self, shop: Shop) -> None:
        shop.put(["a", "b"], time_hint=_OLD)
        shop.put(["c"])
        cursor = shop.read()[1]
        changefeed.set_keep(shop.session, TABLE, "30d")
        feed = Feed(shop.session, TABLE)

        assert feed.carry_out_retention() == 2
        assert feed.carry_out_retention() == 0
        assert shop.read() == (["c"], cursor)

    def test_what_is_to_be_kept_stays(self, shop: Shop) -> None:
        shop.put(["a"], time_hint=_OLD)
        shop.read()
        for keep in (None, "forever", "65535d"):
            if keep is not None:
                changefeed.set_keep(shop.session, TABLE, keep)

            assert Feed(shop.session, TABLE).carry_out_retention() == 0, keep
        assert shop.read()[0] == ["a"]

    def test_what_a_consumer_has_not_read_stays(self, shop: Shop) -> None:
        shop.put(["a", "b"], time_hint=_OLD)
        shop.consume("slow", 0, Feed(shop.session, TABLE).read(0, START, 1).cursor)
        changefeed.set_keep(shop.session, TABLE, "1h")

        assert Feed(shop.session, TABLE).carry_out_retention() == 1
        assert shop.read()[0] == ["b"]

    def test_a_large_rest_goes_in_several_calls_of_all_shards(self, shop: Shop) -> None:
        for shard in (0, 1):
            for chunk in range(2):
                shop.put([f"{shard} {chunk} {number}" for number in range(600)], shard, _OLD)
            shop.read(shard)
        changefeed.set_keep(shop.session, TABLE, "30d")
        feed = Feed(shop.session, TABLE)

        assert [feed.carry_out_retention() for _ in range(3)] == [2000, 400, 0]

    def test_one_process_at_a_time_carries_it_out(self, shop: Shop) -> None:
        shop.put(["a"], time_hint=_OLD)
        shop.read()
        changefeed.set_keep(shop.session, TABLE, "30d")
        with shop.connect() as holder:
            holder.execute("select from changefeed.outbox_feed for update")
            assert Feed(shop.session, TABLE).carry_out_retention() == 0
        assert Feed(shop.session, TABLE).carry_out_retention() == 1

    def test_it_needs_a_duration_and_a_feed(self, shop: Shop) -> None:
        for keep in ("", "0d", "-1d", "30", "d", "30 d", "1.5d", "100000d", "never", "30d; drop"):
            with pytest.raises(ArgumentError, match="such as 30d or 12h, or to forever"):
                changefeed.set_keep(shop.session, TABLE, keep)
        with pytest.raises(ArgumentError, match=r"app\.other has no feed"):
            changefeed.set_keep(shop.session, "app.other", "30d")

    def test_a_reader_may_call_it_and_delete_nothing_else(self, shop: Shop) -> None:
        shop.put(["a"], time_hint=_OLD)
        shop.read()
        shop.owner.execute("create role reader login; grant usage on schema changefeed to reader")
        shop.owner.execute(f'grant execute on function changefeed."retain:{TABLE}"() to reader')
        session: Session = changefeed.connect(shop.url, user="reader")
        try:
            assert Feed(session, TABLE).carry_out_retention() == 0
            for statement in (
                f"select changefeed.set_keep('{TABLE}', '1h')",
                f"select changefeed.prune_shard('{TABLE}', 0, '{'f' * 32}', 1)",
                f'delete from changefeed."feed:{TABLE}"',
                "update changefeed.outbox_feed set keep = '1h'",
            ):
                with pytest.raises(DatabaseError, match="permission denied"):
                    session.execute(Statement(statement))
        finally:
            session.close()


async def test_the_async_face_keeps_to_the_policy_too(shop: Shop) -> None:
    shop.put(["a"], time_hint=_OLD)
    shop.read()
    session = await changefeed.connect_async(shop.url)
    try:
        await changefeed.set_keep_async(session, TABLE, "30d")
        assert await changefeed.AsyncFeed(session, TABLE).carry_out_retention() == 1
    finally:
        await session.close()


def test_a_feed_that_was_filled_by_hand_is_read_on_after_everything_was_deleted(shop: Shop) -> None:
    """Nobody has given its positions, so the mark alone says that the cursor is not ahead."""
    cursor = fill_by_hand(shop, ["a", "b"])
    feed = Feed(shop.session, TABLE)
    changefeed.prune(shop.session, TABLE, _BETWEEN)

    assert not feed.wait(0, cursor, 0)
    assert feed.read(0, cursor) == changefeed.Page([], cursor)
    with pytest.raises(CursorError):
        feed.read(0, ulid.at(_FUTURE))

    # Positions follow deleted ones where the clock has stepped back, too.
    shop.put(["c"], time_hint=_OLD - timedelta(days=1))
    page = feed.read(0, cursor)
    assert names(page) == ["c"]
    assert page.cursor > cursor


def fill_by_hand(shop: Shop, ids: list[str]) -> bytes:
    """Put events of the past on the feed; returns the last position."""
    shop.owner.execute("insert into app.item (id) select unnest(%s::text[])", (ids,))
    positions = [ulid.at(_OLD + timedelta(seconds=number)) for number in range(len(ids))]
    for name, position in zip(ids, positions, strict=True):
        shop.owner.execute(
            'insert into changefeed."feed:app.item" (shard_id, ulid, id) values (0, %s, %s)',
            (UUID(bytes=position), name),
        )
    return positions[-1]
