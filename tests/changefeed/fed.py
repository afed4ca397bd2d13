"""A service whose table has a feed in outbox mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import pytest

import changefeed
from changefeed import Feed
from tests.changefeed.numbered import Service

TABLE = "app.item"


class Shop(Service):
    """A database with the table `app.item` and its feed."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.owner.execute("create table app.item (id text primary key, data jsonb not null default '{}')")
        changefeed.setup_feed(self.session, TABLE, roles=False)

    def put(self, names: Sequence[str], shard: int = 0, time_hint: datetime | None = None) -> None:
        """Insert items and put them on the feed, in one transaction."""
        with self.connect() as connection:
            connection.cursor().executemany("insert into app.item (id) values (%s)", [(name,) for name in names])
            changefeed.append(connection, TABLE, shard, [{"id": name} for name in names], time_hint)

    def read(self, shard: int = 0) -> tuple[list[str], bytes]:
        """The events of a shard, and the cursor at its head."""
        feed, cursor, names = Feed(self.session, TABLE), changefeed.START, []
        while (page := feed.read(shard, cursor, 1000)).entries:
            names += [entry.row["id"] for entry in page.entries if entry.row is not None]
            cursor = page.cursor
        return names, cursor

    def consume(self, consumer: str, shard: int, cursor: bytes) -> None:
        """Store a consumer's cursor."""
        claims = changefeed.Consumer(self.session, TABLE, consumer)
        (claim,) = claims.claims([shard])
        claims.store(claims.take(claim, "a process"), cursor)


@pytest.fixture
def shop(changefeed_database: str) -> Iterator[Shop]:
    """A fresh shop."""
    opened = Shop(changefeed_database)
    yield opened
    opened.close()
