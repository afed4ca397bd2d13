"""The rights of writers, readers and all others: no more than they need."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg import sql

from outbox_relay import changefeed
from outbox_relay.changefeed import START, ArgumentError, Consumer, DatabaseError, Feed, Session
from outbox_relay.changefeed.statements import Statement
from outbox_relay.changefeed.ulid import time_of
from tests.changefeed.backends import TABLE
from tests.changefeed.journal import Journal
from tests.changefeed.postgresql import PostgresBackend, set_up
from tests.support.postgresql import changefeed_template

WRITERS = "changefeed.writers:app.event"
READERS = "changefeed.readers:app.event"
OUTBOX = 'changefeed."outbox:app.event"'
INSERT = f"insert into {OUTBOX} (shard_id, aggregate, version) values (0, 'x', 1)"

As = Callable[..., Session]


@pytest.fixture
def session_as(postgresql: PostgresBackend) -> As:
    """Opens a session of a new user, who is a member of a role."""

    def open_session(member_of: str | None) -> Session:
        user = f"user{len(postgresql.rows('select from pg_roles'))}"
        postgresql.execute(f"create role {user} login")
        if member_of is not None:
            postgresql.execute(f'grant "{member_of}" to {user}')
        return postgresql.session(user=user)

    return open_session


def refused(session: Session, statement: str, *values: Any) -> bool:
    with pytest.raises(DatabaseError, match=r"permission denied|must be owner|SQLSTATE 42501"):
        session.execute(Statement(statement, values))
    return True


def test_a_writer_inserts_into_the_outbox(postgresql: PostgresBackend, session_as: As) -> None:
    session_as(WRITERS).execute(Statement(INSERT))

    assert len(Feed(postgresql.owner, TABLE).read(0).entries) == 1


def test_a_writer_does_nothing_else(postgresql: PostgresBackend, session_as: As) -> None:
    writer = session_as(WRITERS)

    for relation in ("outbox", "feed", "state", "claim"):
        table = f'changefeed."{relation}:app.event"'
        assert refused(writer, f"select * from {table}")
        assert refused(writer, f"delete from {table}")
        assert refused(writer, f"update {table} set shard_id = 1")
        assert refused(writer, f"truncate {table}")
    for relation in ("feed", "state", "claim"):
        assert refused(writer, f'insert into changefeed."{relation}:app.event" (shard_id) values (0)')
    for function in ("read_feed", "read_events"):
        assert refused(writer, f"select changefeed.\"{function}:app.event\"(0, '{START.hex()}'::uuid)")
    assert refused(writer, f"select changefeed.\"has_news:app.event\"(0, '{START.hex()}'::uuid)")
    assert refused(writer, "select changefeed.setup_feed('app.aggregate')")
    assert refused(writer, "select changefeed.drop_feed('app.event')")
    assert refused(writer, "select * from changefeed.outbox_feed")
    assert refused(writer, "select * from app.event")
    assert refused(writer, "create table changefeed.other (id int)")


def test_a_writer_cannot_choose_the_order(postgresql: PostgresBackend, session_as: As) -> None:
    chosen = f"insert into {OUTBOX} (shard_id, order_sequence, aggregate, version) overriding system value values "

    assert refused(session_as(WRITERS), chosen + "(0, 1, 'x', 1)")


def test_a_reader_reads_and_stores_how_far_it_has_come(
    postgresql: PostgresBackend, session_as: As, journal: Journal
) -> None:
    journal.write(postgresql.writer(), 0, "a", "b")
    session = session_as(READERS)
    feed, consumer = Feed(session, TABLE), Consumer(session, TABLE, "relay")

    assert feed.wait(0, START, 10)
    page = feed.read(0)
    claim = consumer.take(consumer.claims([0])[0], "me")
    consumer.store(claim, page.cursor)

    assert len(page.entries) == 2
    assert consumer.claims([0])[0].cursor == page.cursor


def test_a_reader_does_nothing_else(postgresql: PostgresBackend, session_as: As) -> None:
    reader = session_as(READERS)

    for relation in ("outbox", "state"):
        assert refused(reader, f'select * from changefeed."{relation}:app.event"')
    for relation in ("outbox", "feed", "state", "claim"):
        table = f'changefeed."{relation}:app.event"'
        assert refused(reader, f"delete from {table}")
        assert refused(reader, f"truncate {table}")
        if relation != "claim":
            assert refused(reader, f"update {table} set shard_id = 1")
    assert refused(reader, INSERT)
    assert refused(reader, "insert into app.event (aggregate, version) values ('x', 1)")
    assert refused(reader, "update app.event set version = 2")
    assert refused(reader, "select changefeed.setup_feed('app.aggregate')")
    assert refused(reader, "select changefeed.drop_feed('app.event')")
    assert refused(reader, "delete from changefeed.outbox_feed")
    assert refused(reader, "create table changefeed.other (id int)")


def test_everybody_else_does_nothing(postgresql: PostgresBackend, session_as: As) -> None:
    stranger = session_as(None)

    assert refused(stranger, INSERT)
    for relation in ("outbox", "feed", "state", "claim"):
        assert refused(stranger, f'select * from changefeed."{relation}:app.event"')
    assert refused(stranger, "select * from changefeed.outbox_feed")
    assert refused(stranger, f"select changefeed.\"read_feed:app.event\"(0, '{START.hex()}'::uuid)")
    assert refused(stranger, "select changefeed.setup_feed('app.aggregate')")


def test_a_stranger_in_the_schema_still_cannot_call_the_functions_of_a_feed(
    postgresql: PostgresBackend, session_as: As
) -> None:
    stranger = session_as(None)
    postgresql.execute("grant usage on schema changefeed to public")

    for function in ("read_feed", "read_events", "has_news"):
        assert refused(stranger, f"select changefeed.\"{function}:app.event\"(0, '{START.hex()}'::uuid)")


def test_a_reader_cannot_replace_what_read_feed_calls(
    postgresql: PostgresBackend, session_as: As, journal: Journal
) -> None:
    """read_feed runs with its owner's rights, and looks for nothing in the caller's search path."""
    with journal.committed(postgresql.writer()) as unit:
        unit.append(0, "a", "2099-01-01")
    session = session_as(READERS)
    ((user,),) = session.execute(Statement("select current_user")).rows
    postgresql.execute(f"create schema mine authorization {user}")
    session.execute(
        Statement(
            "create function mine.clock_timestamp() returns timestamptz language sql "
            "as $$ select timestamptz '2100-01-01' $$"
        )
    )
    session.execute(Statement("set search_path = mine, pg_catalog"))

    read = f"select ulid from changefeed.\"read_feed:app.event\"(0, '{START.hex()}'::uuid)"
    ((position,),) = session.execute(Statement(read)).rows

    assert time_of(position) < datetime(2099, 1, 1, tzinfo=UTC)


def test_nobody_else_may_call_what_makes_and_drops_feeds(postgresql: PostgresBackend) -> None:
    callable_by_all = """
        select proname from pg_proc, aclexplode(coalesce(proacl, acldefault('f', proowner)))
        where pronamespace = 'changefeed'::regnamespace and grantee = 0 order by proname"""

    named = {name for (name,) in postgresql.rows(callable_by_all)}

    # They have no rights but the caller's: all but three compute or check, and those are triggers'.
    computing = {"check_cursor", "check_low_water", "check_read", "random_bits", "shard_of", "ulid", "ulid_part"}
    assert named == computing | {"event_table", "check_claim", "notify_readers", "notify_sweepers"}


def test_a_feed_can_be_set_up_without_roles(postgresql: PostgresBackend) -> None:
    changefeed.setup_feed(postgresql.owner, "app.aggregate", roles=False)

    assert postgresql.rows("select rolname from pg_roles where rolname like '%app.aggregate'") == []
    changefeed.drop_feed(postgresql.owner, "app.aggregate")


def test_an_owner_that_is_no_superuser_sets_up_and_drops_a_feed(postgresql: PostgresBackend) -> None:
    """Set up a feed with the rights of an owner on a managed server."""
    postgresql.execute("create role admin login createrole")
    name = postgresql.rows("select current_database()")[0][0]
    with psycopg.connect(postgresql.url, autocommit=True) as owner:
        owner.execute(sql.SQL("grant create on database {} to admin").format(sql.Identifier(name)))
    changefeed.drop_feed(postgresql.owner, TABLE)
    postgresql.execute("drop schema changefeed cascade")
    admin = postgresql.session(user="admin")
    changefeed.install(admin)
    admin.execute(Statement("create schema own"))
    admin.execute(Statement("create table own.event (id int primary key)"))

    changefeed.setup_feed(admin, "own.event")
    changefeed.drop_feed(admin, "own.event")

    assert postgresql.rows("select rolname from pg_roles where rolname like 'changefeed.%'") == []


def test_dropping_a_feed_keeps_what_belongs_to_its_roles(postgresql: PostgresBackend) -> None:
    """A table that somebody has given to the role is no part of the feed."""
    postgresql.execute(f'create table app.kept (id int); alter table app.kept owner to "{READERS}"')

    changefeed.drop_feed(postgresql.owner, TABLE)

    assert postgresql.rows("select to_regclass('app.kept') is not null") == [(True,)]
    assert postgresql.rows("select rolname from pg_roles where rolname like 'changefeed.%'") == [(READERS,)]


def test_roles_that_another_database_uses_stay(postgresql: PostgresBackend, postgres_server: Any) -> None:
    name = postgres_server.create_database(changefeed_template(postgres_server))
    try:
        set_up(postgres_server.url(name), roles=True)
        other = PostgresBackend(postgres_server.url(name))

        changefeed.drop_feed(postgresql.owner, TABLE)

        assert other.rows("select has_table_privilege(?, ?, 'select')", READERS, "app.event") == [(True,)]
        other.close()
    finally:
        with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as owner:
            owner.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def test_dropping_a_feed_that_there_is_not_is_an_error(postgresql: PostgresBackend) -> None:
    with pytest.raises(ArgumentError, match=r"app\.aggregate has no feed"):
        changefeed.drop_feed(postgresql.owner, "app.aggregate")
