"""Interleavings in which a reader that does less would lose, double or reorder events: each is played exactly."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from outbox_relay.changefeed import DatabaseError
from tests.changefeed.backends import Backend
from tests.changefeed.interleavings import (
    commit_during_a_read,
    long_transaction,
    taking_turns,
    three_readers,
    two_readers_at_the_head,
    until_blocked,
)
from tests.changefeed.journal import Journal
from tests.changefeed.postgresql import PostgresBackend
from tests.changefeed.reading import observer
from tests.support.watchdog import WATCHDOG_S


def test_two_readers_at_the_head_number_an_event_once(backend: Backend, journal: Journal) -> None:
    two_readers_at_the_head(backend, journal, observer)

    assert journal.faults() == []


def test_what_a_long_transaction_wrote_first_is_read_when_it_commits(backend: Backend, journal: Journal) -> None:
    long_transaction(backend, journal, observer)

    assert journal.faults() == []


def test_three_readers_at_the_head_agree(backend: Backend, journal: Journal) -> None:
    three_readers(backend, journal, observer)

    assert journal.faults() == []


def test_an_event_that_is_committed_while_a_reader_waits_comes_with_its_row(
    backend: Backend, journal: Journal
) -> None:
    commit_during_a_read(backend, journal, observer)

    assert journal.faults() == []


def test_sessions_that_take_turns_are_read_in_the_order_of_their_commits(
    backend: Backend, journal: Journal
) -> None:
    taking_turns(backend, journal, observer)

    assert journal.faults() == []


def test_what_a_killed_reader_has_taken_is_read_by_the_next(backend: Backend, journal: Journal) -> None:
    writer, session = backend.writer(), backend.session()
    killed, other = observer(session, "killed"), observer(backend.session(), "other")
    killed_id = backend.id_of(session)
    journal.write(writer, 0, "a", "b", "a")

    with ThreadPoolExecutor(1) as pool, backend.outbox_held():
        reading = pool.submit(killed.read)
        until_blocked(backend, killed_id, reading)
        backend.kill(killed_id)
        error = reading.exception(WATCHDOG_S)

    assert isinstance(error, DatabaseError)
    assert error.lost
    journal.write(writer, 0, "b")
    assert len(other.drain()) == 4
    journal.observed(other)
    assert journal.faults() == []


def test_a_page_that_was_never_received_is_read_again(backend: Backend, journal: Journal) -> None:
    writer, first, second = backend.writer(), observer(backend.session()), observer(backend.session(), "second")
    journal.write(writer, 0, "a", "b")
    lost = observer(backend.session(), "lost").read()
    journal.write(writer, 0, "a")

    assert first.read() == lost
    first.drain()
    second.drain(page_size=1)

    journal.observed(first, second)
    assert journal.faults() == []


def test_what_a_killed_writer_wrote_is_never_read(backend: Backend, journal: Journal) -> None:
    killed, writer, reader = backend.writer(), backend.writer(), observer(backend.session())
    unit = journal.begin(killed)
    unit.append(0, "a")
    journal.write(writer, 0, "b")
    assert len(reader.drain()) == 1

    backend.kill(killed.id)
    unit.lost()
    journal.write(writer, 0, "a")

    reader.drain()
    journal.observed(reader)
    assert journal.faults() == []


def test_what_was_rolled_back_is_never_read(backend: Backend, journal: Journal) -> None:
    writer, reader = backend.writer(), observer(backend.session())
    unit = journal.begin(writer)
    unit.append(0, "a")
    assert reader.drain() == []
    unit.rollback()

    assert reader.drain() == []
    journal.write(writer, 0, "a")
    reader.drain()
    journal.observed(reader)
    assert journal.faults() == []


def test_shards_are_read_while_another_is_held(backend: Backend, journal: Journal) -> None:
    writer, reader = backend.writer(), observer(backend.session())
    journal.write(writer, 0, "a")
    reader.drain(0)
    journal.write(writer, 1, "b")

    with backend.shard_held(0):
        assert len(reader.drain(1)) == 1


def test_writers_go_on_while_a_reader_numbers(backend: Backend, journal: Journal) -> None:
    writer, session = backend.writer(), backend.session()
    reader, reader_id = observer(session), backend.id_of(session)
    journal.write(writer, 0, "a")

    with ThreadPoolExecutor(1) as pool, backend.outbox_held():
        reading = pool.submit(reader.read)
        until_blocked(backend, reader_id, reading)
        journal.write(writer, 0, "a")
        assert not reading.done()

    reader.drain()
    journal.observed(reader)
    assert journal.faults() == []


# Interleavings between the statements of a read, which only PostgreSQL can be made to play


def test_a_page_is_not_empty_when_another_reader_numbers_between_two_looks(
    postgresql: PostgresBackend, journal: Journal
) -> None:
    """The first look finds an empty feed, and the second an empty outbox: the event has moved in between."""
    writer, session = postgresql.writer(), postgresql.session()
    reader, reader_id = observer(session), postgresql.id_of(session)
    journal.write(writer, 0, "a")

    with ThreadPoolExecutor(1) as pool:
        with postgresql.locking('lock table changefeed."outbox:app.event" in access exclusive mode') as other:
            read = pool.submit(reader.read)
            until_blocked(postgresql, reader_id, read)
            other.execute(
                'select changefeed."read_feed:app.event"(0, %s)', ("00000000-0000-0000-0000-000000000000",)
            )
        assert len(read.result(WATCHDOG_S)) == 1
