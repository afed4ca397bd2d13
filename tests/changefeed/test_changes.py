"""Reading numbered changes, and waiting for them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

import psycopg
import pytest

from outbox_relay import changefeed
from outbox_relay.changefeed import Change, numbered
from tests.changefeed.numbered import FEED, START, Service, append, service, until
from tests.changefeed.test_sweeping import Loop
from tests.support.waiting import look_again_blocking
from tests.support.watchdog import WATCHDOG_S

__all__ = ["service"]

_WAKES_WITHIN_S = 0.2


@pytest.fixture
def swept(service: Service) -> Iterator[Service]:
    """A service whose changes are numbered all the time."""
    with ThreadPoolExecutor(1) as threads:
        loop = Loop(service, threads)
        until(lambda: service.sweeper() == loop.pid, "the sweeper")
        yield service
        loop.end()


def test_pages_follow_the_cursor_to_the_head(service: Service) -> None:
    appended = [service.append() for _ in range(5)]
    changefeed.sweep(service.session)
    reader = changefeed.Changes(service.session)
    cursor, pages = 0, []
    while (page := reader.read(FEED, 0, cursor, 2)).changes:
        pages.append(page.changes)
        cursor = page.cursor

    assert [len(changes) for changes in pages] == [2, 2, 1]
    assert [change for changes in pages for change in changes] == [
        Change(change_id, START + number) for number, change_id in enumerate(appended, 1)
    ]
    assert page.cursor == cursor == START + 5


def test_the_query_of_the_documentation_reads_the_events_in_order(service: Service) -> None:
    for number in range(5):
        service.append(f"aggregate {number}")
    changefeed.sweep(service.session)
    assert numbered.__doc__ is not None
    query = numbered.__doc__.partition("    select ")[2].partition("\n\n")[0]
    for name in ("cursor", "feed_id", "shard", "limit"):
        query = query.replace(f":{name}", f"%({name})s")
    cursor, read = 0, []
    with service.connect() as connection:
        while rows := connection.execute(
            f"select {query}", {"cursor": cursor, "feed_id": FEED, "shard": 0, "limit": 2}
        ).fetchall():
            cursor = rows[-1][0]
            read += [row[1] for row in rows]

    assert read == [f"aggregate {number}" for number in range(5)]


def test_what_cannot_be_read_or_waited_for_is_explained(service: Service) -> None:
    changes = changefeed.Changes(service.session)
    refused: list[tuple[Any, type[Exception], str]] = [
        ((FEED, 0, 0, 0), changefeed.ArgumentError, "pagesize from 1 to 1000"),
        ((FEED, 0, 0, 1001), changefeed.ArgumentError, "pagesize from 1 to 1000"),
        ((FEED, 0, None, 10), changefeed.ArgumentError, "cursor 0"),
        ((FEED, 9, 0, 10), changefeed.ArgumentError, "the feed 37 has no shard 9"),
        ((1, 0, 0, 10), changefeed.ArgumentError, "the feed 1 has no shard 0"),
        ((FEED, 0, START + 1, 10), changefeed.CursorError, "ahead of the last number given"),
    ]
    for arguments, error, message in refused:
        with pytest.raises(error, match=message):
            changes.read(*arguments)
    with pytest.raises(changefeed.ArgumentError, match="no shard 9"):
        changes.wait(FEED, 9, 0, 1)


def test_a_wait_ends_when_its_time_is_over(service: Service) -> None:
    began = time.monotonic()

    assert not changefeed.Changes(service.session).wait(FEED, 0, 0, 0.1)

    assert time.monotonic() - began >= 0.1


@pytest.mark.slow
@pytest.mark.weekly
def test_a_reader_that_waits_is_woken_soon_after_the_commit(swept: Service) -> None:
    reader, cursor, took_s = changefeed.Changes(swept.session), 0, []
    writer = swept.connect()
    with ThreadPoolExecutor(1) as threads:
        for _ in range(10):
            waiting = threads.submit(reader.wait, FEED, 0, cursor, 20)
            append(writer)
            began = time.monotonic()
            writer.commit()
            assert waiting.result(30)
            took_s.append(time.monotonic() - began)
            cursor = reader.read(FEED, 0, cursor).cursor

    # The machine may pause; the usual case is far below.
    assert median(took_s) < _WAKES_WITHIN_S
    assert cursor == START + 10


def test_a_reader_that_waits_asks_only_when_it_is_woken(swept: Service) -> None:
    reader = changefeed.Changes(swept.session)
    # It listens from here on.
    assert not reader.wait(FEED, 0, 0, 0.01)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(reader.wait, FEED, 0, 0, 1.5)
        watched = _statements_seen(swept, swept.pid(swept.session), 1.0)
        assert not waiting.result(30)

    assert watched <= 3


def _statements_seen(service: Service, pid: int, seconds: float) -> int:
    """Number of different times at which a session began a statement."""
    ends, seen = time.monotonic() + seconds, set()
    while time.monotonic() < ends:
        seen.update(service.rows("select query_start from pg_stat_activity where pid = %s", pid))
        look_again_blocking()
    return len(seen)


def test_a_reader_of_a_shard_that_notifies_nobody_looks_often(service: Service) -> None:
    service.owner.execute("update changefeed.shard set longpoll = 0")
    reader = changefeed.Changes(service.session)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(reader.wait, FEED, 0, 0, WATCHDOG_S)
        until(lambda: reader._pauses_s, "the wait to begin")
        service.append()
        other = service.open_session()
        began = time.monotonic()
        changefeed.sweep(other)
        assert waiting.result(WATCHDOG_S)

    assert time.monotonic() - began < WATCHDOG_S / 2


async def test_async_readers_read_and_wait_alike(swept: Service) -> None:
    session = await changefeed.connect_async(swept.url)
    try:
        reader = changefeed.AsyncChanges(session)
        assert not await reader.wait(FEED, 0, 0, 0.05)
        change_id = swept.append()
        assert await reader.wait(FEED, 0, 0, 20)
        page = await reader.read(FEED, 0)
    finally:
        await session.close()

    assert page == changefeed.ChangePage([Change(change_id, START + 1)], START + 1)


def test_a_reader_needs_no_right_on_the_tables(service: Service) -> None:
    service.append()
    changefeed.sweep(service.session)
    service.owner.execute(
        "create role reading login; grant usage on schema changefeed to reading;"
        "grant execute on function changefeed.read_changes, changefeed.has_changes, changefeed.change_channel "
        "to reading"
    )
    session = changefeed.connect(service.url, user="reading")
    try:
        reader = changefeed.Changes(session)
        assert reader.wait(FEED, 0, 0, 1)
        assert len(reader.read(FEED, 0).changes) == 1
    finally:
        session.close()
    with service.connect(user="reading") as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("update changefeed.change set change_sequence_number = 1")
