"""Values of any type of PostgreSQL in any column: an event or a rejection, and no page that cannot be read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql

from outbox_relay.changefeed import connect, connect_async, install_async, setup_feed_async
from outbox_relay.changefeed.statements import AsyncSession, Entry, Statement
from outbox_relay.operator.backends.sql.install import install as install_quarantine
from relay.backends.sql import quarantine
from relay.backends.sql.database import Database
from relay.backends.sql.rows import OPTIONAL_COLUMNS, REQUIRED_COLUMNS, Columns, select
from relay.backends.sql.worker import Worker
from relay.core.events import Reason, Rejected
from relay.quarantine.record import record_of
from relay.routes.selection import BY_DEFAULT
from relay.servicebus.encoding import encode
from relay.servicebus.messages import cloudevents, plain
from tests.support.in_memory import InMemoryPublisher, InMemoryQuarantine
from tests.support.postgresql import PostgresServer
from tests.support.sql_outbox import TABLE, relay_of, sql_settings
from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S

_ULID = (1_770_000_000_000).to_bytes(6, "big") + bytes(10)

# Each is what Python does not have, what psycopg reads in its own way, or at the bounds of its type.
VALUES = r"""
time '24:00'
time '00:00'
timetz '24:00+01'
timetz '10:00+15:59:59'
date 'infinity'
date '-infinity'
date '4713-01-01 BC'
date '5874897-01-01'
date '0001-01-01'
timestamp 'infinity'
timestamp '0044-03-15 BC'
timestamp '294276-12-31 23:59:59.999999'
timestamptz '-infinity'
timestamptz '0001-01-01 00:00 +14'
timestamptz '9999-12-31 23:59:59 -12'
timestamptz '294276-01-01'
interval '178000000 years'
interval '1 mon -2 days'
interval '-1 us'
interval '2147483647 days'
interval 'infinity'
numeric 'NaN'
numeric 'infinity'
numeric '-0.00'
numeric '1e131071'
float8 'NaN'
float4 '-infinity'
float8 '5e-324'
int8 '-9223372036854775808'
int4range(1, 5)
int4range 'empty'
daterange('infinity', null)
daterange('2020-01-01', '9999-12-31', '[]')
daterange('0044-03-15 BC', '2020-01-01')
tsrange('-infinity', 'infinity')
tstzrange('0001-01-01 00:00 +14', null)
numrange(1.5, 'NaN')
int4multirange(int4range(1, 2))
tstzmultirange(tstzrange(null, 'infinity'))
array[1, 2, null]
array[[1, 2], [3, 4]]
'{}'::int[]
'[2:3]={1,2}'::int[]
array[date 'infinity']
array[[timestamptz 'infinity']]
array[time '24:00']
array[interval '1 mon']
array[numeric 'NaN']
array[bytea '\\x00']
array['{}'::json]
array[gen_random_uuid()]
bytea ''
bytea '\\xdeadbeef'
bytea '\\x000102030405060708090a0b0c0d0e0f'
money '-92233720368547758.08'
json 'null'
json '"text"'
json '[1, {"a": null}]'
json '{"\\ud800": "\\udfff"}'
json '{"action": "A", "action": null}'
jsonb 'null'
jsonb '{"n": 1e1000}'
null::json
null::text
text ''
chr(1) || chr(127) || chr(65535) || chr(1114111)
repeat('x', 3000)
'a'::char(5)
"char" '\\377'
name 'a'
true
uuid '00000000-0000-0000-0000-000000000000'
inet '10.0.0.1/8'
inet '::ffff:1.2.3.4/128'
cidr '10.0.0.0/8'
macaddr8 '08:00:2b:01:02:03:04:05'
point(1, 'NaN')
polygon '((0,0),(1,1))'
b'101'
varbit ''
oid '4294967295'
regclass 'pg_class'
tid '(0,1)'
pg_lsn 'FFFFFFFF/FFFFFFFF'
pg_current_snapshot()
to_tsvector('a b')
jsonpath '$.a'
int2vector '1 2'
row(1, time '24:00', date 'infinity', null)
row(1, '24:00', 'infinity')::types.pair
array[row(1, '24:00', 'infinity')::types.pair]
'a'::types.mood
time '24:00'::types.moment
""".strip().splitlines()

TYPES = """
create schema types;
create type types.pair as (a int, t time, d date);
create type types.mood as enum ('a');
create domain types.moment as time;
"""
_STYLES = [
    ("ISO, MDY", "postgres"),
    ("German, DMY", "iso_8601"),
    ("SQL, DMY", "sql_standard"),
    ("Postgres, YMD", "postgres_verbose"),
]


@pytest.fixture
async def session(postgres_database: str) -> AsyncIterator[AsyncSession]:
    opened = await connect_async(postgres_database)
    await opened.execute(Statement(TYPES))
    yield opened
    await opened.close()


def judge(row: dict[str, Any]) -> None:
    """The fate of a row, whose message can be encoded and whose record can be stored; or it is ignored."""
    received = select([Entry(_ULID, row, {})], 0, BY_DEFAULT)
    for event in received.events:
        encode(cloudevents("/contacts")(event))
        encode(plain(event))
    rejected = [*received.rejected, *(Rejected.of(each, Reason.SET_ASIDE, "") for each in received.events)]
    for each in rejected:
        body = quarantine.values_of(record_of(each, "i"))[3]
        assert quarantine.item_of(body, None)["document"] == json.loads(json.dumps(dict(each.document.stored)))
    assert len(rejected) + received.ignored == 1
    assert received.ignored == 0 or row["type"] != "domainEvent"


@pytest.mark.parametrize(("dates", "intervals"), _STYLES)
async def test_a_value_of_any_type_in_any_column_is_an_event_or_a_rejection(
    session: AsyncSession, dates: str, intervals: str
) -> None:
    await session.execute(Statement(f"set datestyle = '{dates}'"))
    await session.execute(Statement(f"set intervalstyle = '{intervals}'"))
    for value in VALUES:
        (row,) = (await session.execute(Statement(f"select {value}"))).rows
        for column in (*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS, "other"):
            judge(
                {"id": "e", "partition_key": "k", "data": '{"action": "A"}', "type": "domainEvent", column: row[0]}
            )


async def test_values_that_python_does_not_have_come_as_the_text_of_the_server(session: AsyncSession) -> None:
    exact = {
        "time '24:00'": "24:00:00",
        "timetz '24:00+01'": "24:00:00+01",
        "array[time '24:00']": ["24:00:00"],
        "'24:00'::types.moment": "24:00:00",
        "date '0044-03-15 BC'": "0044-03-15 BC",
        "timestamptz 'infinity'": "infinity",
        "interval 'infinity'": "infinity",
        "interval '1 mon -2 days'": "1 mon -2 days",
        "interval '2147483647 days'": "2147483647 days",
        "interval '1 day 2 hours'": timedelta(days=1, hours=2),
    }

    for value, expected in exact.items():
        (row,) = (await session.execute(Statement(f"select {value}"))).rows
        assert row[0] == expected, value


async def test_text_of_a_fixed_length_comes_without_its_padding_and_any_other_text_as_it_is(
    session: AsyncSession,
) -> None:
    values = "'Paid'::char(20), ' a b '::varchar(20), 'c '::text, array['d']::char(3)[], ''::char(2)"

    (row,) = (await session.execute(Statement(f"select {values}"))).rows

    assert tuple(row) == ("Paid", " a b ", "c ", ["d"], "")


async def test_a_number_of_any_scale_has_one_type_and_all_its_digits(session: AsyncSession) -> None:
    values = "12.00::numeric(10,2) a, 12.5::numeric(10,2) b, 7::numeric c, 1e-7::numeric d, 'NaN'::numeric e"
    result = await session.execute(Statement(f"select {values}"))

    columns = Columns(dict(zip(result.columns, result.rows[0], strict=True)))

    assert dict(columns) == {"a": "12.00", "b": "12.50", "c": "7", "d": "0.0000001", "e": "NaN"}


def test_the_styles_of_the_role_do_not_reach_the_sessions(
    postgres_server: PostgresServer, postgres_database: str
) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as owner:
        name = sql.Identifier(owner.info.dbname)
        owner.execute(sql.SQL("alter database {} set datestyle = 'German'").format(name))
        owner.execute(sql.SQL("alter database {} set intervalstyle = 'iso_8601'").format(name))
    session = connect(postgres_database)
    shown = session.execute(Statement("select timestamptz '0044-03-15 12:00 BC', interval '1 hour'")).rows
    session.close()

    assert shown == [("0044-03-15 12:00:00+00 BC", timedelta(hours=1))]


_HOSTILE_TABLE = f"""
create schema outbox;
create table {TABLE} (
    id text primary key, partition_key text, data json, created_at timestamptz, sequence numeric,
    due time, due_in timetz, span interval, during daterange, amounts numeric[], times time[], price money,
    raw bytea, pair types.pair
);
"""
_GOOD = """'{"action": "A"}'"""
_HOSTILE_ROWS = rf"""
insert into {TABLE} values ('first', 'k', {_GOOD});
insert into {TABLE} values
    ('hostile', 'k', {_GOOD}, 'infinity', 'NaN', '24:00', '24:00+01', 'infinity',
     daterange('0044-03-15 BC', 'infinity'),
     '{{NaN,Infinity}}', '{{24:00}}', -1, '\x00ff', (1, '24:00', '-infinity'));
insert into {TABLE} values ('timely', 'k', {_GOOD}, '0044-03-15 BC', 7, '24:00', '24:00+01', '1 year', 'empty');
insert into {TABLE} values ('null', 'k', 'null', '-infinity'), ('nothing', 'k', null, 'infinity');
insert into {TABLE} values ('last', 'k', {_GOOD});
insert into changefeed."outbox:{TABLE}" (shard_id, id)
    select 0, id from unnest(array['first', 'hostile', 'timely', 'null', 'nothing', 'last']) id;
"""


async def test_such_rows_stop_neither_a_page_nor_the_worker(postgres_database: str, session: AsyncSession) -> None:
    await install_async(session)
    await session.execute(Statement(_HOSTILE_TABLE))
    await setup_feed_async(session, TABLE, roles=False)
    await install_quarantine(session)
    await session.execute(Statement(_HOSTILE_ROWS))

    topic, quarantine = await relayed(postgres_database, "last")

    assert topic.accepted == {"k": ["first", "hostile", "timely", "last"]}
    assert [(each.id, str(each.reason)) for each in quarantine.records] == [
        ("null", "data-not-object"),
        ("nothing", "data-not-object"),
    ]


async def relayed(url: str, last: str) -> tuple[InMemoryPublisher, InMemoryQuarantine]:
    """The events that a worker has published and set aside, once the event with that id was published."""
    topic, quarantine = InMemoryPublisher(), InMemoryQuarantine()
    database = Database(sql_settings(url))
    relay = relay_of(database, topic, quarantine)
    worker = Worker(relay, sql_settings(url), database.connect, page_size=100, poll_delay_s=0.05)
    stop = asyncio.Event()
    running = asyncio.create_task(worker.run(stop))
    async with asyncio.timeout(WATCHDOG_S):
        while last not in topic.accepted.get("k", []):
            assert not running.done(), running.exception()
            await look_again()
        stop.set()
        await running
    await database.close()
    return topic, quarantine
