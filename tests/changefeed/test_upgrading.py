"""A feed of an earlier version goes on after `install`: its events, its cursors and its readers' rights."""

from __future__ import annotations

import psycopg
import pytest

import changefeed
from changefeed import START, Consumer, CursorPrunedError, Feed, Session
from changefeed.install import migrations
from changefeed.statements import Statement, run
from tests.changefeed.backends import TABLE

_FIRST_VERSIONS = 3
_SERVICE = """
create schema app;
create table app.event (id text primary key, data jsonb not null default '{}');
select changefeed.setup_feed('app.event', outbox => true, notify => true, roles => true);
create role relay login;
grant "changefeed.readers:app.event" to relay;
insert into app.event (id) values ('a'), ('b'), ('c');
insert into changefeed."outbox:app.event" (shard_id, time_hint, id)
    values (0, '2020-01-01Z', 'a'), (0, '2020-01-02Z', 'b');
create table gone (id int primary key);
select changefeed.setup_feed('public.gone', outbox => true, notify => false, roles => false);
drop table gone cascade;
"""


@pytest.fixture
def earlier(postgres_database: str) -> str:
    """The URL of a database with a feed of the first version, two of whose events have positions."""
    session = changefeed.connect(postgres_database)
    run(session, session.dialect.install(migrations("postgresql")[:_FIRST_VERSIONS]))
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(_SERVICE.encode())
        connection.execute(
            'insert into changefeed."claim:app.event" (consumer, shard_id, last_ulid) '
            "select 'relay', 0, min(ulid::text)::uuid "
            "from changefeed.\"read_feed:app.event\"(0, '00000000-0000-0000-0000-000000000000')"
        )
        connection.execute("insert into changefeed.\"outbox:app.event\" (shard_id, id) values (0, 'c')")
    session.close()
    return postgres_database


def ids(page: changefeed.Page) -> list[str]:
    return [entry.row["id"] for entry in page.entries if entry.row is not None]


def test_a_reader_goes_on_with_the_rights_it_had(earlier: str) -> None:
    with_owner = changefeed.connect(earlier)
    applied = changefeed.install(with_owner)
    assert applied == [migration.name for migration in migrations("postgresql")[_FIRST_VERSIONS:]]
    reader: Session = changefeed.connect(earlier, user="relay")
    feed, consumer = Feed(reader, TABLE), Consumer(reader, TABLE, "relay")
    (claim,) = consumer.claims([0])

    claim = consumer.take(claim, "me")
    page = feed.read(0, claim.cursor, max_bytes=10_000)
    last = feed.read(0, page.cursor)
    consumer.store(claim, last.cursor)

    assert ids(page) + ids(last) == ["b", "c"]
    assert not feed.wait(0, last.cursor, 0)
    assert feed.carry_out_retention() == 0
    assert changefeed.status(with_owner).feeds[0].keep is None
    changefeed.set_keep(with_owner, TABLE, "30d")
    assert feed.carry_out_retention() == 2
    with pytest.raises(CursorPrunedError):
        feed.read(0, claim.cursor)
    assert ids(feed.read(0, START)) == ["c"]
    # What the library called before stays there for workers that have not been replaced yet.
    old = reader.execute(
        Statement(
            'select ulid, missing, (event).* from changefeed."read_events:app.event"(?, ?::uuid, ?)',
            (0, START.hex(), 10),
        )
    )
    assert [row[2] for row in old.rows] == ["c"]
    reader.close()
    changefeed.drop_feed(with_owner, TABLE)
    changefeed.drop_feed(with_owner, "public.gone")
    with_owner.close()
