"""Pages, cursors, what a read refuses, and pages bounded in bytes."""

from __future__ import annotations

from typing import Any, cast

import pytest

from outbox_relay import changefeed
from outbox_relay.changefeed import (
    MAX_PAGE_SIZE,
    START,
    ArgumentError,
    ChangefeedError,
    CursorError,
    Entry,
    Feed,
    IsolationError,
    SetupError,
)
from outbox_relay.changefeed.statements import Statement
from tests.changefeed.backends import TABLE, Backend
from tests.changefeed.fed import TABLE as FED
from tests.changefeed.fed import Shop, shop
from tests.changefeed.journal import Journal
from tests.changefeed.postgresql import PostgresBackend
from tests.changefeed.reading import observer

__all__ = ["shop"]


def keys(entries: list[Entry]) -> list[tuple[Any, Any]]:
    return [(entry.row["aggregate"], entry.row["version"]) for entry in entries if entry.row is not None]


def test_pages_follow_one_another_without_a_gap(backend: Backend, journal: Journal) -> None:
    written = [event for _ in range(5) for event in journal.write(backend.writer(), 0, "a", "b", "c")]
    feed = Feed(backend.session(), TABLE)

    first = feed.read(0, START, 4)
    second = feed.read(0, first.cursor, 4)
    rest = feed.read(0, second.cursor, 100)

    assert [len(page.entries) for page in (first, second, rest)] == [4, 4, 7]
    assert keys([*first.entries, *second.entries, *rest.entries]) == [(e.aggregate, e.version) for e in written]
    assert first.cursor == first.entries[-1].ulid


def test_an_empty_page_keeps_the_cursor(backend: Backend, journal: Journal) -> None:
    feed = Feed(backend.session(), TABLE)

    assert feed.read(0).cursor == START
    journal.write(backend.writer(), 0, "a")
    page = feed.read(0)
    again = feed.read(0, page.cursor)

    assert again.entries == []
    assert again.cursor == page.cursor


def test_a_short_page_is_not_the_head(backend: Backend, journal: Journal) -> None:
    """The feed has one more event for this reader, and the outbox has the rest."""
    writer, first, second = backend.writer(), observer(backend.session()), observer(backend.session(), "second")
    journal.write(writer, 0, "a")
    first.drain()
    journal.write(writer, 0, "b", "c")

    assert len(second.read(page_size=100)) == 1
    assert len(second.read(page_size=100)) == 2
    assert second.read(page_size=100) == []


def test_a_page_takes_no_more_than_asked_from_the_outbox(backend: Backend, journal: Journal) -> None:
    journal.write(backend.writer(), 0, *(f"aggregate {number}" for number in range(5)))

    observer(backend.session()).read(page_size=2)

    assert backend.rows('select count(*) from changefeed."outbox:app.event"') == [(3,)]
    assert backend.rows('select count(*) from changefeed."feed:app.event"') == [(2,)]


def test_a_page_of_the_greatest_size(backend: Backend, journal: Journal) -> None:
    writer, reader = backend.writer(), observer(backend.session())
    with journal.committed(writer) as unit:
        for number in range(MAX_PAGE_SIZE + 1):
            unit.append(0, f"aggregate {number % 7}")

    assert len(reader.read(page_size=MAX_PAGE_SIZE)) == MAX_PAGE_SIZE
    assert len(reader.read(page_size=MAX_PAGE_SIZE)) == 1
    journal.observed(reader)
    assert journal.faults() == []


def test_shards_are_independent(backend: Backend, journal: Journal) -> None:
    writer, reader = backend.writer(), observer(backend.session())
    for shard in (0, 7, -3, 2147483647):
        journal.write(writer, shard, f"of {shard}")

    assert [event.aggregate for event in reader.drain(7)] == ["of 7"]
    reader.drain(0, -3, 2147483647)
    assert reader.drain(1) == []
    journal.observed(reader)
    assert journal.faults() == []


def test_a_page_size_out_of_bounds_and_a_shard_that_is_null_are_refused(backend: Backend) -> None:
    feed, nothing = Feed(backend.session(), TABLE), cast(int, None)

    for page_size in (0, -1, MAX_PAGE_SIZE + 1, nothing):
        with pytest.raises(ArgumentError, match="pagesize"):
            feed.read(0, START, page_size)
    with pytest.raises(ArgumentError, match="shard_id is NULL"):
        feed.read(nothing)


def test_a_cursor_that_is_null_is_refused(postgresql: PostgresBackend) -> None:
    with pytest.raises(ArgumentError, match=r"cursor is NULL.*Start with the cursor 00000000"):
        postgresql.rows('select * from changefeed."read_feed:app.event"(0, null)')


def test_a_refused_read_takes_nothing(backend: Backend, journal: Journal) -> None:
    journal.write(backend.writer(), 0, "a")
    feed = Feed(backend.session(), TABLE)

    with pytest.raises(ArgumentError):
        feed.read(0, START, 0)
    with pytest.raises(CursorError):
        feed.read(0, b"\xff" * 16)

    assert backend.rows('select count(*) from changefeed."outbox:app.event"') == [(1,)]
    assert len(feed.read(0).entries) == 1


def test_the_cursor_of_another_shard_is_refused(backend: Backend, journal: Journal) -> None:
    writer, reader = backend.writer(), observer(backend.session())
    journal.write(writer, 0, "a")
    reader.drain(0)
    journal.write(writer, 1, "b")

    for shard in (1, 2):
        with pytest.raises(CursorError, match="ahead of the last position given"):
            Feed(backend.session(), TABLE).read(shard, reader.cursor(0))


def test_a_cursor_from_before_a_restore_is_refused(backend: Backend, journal: Journal) -> None:
    writer, reader = backend.writer(), observer(backend.session())
    journal.write(writer, 0, "a")
    reader.drain()
    kept = reader.cursor()
    journal.write(writer, 0, "b")
    reader.drain()

    restore(backend, kept)

    feed = Feed(backend.session(), TABLE)
    with pytest.raises(CursorError, match="restored"):
        feed.read(0, reader.cursor())
    assert feed.read(0, kept).entries == []

    # With events that wait, too.
    journal.write(writer, 0, "c")
    with pytest.raises(CursorError, match="restored"):
        feed.read(0, reader.cursor())
    assert keys(feed.read(0, kept).entries) == [("c", 1)]


def restore(backend: Backend, to: bytes) -> None:
    """Take the tables of the feed back to when this position was given last."""
    session = backend.owner
    session.execute(
        Statement(
            'delete from changefeed."feed:app.event" where shard_id = 0 and ulid > ?', (session.dialect.ulid(to),)
        )
    )
    backend.set_last_position(0, to)


def test_a_transaction_with_another_isolation_level_is_refused(postgresql: PostgresBackend) -> None:
    for level in ("repeatable read", "serializable"):
        session = postgresql.session()
        session.execute(Statement(f"begin isolation level {level}"))

        with pytest.raises(IsolationError, match=f"isolation level is {level}.*READ COMMITTED"):
            Feed(session, TABLE).read(0)


def test_a_sequence_with_a_cache_is_refused(postgresql: PostgresBackend, journal: Journal) -> None:
    journal.write(postgresql.writer(), 0, "a")
    postgresql.cache_sequence()

    with pytest.raises(SetupError, match=r"outbox:app\.event.* has a cache.* CACHE 1"):
        Feed(postgresql.session(), TABLE).read(0)


def test_a_table_without_a_feed_is_named_with_the_remedy(backend: Backend) -> None:
    feed = Feed(backend.session(), "app.aggregate")

    for refused in (lambda: feed.read(0), lambda: feed.wait(0, START, 0)):
        with pytest.raises(SetupError, match=r"app\.aggregate.*setup-feed"):
            refused()


def test_an_event_whose_row_is_missing_is_given_by_its_key(backend: Backend, journal: Journal) -> None:
    writer, feed = backend.writer(), Feed(backend.session(), TABLE)
    journal.write(writer, 0, "a", "b", "c")
    feed.read(0)
    backend.owner.execute(Statement("delete from app.event where aggregate = 'b'"))

    entries = feed.read(0).entries

    assert [entry.row is None for entry in entries] == [False, True, False]
    assert [dict(entry.key) for entry in entries] == [{}, {"aggregate": "b", "version": 1}, {}]


def test_an_event_that_was_never_inserted_is_given_by_its_key(backend: Backend) -> None:
    backend.owner.execute(
        Statement(
            'insert into changefeed."outbox:app.event" (shard_id, aggregate, version) values (0, ?, 5)', ("Ω",)
        )
    )

    (entry,) = Feed(backend.session(), TABLE).read(0).entries

    assert entry.row is None
    assert entry.key == {"aggregate": "Ω", "version": 5}


def test_what_was_inserted_into_the_past_of_the_feed_is_read_from_the_beginning(
    backend: Backend, journal: Journal
) -> None:
    """Backfill: rows inserted into the feed itself, far behind its head."""
    writer, head = backend.writer(), observer(backend.session())
    event = journal.write(writer, 0, "a")[0]
    head.drain()
    session = backend.owner
    session.execute(
        Statement("insert into app.event (aggregate, version, data) values ('old', 1, '{\"write\": 0}')")
    )
    session.execute(
        Statement(
            'insert into changefeed."feed:app.event" (shard_id, ulid, aggregate, version) values (0, ?, ?, 1)',
            (session.dialect.ulid(bytes(15) + b"\1"), "old"),
        )
    )

    assert head.drain() == []
    assert [(one.aggregate, one.version) for one in observer(backend.session()).drain()] == [
        ("old", 1),
        event[1:3],
    ]


def test_every_refusal_is_an_error_of_changefeed(backend: Backend) -> None:
    for wrong in ("app", "nothing.at_all", '"', ""):
        with pytest.raises(ChangefeedError):
            Feed(backend.session(), wrong).read(0)


# A page ends before its events exceed a number of bytes, and has one event at least


def put(shop: Shop, *sizes: int) -> None:
    """Commit events, each with this number of bytes of data; they compress well."""
    shop.put([str(number) for number in range(len(sizes))])
    for number, size in enumerate(sizes):
        with shop.connect() as connection:
            connection.execute(
                "update app.item set data = jsonb_build_object('text', repeat('x', %s)) where id = %s",
                (size, str(number)),
            )


def pages(shop: Shop, max_bytes: int | None, page_size: int = 100) -> list[list[str]]:
    feed, cursor, found = Feed(shop.session, FED), START, []
    while (page := feed.read(0, cursor, page_size, max_bytes=max_bytes)).entries:
        found.append([entry.row["id"] for entry in page.entries if entry.row is not None])
        cursor = page.cursor
    return found


def test_pages_are_bounded_and_nothing_is_skipped(shop: Shop) -> None:
    put(shop, 400, 400, 400, 5000, 100, 100, 5000)

    assert pages(shop, 1000) == [["0", "1"], ["2"], ["3"], ["4", "5"], ["6"]]
    assert pages(shop, None) == [["0", "1", "2", "3", "4", "5", "6"]]
    assert pages(shop, 10**9, 2) == [["0", "1"], ["2", "3"], ["4", "5"], ["6"]]
    assert pages(shop, 1) == [[str(number)] for number in range(7)]


def test_an_event_that_is_missing_counts_nothing(shop: Shop) -> None:
    put(shop, 400, 400, 400)
    shop.owner.execute("delete from app.item where id = '1'")

    page = Feed(shop.session, FED).read(0, START, max_bytes=1000)

    assert [entry.row is None for entry in page.entries] == [False, True, False]


def test_what_a_session_receives_is_bounded(shop: Shop) -> None:
    put(shop, *[2_000_000] * 20)

    page = Feed(shop.session, FED).read(0, START, max_bytes=5_000_000)

    assert len(page.entries) == 2


def test_a_page_has_a_byte_at_least(shop: Shop) -> None:
    for max_bytes in (0, -1):
        with pytest.raises(ArgumentError, match="one byte at least"):
            Feed(shop.session, FED).read(0, START, max_bytes=max_bytes)


async def test_the_async_face_is_the_same(shop: Shop) -> None:
    put(shop, 400, 400, 400)
    session = await changefeed.connect_async(shop.url)
    try:
        page = await changefeed.AsyncFeed(session, FED).read(0, START, max_bytes=1000)
    finally:
        await session.close()

    assert len(page.entries) == 2
