"""docs/recovery.md: what comes twice and what is lost after a restore, a move and a rotation."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from azure.cosmos.aio import CosmosClient

from local.database.server import POSTGRES
from local.stack.environment import CONTAINERS, container_argument
from outbox_relay.changefeed import CursorError, Feed, connect
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from relay.config.settings import Settings
from tests.integration.conftest import RelayMaker
from tests.support.broker import topic_counts
from tests.support.leases import TriggerLeases
from tests.support.outbox import event
from tests.support.pages import ROOT, section
from tests.support.postgresql import PostgresServer
from tests.support.sql_deployment import TABLE, SqlDeployment, working
from tests.support.subscriber import Subscriber
from tests.support.watchdog import WATCHDOG_S

pytestmark = [pytest.mark.slow, pytest.mark.weekly]

PAGE = ROOT / "docs/recovery.md"
BEFORE = [f"before-{number}" for number in range(5)]
WAITING = [f"waiting-{number}" for number in range(3)]
LOST = [f"lost-{number}" for number in range(4)]


def settings(url: str, servicebus: ServiceBusServer) -> Settings:
    environment = {"SQL": url, "SQL_CLAIM_S": "2", "SERVICEBUS": servicebus.connection_string}
    return Settings.from_environment(environment | {"RELAY_POLL_DELAY_MS": "50"})


async def published(sql: SqlDeployment, servicebus: ServiceBusServer) -> None:
    """Have a relay publish all that waits."""
    async with working(settings(sql.url, servicebus)):
        await sql.until_passed()


async def received(servicebus: ServiceBusServer, count: int) -> list[str]:
    """The ids of the messages of the key `k`, of which there must be `count`."""
    subscriber = Subscriber(servicebus.connection_string)
    await subscriber.receive(count, receivers=1)
    await subscriber.receive_rest(wait_s=0.3)
    assert subscriber.messages.keys() == {"k"}
    return subscriber.ids()["k"]


async def run(block: str, folder: Path, **variables: str) -> str:
    """Run a block of the page as it stands there."""
    path = os.pathsep.join((str(Path(sys.executable).parent), str(POSTGRES.parent), os.environ["PATH"]))
    done = await asyncio.to_thread(
        subprocess.run,
        ["bash", "-c", block],
        cwd=folder,
        env={**os.environ, **variables, "PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def restored_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty database on the same server."""
    name = postgres_server.create_database()
    yield postgres_server.url(name)
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as owner:
        owner.execute(f"drop database {name} with (force)")


def blocks_under(heading: str) -> list[str]:
    """The shell blocks under a heading that this file runs."""
    page = PAGE.read_text(encoding="utf-8")
    [text] = re.findall(rf"^## {heading}\n(.*?)(?=^## )", page, re.MULTILINE | re.DOTALL)
    return re.findall(r"<!-- run by: tests/integration/test_recovery.*?-->\n *```sh\n(.*?)```", text, re.DOTALL)


async def look_at(block: str, servicebus: ServiceBusServer, folder: Path, urls: dict[str, str]) -> None:
    """Run the commands with which the page looks at a restored database, before a relay runs."""
    (folder / "restored.env").write_text(f"SQL={urls['RESTORED']}\nSERVICEBUS={servicebus.connection_string}\n")
    said = await run(block, folder, **urls, SERVICEBUS_ADMIN=f"http://127.0.0.1:{servicebus.admin_port}")
    errors = [each for each in re.findall(r"^error +(.*)", said, re.MULTILINE) if "SERVICEBUS_TOPIC" not in each]
    assert [each.partition(" of ")[0] for each in errors] == ["no process reads shard 0"]
    assert f"shard 0: {len(WAITING)} in the outbox" in said


@pytest.mark.parametrize("same_namespace", [True, False])
async def test_a_restored_database_repeats_what_waited_and_lacks_what_came_after(
    sql: SqlDeployment,
    servicebus: ServiceBusServer,
    entities: Entities,
    restored_url: str,
    tmp_path: Path,
    same_namespace: bool,
) -> None:
    dump_and_restore, look = blocks_under("Restore PostgreSQL")
    dump, restore = dump_and_restore.strip().splitlines()
    urls = {"SQL": sql.url, "RESTORED": restored_url}
    sql.create(notify=False)
    sql.named(*BEFORE)
    await published(sql, servicebus)
    sql.named(*WAITING)
    await run(dump, tmp_path, **urls)
    await published(sql, servicebus)
    sql.named(*LOST)
    await published(sql, servicebus)

    await run(restore, tmp_path, **urls)
    if same_namespace:
        await look_at(look, servicebus, tmp_path, urls)
    restored = SqlDeployment(restored_url)
    restored.named("new")
    async with ServiceBusServer(entities) as other:
        namespace = servicebus if same_namespace else other
        await published(restored, namespace)
        counts = await topic_counts(namespace.admin_port)
        known = await received(servicebus, 13 if same_namespace else 12)
        if not same_namespace:
            known += await received(other, 4)

    doubled = [] if same_namespace else WAITING
    assert known == [*BEFORE, *WAITING, *LOST, *doubled, "new"]
    assert counts["duplicates_dropped"] == (len(WAITING) if same_namespace else 0)
    create, compare = section(PAGE, "What consumers know that the database has lost", "sql")
    restored.connection.execute(create)
    rows = [[each] for each in known]
    restored.connection.cursor().executemany("insert into known values (%s) on conflict do nothing", rows)
    assert restored.connection.execute(compare).fetchall() == [(each,) for each in LOST]
    restored.close()


async def test_a_reader_that_is_ahead_of_a_restored_feed_is_refused_and_goes_back_to_miss_nothing(
    sql: SqlDeployment, restored_url: str, tmp_path: Path
) -> None:
    dump, restore = blocks_under("Restore PostgreSQL")[0].strip().splitlines()
    urls = {"SQL": sql.url, "RESTORED": restored_url}
    sql.create(notify=False)
    sql.named(*BEFORE)
    *_, at_the_restore_point = sql.read()
    sql.named(*WAITING)
    await run(dump, tmp_path, **urls)
    *_, ahead = sql.read()

    await run(restore, tmp_path, **urls)
    restored = SqlDeployment(restored_url)
    session = connect(restored_url)
    feed = Feed(session, TABLE)
    with pytest.raises(CursorError):
        feed.read(0, ahead)
    restored.named("new")
    # The relay reads, and so gives positions: those of what waited have its time, some may be before `ahead`.
    restored.read()
    after = {
        cursor: [entry.row["id"] for entry in feed.read(0, cursor).entries if entry.row]
        for cursor in (ahead, at_the_restore_point)
    }
    session.close()

    assert after[at_the_restore_point] == [*WAITING, "new"]
    assert after[ahead][-1] == "new"
    restored.close()


async def test_a_restored_account_repeats_all_that_is_in_its_outbox(
    account: CosmosClient, make_relay: RelayMaker, servicebus: ServiceBusServer
) -> None:
    outbox = TriggerLeases(account)
    for each in (*BEFORE, *WAITING):
        await outbox.data.create_item(event(each, "k"))
    relay = make_relay()
    await outbox.deliver(lambda page: relay.handle(page, "before"))
    # What the restore point has: the documents, and neither their feed nor the positions in it.
    kept = [document async for document in outbox.data.read_all_items() if document["id"] not in WAITING]
    async with CosmosServer() as other:
        provision(other.account, [ContainerSpec.parse(container_argument(*spec)) for spec in CONTAINERS])
        async with CosmosClient.from_connection_string(other.connection_string) as client:
            restored = TriggerLeases(client)
            for document in kept:
                await restored.data.create_item({k: v for k, v in document.items() if not k.startswith("_")})
            await restored.data.create_item(event("new", "k"))
            again = make_relay(COSMOS=other.connection_string)
            await restored.deliver(lambda page: again.handle(page, "after"))

    assert (await topic_counts(servicebus.admin_port))["duplicates_dropped"] == len(BEFORE)
    # The database has lost what waited: it was published after the restore point.
    assert await received(servicebus, 9) == [*BEFORE, *WAITING, "new"]


async def test_an_outbox_moves_to_another_namespace_without_loss_or_repetition(
    sql: SqlDeployment, servicebus: ServiceBusServer, entities: Entities
) -> None:
    sql.create(notify=False)
    sql.named(*BEFORE)
    async with working(settings(sql.url, servicebus)):
        await sql.until_passed()
        # Whatever of these is under way when the worker is stopped, it finishes.
        sql.named(*(f"moving-{number}" for number in range(60)))
    first = (await topic_counts(servicebus.admin_port))["accepted"]
    async with ServiceBusServer(entities) as other:
        sql.named("new")
        await published(sql, other)
        second = (await topic_counts(other.admin_port))["accepted"]
        arrived = [*await received(servicebus, first), *await received(other, second)]

    assert arrived == [*BEFORE, *(f"moving-{number}" for number in range(60)), "new"]


async def test_logins_of_one_role_take_turns(
    sql: SqlDeployment, servicebus: ServiceBusServer, tmp_path: Path
) -> None:
    once, again = section(PAGE, "Rotate keys and passwords", "sql")
    sql.create("id text primary key, partition_key text, data json", notify=False)
    sql.named("first")
    await published(sql, servicebus)
    sql.connection.execute(once)

    for number, login in enumerate(("relay_a", "relay_b", "relay_a")):
        if number == 1:
            sql.connection.execute(again)
        sql.named(f"by-{login}-{number}")
        as_login = sql.url.replace("postgres@", f"{login}@", 1)
        assert as_login != sql.url
        async with working(settings(as_login, servicebus)):
            await sql.until_passed()

    owners = sql.rows('select distinct role_name from changefeed."claim:outbox.domain_event"')
    assert owners == [("relay_readers",)]
    assert (await topic_counts(servicebus.admin_port))["accepted"] == 4
