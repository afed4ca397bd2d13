"""The examples of mssql-changefeed's user guide to outbox mode, in PostgreSQL and in the guide's order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import errors

from outbox_relay import changefeed
from outbox_relay.changefeed import BackfillPlan, ulid

_TABLE = "myservice.MyEvent"
_MY_TABLE = """
create schema myservice;
create table myservice."MyEvent" (
    "AggregateID" bigint, "Version" int, "ChosenShoeSize" int not null, primary key ("AggregateID", "Version"));
create role service1 login;
create role service2 login;
grant usage on schema myservice to service1;
grant insert on myservice."MyEvent" to service1;
"""

# Setup migration
_SET_UP = """
select changefeed.setup_feed('myservice.MyEvent', outbox => true);
grant "changefeed.writers:myservice.MyEvent" to service1;
grant "changefeed.readers:myservice.MyEvent" to service2;
"""

# Publisher code: both in one transaction.
_EVENT = 'insert into myservice."MyEvent" ("AggregateID", "Version", "ChosenShoeSize") values (%s, %s, 38)'
_OUTBOX = (
    'insert into changefeed."outbox:myservice.MyEvent" (shard_id, time_hint, "AggregateID", "Version") '
    "values (%s, '2023-05-31 12:00:00Z', %s, %s)"
)

# Consumer code: the procedure's page, joined with the table. The join is its own statement: in one with
# read_feed it would not see what was committed since that statement began.
_READ = 'select ulid, "AggregateID", "Version" from changefeed."read_feed:myservice.MyEvent"(0, %s, 100)'
_JOIN = (
    'select e."ChosenShoeSize" from unnest(%s::bigint[], %s::int[]) with ordinality as r (id, version, place) '
    'join myservice."MyEvent" e on e."AggregateID" = r.id and e."Version" = r.version order by r.place'
)
_NO_CURSOR = "00000000-0000-0000-0000-000000000000"


@contextmanager
def connected(url: str, user: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection of one of the services."""
    with psycopg.connect(url, user=user) as connection:
        yield connection


def publish(connection: psycopg.Connection[Any], aggregate: int, version: int) -> None:
    """The publisher's two INSERTs; the caller commits."""
    connection.execute(_EVENT, (aggregate, version))
    connection.execute(_OUTBOX, (aggregate % 2, aggregate, version))


def test_the_guide_from_its_first_step_to_its_last(postgres_database: str) -> None:
    url = postgres_database
    session = changefeed.connect(url)
    changefeed.install(session)
    with psycopg.connect(url, autocommit=True) as owner:
        # Setup migration
        owner.execute(_MY_TABLE)
        owner.execute('insert into myservice."MyEvent" values (998, 1, 37), (998, 2, 37)')
        owner.execute(_SET_UP)

        # Publisher code. A rollback leaves nothing; A1 commits before A2 begins; B runs concurrently with both.
        with connected(url, "service1") as service, connected(url, "service1") as parallel:
            publish(parallel, 1002, 1)
            publish(service, 1000, 1)
            service.commit()
            publish(service, 1000, 99)
            service.rollback()
            publish(service, 1000, 2)
            service.commit()
            with pytest.raises(errors.InsufficientPrivilege):
                service.execute(_READ, (_NO_CURSOR,))
            service.rollback()

            # Consumer code: the first reader orders what is committed.
            with connected(url, "service2") as consumer:
                first = consumer.execute(_READ, (_NO_CURSOR,)).fetchall()
                ids, versions = [row[1] for row in first], [row[2] for row in first]
                sizes = consumer.execute(_JOIN, (ids, versions)).fetchall()
                consumer.commit()
                assert list(zip(ids, versions, strict=True)) == [(1000, 1), (1000, 2)]
                assert sizes == [(38,), (38,)]

                # Of two transactions that ran in parallel either may be first, whatever its order_sequence is.
                parallel.commit()
                cursor = max(row[0] for row in first)
                second = consumer.execute(_READ, (cursor,)).fetchall()
                consumer.commit()
                assert [row[1:] for row in second] == [(1002, 1)]
                assert consumer.execute(_READ, (second[0][0],)).fetchall() == []
                consumer.commit()

                # The tenth consumption is as the first one.
                assert consumer.execute(_READ, (_NO_CURSOR,)).fetchall() == first + second
                consumer.commit()
                with pytest.raises(errors.InsufficientPrivilege):
                    consumer.execute('delete from changefeed."feed:myservice.MyEvent"')
        times = [ulid.time_of(row[0].bytes).isoformat() for row in first + second]
        assert times == ["2023-05-31T12:00:00+00:00"] * 3

        # Backfilling old data: the library's way, which readers at the head see.
        assert changefeed.backfill(session, _TABLE, BackfillPlan(["Version"]), anyway=True) == 2
        page = changefeed.Feed(session, _TABLE).read(0, second[0][0].bytes)
        assert [entry.row and entry.row["ChosenShoeSize"] for entry in page.entries] == [37, 37]
    session.close()
