"""An event table that is replaced under its feed: install makes again what went with it, and what waits stays."""

from __future__ import annotations

import pytest

from outbox_relay import changefeed
from outbox_relay.changefeed import Feed, SetupError
from outbox_relay.changefeed.statements import Statement
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from relay.config.settings import Settings
from tests.support.broker import topic_counts
from tests.support.operators import relay_command
from tests.support.postgresql import PostgresServer
from tests.support.sql_deployment import COLUMNS, FEED, TABLE, SqlDeployment, working

_REPLACED = {
    "dropped": f"create temp table kept as select * from {TABLE}; drop table {TABLE} cascade",
    "renamed": f"create temp table kept as select * from {TABLE}; alter table {TABLE} rename to former; "
    "alter index outbox.domain_event_pkey rename to former_pkey",
}


def replace(sql: SqlDeployment, how: str, columns: str = COLUMNS) -> None:
    """Create the event table again, as a migration tool does, with the same rows."""
    sql.connection.execute(_REPLACED[how].encode())
    sql.connection.execute(f"create table {TABLE} ({columns}); insert into {TABLE} select * from kept".encode())


@pytest.fixture
def environment(
    sql: SqlDeployment, servicebus: ServiceBusServer, postgres_server: PostgresServer
) -> dict[str, str]:
    """Settings of a relay whose login has the readers' role, and nothing more."""
    sql.create()
    sql.connection.execute(
        f'create role relay login; grant "changefeed.readers:{TABLE}" to relay; '
        "grant usage on schema relay to relay; grant select, insert, update, delete on relay.item to relay"
    )
    url = postgres_server.url(sql.connection.info.dbname, "relay")
    return {"SQL": url, "SQL_CLAIM_S": "2", "SERVICEBUS": servicebus.connection_string}


@pytest.mark.parametrize("how", _REPLACED)
async def test_install_repairs_the_feed_and_what_waits_is_published(
    sql: SqlDeployment, servicebus: ServiceBusServer, environment: dict[str, str], how: str
) -> None:
    owner = environment | {"SQL": sql.url}
    sql.named("read")
    sql.read()
    sql.named("waiting")
    replace(sql, how)

    checked = await relay_command(environment, "check", "--json")
    repaired = await relay_command(owner, "install", "--keep", "forever", "--json")
    again = await relay_command(owner, "install", "--keep", "forever", "--json")
    sound = await relay_command(environment, "check", "--json")
    async with working(Settings.from_environment(environment)):
        await sql.until_passed()

    errors = [each for each in checked.json["findings"] if each["level"] == "error"]
    (named,) = [each for each in errors if f"lacks read_events:{TABLE}" in each["what"]]
    assert "relay install" in named["remedy"]
    assert not [each for each in errors if "execute on" in each["what"]]
    assert f"read_events:{TABLE}, select on {TABLE}" in repaired.json["done"][0]
    assert again.json["done"] == []
    assert not [each for each in sound.json["findings"] if "lacks" in each["what"]]
    assert (await topic_counts(servicebus.admin_port))["accepted"] == 2
    assert sql.rows("select 1 from relay.item where type = 'quarantinedEvent'") == []


@pytest.mark.parametrize("how", _REPLACED)
def test_reading_names_the_command_that_repairs(sql: SqlDeployment, how: str) -> None:
    sql.create()
    sql.named("a", "b")
    replace(sql, how)
    session = changefeed.connect(sql.url)
    try:
        with pytest.raises(SetupError, match="changefeed install, which also makes again"):
            Feed(session, TABLE).read(0)

        assert changefeed.repair(session) == [TABLE]
        assert changefeed.repair(session) == []
        assert [entry.row and entry.row["id"] for entry in Feed(session, TABLE).read(0).entries] == ["a", "b"]
    finally:
        session.close()


def test_another_primary_key_is_refused_and_changes_nothing(sql: SqlDeployment) -> None:
    sql.create()
    sql.named("a")
    replace(sql, "dropped", COLUMNS.replace("id text primary key", "id varchar(9) primary key"))
    session = changefeed.connect(sql.url)
    with pytest.raises(SetupError, match=r"is \(id character varying\(9\)\), and its feed has \(id text\)"):
        changefeed.repair(session)
    session.close()


def test_no_rights_are_given_to_a_role_of_another_database(sql: SqlDeployment) -> None:
    sql.create(set_up=False)
    session = changefeed.connect(sql.url)
    sql.connection.execute(f'create role "changefeed.readers:{TABLE}"')
    changefeed.setup_feed(session, TABLE, roles=False)
    replace(sql, "dropped")

    changefeed.repair(session)

    granted = session.execute(
        Statement(f"select has_table_privilege('changefeed.readers:{TABLE}', '{TABLE}', 'select')")
    )
    session.close()
    assert granted.rows == [(False,)]


async def test_a_feed_without_its_table_is_named(sql: SqlDeployment, environment: dict[str, str]) -> None:
    sql.named("a")
    sql.connection.execute(f"drop table {TABLE} cascade")

    installed = await relay_command(environment | {"SQL": sql.url}, "install", "--keep", "forever", "--json")

    assert installed.code == 2
    assert "there is no such table" in installed.json["error"]
    assert sql.rows(f"select 1 from {FEED}") == []
    assert sql.rows(f'select id from changefeed."outbox:{TABLE}"') == [("a",)]
