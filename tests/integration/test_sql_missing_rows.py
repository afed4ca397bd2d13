"""Rows that the relay does not see: it waits for what may exist, and sets aside what was deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from outbox_relay.emulators.servicebus.server import ServiceBusServer
from relay.backends.sql.database import Database
from relay.backends.sql.worker import Worker
from relay.config.settings import Settings
from tests.support.broker import topic_counts
from tests.support.in_memory import InMemoryPublisher, InMemoryQuarantine
from tests.support.operators import SMOKE, relay_command
from tests.support.postgresql import PostgresServer
from tests.support.sql_deployment import COLUMNS, TABLE, SqlDeployment, working
from tests.support.sql_outbox import relay_of, sql_settings
from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S

_READERS = f'"changefeed.readers:{TABLE}"'
_PARTITIONED = """
id text not null, partition_key text not null, data jsonb not null, day int not null default 1,
primary key (id, day)) partition by list (day
"""


class Reader:
    """A worker that connects as a login with the readers' role, and nothing more."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.topic = InMemoryPublisher()
        self.quarantine = InMemoryQuarantine()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The worker runs."""
        settings = sql_settings(self.url)
        database = Database(settings)
        worker = Worker(
            relay_of(database, self.topic, self.quarantine),
            settings,
            database.connect,
            page_size=100,
            poll_delay_s=0.05,
        )
        stop = asyncio.Event()
        task = asyncio.create_task(worker.run(stop))
        try:
            yield
        finally:
            stop.set()
            await task
            await database.close()

    async def accepts(self, *ids: str) -> None:
        """Wait until it has published or set aside that many, and compare."""
        async with asyncio.timeout(WATCHDOG_S):
            while len(self.topic.accepted.get("k", [])) + len(self.quarantine.records) < len(ids):
                await look_again()  # only the outcome shows it
        assert self.topic.accepted == {"k": list(ids)}


async def said(caplog: pytest.LogCaptureFixture, words: str) -> str:
    """Wait until the relay has logged these words."""
    async with asyncio.timeout(WATCHDOG_S):
        while not (found := [each for each in caplog.messages if words in each]):
            await look_again()  # as above
    return found[0]


@pytest.fixture
def reader(sql: SqlDeployment, postgres_server: PostgresServer) -> Reader:
    sql.connection.execute("create role relay login")
    return Reader(postgres_server.url(sql.connection.info.dbname, "relay"))


def granted(sql: SqlDeployment) -> None:
    """Grant what the relay needs, and what `install` grants."""
    sql.connection.execute(f"grant {_READERS} to relay; grant usage on schema relay to relay")
    sql.connection.execute("grant select, insert, update, delete on relay.item to relay")


_HIDING = {
    "policy": (
        f"alter table {TABLE} enable row level security; create policy seen on {TABLE} using (id <> 'b')",
        f"drop policy seen on {TABLE}; alter table {TABLE} disable row level security",
        "row-level security",
    ),
    "forced policy": (
        f"alter table {TABLE} enable row level security; alter table {TABLE} force row level security",
        f"alter table {TABLE} disable row level security",
        "row-level security",
    ),
    "right": (
        f"revoke select on {TABLE} from {_READERS}",
        f"grant select on {TABLE} to {_READERS}",
        "permission denied",
    ),
}


@pytest.mark.parametrize("how", _HIDING)
async def test_hidden_rows_are_waited_for(
    sql: SqlDeployment, reader: Reader, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    hide, show, words = _HIDING[how]
    sql.create()
    granted(sql)
    sql.named("a", "b", "c")
    sql.connection.execute(hide.encode())

    async with reader.running():
        await said(caplog, words)
        assert (reader.topic.accepted, reader.quarantine.records) == ({}, [])
        sql.connection.execute(show.encode())
        await reader.accepts("a", "b", "c")


@pytest.mark.parametrize("may_look", [True, False])
async def test_a_detached_partition_is_waited_for(
    sql: SqlDeployment, reader: Reader, caplog: pytest.LogCaptureFixture, may_look: bool
) -> None:
    partitioned(sql)
    granted(sql)
    sql.connection.execute(f"alter table {TABLE} detach partition outbox.second")
    if may_look:
        sql.connection.execute("grant select on outbox.second to relay")

    async with reader.running():
        found = await said(caplog, "outbox.second")
        assert ("'b' is in outbox.second" in found) == may_look
        assert (reader.topic.accepted, reader.quarantine.records) == ({}, [])
        sql.connection.execute(f"alter table {TABLE} attach partition outbox.second for values in (2)")
        await reader.accepts("a", "b", "c")


async def test_a_deleted_row_is_set_aside_though_there_is_an_archive(sql: SqlDeployment, reader: Reader) -> None:
    partitioned(sql)
    granted(sql)
    sql.connection.execute(f"alter table {TABLE} detach partition outbox.second; delete from outbox.second")
    sql.connection.execute("grant select on outbox.second to relay")

    async with reader.running():
        await reader.accepts("a", "c")
    assert [(each.id, str(each.reason)) for each in reader.quarantine.records] == [("b", "partition-key-missing")]


def partitioned(sql: SqlDeployment) -> None:
    """An event table with two partitions; the event b is in the second one."""
    sql.create(_PARTITIONED)
    sql.connection.execute(
        f"create table outbox.first partition of {TABLE} for values in (1);"
        f"create table outbox.second partition of {TABLE} for values in (2)"
    )
    for name, day in (("a", 1), ("b", 2), ("c", 1)):
        sql.connection.execute(f"insert into {TABLE} values (%s, 'k', '{{\"action\": \"A\"}}', %s)", (name, day))
        sql.connection.execute(
            f'insert into changefeed."outbox:{TABLE}" (shard_id, id, day) values (0, %s, %s)', (name, day)
        )


@pytest.mark.parametrize("columns", [COLUMNS, _PARTITIONED])
async def test_a_row_that_is_there_again_is_released(
    sql: SqlDeployment, servicebus: ServiceBusServer, columns: str
) -> None:
    environment = {"SQL": sql.url, "SQL_CLAIM_S": "4", "SERVICEBUS": servicebus.connection_string}
    if columns is COLUMNS:
        sql.create()
        sql.named("a", "b", "c")
    else:
        partitioned(sql)
    sql.connection.execute(
        f"create temp table kept as select * from {TABLE} where id = 'b'; delete from {TABLE} where id = 'b'"
    )
    async with working(Settings.from_environment(environment)):
        await sql.until_passed()
    still = await relay_command(environment, "quarantine", "release", "--all", "--json")
    sql.connection.execute(f"insert into {TABLE} select * from kept")

    released = await relay_command(environment, "quarantine", "release", "--all", "--json")

    assert [each["reason"] for each in still.json["stillInvalid"]] == ["partition-key-missing"]
    assert (released.code, len(released.json["released"])) == (0, 1)
    assert released.json["late"] == released.json["released"]
    assert (await topic_counts(servicebus.admin_port))["accepted"] == 3
    assert sql.rows("select id from relay.item where type = 'quarantinedEvent'") == []


async def test_a_partitioned_table_is_checked_and_its_smoke_test_arrives(
    sql: SqlDeployment, servicebus: ServiceBusServer
) -> None:
    partitioned(sql)
    environment = {"SQL": sql.url, "SQL_CLAIM_S": "2", "SERVICEBUS": servicebus.connection_string}
    async with working(Settings.from_environment(environment)):
        await sql.until_passed()
        sent = await relay_command(environment, *SMOKE, "--json")
        checked = await relay_command(environment, "check", "--json")

    levels = [each["level"] for each in checked.json["findings"] if "primary key id, day" in each["what"]]
    assert (sent.code, levels) == (0, ["ok"])


async def test_check_names_the_policy_that_hides_rows(
    sql: SqlDeployment, reader: Reader, servicebus: ServiceBusServer
) -> None:
    sql.create()
    granted(sql)
    # One that waits for long is named, if its row may be read.
    sql.named("late", hint="2026-01-01")
    sql.read()
    sql.connection.execute(f"alter table {TABLE} enable row level security")
    for url, errors in ((reader.url, 1), (sql.url, 0)):
        environment = {"SQL": url, "SQL_CLAIM_S": "2", "SERVICEBUS": servicebus.connection_string}

        checked = await relay_command(environment, "check", "--json")

        found = [each for each in checked.json["findings"] if "row-level security" in each["what"]]
        assert [each["level"] for each in found] == ["error"] * errors
        assert [("'late'" in each["what"]) for each in checked.json["findings"] if "PT5M" in each["what"]] == [
            not errors
        ]
