"""Waiting for news: woken by a commit if commits notify, else by polling."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from outbox_relay import changefeed
from outbox_relay.changefeed import START, Feed, Session
from outbox_relay.changefeed.statements import Dialect, Result, Statement
from tests.changefeed.backends import TABLE, Backend
from tests.changefeed.fed import TABLE as FED
from tests.changefeed.fed import Shop, shop
from tests.changefeed.journal import Journal
from tests.changefeed.postgresql import PostgresBackend
from tests.support.waiting import elapse_blocking
from tests.support.watchdog import WATCHDOG_S

__all__ = ["shop"]

# A reader that is not woken looks again after 5 s at the latest.
_WOKEN_S = WATCHDOG_S / 2


class Interrupted:
    """A real session, with something done before or after one of its calls."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.before_listen: Callable[[], None] = _nothing
        self.before_notified: Callable[[], None] = _nothing
        self.waits: list[bool] = []

    @property
    def dialect(self) -> Dialect:
        return self._session.dialect

    def execute(self, statement: Statement, /) -> Result:
        return self._session.execute(statement)

    def listen(self, channel: str, /) -> None:
        act, self.before_listen = self.before_listen, _nothing
        act()
        self._session.listen(channel)

    def notified(self, timeout_s: float, payload: str | None = None, /) -> bool:
        act, self.before_notified = self.before_notified, _nothing
        act()
        self.waits.append(self._session.notified(timeout_s, payload))
        return self.waits[-1]

    def close(self) -> None:
        self._session.close()


class Timed(Interrupted):
    """A session without notifications, whose pauses take no time but that of its clock."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.now = 0.0
        self.pauses_s: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def notified(self, timeout_s: float, payload: str | None = None, /) -> bool:
        self.pauses_s.append(timeout_s)
        self.now += timeout_s
        return False


def _nothing() -> None:
    pass


@pytest.mark.slow
def test_a_commit_wakes_a_reader_within_200_ms(backend: Backend, journal: Journal) -> None:
    assert statistics.median(wake_times(backend, backend.session(), journal)) < 0.2


def test_a_commit_wakes_a_reader_by_a_notification(postgresql: PostgresBackend, journal: Journal) -> None:
    """Not because the reader looked again: it waits once for each event."""
    session = Interrupted(postgresql.session())

    wake_times(postgresql, session, journal)

    assert session.waits == [True] * 5


def test_without_notifications_a_reader_looks_again(postgresql: PostgresBackend, journal: Journal) -> None:
    changefeed.drop_feed(postgresql.owner, TABLE)
    changefeed.setup_feed(postgresql.owner, TABLE, notify=False)
    session = Interrupted(postgresql.session())

    wake_times(postgresql, session, journal)

    assert True not in session.waits
    triggers = f"""select count(*) from pg_trigger where tgrelid = 'changefeed."outbox:{TABLE}"'::regclass"""
    assert postgresql.rows(triggers) == [(0,)]


def wake_times(backend: Backend, session: Session, journal: Journal) -> list[float]:
    """How long after its commit an event ends a wait, in seconds, five times."""
    writer, feed = backend.writer(), Feed(session, TABLE)
    times, cursor = [], START
    assert not feed.wait(0, cursor, 0)
    with ThreadPoolExecutor(1) as pool:
        for _ in range(5):
            unit = journal.begin(writer)
            unit.append(0, "a")
            waiting = pool.submit(waited, feed, cursor)
            # Nothing tells that the reader waits by now; if it does not yet, the time is shorter.
            elapse_blocking(0.05)
            committed = time.monotonic()
            unit.commit()
            times.append(waiting.result(WATCHDOG_S) - committed)
            cursor = feed.read(0, cursor).cursor
    return times


def waited(feed: Feed, cursor: bytes) -> float:
    assert feed.wait(0, cursor, WATCHDOG_S)
    return time.monotonic()


def test_a_wait_ends_in_time_without_news(backend: Backend) -> None:
    feed = Feed(backend.session(), TABLE)
    began = time.monotonic()

    assert not feed.wait(0, START, 0.3)

    assert time.monotonic() - began >= 0.29


def test_a_wait_without_time_only_looks(backend: Backend, journal: Journal) -> None:
    feed = Feed(backend.session(), TABLE)

    assert not feed.wait(0, START, 0)
    journal.write(backend.writer(), 0, "a")
    assert feed.wait(0, START, 0)


def test_events_that_another_reader_has_numbered_end_a_wait(backend: Backend, journal: Journal) -> None:
    journal.write(backend.writer(), 0, "a")
    cursor = Feed(backend.session(), TABLE).read(0).cursor
    feed = Feed(backend.session(), TABLE)

    assert feed.wait(0, START, 0)
    assert not feed.wait(0, cursor, 0)


def test_a_cursor_that_is_ahead_ends_a_wait_and_the_read_refuses_it(backend: Backend, journal: Journal) -> None:
    feed = Feed(backend.session(), TABLE)
    ahead = bytes([0xFF] * 16)
    assert feed.wait(0, ahead, 0)
    journal.write(backend.writer(), 0, "a")
    cursor = feed.read(0).cursor

    assert not feed.wait(0, cursor, 0)
    assert feed.wait(0, ahead, 0)
    with pytest.raises(changefeed.CursorError):
        feed.read(0, ahead)


def test_what_is_not_committed_does_not_end_a_wait(backend: Backend, journal: Journal) -> None:
    unit = journal.begin(backend.writer())
    unit.append(0, "a")

    assert not Feed(backend.session(), TABLE).wait(0, START, 0.3)
    unit.rollback()
    assert not Feed(backend.session(), TABLE).wait(0, START, 0)


def test_a_commit_in_another_shard_does_not_end_a_wait(backend: Backend, journal: Journal) -> None:
    session = Interrupted(backend.session())
    session.before_notified = lambda: void(journal.write(backend.writer(), 1, "a"))

    assert not Feed(session, TABLE).wait(0, START, 0.4)


def test_a_commit_before_the_reader_listens_is_not_missed(postgresql: PostgresBackend, journal: Journal) -> None:
    session = Interrupted(postgresql.session())
    session.before_listen = lambda: void(journal.write(postgresql.writer(), 0, "a"))

    assert ends_at_once(session)


def test_a_commit_between_look_and_wait_is_not_missed(postgresql: PostgresBackend, journal: Journal) -> None:
    session = Interrupted(postgresql.session())
    session.before_notified = lambda: void(journal.write(postgresql.writer(), 0, "a"))

    assert ends_at_once(session)


def test_a_notification_that_came_with_another_answer_is_not_missed(
    postgresql: PostgresBackend, journal: Journal
) -> None:
    """It arrives while the session carries out a statement, and not while it waits."""
    session = Interrupted(postgresql.session())

    def commit_and_ask() -> None:
        journal.write(postgresql.writer(), 0, "a")
        session.execute(Statement("select pg_sleep(0.05)"))

    session.before_notified = commit_and_ask

    assert ends_at_once(session)


def void(_: Any) -> None:
    return None


def ends_at_once(session: Session) -> bool:
    began = time.monotonic()
    assert Feed(session, TABLE).wait(0, START, WATCHDOG_S)
    return time.monotonic() - began < _WOKEN_S


@pytest.mark.parametrize("times", [2, 5])
def test_one_session_waits_for_several_shards_in_turn(backend: Backend, journal: Journal, times: int) -> None:
    feed, writer = Feed(backend.session(), TABLE), backend.writer()
    for shard in range(times):
        assert not feed.wait(shard, START, 0.01)
        journal.write(writer, shard, "a")
        assert feed.wait(shard, START, WATCHDOG_S)


def test_a_commit_to_another_shard_does_not_wake_a_reader(postgresql: PostgresBackend, journal: Journal) -> None:
    """Nor make it look again: a notification names its shard."""
    session = Interrupted(postgresql.session())
    session.before_notified = lambda: void(journal.write(postgresql.writer(), 1, "a"))

    assert not Feed(session, TABLE).wait(0, START, 0.4)

    assert session.waits == [False]


def test_a_reader_without_notifications_looks_often_while_events_come(
    postgresql: PostgresBackend, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first event may wait for 150 ms; those that follow it do not."""
    changefeed.drop_feed(postgresql.owner, TABLE)
    changefeed.setup_feed(postgresql.owner, TABLE)
    session = Timed(postgresql.session())
    monkeypatch.setattr("outbox_relay.changefeed.feed.time", session)
    feed, cursor = Feed(session, TABLE), START
    journal.write(postgresql.writer(), 0, "a")
    assert feed.wait(0, cursor, WATCHDOG_S)
    cursor = feed.read(0, cursor).cursor

    assert not feed.wait(0, cursor, 0.1)
    busy, session.pauses_s = session.pauses_s, []
    assert not feed.wait(0, cursor, 1.5)
    session.pauses_s.clear()
    assert not feed.wait(0, cursor, 0.6)

    assert len(busy) >= 20
    assert len(session.pauses_s) <= 5


def test_writers_may_prepare_transactions_unless_commits_notify(shop: Shop) -> None:
    """By default, of the function as well: a transaction that notifies cannot be prepared."""
    write = (
        "begin; insert into app.item (id) values ('%(name)s'); "
        "insert into changefeed.\"outbox:app.item\" (shard_id, id) values (0, '%(name)s'); "
        "prepare transaction 'changefeed %(name)s'"
    )
    shop.owner.execute(f"select changefeed.drop_feed('{FED}')")
    shop.owner.execute(f"select changefeed.setup_feed('{FED}', roles => false)")
    shop.owner.execute((write % {"name": "a"}).encode())
    shop.owner.execute("commit prepared 'changefeed a'")

    assert shop.read()[0] == ["a"]
    shop.owner.execute(f"select changefeed.set_notify('{FED}', true)")
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        shop.owner.execute((write % {"name": "b"}).encode())


def test_notifications_are_switched_off_and_on(postgresql: PostgresBackend) -> None:
    listening = f"select channel is not null from changefeed.outbox_feed where table_name = '{TABLE}'"
    triggers = f"""select count(*) from pg_trigger where tgrelid = 'changefeed."outbox:{TABLE}"'::regclass"""

    postgresql.rows(f"select changefeed.set_notify('{TABLE}', false)")
    assert postgresql.rows(f"{listening} union all {triggers.replace('count(*)', 'count(*) > 0')}") == [
        (False,),
        (False,),
    ]
    postgresql.rows(f"select changefeed.set_notify('{TABLE}', true)")
    assert postgresql.rows(listening) == [(True,)]
    assert postgresql.rows(triggers) == [(1,)]


def test_looks_and_stored_cursors_are_prepared_and_reads_are_not(shop: Shop) -> None:
    session, claims = shop.session, changefeed.Consumer(shop.session, FED, "relay")
    shop.put(["a"])
    claim = claims.take(claims.claims([0])[0], "this test")
    for _ in range(8):
        page = Feed(session, FED).read(0)
        Feed(session, FED).wait(0, page.cursor, 0)
        claims.store(claim, page.cursor)

    texts = [row[0] for row in session.execute(Statement("select statement from pg_prepared_statements")).rows]

    counted = [sum(part in text for text in texts) for part in ("has_news", "set last_ulid", "read_events")]
    assert counted == [1, 1, 0]
