"""Interleavings between the statements of a read, which only PostgreSQL can be made to play."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.changefeed.interleavings import TIMEOUT_S, until_blocked
from tests.changefeed.journal import Journal
from tests.changefeed.postgresql import PostgresBackend
from tests.changefeed.reading import observer


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
        assert len(read.result(TIMEOUT_S)) == 1
