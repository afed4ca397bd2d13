"""Tables whose names, keys and columns are not plain, and the tables of a feed read without a consumer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from outbox_relay import changefeed
from outbox_relay.changefeed import START, ArgumentError, Entry, Feed
from outbox_relay.changefeed.statements import Statement, run
from outbox_relay.changefeed.tables import Tables
from outbox_relay.changefeed.ulid import time_of
from tests.changefeed.backends import TABLE, Backend
from tests.changefeed.fed import TABLE as FED
from tests.changefeed.fed import Shop, shop
from tests.changefeed.journal import Journal
from tests.changefeed.postgresql import PostgresBackend
from tests.changefeed.reading import observer

__all__ = ["shop"]

FOREIGN = [
    "Ærøskøbing",
    "日本語",
    "Ωμέγα",
    "нет",
    "😀👩\u200d👩\u200d👧",
    "it's",
    'say "hi"',
    " padded ",
    "a\tb\nc",
    "%s ? $1",
]


def set_up(backend: PostgresBackend, table: str, ddl: str) -> Feed:
    backend.execute(ddl)
    changefeed.setup_feed(backend.owner, table)
    return Feed(backend.session(), table)


def rows(entries: list[Entry]) -> list[Any]:
    return [dict(entry.row) if entry.row is not None else None for entry in entries]


def test_keys_in_foreign_letters_come_back_as_they_are(backend: Backend, journal: Journal) -> None:
    reader = observer(backend.session())
    journal.write(backend.writer(), 0, *FOREIGN)

    assert [event.aggregate for event in reader.drain()] == FOREIGN
    journal.observed(reader)
    assert journal.faults() == []


def test_keys_that_differ_by_one_foreign_letter_stay_apart(backend: Backend, journal: Journal) -> None:
    similar = ["日", "月", "é", "e\u0301", "É", "a", "A"]
    reader = observer(backend.session())
    journal.write(backend.writer(), 0, *similar)

    assert [event.aggregate for event in reader.drain()] == similar


def test_tables_with_capitals_quotes_and_spaces(postgresql: PostgresBackend) -> None:
    for schema, table in (
        ("app", "Order"),
        ("My App", "Sales Order"),
        ("app", 'quo"ted'),
        ("app", "it's"),
        ("app", "a.b"),
        ("app", "ä%s"),
    ):
        read_and_drop(postgresql, schema, table)


def read_and_drop(postgresql: PostgresBackend, schema: str, table: str) -> None:
    """Read an event of a table through its feed, and drop the feed."""
    named = ".".join('"' + part.replace('"', '""') + '"' for part in (schema, table))
    outbox = '"outbox:' + f"{schema}.{table}".replace('"', '""') + '"'
    name = f"{schema}.{table}"
    postgresql.owner.execute(Statement(f'create schema if not exists "{schema}"'))
    postgresql.owner.execute(Statement(f'create table {named} ("Id" int primary key, "Some ""Data" text)'))
    changefeed.setup_feed(postgresql.owner, name)
    postgresql.owner.execute(Statement(f"insert into {named} values (1, 'x')"))
    postgresql.owner.execute(Statement(f'insert into changefeed.{outbox} (shard_id, "Id") values (3, 1)'))

    feed = Feed(postgresql.session(), name)
    assert feed.wait(3, changefeed.START, 10)
    page = feed.read(3)
    assert rows(page.entries) == [{"Id": 1, 'Some "Data': "x"}]
    assert not feed.wait(3, page.cursor, 0)
    assert [claim.shard_id for claim in changefeed.Consumer(postgresql.session(), name, "c").claims([3])] == [3]

    changefeed.drop_feed(postgresql.owner, name)
    assert postgresql.rows("select count(*) from pg_class where relname like ?", f"%{table[:3]}%") == [(2,)]


def test_a_composite_primary_key_of_many_types(postgresql: PostgresBackend) -> None:
    feed = set_up(
        postgresql,
        "app.wide",
        """
        create type app.kind as enum ('b', 'a');
        create domain app.code as text check (value <> '');
        create table app.wide (
            id uuid, at timestamptz, day date, n numeric(20, 5), flag boolean, raw bytea, kind app.kind,
            code app.code, letters char(5), short smallint, "user" varchar(7) collate "C", data json not null,
            primary key (kind, id, at, day, n, flag, raw, code, letters, short, "user"));
        """,
    )
    columns = 'id, at, day, n, flag, raw, kind, code, letters, short, "user"'
    values = (
        "'00000000-0000-0000-0000-00000000000a', '2026-01-01 00:00:00.123456+00', '2026-01-01', 12345.6789, true, "
        "'\\x00ff', 'a', 'code', 'abc', 7, 'Ü'"
    )
    postgresql.execute(f"insert into app.wide ({columns}, data) values ({values}, '[1]')")
    postgresql.execute(f'insert into changefeed."outbox:app.wide" (shard_id, {columns}) values (0, {values})')

    ((row,)) = rows(feed.read(0).entries)

    assert row["data"] == "[1]"
    assert row["n"] == Decimal("12345.67890")
    assert row["at"] == datetime(2026, 1, 1, 0, 0, 0, 123456, UTC)
    assert row["letters"] == "abc"


def test_a_primary_key_of_an_extensions_type(postgresql: PostgresBackend) -> None:
    """Its equality is in the schema of the extension, which is not in the search path of a read."""
    feed = set_up(
        postgresql,
        "app.place",
        "create extension vector; create table app.place (id vector(2) primary key, n int);",
    )
    postgresql.execute("insert into app.place values ('[1,2]', 1), ('[1,3]', 2)")
    postgresql.execute(
        "insert into changefeed.\"outbox:app.place\" (shard_id, id) values (0, '[1,3]'), (0, '[1,2]')"
    )

    assert [row["n"] for row in rows(feed.read(0).entries)] == [2, 1]


def test_an_event_column_may_have_a_name_that_the_functions_use(postgresql: PostgresBackend) -> None:
    feed = set_up(
        postgresql,
        "app.odd",
        "create table app.odd (id int primary key, e text, f text, event text, ulid text, missing text, "
        'shard_id text, "cursor" text)',
    )
    postgresql.execute(
        "insert into app.odd values (1, 'e', 'f', 'event', 'ulid', 'missing', 'shard_id', 'cursor')"
    )
    postgresql.execute('insert into changefeed."outbox:app.odd" (shard_id, id) values (0, 1)')

    ((row,)) = rows(feed.read(0).entries)

    assert row == {"id": 1} | {name: name for name in ("e", "f", "event", "ulid", "missing", "shard_id", "cursor")}


def test_json_is_kept_as_the_text_it_is(postgresql: PostgresBackend) -> None:
    feed = set_up(
        postgresql, "app.doc", "create table app.doc (id int primary key, exact json, normal jsonb, plain text)"
    )
    text = '{"b": 1.0, "a": 12345678901234567890.10, "a": "\\u00e9é😀", "n": null,\n "e": 1e3}'
    postgresql.execute("insert into app.doc values (1, ?, ?, ?)", text, '{"a": 1.0, "z": 1e3}', text)
    postgresql.execute('insert into changefeed."outbox:app.doc" (shard_id, id) values (0, 1)')

    ((row,)) = rows(feed.read(0).entries)

    assert row["exact"] == row["plain"] == text
    assert row["normal"] == '{"a": 1.0, "z": 1000}'


def test_a_column_that_is_added_later_is_read(postgresql: PostgresBackend, journal: Journal) -> None:
    journal.write(postgresql.writer(), 0, "a")
    feed = Feed(postgresql.session(), TABLE)
    # So often that the driver has prepared the statement: its columns change.
    for _ in range(10):
        feed.read(0)

    postgresql.execute("alter table app.event add column added text not null default 'new'")
    postgresql.execute("alter table app.event drop column data")

    assert rows(feed.read(0).entries) == [{"aggregate": "a", "version": 1, "added": "new"}]


def test_a_null_in_every_other_column_is_no_missing_row(postgresql: PostgresBackend) -> None:
    feed = set_up(postgresql, "app.sparse", "create table app.sparse (id int primary key, a text, b text)")
    postgresql.execute("insert into app.sparse (id) values (1)")
    postgresql.execute('insert into changefeed."outbox:app.sparse" (shard_id, id) values (0, 1)')

    assert rows(feed.read(0).entries) == [{"id": 1, "a": None, "b": None}]


def test_a_key_column_that_the_feed_needs_for_itself_is_refused(postgresql: PostgresBackend) -> None:
    for name in ("shard_id", "order_sequence", "time_hint", "ulid", "cursor", "pagesize"):
        table = f"app.clash_{name}"
        postgresql.execute(f'create table {table} (a int, "{name}" int, primary key (a, "{name}"))')

        with pytest.raises(ArgumentError, match=rf"{table} has a column that the feed needs.*rename"):
            changefeed.setup_feed(postgresql.owner, table)


def now_in(database: PostgresBackend) -> datetime:
    [(now,)] = database.rows("select clock_timestamp()")
    assert isinstance(now, datetime)
    return now


def test_a_key_column_may_have_a_name_that_the_functions_use(postgresql: PostgresBackend) -> None:
    names = ["ms", "random", "counter", "last_ms", "now_ms", "last_given", "missing", "event", "e", "f", "n", "o"]
    before = now_in(postgresql)
    for name in names:
        table = f"app.named_{name}"
        feed = set_up(postgresql, table, f'create table {table} ("{name}" bigint primary key, x int)')
        for value in (5, 4, 9_999_999_999_999_999):
            postgresql.execute(f"insert into {table} values (?, 1)", value)
            postgresql.execute(
                f'insert into changefeed."outbox:{table}" (shard_id, "{name}") values (0, ?)', value
            )

        page = feed.read(0)

        assert [row[name] for row in rows(page.entries)] == [5, 4, 9_999_999_999_999_999], name
        # A ULID has whole milliseconds.
        assert before - timedelta(milliseconds=1) < time_of(page.cursor) <= now_in(postgresql), name


# The tables of a feed, read by something other than a consumer: it sees all there is, and changes nothing


@pytest.fixture
def tables(shop: Shop) -> Tables:
    shop.owner.execute("alter table app.item add column partition_key text not null default 'k'")
    return Tables(shop.session.dialect, FED)


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
    read = Feed(shop.session, FED).read(0).entries

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
    first, second = Feed(shop.session, FED).read(3).entries

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
    run(shop.session, shop.session.dialect.drop_feed(FED))
    run(shop.session, shop.session.dialect.setup_feed(FED, False, False, None))

    assert run(shop.session, tables.identity()) != before
