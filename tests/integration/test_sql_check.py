"""`python -m relay check` on an SQL outbox in PostgreSQL: each thing that can be wrong with it, made wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from outbox_relay.changefeed.install import migrations
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.operator.backends.sql.backlog import scan as scan_sql
from outbox_relay.operator.backends.sql.check import check as check_sql
from relay.config.settings import Settings
from tests.changefeed.test_shadowing import CITEXT
from tests.support.operators import Run, relay_command
from tests.support.pooler import dropping_options
from tests.support.postgresql import PostgresServer
from tests.support.sql_deployment import CLAIM, FEED, OUTBOX, PATIENT, STATE, TABLE, SqlDeployment, working
from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S

OLD = "2026-02-09T11:00:00Z"
FINE = {"action": "Named"}


@pytest.fixture
def environment(sql: SqlDeployment, servicebus: ServiceBusServer) -> dict[str, str]:
    return {
        "SQL": sql.url,
        "SQL_CLAIM_S": "2",
        "SERVICEBUS": servicebus.connection_string,
        "SERVICEBUS_ADMIN": f"http://127.0.0.1:{servicebus.admin_port}",
        "RELAY_DUPLICATE_WINDOW_S": "300",
        "RELAY_POLL_DELAY_MS": "50",
    }


@pytest.fixture
async def relaying(sql: SqlDeployment, environment: dict[str, str]) -> AsyncIterator[None]:
    """A deployment as it should be, with a running relay."""
    sql.create()
    async with working(Settings.from_environment(environment)):
        yield


async def check(environment: dict[str, str], *words: str) -> Run:
    return await relay_command(environment, "check", "--min-window", "PT5M", "--min-ttl", "PT1H", *words)


async def findings(environment: dict[str, str], level: str, *, scan: bool = False) -> list[str]:
    """The findings about the SQL outbox at a level, with their remedies."""
    settings = Settings.from_environment(environment)
    feed = settings.feed
    assert feed is not None
    found = await check_sql(feed)
    found += (await scan_sql(feed)).findings if scan else []
    return [f"{each.what} -> {each.remedy}" for each in found if each.level == level]


@pytest.mark.usefixtures("relaying")
async def test_a_sound_deployment_is_all_ok(environment: dict[str, str], sql: SqlDeployment) -> None:
    sql.named("e1", "e2")
    await sql.until_passed()

    run = await check(environment | PATIENT, "--scan")

    about = [line for line in run.out.splitlines() if "SERVICEBUS" not in line and "subscription" not in line]
    assert run.code == 0
    assert [line.removeprefix("ok       ") for line in about if line.startswith("ok ")] == [
        "the settings are complete and well-formed",
        "events are sent over one connection",
        "SQL is a database of PostgreSQL that can be reached",
        f"the schema changefeed has version {migrations('postgresql')[-1].version}",
        f"SQL_FEED '{TABLE}' is set up",
        f"SQL_FEED '{TABLE}' has the columns id, partition_key, data and the primary key id",
        f"this login may read SQL_FEED '{TABLE}' and store how far it has come",
        "this login may read and write the quarantine, relay.item",
        *[line.removeprefix("ok       ") for line in about if f"the feed of SQL_FEED '{TABLE}' has about" in line],
        f"SQL_FEED '{TABLE}' is read: each of its 1 shard(s) has a living owner",
        f"no event of SQL_FEED '{TABLE}' waits for longer than PT5M to be published",
        "no partition key is parked or known to be blocked",
        *[line.removeprefix("ok       ") for line in about if "can become messages" in line],
    ]
    assert not [line for line in about if line.startswith(("error", "unknown", "warning"))]


async def test_with_both_outboxes_set_both_are_checked(
    environment: dict[str, str], sql: SqlDeployment, cosmos: CosmosServer
) -> None:
    sql.create()

    run = await check(environment | {"COSMOS": cosmos.connection_string})

    assert "COSMOS_CONTAINER 'data' has the partition key" in run.out
    assert f"SQL_FEED '{TABLE}' is set up" in run.out


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("postgresql://relay:hidden@127.0.0.1:1/shop", "cannot be reached"),
        ("{url}_none", "the PostgreSQL server refuses"),
    ],
)
async def test_a_server_that_cannot_be_reached_or_refuses_is_an_error_of_its_own(
    environment: dict[str, str], sql: SqlDeployment, address: str, says: str
) -> None:
    address = address.replace("{url}", sql.url.replace("?", "_none?")).removesuffix("_none")

    run = await check(environment | {"SQL": address})

    assert (run.code, says in run.out) == (3, True)
    assert "hidden" not in run.out + run.err


async def test_a_database_without_the_schema_or_the_feed_names_the_command_that_makes_it(
    environment: dict[str, str], sql: SqlDeployment
) -> None:
    (without,) = await findings(environment, "error")
    sql.create(set_up=False)
    (not_set_up,) = await findings(environment, "error")

    assert "schema changefeed is not installed" in without
    assert f"SQL_FEED '{TABLE}' is not set up" in not_set_up
    words = "install --keep 30d"
    assert f"python -m relay {words} (" in without
    assert f"python -m relay {words} (" in not_set_up
    assert (await relay_command(environment, *words.split())).code == 0
    assert not [each for each in await findings(environment, "error") if "set up" in each]


async def test_a_cursor_in_a_feed_that_was_filled_by_hand_is_not_ahead(
    environment: dict[str, str], sql: SqlDeployment
) -> None:
    sql.create()
    sql.connection.execute(
        f"insert into {FEED} (shard_id, ulid, id) values (0, '01999999-0000-0000-0000-000000000000', 'x'); "
        f"insert into {CLAIM} (consumer, shard_id, last_ulid) "
        "values ('relay', 0, '01999999-0000-0000-0000-000000000000')"
    )

    assert not [each for each in await findings(environment, "error") if "ahead" in each]


@pytest.mark.parametrize(
    ("change", "level", "says"),
    [
        ("insert into changefeed.migration (version) values (99)", "error", "has version 99"),
        ("delete from changefeed.migration", "error", "has version 0"),
        (f"alter table {TABLE} drop column data", "error", "has no column data"),
        (f"alter table {TABLE} alter column data type int using 1", "error", "column data of SQL_FEED"),
        (f"alter table {TABLE} rename column partition_key to key", "error", "has no column partition_key"),
        (
            f"alter table {TABLE} drop constraint domain_event_pkey, add primary key (partition_key, id)",
            "error",
            "primary key (partition_key, id), not (id)",
        ),
        (f"drop table {TABLE} cascade", "error", "there is no such table"),
        ("drop table relay.item", "error", "relay.item of the quarantine does not exist"),
        (f"alter table {OUTBOX} alter column order_sequence set cache 50", "error", "has a cache of 50"),
        (
            f"alter table {OUTBOX} set (autovacuum_enabled = off)",
            "warning",
            f"autovacuum is off for outbox:{TABLE}",
        ),
        ("update changefeed.outbox_feed set keep = null", "warning", "nobody has decided how long positions of"),
        (
            "update changefeed.outbox_feed set channel = null",
            "ok",
            "notifies nobody of commits: an idle relay looks for them every 150 ms",
        ),
        (
            f"insert into {OUTBOX} (shard_id, id) values (3, 'x'), (3, 'y'), (-1, 'z')",
            "error",
            "has 3 row(s) in shards that nobody reads (1 in shard -1, 2 in shard 3): SQL_SHARDS is 1",
        ),
        (
            f"insert into {CLAIM} (consumer, shard_id, last_ulid) "
            "values ('relay', 0, '01999999-0000-0000-0000-000000000000')",
            "error",
            "ahead of the last position of SQL_FEED 'outbox.domain_event' in shard 0",
        ),
    ],
)
async def test_each_thing_that_is_wrong_is_named(
    environment: dict[str, str], sql: SqlDeployment, change: str, level: str, says: str
) -> None:
    sql.create()
    assert not [each for each in await findings(environment, level) if says in each]
    sql.connection.execute(change)

    (found,) = [each for each in await findings(environment, level) if says in each]

    assert level == "ok" or not found.endswith("-> None")


async def test_the_type_of_an_extension_counts_in_any_schema(
    environment: dict[str, str], sql: SqlDeployment
) -> None:
    sql.connection.execute("create schema extensions")
    sql.connection.execute(CITEXT.replace("public.", "extensions.").encode())
    sql.create("id extensions.citext primary key, partition_key extensions.citext not null, data jsonb not null")

    assert not [each for each in await findings(environment, "error") if "citext" in each]


async def test_a_pooler_in_transaction_mode_is_named(environment: dict[str, str], sql: SqlDeployment) -> None:
    sql.create()
    with dropping_options(sql.url) as url:
        found = await findings(environment | {"SQL": url}, "error")

    assert [each for each in found if "PgBouncer in transaction mode. Connect to the server directly" in each]


async def test_a_database_whose_transactions_are_read_only_is_named(
    environment: dict[str, str], sql: SqlDeployment
) -> None:
    sql.create()
    sql.connection.execute(f"alter database {sql.connection.info.dbname} set default_transaction_read_only = on")

    (found,) = [each for each in await findings(environment, "error") if "read-only" in each]

    assert "default_transaction_read_only" in found


async def test_a_shard_that_nobody_reads_and_one_whose_reader_is_silent_are_named(
    environment: dict[str, str], sql: SqlDeployment
) -> None:
    sql.create()
    sql.connection.execute(
        f"insert into {CLAIM} (consumer, shard_id, owner) values ('relay', 0, 'gone'), ('relay', 1, null)"
    )

    found = await findings(environment | {"SQL_SHARDS": "3"}, "error")

    assert [each.partition(": nothing")[0] for each in found] == [
        f"no process reads shard 1, 2 of SQL_FEED '{TABLE}'",
        f"the process that reads shard 0 of SQL_FEED '{TABLE}' shows no sign of life, and no other has taken over",
    ]


async def test_events_left_in_a_shard_that_was_given_up_are_named(
    environment: dict[str, str], sql: SqlDeployment
) -> None:
    sql.create()
    for shard_id in (0, 1, 2):
        sql.named(f"e{shard_id}", f"f{shard_id}", shard_id=shard_id)
    sql.pass_all(0, 1)
    sql.pass_to(sql.read(2)[0], 2)

    (found,) = [each for each in await findings(environment, "error") if "nobody reads them any more" in each]

    assert "not published in shard 2, which a relay has read before: SQL_SHARDS is 1" in found


@pytest.mark.parametrize("numbered", [False, True])
async def test_events_that_wait_for_long_are_named_wherever_they_wait(
    environment: dict[str, str], sql: SqlDeployment, numbered: bool
) -> None:
    sql.create()
    sql.named("e1", hint=OLD)
    if numbered:
        sql.read()

    (found,) = await findings(environment, "warning")

    assert "has events that wait for longer than PT5M to be published, the oldest for P" in found
    assert "in shard 0" in found
    assert ("'e1' of the partition key 'k'" in found) is numbered


async def test_a_published_event_does_not_wait(environment: dict[str, str], sql: SqlDeployment) -> None:
    sql.create()
    sql.named("e1", hint=OLD)
    sql.pass_all()

    assert await findings(environment, "warning") == []


async def test_the_role_of_readers_is_enough_for_the_relay_and_what_it_cannot_see_is_unknown(
    environment: dict[str, str], sql: SqlDeployment
) -> None:
    sql.create()
    sql.connection.execute(
        f'create role app login; grant "changefeed.readers:{TABLE}" to app; '
        "grant usage on schema relay to app; grant select, insert, update, delete on relay.item to app"
    )
    mine = environment | {"SQL": sql.url.replace("postgres@", "app@")}

    ok, unknown = await findings(mine, "ok"), await findings(mine, "unknown")
    sql.connection.execute(f'revoke update on {CLAIM} from "changefeed.readers:{TABLE}"')
    sql.connection.execute("revoke delete on relay.item from app")
    (lacking, quarantine, _) = await findings(mine, "error")

    assert [each for each in ok if "this login may read SQL_FEED" in each]
    assert [each for each in ok if "this login may read and write the quarantine" in each]
    assert [each.partition(" cannot")[0] for each in unknown] == [
        "the version of the schema changefeed",
        f"the rows in the outbox table of SQL_FEED '{TABLE}'",
    ]
    assert f"lacks what reading SQL_FEED '{TABLE}' needs: update on claim:{TABLE}" in lacking
    assert f'"changefeed.readers:{TABLE}"' in lacking
    assert "lacks delete on relay.item" in quarantine


async def test_check_changes_nothing(environment: dict[str, str], sql: SqlDeployment) -> None:
    sql.create()
    sql.named("e1")
    before = [sql.rows(f"select * from {table}") for table in (OUTBOX, FEED, STATE, CLAIM)]

    await check(environment, "--scan")

    assert [sql.rows(f"select * from {table}") for table in (OUTBOX, FEED, STATE, CLAIM)] == before


@pytest.mark.usefixtures("relaying")
async def test_check_calls_no_function_that_a_writer_has_put_into_public(
    environment: dict[str, str], sql: SqlDeployment
) -> None:
    """Each would be preferred to the one of pg_catalog: it takes its arguments as they are."""
    with psycopg.connect(sql.url, autocommit=True) as owner:
        owner.execute(_SHADOWS.encode())

        assert await findings(environment, "unknown") == []

        assert owner.execute("select what from public.shadowed").fetchall() == []


_SHADOWS = "create table public.shadowed (what text);" + "".join(
    f"create function public.{signature} language plpgsql as $$ begin "
    f"insert into public.shadowed values ('{signature}'); return{value}; end $$;"
    for signature, value in (
        ("to_jsonb(changefeed.outbox_feed) returns jsonb", " '{}'"),
        ("unnest(int2[]) returns setof int2", ""),
        ("unnest(text[]) returns setof text", ""),
        ("agreed(text, name, text) returns text", " ''"),
        ("times(numeric, int) returns numeric", " 1"),
        ("same(oid, int) returns boolean", " false"),
    )
)
_SHADOWS += """
create aggregate public.string_agg(name, text) (sfunc = public.agreed, stype = text);
create operator public.* (leftarg = numeric, rightarg = int, function = public.times);
create operator public.= (leftarg = oid, rightarg = int, function = public.same);
"""


async def test_a_scan_names_what_would_be_quarantined_wherever_it_waits(
    environment: dict[str, str], sql: SqlDeployment
) -> None:
    sql.create()
    sql.write(("passed", "k", "no object"))
    sql.pass_all()
    sql.write(("a", "k", FINE), ("b", "k", "no object"), ("c", "", FINE), ("gone", "k", FINE))
    sql.read()
    sql.write(("d", "k", {"action": 1}), ("e", "k", FINE))
    sql.write(("736d6f6b-6500-8000-8000-000000000000", "smoke-1", FINE))
    sql.connection.execute(f"delete from {TABLE} where id in ('gone', '736d6f6b-6500-8000-8000-000000000000')")

    run = await check(environment, "--scan", "--json")

    assert run.code == 1
    assert run.json["scannedRows"] == 7
    assert {(each["id"], each["shard"], each["reason"]) for each in run.json["rejected"]} == {
        ("b", 0, "data-not-object"),
        ("c", 0, "partition-key-empty"),
        ("gone", 0, "partition-key-missing"),
        ("d", 0, "action-not-string"),
    }
    assert [
        each for each in await findings(environment, "error", scan=True) if "event 'b' with the partition" in each
    ]


async def test_a_scan_reports_a_key_whose_events_are_in_two_shards(
    sql: SqlDeployment, environment: dict[str, str]
) -> None:
    sql.create()
    for shard, identifier in enumerate(("a", "b")):
        sql.write((identifier, "k", {"action": "A"}), shard_id=shard)

    (found,) = await findings(environment | {"SQL_SHARDS": "2"}, "warning", scan=True)

    assert found.startswith("events of the partition key 'k' are in the shards '0' and '1'")


async def test_a_scan_that_may_not_read_the_outbox_table_is_unknown(
    environment: dict[str, str], sql: SqlDeployment
) -> None:
    sql.create()
    sql.connection.execute(f'create role app login; grant "changefeed.readers:{TABLE}" to app')

    mine = environment | {"SQL": sql.url.replace("postgres@", "app@")}

    assert [each for each in await findings(mine, "unknown", scan=True) if "was not scanned to its end" in each]


async def test_the_cursor_of_a_feed_that_was_filled_by_hand_is_not_ahead(
    environment: dict[str, str], sql: SqlDeployment
) -> None:
    sql.create()
    sql.connection.execute(f"insert into {TABLE} (id, partition_key, data) values ('e1', 'k', '{{}}')")
    sql.connection.execute(
        f"insert into {FEED} (shard_id, ulid, id) values (0, changefeed.ulid(1500000000000, 1, 1), 'e1')"
    )
    sql.pass_all()

    assert not [each for each in await findings(environment, "error") if "ahead of" in each]


async def test_the_size_of_the_feed_and_its_growth_are_shown(
    environment: dict[str, str], sql: SqlDeployment
) -> None:
    sql.create()
    assert not [each for each in await findings(environment, "ok") if "the feed of" in each]
    ids = [f"e{number}" for number in range(1000)]
    hint = (datetime.now(UTC) - timedelta(hours=12)).isoformat()
    sql.named(*ids, hint=hint)
    sql.read()
    sql.connection.execute(f"analyze {FEED}")
    ((size,),) = sql.rows(f"select pg_total_relation_size('{FEED}')")

    (found,) = [each for each in await findings(environment, "ok") if "the feed of" in each]

    assert f"SQL_FEED '{TABLE}' has about 1000 positions of the last PT12H" in found
    assert f"in {size / 2**20:.1f} MiB, which is {2 * size / 2**20:.1f} MiB a day" in found


async def test_a_long_transaction_is_named(
    environment: dict[str, str], sql: SqlDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql.create()
    monkeypatch.setattr("outbox_relay.operator.backends.sql.check._LONG_TRANSACTION_S", 0.0)
    assert not [each for each in await findings(environment, "warning") if "has been open for" in each]
    with psycopg.connect(sql.url) as other:
        other.execute("select txid_current()")

        (found,) = await findings(environment, "warning")

    assert "a transaction of this database has been open for 0.0 hours" in found


async def test_a_server_that_goes_away_in_the_middle_is_reported(
    environment: dict[str, str], sql: SqlDeployment, postgres_server: PostgresServer
) -> None:
    sql.create()
    sql.connection.execute(f"insert into {CLAIM} (consumer, shard_id, owner) values ('relay', 0, 'gone')")
    checking = asyncio.create_task(check(environment | {"SQL_CLAIM_S": "30"}))
    others = (
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> "
    )
    async with asyncio.timeout(WATCHDOG_S):
        while not sql.rows(f"{others} pg_backend_pid() and query like '%renewals%' and state = 'idle'"):
            await look_again()  # what another session does can only be asked for
        run = await checking

    assert (run.code, "ended the connection" in run.out) == (3, True)
