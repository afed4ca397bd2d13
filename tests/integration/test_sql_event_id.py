"""An SQL outbox whose id column is not called `id`: what the relay and the operators' commands do with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from outbox_relay.changefeed import START, DatabaseError, Entry, connect_async
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.operator.backends.sql.reader import SqlOutbox
from relay.backends.canary import canary_id, is_canary
from relay.backends.outbox import Range
from relay.backends.sql.missing import vouch_for
from relay.config.streams import read_streams
from tests.support.broker import refuse, stop_refusing, topic_counts
from tests.support.operators import SMOKE, relay_command
from tests.support.sql_deployment import CLAIM, FEED, OUTBOX, PATIENT, TABLE, SqlDeployment, working
from tests.support.subscriber import received

# `id` is a number that nobody asked for, as many tables have one.
COLUMNS = (
    "event_id uuid primary key, id bigint generated always as identity, "
    "aggregatetype varchar(255) not null default 'order', aggregateid varchar(255) not null, "
    "type varchar(255) not null default 'OrderPlaced', payload jsonb not null"
)
FILE = f"""
outboxes.default.feed = "{TABLE}"
layout = "debezium"
fields.id = "/event_id"
"""
KEY = "order-7"


def event_id(number: int) -> str:
    return str(UUID(int=number))


class Orders:
    """A Debezium-style table with a feed, and the settings of the relay and of its commands.

    Attributes:
        environment: For commands.
        settings: Of the only stream.
    """

    def __init__(
        self,
        sql: SqlDeployment,
        servicebus: ServiceBusServer,
        folder: Path,
        *,
        columns: str = COLUMNS,
        text: str = FILE,
    ) -> None:
        sql.create(columns)
        (file := folder / "relay.toml").write_text(text)
        self.sql = sql
        self.environment = {
            "SQL": sql.url,
            "SQL_CLAIM_S": "4",
            "SERVICEBUS": servicebus.connection_string,
            "SERVICEBUS_ADMIN": f"http://127.0.0.1:{servicebus.admin_port}",
            "RELAY_FILE": str(file),
            "RELAY_POLL_DELAY_MS": "50",
            "RELAY_DUPLICATE_WINDOW_S": "600",
        }
        (self.settings,) = read_streams(self.environment, app=folder)

    def write(self, *numbers: int) -> list[str]:
        """Commit an event for each number, in one transaction; returns their ids."""
        ids = [event_id(number) for number in numbers]
        with self.sql.connection.transaction():
            for identifier, number in zip(ids, numbers, strict=True):
                self.sql.connection.execute(
                    f"insert into {TABLE} (event_id, aggregateid, payload) values (%s, %s, %s)",
                    (identifier, KEY, json.dumps({"number": number})),
                )
                self.sql.connection.execute(
                    f"insert into {OUTBOX} (shard_id, event_id) values (0, %s)", (identifier,)
                )
        return ids

    async def relay(self) -> None:
        """Relay what was committed."""
        async with working(self.settings):
            await self.sql.until_passed()

    async def command(self, *words: str) -> Any:
        """Run a command; returns its exit code and its JSON."""
        run = await relay_command(self.environment, *words, "--json")
        return run.code, run.json


@pytest.fixture
def orders(sql: SqlDeployment, servicebus: ServiceBusServer, tmp_path: Path) -> Orders:
    return Orders(sql, servicebus, tmp_path)


async def test_events_are_published_once_and_in_order(orders: Orders, servicebus: ServiceBusServer) -> None:
    ids = orders.write(9, 3, 7) + orders.write(1)
    await orders.relay()
    orders.sql.connection.execute(f"update {CLAIM} set last_ulid = '{UUID(int=0)}'")
    await orders.relay()

    subscriber = await received(servicebus.connection_string, 4)
    assert subscriber.ids() == {KEY: ids}
    assert [message.subject for message in subscriber.messages[KEY]] == ["OrderPlaced"] * 4
    assert (await topic_counts(servicebus.admin_port))["duplicates_dropped"] == 4


async def test_a_refused_event_is_listed_shown_and_released(orders: Orders, servicebus: ServiceBusServer) -> None:
    before, bad, after = orders.write(1, 2, 3)
    await refuse(servicebus.admin_port, bad, "amqp:not-allowed")
    await orders.relay()
    _, listed = await orders.command("quarantine", "list")
    (record,) = listed["records"]
    _, shown = await orders.command("quarantine", "show", record["id"])
    _, explained = await orders.command("explain", bad, "--key", KEY)
    await stop_refusing(servicebus.admin_port)

    code, released = await orders.command("quarantine", "release", "--all")

    assert (record["documentId"], record["reason"]) == (bad, "message-refused")
    stored = shown["record"]["document"]
    assert (stored["event_id"], stored["id"]) == (bad, 2)
    assert "message-refused" in explained["streams"][0]["quarantine"]
    # A later event of its key went out before it.
    assert (code, len(released["released"]), released["late"]) == (0, 1, released["released"])
    assert (await received(servicebus.connection_string, 3)).ids() == {KEY: [before, after, bad]}


async def test_an_event_is_set_aside_and_discarded_by_its_id(orders: Orders, servicebus: ServiceBusServer) -> None:
    first, second = orders.write(1, 2)
    await refuse(servicebus.admin_port, second, "amqp:internal-error")
    _, other = await orders.command("quarantine", "add", KEY, event_id(3), "--yes")
    code, added = await orders.command("quarantine", "add", KEY, second, "--yes")
    await orders.relay()
    _, passed = await orders.command("quarantine", "add", KEY, first, "--yes")
    await orders.command("quarantine", "discard", "--all", "--yes", "--why", "a test order")
    _, explained = await orders.command("explain", second, "--key", KEY)

    assert (other["found"], other["ordered"]) == (False, False)
    assert (code, added["found"], added["ordered"], passed["passed"]) == (0, True, True, True)
    assert (await received(servicebus.connection_string, 1)).ids() == {KEY: [first]}
    assert explained["streams"][0]["quarantine"].endswith(": a test order")


async def test_events_are_replayed_by_their_ids(orders: Orders, servicebus: ServiceBusServer) -> None:
    ids = orders.write(1, 2, 3)
    orders.sql.read()
    orders.sql.pass_all()
    chosen = ("--from", "2026-01-01T00:00:00Z", "--id", ids[2], "--id", ids[0])

    _, planned = await orders.command("replay", *chosen, "--dry-run")
    code, run = await orders.command("replay", *chosen)

    assert (planned["matched"], code, run["matched"], run["published"]) == (2, 0, 2, 2)
    assert (await received(servicebus.connection_string, 2)).ids() == {KEY: [ids[0], ids[2]]}


async def test_events_are_found_explained_and_shown(orders: Orders) -> None:
    ids = orders.write(1, 2)
    orders.sql.read()
    waiting = orders.write(3)
    feed = orders.settings.feed
    assert feed is not None
    outbox = SqlOutbox(feed)
    try:
        news = await outbox.news(10)
        of_key, more = await outbox.of_key(KEY, 2)
        data = await outbox.data(KEY, ids)
        found = await outbox.find(KEY, ids[1])
        elsewhere = await outbox.find("order-8", ids[1])
        pages = await outbox.next_pages(10)
        ranged = [page async for page in (await outbox.in_range(Range(0, 2**40, ids=ids[:1]))).pages()]
    finally:
        await outbox.close()

    code, explained = await orders.command("explain", ids[0], "--key", KEY)

    assert [each.id for each in news] == ids + waiting
    assert ([each.id for each in of_key], more) == ([ids[1], *waiting], True)
    assert {name: json.loads(text) for name, text in data.items()} == {
        ids[0]: {"number": 1},
        ids[1]: {"number": 2},
    }
    assert found is not None
    assert (found.type, found.is_taken, found.passed, len(found.places)) == ("OrderPlaced", True, False, 1)
    assert elsewhere is None
    assert [each.id for each in pages[0].received.events] == ids
    assert [each.fields["id"] for page in ranged for each in page] == ids[:1]
    (stream,) = explained["streams"]
    assert (code, stream["outcome"]) == (0, "publish")
    assert (stream["message"]["message_id"], stream["message"]["session_id"]) == (ids[0], KEY)


async def test_a_large_event_is_explained_with_its_id(orders: Orders) -> None:
    (large,) = orders.write(1)
    orders.sql.connection.execute(f"update {TABLE} set payload = jsonb_build_object('t', repeat('x', 300000))")
    account = "AccountName=a;AccountKey=eA==;BlobEndpoint=http://127.0.0.1:1/a"
    orders.environment |= {"RELAY_LARGE": "claim-check", "BLOBS": account}

    code, explained = await orders.command("explain", large, "--key", KEY)

    (stream,) = explained["streams"]
    assert (code, stream["message"]["message_id"]) == (0, large)
    assert "its body goes to the container 'large-events'" in stream["large"]


async def test_check_finds_nothing_wrong(orders: Orders) -> None:
    orders.write(1)
    async with working(orders.settings):
        await orders.sql.until_passed()
        orders.environment |= PATIENT
        _, checked = await orders.command("check")

    about = [each for each in checked["findings"] if f"'{TABLE}'" in each["what"]]
    assert [each for each in about if each["level"] != "ok"] == []
    (columns,) = [each["what"] for each in about if "the columns" in each["what"]]
    assert columns.endswith("has the columns event_id, aggregateid, payload and the primary key event_id")


async def test_scan_names_events_by_their_ids(orders: Orders) -> None:
    _, wrong, gone = orders.write(1, 2, 3)
    canary = orders.write(UUID(canary_id()).int)[0]
    orders.sql.read()
    (waiting,) = orders.write(4)
    orders.sql.connection.execute(
        f"update {TABLE} set payload = '7' where event_id in ('{wrong}', '{waiting}');"
        f"delete from {TABLE} where event_id in ('{gone}', '{canary}')"
    )

    _, scanned = await orders.command("check", "--scan")

    # A smoke test has deleted its event.
    assert sorted(each["id"] for each in scanned["rejected"]) == [wrong, gone, waiting]
    assert scanned["scannedRows"] == 5


async def test_check_refuses_a_column_that_is_not_the_primary_key(
    sql: SqlDeployment, servicebus: ServiceBusServer, tmp_path: Path
) -> None:
    orders = Orders(sql, servicebus, tmp_path, text=FILE.replace("event_id", "id"))

    _, checked = await orders.command("check")

    (finding,) = [each for each in checked["findings"] if "primary key" in each["what"]]
    assert finding["level"] == "error"
    assert "has the primary key (event_id), not (id)" in finding["what"]
    assert "fields.id of relay.toml" in finding["remedy"]


async def test_a_row_that_was_deleted_is_set_aside_and_released_when_it_is_there_again(
    orders: Orders, servicebus: ServiceBusServer
) -> None:
    first, gone, last = orders.write(1, 2, 3)
    orders.sql.connection.execute(
        f"create temp table kept as select * from {TABLE} where event_id = '{gone}';"
        f"delete from {TABLE} where event_id = '{gone}'"
    )
    await orders.relay()
    _, listed = await orders.command("quarantine", "list")
    _, still = await orders.command("quarantine", "release", "--all")
    orders.sql.connection.execute(f"insert into {TABLE} overriding system value select * from kept")

    code, released = await orders.command("quarantine", "release", "--all")

    assert [(each["documentId"], each["reason"]) for each in listed["records"]] == [
        (gone, "partition-key-missing")
    ]
    assert (len(still["stillInvalid"]), code, len(released["released"])) == (1, 0, 1)
    assert (await received(servicebus.connection_string, 3)).ids() == {KEY: [first, last, gone]}


async def test_a_detached_partition_is_named_with_the_column(
    sql: SqlDeployment, servicebus: ServiceBusServer, tmp_path: Path
) -> None:
    columns = "event_id text, day int, aggregateid text, type text, payload json, primary key (event_id, day)"
    feed = Orders(sql, servicebus, tmp_path, columns=f"{columns}) partition by list (day").settings.feed
    assert feed is not None
    sql.connection.execute(f"create table outbox.first partition of {TABLE} for values in (1)")
    sql.connection.execute(
        f"insert into {TABLE} values ('b', 1); alter table {TABLE} detach partition outbox.first"
    )
    session = await connect_async(sql.url)
    try:
        with pytest.raises(DatabaseError, match=r"'b' is in outbox\.first.*WHERE \"event_id\" = …"):
            await vouch_for(session, feed, [Entry(START, None, {"event_id": "b", "day": 1})])
    finally:
        await session.close()


async def test_the_canary_arrives_and_its_row_is_removed(orders: Orders) -> None:
    async with working(orders.settings):
        code, run = await orders.command(*SMOKE)

    assert (code, run["arrived"], run["differences"], run["leftBehind"]) == (0, True, [], [])
    assert orders.sql.rows(f"select event_id from {TABLE}") == []
    ((identifier,),) = orders.sql.rows(f"select event_id::text from {FEED}")
    assert (identifier, is_canary(identifier)) == (run["id"], True)
