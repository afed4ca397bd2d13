"""How the contract suite reads a feed: through each face of changefeed."""

from __future__ import annotations

import json

from outbox_relay.changefeed import Feed, Session
from outbox_relay.changefeed.feed import Page
from tests.changefeed.backends import TABLE
from tests.changefeed.history import Event, Seen
from tests.changefeed.journal import Observer, Read


def observer(session: Session, name: str = "reader") -> Observer:
    """A reader with its own session."""
    feed = Feed(session, TABLE)
    return Observer(name, lambda shard, cursor, size: as_read(shard, feed.read(shard, cursor, size)))


def event(shard: int, aggregate: str, version: int, data: str) -> Event:
    """The event of a row."""
    return Event(shard, aggregate, version, json.loads(data)["write"])


def as_read(shard: int, page: Page) -> Read:
    """The events of a page; one whose row is missing makes the test fail."""
    seen = []
    for entry in page.entries:
        assert entry.row is not None, f"there is no event {entry.key}"
        seen.append(
            Seen(entry.ulid, event(shard, entry.row["aggregate"], entry.row["version"], entry.row["data"]))
        )
    return Read(seen, page.cursor)
