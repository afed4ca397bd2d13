"""The examples of mssql-changefeed's user guide to numbered changes, in PostgreSQL and in the guide's order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg

from outbox_relay import changefeed
from tests.changefeed.numbered import START, until

_MY_EVENT_FEED = 37
_ALL_EVENTS_FEED = 38

# Setting up feeds.
_FEEDS = """
insert into changefeed.feed (feed_id, name, comment) values
    (37, 'myevent', 'Inserts to myschema.MyEvent and myschema.MyEventExtraDetails');
insert into changefeed.shard (feed_id, shard) values (37, 0), (37, 1);
"""

# Inserting changes, step 1: the table needs the change_id, with an index.
_MY_TABLE = """
create schema myschema;
create table myschema.MyEvent (
    EntityID bigint not null, Version int not null, ChosenShoeSize int not null, change_id bigint not null,
    primary key (EntityID, Version));
create unique index change_id on myschema.MyEvent (change_id);
"""

# Consuming events: the consumer's own table, which can be in another database.
_CONSUMER_STATE = (
    "create table myschema.ConsumerState (shard int primary key, seqnum_cursor bigint not null default 0)"
)

_READ = """
select c.change_sequence_number, e.EntityID, e.Version, e.ChosenShoeSize
from changefeed.change c join myschema.MyEvent e on e.change_id = c.change_id
where c.feed_id = %s and c.shard = %s and c.change_sequence_number > %s
order by c.change_sequence_number fetch first 3 rows only
"""


def insert(connection: psycopg.Connection[Any], entity: int, version: int, feeds: tuple[int, ...]) -> None:
    """Inserting changes, step 2: the change_id, the event, and one change for each feed."""
    row = connection.execute("select nextval('changefeed.change_id')").fetchone()
    assert row is not None
    connection.execute("insert into myschema.MyEvent values (%s, %s, 38, %s)", (entity, version, row[0]))
    for feed_id in feeds:
        shard = entity % 2 if feed_id == _MY_EVENT_FEED else 0
        connection.execute(
            "insert into changefeed.change (feed_id, shard, change_id) values (%s, %s, %s)",
            (feed_id, shard, row[0]),
        )


def consume(connection: psycopg.Connection[Any], shard: int) -> list[tuple[int, int]]:
    """One round of the consumer: a page, and its cursor in the transaction of what is done with the page."""
    connection.execute("insert into myschema.ConsumerState values (%s) on conflict do nothing", (shard,))
    state = connection.execute("select seqnum_cursor from myschema.ConsumerState where shard = %s", (shard,))
    (cursor,) = state.fetchone() or (0,)
    page = connection.execute(_READ, (_MY_EVENT_FEED, shard, cursor)).fetchall()
    if page:
        # The guide's max() of an empty page is NULL, and the next round reads everything again.
        update = "update myschema.ConsumerState set seqnum_cursor = %s where shard = %s"
        connection.execute(update, (page[-1][0], shard))
    connection.commit()
    return [(entity, version) for _, entity, version, _ in page]


def test_the_guide_from_its_first_step_to_its_last(postgres_database: str) -> None:
    session = changefeed.connect(postgres_database)
    changefeed.install(session)
    with psycopg.connect(postgres_database, autocommit=True) as owner, ThreadPoolExecutor(1) as threads:
        # 1. Set up the feeds
        owner.execute(_FEEDS)
        defaults = (
            "select sweep_group, longpoll, last_change_sequence_number from changefeed.shard where shard = 0"
        )
        assert owner.execute(defaults).fetchall() == [(0, 1, 2_000_000_000_000_000)]

        # 2. Insert changes: an event may be on several feeds.
        owner.execute(_MY_TABLE)
        owner.execute("insert into changefeed.feed (feed_id, name) values (38, 'all-events')")
        owner.execute(
            "insert into changefeed.shard (feed_id, shard, sweep_group, last_change_sequence_number) "
            "values (38, 0, 1, 4000)"
        )
        with psycopg.connect(postgres_database) as service:
            for version in range(1, 5):
                for entity in (1000, 1001):
                    insert(service, entity, version, (_MY_EVENT_FEED, _ALL_EVENTS_FEED))
                    service.commit()
        in_order = "select Version from myschema.MyEvent where EntityID = 1000 order by change_id"
        assert owner.execute(in_order).fetchall() == [(1,), (2,), (3,), (4,)]

        # 3. Set up the sweepers: nothing is on a feed before. One call a group, in a loop.
        unnumbered = "select count(*) from changefeed.change where change_sequence_number is null"
        assert owner.execute(unnumbered).fetchall() == [(16,)]
        for group, expected in ((0, 8), (1, 8)):
            outputs = owner.execute(
                "call changefeed.sweep_loop(sweep_group => %s, wait_milliseconds => 30000, "
                "duration_milliseconds => 100, change_count => 0, max_lag_milliseconds => 0, iterations => 0)",
                (group,),
            ).fetchone()
            assert outputs is not None
            assert outputs[0] == expected
        numbers = "select shard, change_sequence_number from changefeed.change where feed_id = %s order by 1, 2"
        assert owner.execute(numbers, (37,)).fetchall() == [
            (shard, START + number) for shard in (0, 1) for number in range(1, 5)
        ]
        assert owner.execute(numbers, (38,)).fetchall() == [(0, 4000 + number) for number in range(1, 9)]

        # 4. Read changes: a page of 3, the rest, and a page that is empty and changes nothing.
        owner.execute(_CONSUMER_STATE)
        with psycopg.connect(postgres_database) as consumer:
            for shard, entity in ((0, 1000), (1, 1001)):
                pages = [consume(consumer, shard) for _ in range(4)]
                assert pages == [[(entity, 1), (entity, 2), (entity, 3)], [(entity, 4)], [], []]

        # 5. Long polling
        changes = changefeed.Changes(session)
        cursor = START + 4
        assert not changes.wait(_MY_EVENT_FEED, 0, cursor, 0.05)
        waiting = threads.submit(changes.wait, _MY_EVENT_FEED, 0, cursor, 20)
        with psycopg.connect(postgres_database) as service:
            insert(service, 1000, 5, (_MY_EVENT_FEED,))
        until(lambda: owner.execute("select * from changefeed.sweep(0)").fetchone() != (0, 0), "the number")
        assert waiting.result(30)
        assert len(changes.read(_MY_EVENT_FEED, 0, cursor).changes) == 1
    session.close()
