"""A service that puts its events on a feed of generation 1, and what tests watch it with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from outbox_relay import changefeed
from tests.support.postgresql import PostgresServer
from tests.support.waiting import look_again_blocking
from tests.support.watchdog import WATCHDOG_S

FEED = 37
START = 2_000_000_000_000_000

_SERVICE = """
create schema app;
create table app.event (aggregate text not null, version int not null, change_id bigint not null unique,
                        primary key (aggregate, version));
insert into changefeed.feed (feed_id, name, comment) values (37, 'event', 'Inserts to app.event');
insert into changefeed.shard (feed_id, shard) values (37, 0), (37, 1);
"""


def fill(url: str) -> None:
    """Install changefeed's schema in a template, and set up the feed 37 of `app.event`."""
    session = changefeed.connect(url)
    changefeed.install(session)
    session.close()
    with psycopg.connect(url) as owner:
        owner.execute(_SERVICE)


class Service:
    """A database that has changefeed's schema, with the feed 37 of `app.event`, which has the shards 0 and 1."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._opened = ExitStack()
        self.session = self.open_session()
        self.owner = self.connect(autocommit=True)

    def open_session(self) -> changefeed.Session:
        """A further session; it is closed at the end."""
        session = changefeed.connect(self.url)
        self._opened.callback(session.close)
        return session

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        """A further connection; it is closed at the end."""
        connection = psycopg.connect(self.url, options=f"-c statement_timeout={WATCHDOG_S}s", **options)
        self._opened.callback(connection.close)
        return connection

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query of the owner."""
        return self.owner.execute(query, values).fetchall()

    def numbers(self, shard: int = 0) -> list[tuple[int, int]]:
        """The change_id and number of each change that has one, in order; numbers count from 1."""
        return self.rows(
            "select change_id, change_sequence_number - %s from changefeed.change "
            "where feed_id = %s and shard = %s "
            "and change_sequence_number is not null order by change_sequence_number",
            START,
            FEED,
            shard,
        )

    def append(self, aggregate: str = "a", shard: int = 0) -> int:
        """Insert one event in its own transaction; returns its change_id."""
        with self.connect() as connection:
            return append(connection, aggregate, shard)

    def pid(self, session: changefeed.Session | changefeed.AsyncSession) -> int:
        """The server's process of a session."""
        connection: psycopg.Connection[Any] = vars(session)["_connection"]
        return connection.info.backend_pid

    def kill(self, pid: int) -> None:
        """End a session on the server, and wait until it has gone."""
        assert self.rows("select pg_terminate_backend(%s, %s)", pid, WATCHDOG_S * 1000) == [(True,)]

    def blocked(self, pid: int) -> bool:
        """Return True if a session waits for a lock."""
        return bool(self.rows("select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'", pid))

    def sweeper(self, group: int = 0) -> int | None:
        """The process of the session that is the sweeper of a group."""
        found = self.rows(
            "select pid from pg_locks where locktype = 'advisory' and objid = %s and granted and database = "
            "(select oid from pg_database where datname = current_database())",
            group,
        )
        return found[0][0] if found else None

    def close(self) -> None:
        """Close all connections."""
        self._opened.close()


def append(connection: psycopg.Connection[Any], aggregate: str = "a", shard: int = 0) -> int:
    """Insert an event and its change, with the two INSERTs of the documentation; the caller commits."""
    row = connection.execute("select nextval('changefeed.change_id')").fetchone()
    assert row is not None
    change_id: int = row[0]
    connection.execute(
        "insert into app.event (aggregate, version, change_id) "
        "select %s, count(*) + 1, %s from app.event where aggregate = %s",
        (aggregate, change_id, aggregate),
    )
    connection.execute(
        "insert into changefeed.change (feed_id, shard, change_id) values (%s, %s, %s)", (FEED, shard, change_id)
    )
    return change_id


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for something that another session or process does."""
    ends = time.monotonic() + WATCHDOG_S
    while not condition():
        assert time.monotonic() < ends, f"waited {WATCHDOG_S} s for: {what}"
        look_again_blocking()


@pytest.fixture
def service(postgres_server: PostgresServer) -> Iterator[Service]:
    """A fresh service."""
    name = postgres_server.create_database(postgres_server.template("template_service", fill))
    opened = Service(postgres_server.url(name))
    yield opened
    opened.close()
    postgres_server.drop_database(name)
