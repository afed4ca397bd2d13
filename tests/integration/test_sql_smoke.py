"""`python -m relay smoke` on an SQL outbox in PostgreSQL, with the relay in this process."""

from __future__ import annotations

import pytest

from outbox_relay.emulators.servicebus.server import ServiceBusServer
from relay.backends.canary import is_canary
from relay.config.settings import Settings
from tests.support.operators import SMOKE, Run, relay_command
from tests.support.sql_deployment import FEED, OUTBOX, TABLE, SqlDeployment, working

EVERYTHING = (
    "id varchar(128) primary key, partition_key text not null, data json not null, type text not null, "
    "action text not null, created_at timestamptz not null, traceparent text not null, sequence bigint"
)


@pytest.fixture
def environment(sql: SqlDeployment, servicebus: ServiceBusServer) -> dict[str, str]:
    return {
        "SQL": sql.url,
        "SQL_SHARDS": "2",
        "SQL_CLAIM_S": "2",
        "SERVICEBUS": servicebus.connection_string,
        "RELAY_POLL_DELAY_MS": "50",
        "RELAY_SENDERS": "4",
    }


async def smoke(environment: dict[str, str], *words: str) -> Run:
    return await relay_command(environment, *SMOKE, *words)


@pytest.mark.parametrize(
    ("columns", "cloudevents"),
    [
        (EVERYTHING, False),
        (EVERYTHING, True),
        ("id text primary key, partition_key text, data jsonb", False),
        ("id uuid primary key, partition_key text, data text", False),
    ],
)
async def test_the_canary_arrives_unaltered_and_its_row_is_removed(
    environment: dict[str, str], sql: SqlDeployment, columns: str, cloudevents: bool
) -> None:
    sql.create(columns)
    if cloudevents:
        environment |= {"RELAY_MESSAGE_FORMAT": "cloudevents", "RELAY_CLOUDEVENTS_SOURCE": "/contacts"}
    async with working(Settings.from_environment(environment)):
        run = await smoke(environment, "--json")

    assert (run.code, run.json["differences"], run.json["leftBehind"]) == (0, [], [])
    assert run.json["arrived"] is True
    assert sql.rows(f"select id from {TABLE}") == []
    ((identifier,),) = sql.rows(f"select id::text from {FEED}")
    assert (identifier, is_canary(identifier)) == (run.json["id"], True)
    assert sql.rows("select id from relay.item where type = 'quarantinedEvent'") == []


async def test_an_oversized_event_is_quarantined_and_small_ones_arrive_after_it(
    environment: dict[str, str], sql: SqlDeployment
) -> None:
    sql.create()
    async with working(Settings.from_environment(environment)):
        run = await smoke(environment, "--json", "--oversized", "--pause", "0")

    assert (run.code, run.json["leftBehind"]) == (0, [])
    assert run.json["oversized"] == {"reason": "message-too-large", "sent": 5, "arrived": 5, "quarantined": []}
    assert (
        sql.rows(f"select id from {TABLE}")
        == sql.rows("select id from relay.item where type = 'quarantinedEvent'")
        == []
    )
    assert len(sql.rows(f"select id from {FEED}")) == 7


async def test_without_a_relay_the_event_is_left_to_it_and_reported(
    environment: dict[str, str], sql: SqlDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_relay.operator.backends.sql.canary.CLEAN_UP_S", 0.5)
    sql.create()

    run = await smoke(environment, "--timeout", "1")

    assert run.code == 1
    assert run.out.startswith("missing: no message arrived on 'all' within 1 s")
    assert "Check that the relay runs, and what it logged last" in run.out
    assert f"SQL_FEED '{TABLE}', SQL_SHARDS '2'" in run.out
    ((identifier,),) = sql.rows(f"select id from {TABLE}")
    assert f"not deleted: event '{identifier}'" in run.out
    assert "the relay has not passed it" in run.out
    # The relay finds the whole event when it comes to it.
    assert sql.rows(f"select id from {OUTBOX}") == [(identifier,)]


async def test_an_event_that_was_altered_on_its_way_is_found_out(
    environment: dict[str, str], sql: SqlDeployment
) -> None:
    other = {"RELAY_MESSAGE_FORMAT": "cloudevents", "RELAY_CLOUDEVENTS_SOURCE": "/contacts"}
    sql.create()
    async with working(Settings.from_environment(environment | other)):
        run = await smoke(environment, "--json")

    assert run.code == 1
    assert "RELAY_MESSAGE_FORMAT" in run.json["remedies"][0]


async def test_a_login_that_may_not_write_is_told_what_it_needs(
    environment: dict[str, str], sql: SqlDeployment
) -> None:
    sql.create()
    sql.connection.execute(
        f'create role app login; grant "changefeed.readers:{TABLE}" to app; grant insert on {TABLE} to app'
    )

    run = await smoke(environment | {"SQL": sql.url.replace("postgres@", "app@")})

    assert run.code == 3
    assert f'the role "changefeed.writers:{TABLE}"' in run.err
    assert sql.rows(f"select id from {TABLE}") == []


@pytest.mark.parametrize(
    ("settings", "words", "says"),
    [
        ({"COSMOS": "AccountEndpoint=https://127.0.0.1:1/;AccountKey=YQ==;"}, (), "add --source cosmos or"),
        ({}, ("--source", "cosmos"), "--source cosmos: COSMOS is not set"),
    ],
)
async def test_which_outbox_has_to_be_clear(
    environment: dict[str, str], settings: dict[str, str], words: tuple[str, ...], says: str
) -> None:
    run = await smoke(environment | settings, *words)

    assert (run.code, says in run.err) == (2, True)


async def test_a_table_without_the_columns_is_wrong_usage(environment: dict[str, str], sql: SqlDeployment) -> None:
    sql.create("id text primary key")

    run = await smoke(environment)

    assert run.code == 2
    assert "has no column partition_key, data" in run.err


async def test_an_event_that_a_trigger_puts_on_the_feed_is_on_it_once(
    environment: dict[str, str], sql: SqlDeployment
) -> None:
    sql.create()
    sql.connection.execute(
        f"""
        create function outbox.put_on_feed() returns trigger
        language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
        begin
            insert into {OUTBOX} (shard_id, id) values (1, new.id);
            return null;
        end $$;
        create trigger put_on_feed after insert on {TABLE} for each row execute function outbox.put_on_feed()
        """
    )
    async with working(Settings.from_environment(environment)):
        runs = [await smoke(environment, "--json") for _ in range(4)]
        await sql.until_passed()

    assert [(run.code, run.json["leftBehind"]) for run in runs] == [(0, [])] * 4
    assert sql.rows(f"select shard_id from {FEED}") == [(1,)] * 4
    assert sql.rows("select id from relay.item where type = 'quarantinedEvent'") == []
