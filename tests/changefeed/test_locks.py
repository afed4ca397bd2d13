"""A reader that meets a held lock."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from changefeed import CursorError, DatabaseError, Feed, FeedBusyError
from changefeed.statements import Statement
from tests.changefeed.backends import TABLE, Backend
from tests.changefeed.interleavings import TIMEOUT_S, until_blocked
from tests.changefeed.journal import Journal
from tests.changefeed.postgresql import PostgresBackend
from tests.changefeed.reading import observer


def test_a_reader_that_waits_for_too_long_says_that_the_shard_is_busy(backend: Backend, journal: Journal) -> None:
    writer, reader = backend.writer(), observer(backend.session())
    journal.write(writer, 0, "a")
    reader.drain()
    journal.write(writer, 0, "b")
    backend.set_lock_timeout(150)
    began = time.monotonic()

    with backend.shard_held(0), pytest.raises(FeedBusyError, match=r"another reader holds.*Try again"):
        reader.read()

    assert 0.14 <= time.monotonic() - began < 5
    # The session is of further use, and nothing was taken.
    reader.drain()
    journal.observed(reader)
    assert journal.faults() == []


def test_the_wait_for_the_first_row_of_a_shard_is_bounded_too(
    postgresql: PostgresBackend, journal: Journal
) -> None:
    journal.write(postgresql.writer(), 0, "a")
    postgresql.set_lock_timeout(150)
    first = 'insert into changefeed."state:app.event" (shard_id, ulid) select 0, gen_random_uuid()'

    with postgresql.locking(first), pytest.raises(FeedBusyError):
        observer(postgresql.session()).read()


def test_the_wait_for_a_row_of_the_outbox_is_bounded_too(backend: Backend, journal: Journal) -> None:
    journal.write(backend.writer(), 0, "a")
    backend.set_lock_timeout(150)

    with backend.outbox_held(), pytest.raises(FeedBusyError):
        observer(backend.session()).read()


def test_the_lock_timeout_is_ten_seconds(postgresql: PostgresBackend) -> None:
    """Whatever the session says: the function sets it for itself."""
    settings = postgresql.rows("select proconfig from pg_proc where proname = 'read_feed:app.event'")

    assert "lock_timeout=10s" in settings[0][0]


def test_a_held_shard_is_no_obstacle_to_what_is_numbered(backend: Backend, journal: Journal) -> None:
    reader = observer(backend.session())
    journal.write(backend.writer(), 0, "a", "b")
    reader.drain()
    feed = Feed(backend.session(), TABLE)

    with backend.shard_held(0):
        page = feed.read(0)
        assert len(page.entries) == 2
        # At the head there is nothing to number, so an idle poll takes no lock either; nor does a look for news.
        assert feed.read(0, page.cursor).entries == []
        assert not feed.wait(0, page.cursor, 0)
        with pytest.raises(CursorError):
            feed.read(0, b"\xff" * 16)


def test_an_idle_poll_writes_nothing(postgresql: PostgresBackend) -> None:
    session = postgresql.session()
    session.execute(Statement("begin"))

    Feed(session, TABLE).read(0)

    assert session.execute(Statement("select pg_current_xact_id_if_assigned() is null")).rows[0][0]
    session.execute(Statement("rollback"))


def test_a_deadlock_ends_the_statement_and_not_the_session(postgresql: PostgresBackend, journal: Journal) -> None:
    """A transaction that locks rows of the outbox and then the shard, which no writer does."""
    session, writer = postgresql.session(), postgresql.writer()
    reader, session_id = observer(session), postgresql.id_of(session)
    journal.write(writer, 0, "a")
    reader.drain()
    journal.write(writer, 0, "b")
    session.execute(Statement("set deadlock_timeout = '1s'"))

    with ThreadPoolExecutor(2) as pool, postgresql.locking("set local deadlock_timeout = '1min'") as other:
        other.execute('select from changefeed."outbox:app.event" for update')
        read = pool.submit(reader.read)
        until_blocked(postgresql, session_id, read)
        # The reader looks for a deadlock once, a second after it began to wait: it has to begin after this one.
        locking = pool.submit(other.execute, 'select from changefeed."state:app.event" for update')
        error = read.exception(TIMEOUT_S)
        locking.result(TIMEOUT_S)

    assert isinstance(error, DatabaseError)
    assert not error.lost
    reader.drain()
    journal.observed(reader)
    assert journal.faults() == []


def test_a_cancelled_read_takes_nothing(postgresql: PostgresBackend, journal: Journal) -> None:
    session = postgresql.session()
    reader, session_id = observer(session), postgresql.id_of(session)
    journal.write(postgresql.writer(), 0, "a")

    with ThreadPoolExecutor(1) as pool, postgresql.outbox_held():
        read = pool.submit(reader.read)
        until_blocked(postgresql, session_id, read)
        postgresql.execute("select pg_cancel_backend(?)", session_id)
        error = read.exception(TIMEOUT_S)

    assert isinstance(error, DatabaseError)
    assert not error.lost
    assert len(reader.drain()) == 1
