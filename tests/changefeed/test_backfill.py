"""Backfill: rows that were there before the feed are put on it once and in order, interrupted or not."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from outbox_relay import changefeed
from outbox_relay.changefeed import ArgumentError, BackfillPlan, Feed, ulid
from outbox_relay.changefeed.statements import Statement
from tests.changefeed.numbered import Service, service, until

__all__ = ["service"]

TABLE = "app.item"
_ROWS = 25
_BEGAN = datetime(2020, 1, 1, tzinfo=UTC)
_PLAN = BackfillPlan(["created_at"], "created_at")
_ITEMS = """
create table app.item (id text primary key, owner text, created_at timestamptz not null);
insert into app.item (id, owner, created_at)
    select 'item ' || md5(n::text), 'owner ' || n % 7, '2020-01-01 00:00Z'::timestamptz + n * interval '1 hour'
    from generate_series(1, 25) as n order by md5(n::text);
"""


@pytest.fixture
def shop(service: Service) -> Service:
    """A service with 25 rows in a table whose feed was set up afterwards."""
    service.owner.execute(_ITEMS)
    changefeed.setup_feed(service.session, TABLE, roles=False)
    return service


def fed(shop: Service, shard: int = 0) -> Iterator[tuple[str, datetime]]:
    """The rows of a shard in the feed's order, with the times of their ULIDs."""
    feed, cursor = Feed(shop.open_session(), TABLE), changefeed.START
    while (page := feed.read(shard, cursor, 10)).entries:
        cursor = page.cursor
        for entry in page.entries:
            assert entry.row is not None
            yield entry.row["id"], ulid.time_of(entry.ulid)


def in_time(shop: Service) -> list[str]:
    """All rows, oldest first."""
    return [row for (row,) in shop.rows("select id from app.item order by created_at")]


def write(shop: Service, name: str) -> None:
    """Insert a row as a writer that uses the feed does."""
    with shop.connect() as connection:
        connection.execute("insert into app.item (id, created_at) values (%s, '2021-01-01Z')", (name,))
        changefeed.append(connection, TABLE, 0, {"id": name})


def test_all_rows_come_in_the_order_and_with_the_times_of_the_plan(shop: Service) -> None:
    seen: list[int] = []

    assert changefeed.backfill(shop.session, TABLE, _PLAN, chunk=10, progress=seen.append) == _ROWS

    read = list(fed(shop))
    assert seen == [10, 20, 25]
    assert [name for name, _ in read] == in_time(shop)
    assert [time for _, time in read] == [_BEGAN + timedelta(hours=number + 1) for number in range(_ROWS)]
    assert shop.rows("select to_regclass('changefeed.\"backfill:app.item\"')") == [(None,)]


def test_times_without_a_zone_are_utc_and_unknown_ones_the_present(shop: Service) -> None:
    shop.owner.execute(
        "alter table app.item alter created_at type timestamp using created_at at time zone 'UTC', "
        "alter created_at drop not null; update app.item set created_at = null "
        "where created_at = (select max(created_at) from app.item)"
    )
    session = changefeed.connect(shop.url)
    session.execute(Statement("set timezone = 'Asia/Tokyo'"))
    began = datetime.now(UTC) - timedelta(minutes=1)
    try:
        changefeed.backfill(session, TABLE, _PLAN)
    finally:
        session.close()

    times = [time for _, time in fed(shop)]
    assert times[0] == _BEGAN + timedelta(hours=1)
    assert times[-1] > began


def test_rows_without_a_difference_in_the_columns_follow_the_primary_key(shop: Service) -> None:
    changefeed.backfill(shop.session, TABLE, BackfillPlan(["owner"]))

    assert [name for name, _ in fed(shop)] == [
        row for (row,) in shop.rows("select id from app.item order by owner, id")
    ]


def test_a_column_spreads_the_rows_over_shards_as_writers_do(shop: Service) -> None:
    plan = BackfillPlan(["created_at"], shard_column="owner", shards=3)

    changefeed.backfill(shop.session, TABLE, plan)

    for shard in range(3):
        rows = shop.rows("select id, owner from app.item order by created_at")
        expected = [name for name, owner in rows if changefeed.shard_of(owner, 3) == shard]
        assert [name for name, _ in fed(shop, shard)] == expected


def test_an_interrupted_backfill_goes_on_where_it_was(shop: Service) -> None:
    def interrupt(_moved: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        changefeed.backfill(shop.session, TABLE, _PLAN, chunk=10, progress=interrupt)
    read_meanwhile = [name for name, _ in fed(shop)]

    assert changefeed.backfill(shop.session, TABLE, BackfillPlan(["id"]), chunk=10) == _ROWS - 10

    assert read_meanwhile == in_time(shop)[:10]
    assert [name for name, _ in fed(shop)] == in_time(shop)


def test_what_writers_write_while_it_is_at_work_is_not_put_there_twice(shop: Service) -> None:
    changefeed.backfill(shop.session, TABLE, _PLAN, chunk=10, progress=lambda moved: write(shop, f"new {moved}"))

    names = [name for name, _ in fed(shop)]
    assert sorted(names) == sorted({*in_time(shop)})
    assert [name for name in names if not name.startswith("new")] == in_time(shop)[:_ROWS]


def test_rows_that_are_on_the_feed_are_left_out(shop: Service) -> None:
    write(shop, "numbered")
    assert [name for name, _ in fed(shop)] == ["numbered"]
    write(shop, "in the outbox")

    assert changefeed.backfill(shop.session, TABLE, _PLAN, anyway=True) == _ROWS
    assert changefeed.backfill(shop.session, TABLE, _PLAN, anyway=True) == 0

    assert [name for name, _ in fed(shop)] == ["numbered", "in the outbox", *in_time(shop)[:_ROWS]]


@pytest.mark.parametrize("read", [True, False])
def test_a_shard_that_was_read_or_written_to_is_refused(shop: Service, read: bool) -> None:
    write(shop, "first")
    if read:
        assert len(list(fed(shop))) == 1

    with pytest.raises(
        ArgumentError, match=r"these shards of app\.item have been read or written to: 0\..*--anyway"
    ):
        changefeed.backfill(shop.session, TABLE, _PLAN)

    assert changefeed.backfill(shop.session, TABLE, BackfillPlan(["id"], shard_id=1)) == _ROWS


def test_a_plan_that_cannot_be_carried_out_is_refused(shop: Service) -> None:
    shop.owner.execute("insert into app.item (id, created_at) values ('nobody''s', now())")
    for table, plan, message in (
        ("app.other", _PLAN, r"app\.other has no feed"),
        (TABLE, BackfillPlan(["created"]), r"app\.item has no column created\."),
        (TABLE, BackfillPlan(["id"], "when"), r"app\.item has no column when\."),
        (TABLE, BackfillPlan(["id"], shard_column="key", shards=2), r"app\.item has no column key\."),
        (TABLE, BackfillPlan(["id"], shard_column="owner", shards=0), "one shard at least"),
        (
            TABLE,
            BackfillPlan(["id"], shard_column="owner", shards=2),
            "rows without a shard.*Fill the column owner",
        ),
    ):
        with pytest.raises(ArgumentError, match=message):
            changefeed.backfill(shop.session, table, plan)
    with pytest.raises(ArgumentError, match="1 row at least"):
        changefeed.backfill(shop.session, TABLE, _PLAN, chunk=0)


def test_two_processes_move_each_row_once_and_in_order(shop: Service) -> None:
    shop.rows("select changefeed.begin_backfill('app.item', 0, null, null, '{created_at}', null, false)")
    holder = shop.connect()
    holder.execute('select 1 from changefeed."backfill:app.item" where changefeed_position = 5 for update')
    with ThreadPoolExecutor(2) as threads:
        sessions = [shop.open_session(), shop.open_session()]
        moving = []
        for session in sessions:
            moving.append(threads.submit(changefeed.backfill, session, TABLE, _PLAN, chunk=10))
            pid = shop.pid(session)
            until(lambda pid=pid: shop.blocked(pid), "the process to wait")  # type: ignore[misc]
        holder.rollback()
        assert sum(one.result(30) for one in moving) == _ROWS

    assert [name for name, _ in fed(shop)] == in_time(shop)


def test_a_feed_is_dropped_with_a_backfill_that_was_not_finished(shop: Service) -> None:
    shop.rows("select changefeed.begin_backfill('app.item', 0, null, null, '{id}', null, false)")

    changefeed.drop_feed(shop.session, TABLE)

    assert shop.rows("select 1 from pg_tables where tablename like '%%app.item' and 1 = %s", 1) == []


async def test_the_async_face_is_the_same(shop: Service) -> None:
    session = await changefeed.connect_async(shop.url)
    try:
        assert await changefeed.backfill_async(session, TABLE, _PLAN) == _ROWS
    finally:
        await session.close()

    assert [name for name, _ in fed(shop)] == in_time(shop)
