"""A page ends before its events exceed a number of bytes, and has one event at least."""

from __future__ import annotations

import pytest

import changefeed
from changefeed import START, ArgumentError, Feed
from tests.changefeed.fed import TABLE, Shop, shop

__all__ = ["shop"]


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
    feed, cursor, found = Feed(shop.session, TABLE), START, []
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

    page = Feed(shop.session, TABLE).read(0, START, max_bytes=1000)

    assert [entry.row is None for entry in page.entries] == [False, True, False]


def test_what_a_session_receives_is_bounded(shop: Shop) -> None:
    put(shop, *[2_000_000] * 20)

    page = Feed(shop.session, TABLE).read(0, START, max_bytes=5_000_000)

    assert len(page.entries) == 2


@pytest.mark.parametrize("max_bytes", [0, -1])
def test_a_page_has_a_byte_at_least(shop: Shop, max_bytes: int) -> None:
    with pytest.raises(ArgumentError, match="one byte at least"):
        Feed(shop.session, TABLE).read(0, START, max_bytes=max_bytes)


async def test_the_async_face_is_the_same(shop: Shop) -> None:
    put(shop, 400, 400, 400)
    session = await changefeed.connect_async(shop.url)
    try:
        page = await changefeed.AsyncFeed(session, TABLE).read(0, START, max_bytes=1000)
    finally:
        await session.close()

    assert len(page.entries) == 2
