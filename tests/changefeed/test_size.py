"""The pages that a statement visits do not grow with the history or the backlog, with any plan and statistics.

Pages of 8 KB are counted, in the tables and their indexes together: no clock has a say.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import psycopg
import pytest

from outbox_relay import changefeed
from outbox_relay.changefeed import START
from tests.changefeed.fed import TABLE
from tests.support.postgresql import PostgresServer

pytestmark = pytest.mark.slow

_ROWS = 100_000
# Planning visits the catalog, up to a hundred pages; the history alone has six hundred.
_FEW = 150
# A page of 100 events is in a few pages of each table and index, and its rows of the event table in up to 100.
_PAGE = 900

# The history of shard 0 has been read, the backlog of shard 1 has not; no vacuum and no ANALYZE has seen them.
_LARGE = f"""
create schema app;
create table app.item (id text primary key, data jsonb not null default '{{}}') with (autovacuum_enabled = off);
select changefeed.setup_feed('{TABLE}', roles => false);
alter table changefeed."feed:{TABLE}" set (autovacuum_enabled = off);
alter table changefeed."outbox:{TABLE}" set (autovacuum_enabled = off);
alter table changefeed.change set (autovacuum_enabled = off);
alter table changefeed.change disable trigger notify_sweepers;
insert into changefeed.feed (feed_id, name) values (37, 'item');
insert into changefeed.shard (feed_id, shard, last_change_sequence_number) values (37, 0, {_ROWS}), (37, 1, 0);
analyze;
insert into app.item (id) select 'item ' || n from generate_series(1, 2 * {_ROWS}) n;
insert into changefeed."feed:{TABLE}" (shard_id, ulid, id)
    select 0, changefeed.ulid(1500000000000 + n, 0, 0), 'item ' || n from generate_series(1, {_ROWS}) n;
insert into changefeed."state:{TABLE}" select 0, max(ulid::text)::uuid from changefeed."feed:{TABLE}";
insert into changefeed."outbox:{TABLE}" (shard_id, id)
    select 1, 'item ' || n from generate_series({_ROWS} + 1, 2 * {_ROWS}) n;
insert into changefeed.change (feed_id, shard, change_id, change_sequence_number)
    select 37, 0, n, n from generate_series(1, {_ROWS}) n;
insert into changefeed.change (feed_id, shard, change_id) select 37, 1, n from generate_series(1, {_ROWS}) n;
alter table changefeed.change enable trigger notify_sweepers;
"""

_HEAD = f'(select ulid from changefeed."state:{TABLE}" where shard_id = 0)'
_MIDDLE = f"changefeed.ulid(1500000000000 + {_ROWS} / 2, 0, 0)"


def _fill(url: str) -> None:
    session = changefeed.connect(url)
    changefeed.install(session)
    session.close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_LARGE.encode())


@pytest.fixture
def large(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a database with a large history and a large backlog, of both generations."""
    name = postgres_server.create_database(postgres_server.template("template_large", _fill))
    yield postgres_server.url(name)
    postgres_server.drop_database(name)


class Visits:
    """Counts the pages that statements visit in one session."""

    def __init__(self, url: str, statistics: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True, prepare_threshold=None)
        if statistics == "none":
            self._connection.execute(
                "update pg_class set reltuples = -1, relpages = 0 where relkind = 'r' and relname ~ 'item|change'"
            )
        elif statistics == "fresh":
            self._connection.execute("analyze")

    def of(self, statement: str, *values: object) -> int:
        """Number of pages that one execution visits."""
        row = self._connection.execute(
            f"explain (analyze, buffers, format json) {statement}".encode(), values or None
        ).fetchone()
        assert row is not None
        plan = (row[0] if isinstance(row[0], list) else json.loads(row[0]))[0]["Plan"]
        return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])

    def most(self, statement: str, times: int = 8) -> int:
        """The most that one of several executions visits. The first fills caches; the sixth has a generic plan."""
        return max([self.of(statement) for _ in range(times)][1:])

    def execute(self, statement: str) -> None:
        """Carry out a statement."""
        self._connection.execute(statement.encode())

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


@pytest.fixture(params=["none", "of an empty table", "fresh"])
def visits(request: pytest.FixtureRequest, large: str) -> Iterator[Visits]:
    """With each kind of statistics; plans are custom at first, and generic later."""
    counted = Visits(large, request.param)
    yield counted
    counted.close()


def _call(function: str, arguments: str) -> str:
    return f'select * from changefeed."{function}:{TABLE}"({arguments})'


def test_an_idle_reader_visits_no_history(visits: Visits) -> None:
    assert visits.most(_call("has_news", f"0, {_HEAD}")) < _FEW
    assert visits.most(_call("read_feed", f"0, {_HEAD}, 100")) < _FEW
    assert visits.most(_call("read_events", f"0, {_HEAD}, 100, null")) < _FEW


def test_a_reader_in_the_history_visits_its_page(visits: Visits) -> None:
    assert visits.most(_call("has_news", f"0, {_MIDDLE}")) < _FEW
    assert visits.most(_call("read_feed", f"0, {_MIDDLE}, 100")) < _FEW
    assert visits.most(_call("read_events", f"0, {_MIDDLE}, 100, null")) < _PAGE
    assert visits.most(_call("read_events", f"0, {_MIDDLE}, 100, 100000")) < 2 * _PAGE


def test_numbering_visits_its_page_and_not_the_backlog(visits: Visits) -> None:
    """A page of 100 writes to three tables and two indexes."""
    last = f"coalesce((select ulid from changefeed.\"state:{TABLE}\" where shard_id = 1), '{START.hex()}')"

    assert visits.most(_call("has_news", f"1, {last}")) < _FEW
    assert visits.most(_call("read_events", f"1, {last}, 100, null")) < 3 * _PAGE


def test_numbering_fetches_its_page_where_statistics_know_one_row_of_its_shard(large: str) -> None:
    """Such statistics make a join begin with the backlog, and go through the page for each of its rows."""
    with psycopg.connect(large, autocommit=True) as connection:
        connection.execute(
            f'update changefeed."outbox:{TABLE}" set shard_id = order_sequence;'
            f'analyze changefeed."outbox:{TABLE}";'
            f'update changefeed."outbox:{TABLE}" set shard_id = 1'.encode()
        )
    with psycopg.connect(large, autocommit=True) as connection, connection.transaction():
        connection.execute(_call("read_feed", f"1, '{START.hex()}', 100").encode())
        fetched = connection.execute(
            "select idx_tup_fetch, seq_scan from pg_stat_xact_user_tables where relname = %s",
            (f"outbox:{TABLE}",),
        ).fetchone()

    assert fetched is not None
    assert 200 <= fetched[0] < 1000
    assert fetched[1] == 0


def test_pruning_visits_what_it_deletes(visits: Visits) -> None:
    before = "changefeed.ulid(1500000060000, 0, 0)"
    prune = f"select * from changefeed.prune_shard('{TABLE}', 0, {before}, 100)"

    counted = [visits.of(prune) for _ in range(40)]

    assert max(counted[1:]) < _PAGE
    assert sum(counted[-5:]) < 2 * sum(counted[1:6])


def test_pruning_passes_nothing_that_it_has_deleted_before(visits: Visits, large: str) -> None:
    """Also where an old snapshot keeps the deleted rows in the index."""
    prune = f"select * from changefeed.prune_shard('{TABLE}', 0, changefeed.ulid(1500000020000, 0, 0), 1000)"
    with psycopg.connect(large) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("select count(*) from app.item")
        for _ in range(20):
            visits.execute(prune)

        assert visits.most(prune) < _FEW


def test_what_a_consumer_has_not_passed_costs_retention_nothing(visits: Visits) -> None:
    visits.execute(f"insert into changefeed.\"claim:{TABLE}\" (consumer, shard_id) values ('relay', 0)")
    visits.execute(f"select changefeed.set_keep('{TABLE}', '30d')")

    assert visits.most(_call("retain", "")) < 2 * _FEW


def test_a_sweep_visits_neither_history_nor_backlog(visits: Visits) -> None:
    """A pass numbers 1000 changes, each in the table and three indexes."""
    assert visits.most("select * from changefeed.sweep(0)") < 25_000
    assert visits.most("select * from changefeed.has_changes(37, 0, 50000)") < _FEW
    assert visits.most(f"select * from changefeed.has_changes(37, 0, {_ROWS})") < _FEW
    assert visits.most(f"select * from changefeed.read_changes(37, 0, {_ROWS}, 100)") < _FEW
    visits.execute("update changefeed.shard set sweep_group = 1 where shard = 1")
    assert visits.most("select * from changefeed.sweep(0)") < _FEW


def test_a_sweep_of_a_short_backlog_visits_no_history_with_statistics_of_a_long_one(large: str) -> None:
    visits = Visits(large, "fresh")
    visits.execute("delete from changefeed.change where shard = 1")
    visits.execute("update changefeed.shard set sweep_group = 1 where shard = 1")
    visits.execute("update changefeed.change set change_sequence_number = null")
    visits.execute("analyze changefeed.change")
    visits.execute("update changefeed.change set change_sequence_number = change_id")
    visits.execute("vacuum (index_cleanup on) changefeed.change")
    visits.execute("update pg_class set reltuples = 100000 where relname = 'change_waiting'")

    assert visits.most("select * from changefeed.sweep(0)") < _FEW
    visits.close()


def test_moving_a_backfill_visits_its_chunk(visits: Visits) -> None:
    visits.execute(f"select changefeed.begin_backfill('{TABLE}', 2, null, null, '{{id}}', null, true)")
    visits.execute("insert into app.item (id) select 'new ' || n from generate_series(1, 20000) n")
    while visits.of(f"select changefeed.continue_backfill('{TABLE}', 1000)") > 1000:
        pass
    visits.execute(f"select changefeed.begin_backfill('{TABLE}', 2, null, null, '{{id}}', null, true)")
    move = f"select changefeed.continue_backfill('{TABLE}', 100)"

    assert visits.most(move, 10) < _PAGE


def test_listing_a_backfill_reads_each_table_once(visits: Visits) -> None:
    begin = f"select changefeed.begin_backfill('{TABLE}', 2, null, null, '{{id}}', null, true)"

    # The three tables have about 4 000 pages; a join by loops visits more than the product of two.
    assert visits.of(begin) < 40_000
