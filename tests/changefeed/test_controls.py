"""Weaker ways to read a feed, each judged by the very interleavings and checker that the real one passes.

Each test shows that the suite sees what the weakness breaks.
"""

from __future__ import annotations

from uuid import UUID

import pytest

from outbox_relay.changefeed import START, Session
from outbox_relay.changefeed.statements import Statement
from tests.changefeed.history import Seen, kinds
from tests.changefeed.interleavings import (
    commit_during_a_read,
    long_transaction,
    taking_turns,
    three_readers,
    two_readers_at_the_head,
)
from tests.changefeed.journal import Journal, Observer, Read
from tests.changefeed.postgresql import PostgresBackend
from tests.changefeed.reading import event, observer

pytestmark = pytest.mark.slow

# A shard's first reader makes its row of state. Where another changes that row, the insert waits for it as well.
MAKE_STATE = """    insert into changefeed."state:app.event" (shard_id, ulid) \
values ($1, '00000000-0000-0000-0000-000000000000') on conflict do nothing;
"""
LOCK = "where s.shard_id = $1 for update;"
CHECK_CURSOR = "perform changefeed.check_cursor($2, last_given);"
NO_LOCK = "where s.shard_id = $1;"
SECOND_LOOK = """    return query select f.ulid, f.aggregate, f.version from changefeed."feed:app.event" f \
where f.shard_id = $1 and f.ulid > $2 order by f.ulid limit $3;
    if found then
        perform changefeed.check_low_water('app.event', $1, $2);
        return;
    end if;
    if exists"""
CACHE_CHECK = "and s.seqcache <> 1"
TAKE = "order by o.order_sequence limit $3"


def test_without_the_lock_of_the_shard_an_event_is_numbered_twice(
    postgresql: PostgresBackend, journal: Journal
) -> None:
    postgresql.set_last_position(0, START)
    postgresql.change_read((MAKE_STATE, ""), (CHECK_CURSOR, ""), (LOCK, NO_LOCK), (SECOND_LOOK, "    if exists"))

    two_readers_at_the_head(postgresql, journal, observer)

    assert "twice" in kinds(journal.faults())


def test_a_sequence_with_a_cache_breaks_the_order_of_commits(
    postgresql: PostgresBackend, journal: Journal
) -> None:
    postgresql.cache_sequence()
    postgresql.change_read((CACHE_CHECK, "and false"))

    taking_turns(postgresql, journal, observer)

    assert "commit order" in kinds(journal.faults())


def test_readers_that_skip_locked_rows_break_the_order(postgresql: PostgresBackend, journal: Journal) -> None:
    postgresql.change_read((LOCK, NO_LOCK), (TAKE, f"{TAKE} for update skip locked"))

    three_readers(postgresql, journal, observer)

    assert {"commit order", "aggregate order"} <= kinds(journal.faults())


def by_sequence(session: Session, name: str) -> Observer:
    """A reader whose cursor is the last order_sequence."""

    def read(shard: int, cursor: bytes, page_size: int) -> Read:
        rows = session.execute(
            Statement(
                "select order_sequence, aggregate, version, data "
                'from changefeed."outbox:app.event" join app.event using (aggregate, version) '
                "where shard_id = ? and order_sequence > ? order by order_sequence limit ?",
                (shard, int.from_bytes(cursor, "big"), page_size),
            )
        ).rows
        seen = [Seen(number.to_bytes(16, "big"), event(shard, *key)) for number, *key in rows]
        return Read(seen, seen[-1].position if seen else cursor)

    return Observer(name, read)


def test_a_cursor_over_order_sequence_loses_what_commits_later(
    postgresql: PostgresBackend, journal: Journal
) -> None:
    long_transaction(postgresql, journal, by_sequence)

    assert "lost" in kinds(journal.faults())


def joined(session: Session, name: str) -> Observer:
    """A reader that joins read_feed with the events in one statement."""

    def read(shard: int, cursor: bytes, page_size: int) -> Read:
        rows = session.execute(
            Statement(
                'select r.ulid, e.aggregate, e.version, e.data from changefeed."read_feed:app.event"(?, ?, ?) r '
                "join app.event e on e.aggregate = r.aggregate and e.version = r.version order by r.ulid",
                (shard, UUID(bytes=cursor), page_size),
            )
        ).rows
        seen = [Seen(position, event(shard, *key)) for position, *key in rows]
        return Read(seen, seen[-1].position if seen else cursor)

    return Observer(name, read)


def test_a_join_on_read_feed_misses_what_was_committed_since_its_snapshot(
    postgresql: PostgresBackend, journal: Journal
) -> None:
    commit_during_a_read(postgresql, journal, joined)

    assert "lost" in kinds(journal.faults())
