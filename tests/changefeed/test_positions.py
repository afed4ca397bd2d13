"""The ULIDs that a feed gives (https://github.com/ulid/spec), and a reader that meets a held lock."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from outbox_relay.changefeed import START, CursorError, DatabaseError, Feed, FeedBusyError
from outbox_relay.changefeed.statements import Statement
from outbox_relay.changefeed.ulid import from_text, milliseconds, time_of, to_text
from tests.changefeed.backends import TABLE, Backend
from tests.changefeed.interleavings import until_blocked
from tests.changefeed.journal import Journal
from tests.changefeed.postgresql import PostgresBackend
from tests.changefeed.reading import observer
from tests.support.watchdog import WATCHDOG_S

PAST = datetime(2020, 2, 29, 12, 30, 15, 123000, tzinfo=UTC)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def read(backend: Backend, cursor: bytes = START) -> list[bytes]:
    return [entry.ulid for entry in Feed(backend.session(), TABLE).read(0, cursor, 1000).entries]


def write(backend: Backend, journal: Journal, *hints: datetime | str | None) -> None:
    with journal.committed(backend.writer()) as unit:
        for hint in hints:
            unit.append(0, "a", hint)


def test_a_position_has_the_time_at_which_its_event_was_written(backend: Backend, journal: Journal) -> None:
    before = now_ms()
    write(backend, journal, None)
    after = now_ms()

    (position,) = read(backend)

    assert len(position) == 16
    assert before - 1 <= milliseconds(position) <= after + 1


def test_a_hint_in_the_past_is_the_time_of_the_position(backend: Backend, journal: Journal) -> None:
    write(backend, journal, PAST, PAST + timedelta(milliseconds=1))

    assert [time_of(position) for position in read(backend)] == [PAST, PAST + timedelta(milliseconds=1)]


def test_a_hint_before_the_last_position_takes_its_millisecond(backend: Backend, journal: Journal) -> None:
    write(backend, journal, PAST)
    (first,) = read(backend)
    write(backend, journal, PAST - timedelta(days=1))

    (second,) = read(backend, first)

    assert time_of(second) == PAST
    assert int.from_bytes(second, "big") == int.from_bytes(first, "big") + 1


def test_hints_that_step_back_within_a_page_keep_the_order(backend: Backend, journal: Journal) -> None:
    hints = [PAST, PAST + timedelta(seconds=1), PAST, PAST + timedelta(seconds=2)]
    write(backend, journal, *hints)

    positions = read(backend)

    assert positions == sorted(positions)
    assert [time_of(position) for position in positions] == [hints[0], hints[1], hints[1], hints[3]]


def test_a_hint_in_the_future_does_not_pin_the_shard(backend: Backend, journal: Journal) -> None:
    write(backend, journal, datetime.now(UTC) + timedelta(days=400))
    (first,) = read(backend)
    write(backend, journal, None)
    (second,) = read(backend, first)

    assert milliseconds(first) <= now_ms()
    assert first < second
    assert milliseconds(second) <= now_ms()


@pytest.mark.parametrize("hint", ["infinity", "294276-12-31 23:59:59+00"])
def test_a_hint_at_the_end_of_time_is_now(postgresql: PostgresBackend, journal: Journal, hint: str) -> None:
    before = now_ms()
    write(postgresql, journal, hint)

    assert before - 1 <= milliseconds(read(postgresql)[0]) <= now_ms()


@pytest.mark.parametrize("hint", ["-infinity", "0044-03-15 12:00:00+00 BC", "1969-12-31 23:59:59+00"])
def test_a_hint_before_all_time_is_the_time_of_the_position_before(
    postgresql: PostgresBackend, journal: Journal, hint: str
) -> None:
    write(postgresql, journal, hint, PAST, hint)

    assert [milliseconds(position) for position in read(postgresql)] == [0, *[int(PAST.timestamp() * 1000)] * 2]


def test_a_clock_that_steps_back_keeps_the_order(backend: Backend, journal: Journal) -> None:
    """The shard's last position was given by a clock that was an hour ahead."""
    ahead = (now_ms() + 3_600_000).to_bytes(6, "big") + bytes([9]) * 10
    backend.set_last_position(0, ahead)
    write(backend, journal, None, None, PAST)

    positions = read(backend)

    last = int.from_bytes(ahead, "big")
    assert [int.from_bytes(position, "big") for position in positions] == [last + 1, last + 2, last + 3]


@pytest.mark.parametrize("left", [0, 1])
def test_a_counter_at_its_end_goes_on_in_the_next_millisecond(
    backend: Backend, journal: Journal, left: int
) -> None:
    ahead = now_ms() + 3_600_000
    last = ahead.to_bytes(6, "big") + bytes(5) + (2**40 - 1 - left).to_bytes(5, "big")
    backend.set_last_position(0, last)
    write(backend, journal, None, None, None)

    positions = read(backend)

    assert [milliseconds(position) for position in positions] == [ahead + 1] * 3
    assert [last, *positions] == sorted({last, *positions})
    assert [later - earlier for earlier, later in pairwise(numbers(positions))] == [1, 1]


def numbers(positions: list[bytes]) -> list[int]:
    return [int.from_bytes(position, "big") for position in positions]


def test_within_a_millisecond_positions_count_up_by_one(backend: Backend, journal: Journal) -> None:
    """The specification's monotonic ULIDs, over several pages and transactions."""
    for _ in range(3):
        write(backend, journal, PAST, PAST)

    positions = [*read(backend)]
    write(backend, journal, PAST)
    positions += read(backend, positions[-1])

    assert len(positions) == 7
    assert {later - earlier for earlier, later in pairwise(numbers(positions))} == {1}


def test_each_millisecond_has_random_bits_of_its_own(backend: Backend, journal: Journal) -> None:
    write(backend, journal, *(PAST + timedelta(milliseconds=step) for step in range(200)))

    randoms = [position[6:] for position in read(backend)]

    assert len({one[:5] for one in randoms}) == 200
    assert len({one[5:] for one in randoms}) == 200
    for byte in range(10):
        assert len({one[byte] for one in randoms}) > 50, f"byte {byte} is not random"
    # Room to count: the counter of 40 bits begins in its lower half, after the first event at 2^39 at most.
    assert all(int.from_bytes(one[5:], "big") <= 1 << 39 for one in randoms)


def test_positions_sort_alike_as_bytes_as_text_and_in_the_database(backend: Backend, journal: Journal) -> None:
    hints = [PAST + timedelta(milliseconds=37 * step) for step in range(300)]
    write(backend, journal, *hints)

    positions = read(backend)

    assert positions == sorted(positions)
    texts = [to_text(position) for position in positions]
    assert texts == sorted(texts)
    assert [from_text(text) for text in texts] == positions
    in_database = backend.rows('select ulid from changefeed."feed:app.event" where shard_id = 0 order by ulid')
    assert [bytes(row[0]) for row in in_database] == positions


def test_the_text_of_a_position_is_the_specifications() -> None:
    """The example of the specification's README, and its greatest value."""
    assert milliseconds(from_text("01ARZ3NDEKTSV4RRFFQ69G5FAV")) == 1469922850259
    assert to_text(from_text("01ARZ3NDEKTSV4RRFFQ69G5FAV")) == "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    assert from_text("7ZZZZZZZZZZZZZZZZZZZZZZZZZ") == b"\xff" * 16
    assert from_text("01arz3ndektsv4rrffq69g5fav") == from_text("01ARZ3NDEKTSV4RRFFQ69G5FAV")


@pytest.mark.parametrize(
    "text", ["8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "01ARZ3NDEKTSV4RRFFQ69G5FA", "", "U" * 26, "0" * 27]
)
def test_a_text_that_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no ULID"):
        from_text(text)


# A reader that meets a held lock


def test_a_reader_that_waits_for_too_long_says_that_the_shard_is_busy(backend: Backend, journal: Journal) -> None:
    writer, reader = backend.writer(), observer(backend.session())
    journal.write(writer, 0, "a")
    reader.drain()
    journal.write(writer, 0, "b")
    backend.set_lock_timeout(150)
    began = time.monotonic()

    with backend.shard_held(0), pytest.raises(FeedBusyError, match=r"another reader holds.*Try again"):
        reader.read()

    assert time.monotonic() - began >= 0.14
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
        error = read.exception(WATCHDOG_S)
        locking.result(WATCHDOG_S)

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
        error = read.exception(WATCHDOG_S)

    assert isinstance(error, DatabaseError)
    assert not error.lost
    assert len(reader.drain()) == 1
