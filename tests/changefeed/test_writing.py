"""The helpers for writers, through real drivers: one INSERT in the transaction that is open."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlfluff.core import Linter

from outbox_relay import changefeed
from outbox_relay.changefeed import ArgumentError, append, append_change, writing
from tests.changefeed.numbered import FEED, Service, service

__all__ = ["service"]

# Names with everything that a placeholder or a quote could be taken for.
TABLE = 'app.We:ird"%s?'
_OUTBOX = 'changefeed."outbox:app.We:ird""%s?"'
_WHEN = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone(timedelta(hours=5)))


@pytest.fixture
def written(service: Service) -> Service:
    """A service whose table has a feed in outbox mode as well."""
    service.owner.execute(
        'create table app."We:ird""%s?" (id uuid, at timestamptz, "na:me%" text, primary key (id, at, "na:me%"))'
    )
    changefeed.setup_feed(service.session, TABLE, roles=False)
    return service


def key(name: str = "x") -> dict[str, Any]:
    """A primary key."""
    return {"na:me%": name, "id": uuid4(), "at": _WHEN}


def outbox(service: Service) -> list[tuple[Any, ...]]:
    """The outbox in its order: shard, time, and the key."""
    quoted = _OUTBOX.replace("%", "%%")
    return service.rows(
        f'select shard_id, time_hint, id, at, "na:me%%" from {quoted} order by order_sequence, %s', 1
    )


def in_outbox(shard: int, when: datetime, one: dict[str, Any]) -> tuple[Any, ...]:
    """The row that a key makes."""
    return (shard, when, one["id"], one["at"], one["na:me%"])


@pytest.fixture
def engine(service: Service) -> Iterator[sqlalchemy.Engine]:
    """SQLAlchemy over psycopg."""
    made = sqlalchemy.create_engine(service.url.replace("postgresql://", "postgresql+psycopg://"))
    yield made
    made.dispose()


@pytest.mark.parametrize("cursor", [False, True])
def test_psycopg_writes_one_or_several_keys_in_order(written: Service, cursor: bool) -> None:
    one, several = key(), [key(f"Größe {number}") for number in range(3)]
    with written.connect() as connection:
        target = connection.cursor() if cursor else connection
        append(target, TABLE, 4, one, _WHEN)
        append(target, TABLE, 5, several, _WHEN)
        append(target, TABLE, 5, [])

    assert outbox(written) == [in_outbox(4, _WHEN, one), *(in_outbox(5, _WHEN, each) for each in several)]


def test_without_a_time_the_server_gives_one(written: Service) -> None:
    now = "select clock_timestamp()"
    [(before,)] = written.rows(now)
    with written.connect() as connection:
        append(connection, TABLE, 0, key())
    [(after,)] = written.rows(now)

    assert before <= outbox(written)[0][1] <= after


def test_what_the_service_rolls_back_is_not_in_the_outbox(written: Service, engine: sqlalchemy.Engine) -> None:
    with written.connect() as connection:
        append(connection, TABLE, 0, key())
        connection.rollback()
    with Session(engine) as session:
        append(session, TABLE, 0, key())
        session.rollback()

    assert outbox(written) == []


async def test_async_connections_of_psycopg_write(written: Service) -> None:
    one, other = key(), key()
    connection = await psycopg.AsyncConnection.connect(written.url)
    async with connection:
        await changefeed.append_async(connection, TABLE, 0, one, _WHEN)
        async with connection.cursor() as cursor:
            await changefeed.append_async(cursor, TABLE, 1, other, _WHEN)
        await changefeed.append_change_async(connection, FEED, 0, [1, 2])

    assert outbox(written) == [in_outbox(0, _WHEN, one), in_outbox(1, _WHEN, other)]
    assert written.rows("select change_id from changefeed.change order by 1") == [(1,), (2,)]


def test_sessions_and_connections_of_sqlalchemy_write(written: Service, engine: sqlalchemy.Engine) -> None:
    several, one = [key("a"), key("b")], key("c")
    with Session(engine) as session:
        append(session, TABLE, 0, several, _WHEN)
        session.commit()
    with engine.begin() as connection:
        append(connection, TABLE, 1, one, _WHEN)
        append_change(connection, FEED, 0, 1)

    assert outbox(written) == [*(in_outbox(0, _WHEN, each) for each in several), in_outbox(1, _WHEN, one)]
    assert written.rows("select feed_id, shard, change_id from changefeed.change") == [(FEED, 0, 1)]


async def test_async_sessions_of_sqlalchemy_write(written: Service) -> None:
    one = key()
    engine = create_async_engine(written.url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        async with AsyncSession(engine) as session:
            await changefeed.append_async(session, TABLE, 3, one, _WHEN)
            await session.commit()
    finally:
        await engine.dispose()

    assert outbox(written) == [in_outbox(3, _WHEN, one)]


def test_a_key_may_be_text_where_the_column_is_not(written: Service, engine: sqlalchemy.Engine) -> None:
    identifier = "00000000-0000-0000-0000-00000000000a"
    with Session(engine) as session:
        append(session, TABLE, 0, {"id": identifier, "at": _WHEN, "na:me%": "x"})
        session.commit()

    assert outbox(written)[0][2] == UUID(identifier)


def test_a_connection_that_commits_by_itself_is_refused_unless_a_transaction_is_open(written: Service) -> None:
    with written.connect(autocommit=True) as connection:
        with pytest.raises(ArgumentError, match=r"autocommit.*connection\.transaction"):
            append(connection, TABLE, 0, key())
        with pytest.raises(ArgumentError, match="autocommit"):
            append(connection.cursor(), TABLE, 0, key())
        with connection.transaction():
            append(connection, TABLE, 0, key())

    assert len(outbox(written)) == 1


async def test_a_connection_of_sqlalchemy_that_commits_by_itself_is_refused(
    written: Service, engine: sqlalchemy.Engine
) -> None:
    alone = engine.execution_options(isolation_level="AUTOCOMMIT")
    with alone.connect() as connection:
        with pytest.raises(ArgumentError, match="autocommit"):
            append(connection, TABLE, 0, key())
        connection.exec_driver_sql("begin")
        append(connection, TABLE, 0, key())
        connection.exec_driver_sql("commit")
    with Session(alone) as session, pytest.raises(ArgumentError, match="autocommit"):
        append(session, TABLE, 0, key())
    made = create_async_engine(engine.url, isolation_level="AUTOCOMMIT")
    try:
        async with made.connect() as one, AsyncSession(made) as other:
            for target in (one, other):
                with pytest.raises(ArgumentError, match="autocommit"):
                    await changefeed.append_async(target, TABLE, 0, key())
    finally:
        await made.dispose()

    assert len(outbox(written)) == 1


def test_a_connection_of_a_driver_that_tells_of_no_transaction_is_refused_in_autocommit_mode() -> None:
    connection = type("Connection", (), {"__module__": "pyodbc", "autocommit": True})()
    with pytest.raises(ArgumentError, match="turn autocommit off"):
        append(connection, TABLE, 0, key())


def test_what_is_no_connection_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"builtins\.dict is not known.*psycopg.*SQLAlchemy"):
        append({}, TABLE, 0, key())


def test_more_keys_than_a_statement_takes_are_refused(written: Service) -> None:
    with written.connect() as connection:
        append(connection, TABLE, 0, [key() for _ in range(500)])
        with pytest.raises(ArgumentError, match="501 keys are too many for one statement, which takes 500"):
            append(connection, TABLE, 0, [key() for _ in range(501)])
        with pytest.raises(ArgumentError, match="takes 666"):
            append_change(connection, FEED, 0, range(667))


def test_keys_with_different_columns_and_times_without_a_zone_are_refused(written: Service) -> None:
    with written.connect() as connection:
        with pytest.raises(ArgumentError, match="all keys of one call name the same columns"):
            append(connection, TABLE, 0, [key(), {"id": uuid4()}])
        with pytest.raises(ArgumentError, match="time_hint has no time zone"):
            append(connection, TABLE, 0, key(), datetime(2026, 1, 1))
        for time, ahead in ((datetime.min, 1), (datetime.max, -1)):
            with pytest.raises(ArgumentError, match="before the year 1 or after the year 9999"):
                append(connection, TABLE, 0, key(), time.replace(tzinfo=timezone(timedelta(hours=ahead))))


class Recorder:
    """A cursor of mssql-python as far as a statement's text goes: there is no SQL Server in every test run."""

    __module__ = "mssql_python.cursor"

    def execute(self, sql: str, values: list[Any]) -> None:
        """Keep the statement."""
        self.sql, self.values = sql, values


def test_the_statement_for_sql_server_parses_and_has_a_question_mark_for_each_value() -> None:
    cursor = Recorder()

    append(cursor, "app.event", 4, [{"aggregate": "a", "version": 1}, {"aggregate": "b", "version": 2}], _WHEN)

    parsed = Linter(dialect="tsql").parse_string(cursor.sql.replace("?", "@p"))
    assert not parsed.violations
    assert cursor.sql.count("?") == len(cursor.values) == 8
    assert cursor.values[:4] == [4, _WHEN.astimezone(UTC), "a", 1]


def test_the_shard_of_a_key_is_the_same_in_python_sql_and_by_its_definition(service: Service) -> None:
    for name, shards, shard in (
        ("a", 7, 4),
        ("", 1, 0),
        ("zzz", 1000, 359),
        ("ä€𝄞", 2_147_483_647, 1253234678),
    ):
        first_8_bytes = hashlib.sha256(name.encode("utf-8")).hexdigest()[:16]

        assert int(first_8_bytes, 16) % shards == shard
        assert writing.shard_of(name, shards) == shard
        assert service.rows("select changefeed.shard_of(%s, %s)", name, shards) == [(shard,)]


def test_keys_are_spread_evenly_over_shards() -> None:
    counts = [0] * 8
    for number in range(8000):
        counts[writing.shard_of(f"customer-{number}", 8)] += 1

    assert min(counts) > 900


def test_there_has_to_be_a_shard() -> None:
    with pytest.raises(ArgumentError, match="one shard at least"):
        writing.shard_of("a", 0)
