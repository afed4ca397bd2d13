"""The tables of a feed, read by something other than a consumer: it sees all there is, and changes nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from changefeed import START, Entry, Feed
from changefeed.statements import run
from changefeed.tables import Tables
from tests.changefeed.fed import TABLE, Shop, shop

__all__ = ["shop"]


@pytest.fixture
def tables(shop: Shop) -> Tables:
    shop.owner.execute("alter table app.item add column partition_key text not null default 'k'")
    return Tables(shop.session.dialect, TABLE)


def ids(entries: list[Entry]) -> list[str]:
    return [(entry.row or entry.key)["id"] for entry in entries]


def test_events_without_a_position_are_read_in_order_and_get_none(shop: Shop, tables: Tables) -> None:
    when = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    shop.put(["a", "b"], 1, when)
    shop.put(["c"], 2)

    first = run(shop.session, tables.unnumbered(1, 0, 1))
    second = run(shop.session, tables.unnumbered(1, first[0].number, 9))

    assert [(each.shard_id, each.time_hint, each.entry.ulid) for each in first + second] == [(1, when, START)] * 2
    assert ids([each.entry for each in first + second]) == ["a", "b"]
    of_key = run(shop.session, tables.unnumbered_of_key("k", 2))
    assert ids([each.entry for each in of_key]) == ["c", "b"]
    assert run(shop.session, tables.numbered(1, START, 9)) == []


def test_events_with_a_position_are_read_behind_it(shop: Shop, tables: Tables) -> None:
    shop.put(["a", "b", "c"])
    read = Feed(shop.session, TABLE).read(0).entries

    found = run(shop.session, tables.numbered(0, read[0].ulid, 9))

    assert [(each.ulid, each.row and each.row["id"]) for each in found] == [
        (each.ulid, each.row and each.row["id"]) for each in read[1:]
    ]
    of_key = run(shop.session, tables.numbered_of_key("k", 2))
    assert [(shard, *ids([entry])) for shard, entry in of_key] == [(0, "c"), (0, "b")]
    assert run(shop.session, tables.ids_between(0, read[0].ulid, read[1].ulid, "k")) == ["b"]
    assert ids(run(shop.session, tables.rows("k", ["a", "c", "nobody"]))) == ["a", "c"]


def test_of_a_row_that_is_gone_the_id_is_left(shop: Shop, tables: Tables) -> None:
    shop.put(["a"])
    shop.read()
    shop.owner.execute("delete from app.item")

    (entry,) = run(shop.session, tables.numbered(0, START, 9))

    assert (entry.row, entry.key) == (None, {"id": "a"})
    assert run(shop.session, tables.rows("k", ["a"])) == []


def test_the_position_of_an_event_is_found(shop: Shop, tables: Tables) -> None:
    shop.put(["a", "b"], 3)
    assert run(shop.session, tables.positions("a")) == []
    first, second = Feed(shop.session, TABLE).read(3).entries

    assert run(shop.session, tables.positions("b")) == [(3, second.ulid)]
    assert run(shop.session, tables.position(3, START, "b")) == second.ulid
    assert run(shop.session, tables.position(3, second.ulid, "b")) is None
    assert run(shop.session, tables.first_position(3, first.ulid)) == second.ulid
    assert run(shop.session, tables.first_position(3, second.ulid)) is None
    assert run(shop.session, tables.last_positions()) == {3: second.ulid}


def test_what_waits_is_counted_by_shard(shop: Shop, tables: Tables) -> None:
    shop.put(["a"], 2, datetime.now(UTC) - timedelta(hours=1))
    shop.put(["b", "c"], 1, datetime.now(UTC) + timedelta(hours=1))

    found = run(shop.session, tables.waiting())

    assert {shard: each.rows for shard, each in found.items()} == {1: 2, 2: 1}
    assert (found[1].oldest_s, 3600 <= found[2].oldest_s < 3660) == (0.0, True)


def test_a_feed_that_was_set_up_again_has_another_identity(shop: Shop, tables: Tables) -> None:
    before = run(shop.session, tables.identity())
    assert run(shop.session, tables.identity()) == before
    run(shop.session, shop.session.dialect.drop_feed(TABLE))
    run(shop.session, shop.session.dialect.setup_feed(TABLE, False, False, None))

    assert run(shop.session, tables.identity()) != before
