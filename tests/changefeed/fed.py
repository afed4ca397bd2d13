"""A service whose table has a feed in outbox mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import psycopg
import pytest

from outbox_relay import changefeed
from outbox_relay.changefeed import Feed
from tests.changefeed.numbered import Service, fill
from tests.support.postgresql import PostgresServer

TABLE = "app.item"


def fill_shop(url: str) -> None:
    """Set up a service, and the table `app.item` with its feed, in a template."""
    fill(url)
    with psycopg.connect(url) as owner:
        owner.execute("create table app.item (id text primary key, data jsonb not null default '{}')")
    session = changefeed.connect(url)
    changefeed.setup_feed(session, TABLE, roles=False)
    session.close()


class Shop(Service):
    """A database with the table `app.item` and its feed."""

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
def shop(postgres_server: PostgresServer) -> Iterator[Shop]:
    """A fresh shop."""
    name = postgres_server.create_database(postgres_server.template("template_shop", fill_shop))
    opened = Shop(postgres_server.url(name))
    yield opened
    opened.close()
    postgres_server.drop_database(name)
