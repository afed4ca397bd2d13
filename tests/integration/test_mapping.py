"""The three layouts of docs/mapping.md, each relayed by the file that the page shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from azure.cosmos.aio import CosmosClient

from local.stack.environment import DATABASE
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.operator.backends.backend import open_backend
from outbox_relay.operator.backends.cosmos.reader import CosmosOutbox
from outbox_relay.operator.backends.sql.reader import SqlOutbox
from relay.backends.canary import is_canary
from relay.backends.cosmos.backend import CosmosBackend
from relay.backends.outbox import Range
from relay.config.settings import Settings
from relay.config.streams import read_streams
from relay.core.events import Reason, Rejected
from relay.quarantine.quarantine import StoredQuarantine
from tests.integration.conftest import BOTH_SENDERS
from tests.integration.test_operators_smoke import Running
from tests.support.broker import topic_counts
from tests.support.layouts import DEBEZIUM, delivered, layout, only_stream
from tests.support.operators import SMOKE, relay_command, shell_words
from tests.support.outbox import event, rejected
from tests.support.pages import ROOT
from tests.support.sql_deployment import OUTBOX, TABLE, SqlDeployment, working
from tests.support.subscriber import body, properties, received

CLOUDEVENT = {
    "specversion": "1.0",
    "id": "7f3a",
    "source": "/shop",
    "type": "com.shop.placed",
    "partitionkey": "order-7",
    "time": "2026-02-09T11:37:00Z",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "data": {"tenant": "a", "amount": 12, "total": 1.5},
}


@BOTH_SENDERS
async def test_cloudevents_are_relayed_as_they_are_stored(
    cosmos: CosmosServer,
    account: CosmosClient,
    servicebus: ServiceBusServer,
    environment: dict[str, str],
    pipelined: bool,
    quick_sdk: None,
    tmp_path: Path,
) -> None:
    provision(cosmos.account, [ContainerSpec.parse(f"{DATABASE}/events:/partitionkey:-1")])
    container = account.get_database_client(DATABASE).get_container_client("events")
    environment |= {"COSMOS_CONTAINER": "events", "RELAY_PIPELINED": str(pipelined)}
    settings = only_stream(environment, tmp_path, layout("cloudevents"))
    wrong = {**CLOUDEVENT, "id": "bad", "data": {"amount": []}}
    for document in (CLOUDEVENT, {**CLOUDEVENT, "id": "x" * 130}, wrong, {"id": "o", "partitionkey": "order-7"}):
        await container.create_item(document)
    relay, outbox = CosmosBackend(settings).relay, CosmosOutbox(settings)
    try:
        await relay.handle(await delivered(account, "events"), "i")
        (first, second) = (await received(servicebus.connection_string, 2)).messages["order-7"]
        found = await outbox.find("order-7", "/shop 7f3a")
        news = await outbox.news(10)
        of_key, more = await outbox.of_key("order-7", 2)
        data = await outbox.data("order-7", ["/shop 7f3a", str(second.message_id)])
        reading = await outbox.in_range(Range(0, 2**40, "order-7", "com.shop.placed", ["/shop 7f3a"]))
        await reading.count()
        ranged = [each async for page in reading.pages() for each in page]
    finally:
        await outbox.close()
        await relay.close()

    assert (first.message_id, first.session_id, first.subject) == ("/shop 7f3a", "order-7", "com.shop.placed")
    assert json.loads(body(first)) == CLOUDEVENT["data"]
    assert properties(first).items() >= {
        "type": "com.shop.placed", "createdAt": CLOUDEVENT["time"], "traceparent": CLOUDEVENT["traceparent"],
        "cloudEvents:id": "7f3a", "cloudEvents:source": "/shop", "cloudEvents:specversion": "1.0",
        "cloudEvents:type": "com.shop.placed", "cloudEvents:time": CLOUDEVENT["time"],
        "tenant": "a", "amount": 12.0,
    }.items()  # fmt: skip
    assert type(properties(first)["amount"]) is float
    assert len(str(second.message_id)) == 64
    quarantine = account.get_database_client(DATABASE).get_container_client("quarantine")
    records = [each async for each in quarantine.read_all_items() if each["type"] == "quarantinedEvent"]
    assert [(each["reason"], each["documentId"]) for each in records] == [("not-mapped", "/shop bad")]
    assert records[0]["document"]["id"] == "bad"
    # The commands know the event by the id of its message.
    assert found is not None
    assert (found.type, found.is_taken, len(found.places)) == ("com.shop.placed", True, 1)
    ids = ["/shop 7f3a", str(second.message_id), "/shop bad"]
    assert [each.id for each in news] == ids
    assert ([each.id for each in of_key], more) == (ids[1:], True)
    assert json.loads(data["/shop 7f3a"]) == CLOUDEVENT["data"]
    assert len(data) == 2
    assert [each.fields["id"] for each in ranged] == ["/shop 7f3a"]


@pytest.mark.parametrize(
    "rule", ['types = ["placed"]\nfields.type = "/data/kind"', 'events = { "/data/kind" = "placed" }']
)
async def test_commands_find_an_event_whose_type_is_within_text(
    account: CosmosClient, environment: dict[str, str], tmp_path: Path, rule: str
) -> None:
    settings = only_stream(environment, tmp_path, f'{rule}\nfields.action = "/data/kind"')
    container = account.get_database_client(DATABASE).get_container_client("data")
    for name, kind in (("1", "placed"), ("2", "paid"), ("3", "placed")):
        await container.create_item(event(name, "k") | {"data": json.dumps({"kind": kind})})
    outbox = CosmosOutbox(settings)
    try:
        of_key, more = await outbox.of_key("k", 10)
        reading = await outbox.in_range(Range(0, 2**40, "k"))
        count = await reading.count()
        ranged = [each async for page in reading.pages() for each in page]
    finally:
        await outbox.close()

    assert count is None
    assert ([each.id for each in of_key], more) == (["1", "3"], False)
    assert [each.fields["id"] for each in ranged] == ["1", "3"]


async def test_what_a_wrong_rule_set_aside_is_released_once_the_rule_is_right(
    account: CosmosClient, servicebus: ServiceBusServer, environment: dict[str, str], tmp_path: Path
) -> None:
    (file := tmp_path / "relay.toml").write_text('types = []\nfields.type = "/kind"\nfields.action = "/data/what"')
    environment |= {"RELAY_FILE": str(file)}
    (settings,) = read_streams(environment | {"RELAY_DUPLICATE_WINDOW_S": "604800"}, app=tmp_path)
    await account.get_database_client(DATABASE).get_container_client("data").create_item(event("e", "k"))
    relay = CosmosBackend(settings).relay
    try:
        await relay.handle(await delivered(account, "data"), "i")
    finally:
        await relay.close()
    words = ("quarantine", "release", "--reason", "not-mapped", "--json")

    wrong = await relay_command(environment, *words)
    file.write_text('properties.kind = "/type"')
    right = await relay_command(environment, *words)

    assert (wrong.code, right.code) == (1, 0), (wrong.err, right.err)
    (message,) = (await received(servicebus.connection_string, 1)).messages["k"]
    assert (message.message_id, properties(message)["kind"]) == ("e", "domainEvent")


async def test_a_row_that_a_wrong_rule_set_aside_is_released_once_the_file_is_taken_back(
    sql: SqlDeployment, servicebus: ServiceBusServer, tmp_path: Path
) -> None:
    sql.create("id text primary key, partition_key text not null, data json not null, amount numeric(9,2)")
    environment = {"SQL": sql.url, "SERVICEBUS": servicebus.connection_string}
    wrong = only_stream(environment, tmp_path, 'fields.action = "/data/nothing"')
    data = {"action": "Made", "_original": {"id": "other"}, "_dataText": "other"}
    sql.write(("e1", "k", data))
    assert wrong.feed is not None
    outbox, items = SqlOutbox(wrong.feed), open_backend(wrong).open_store()
    try:
        [document] = [each async for page in (await outbox.in_range(Range(0, 2**40))).pages() for each in page]
        aside = outbox.event_of(document)
        assert isinstance(aside, Rejected)
        await StoredQuarantine(items).store([aside], "i")
    finally:
        await items.close()
        await outbox.close()
    words = ("quarantine", "release", "--all", "--json")

    before = await relay_command(environment | {"RELAY_FILE": str(tmp_path / "relay.toml")}, *words)
    after = await relay_command(environment, *words)

    assert [each["reason"] for each in before.json["stillInvalid"]] == ["not-mapped"]
    assert (after.code, len(after.json["released"])) == (0, 1), after.err
    (message,) = (await received(servicebus.connection_string, 1)).messages["k"]
    assert (message.message_id, message.subject, json.loads(body(message))) == ("e1", "Made", data)


async def test_the_articles_events_get_properties_and_are_filtered(
    account: CosmosClient, servicebus: ServiceBusServer, environment: dict[str, str], tmp_path: Path
) -> None:
    settings = only_stream(environment, tmp_path, layout("article"))
    data = {
        "internal": False, "tenant": "a", "total": "7", "due": "2026-02-10T00:00:00Z", "subject": "S",
        "correlationId": "c", "replyTo": "r", "validFor": "PT1H",
    }  # fmt: skip
    container = account.get_database_client(DATABASE).get_container_client("data")
    for document in (event("inside", "k", internal=True), event("e1", "k", **data)):
        await container.create_item(document)
    relay = CosmosBackend(settings).relay
    try:
        await relay.handle(await delivered(account, "data"), "i")
        (message,) = (await received(servicebus.connection_string, 1)).messages["k"]
    finally:
        await relay.close()

    assert (message.message_id, message.subject) == ("e1", "S")
    assert (message.correlation_id, message.reply_to) == ("c", "r")
    assert message.time_to_live is not None
    assert message.time_to_live.total_seconds() == 3600
    assert json.loads(body(message)).items() >= data.items()
    assert properties(message).items() >= {"tenant": "a", "total": 7, "due": 1_770_681_600_000}.items()


async def test_the_table_of_debezium_is_relayed(
    sql: SqlDeployment, servicebus: ServiceBusServer, tmp_path: Path
) -> None:
    sql.create(DEBEZIUM)
    environment = {"SQL": sql.url, "SERVICEBUS": servicebus.connection_string, "RELAY_POLL_DELAY_MS": "50"}
    settings = only_stream(environment, tmp_path, f'outboxes.default.feed = "{TABLE}"\n{layout("debezium")}')
    ids = [f"00000000-0000-0000-0000-00000000000{number}" for number in range(2)]
    payloads = ['{"total": 1.000000000000000000001}', '"no object"']
    with sql.connection.transaction():
        for identifier, payload in zip(ids, payloads, strict=True):
            row = (identifier, "order", "order-7", "OrderPlaced", payload)
            sql.connection.execute(f"insert into {TABLE} values (%s, %s, %s, %s, %s)", row)
            sql.connection.execute(f"insert into {OUTBOX} (shard_id, id) values (0, %s)", (identifier,))
    assert settings.feed is not None
    outbox = SqlOutbox(settings.feed)
    try:
        async with working(settings):
            (message,) = (await received(servicebus.connection_string, 1)).messages["order-7"]
        found = await outbox.find("order-7", ids[0])
        of_key, _ = await outbox.of_key("order-7", 5)
        data = await outbox.data("order-7", ids[:1])
        (aside,) = [each async for page in (await outbox.in_range(Range(0, 2**40))).pages() for each in page][1:]
        again = outbox.event_of(aside)
    finally:
        await outbox.close()

    assert (message.message_id, message.subject) == (ids[0], "OrderPlaced")
    assert body(message).decode() == payloads[0]
    assert properties(message) == {"type": "OrderPlaced", "aggregatetype": "order"}
    assert found is not None
    assert (found.type, found.is_taken) == ("OrderPlaced", True)
    assert [each.id for each in of_key] == ids
    assert data == {ids[0]: payloads[0]}
    assert str(again) == "data-not-object: data is a string, not an object"


async def test_explain_shows_an_event_of_a_file_and_one_of_the_outbox_and_sends_nothing(
    cosmos: CosmosServer,
    account: CosmosClient,
    servicebus: ServiceBusServer,
    environment: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    provision(cosmos.account, [ContainerSpec.parse(f"{DATABASE}/events:/partitionkey:-1")])
    await account.get_database_client(DATABASE).get_container_client("events").create_item(CLOUDEVENT)
    monkeypatch.chdir(tmp_path)
    (stored := tmp_path / "event.json").write_text(json.dumps(CLOUDEVENT))
    (tmp_path / "relay.toml").write_text(layout("cloudevents"))
    environment |= {"RELAY_FILE": str(tmp_path / "relay.toml"), "COSMOS_CONTAINER": "events"}
    page = (ROOT / "docs/mapping.md").read_text(encoding="utf-8")
    commands = page.split("```sh\n")[1].split("```")[0].splitlines()

    of_file, of_id = [await relay_command(environment, *shell_words(each)[3:], "--json") for each in commands]
    lines = await relay_command(environment, *shell_words(commands[0])[3:])
    stored.write_text(json.dumps({**CLOUDEVENT, "time": "soon"}))
    aside = await relay_command(environment, "explain", "event.json")
    nowhere = await relay_command(environment, "explain", "7f3a", "--key", "order-7")

    (stream,) = of_file.json["streams"]
    message = stream["message"]
    assert (of_file.code, stream["outcome"], stream["destination"]) == (0, "publish", "the topic 'domain-events'")
    assert (message["message_id"], message["session_id"]) == ("/shop 7f3a", "order-7")
    assert message["application_properties"]["amount"] == {"type": "double", "value": 12.0}
    assert json.loads(message["body"]) == CLOUDEVENT["data"]
    # The outbox adds the time of the commit.
    (other,) = of_id.json["streams"]
    assert other["message"]["application_properties"].pop("cosmosTimestamp")["type"] == "long"
    assert other.pop("bytes") > stream.pop("bytes")
    assert other == stream
    assert "stream default, to the topic 'domain-events': the event is published (every event)" in lines.out
    assert "  amount = 12.0 (double)" in lines.out
    assert (aside.code, "  not-mapped: fields.time: /time is no time in RFC 3339" in aside.out) == (1, True)
    assert (nowhere.code, "is in no outbox" in nowhere.err) == (2, True)
    assert (await topic_counts(servicebus.admin_port, "domain-events"))["accepted"] == 0


async def test_explain_shows_what_each_stream_does(environment: dict[str, str], tmp_path: Path) -> None:
    routes = """
        [destinations.audit]
        queue = "audit"
        [[routes]]
        when.key = "a"
        to = ["audit"]
        [[routes]]
        when.key = "b"
        to = ["default"]
        [message]
        scheduled_enqueue_time = "/data/at"
        time_to_live = "/data/lasts"
    """
    (file := tmp_path / "relay.toml").write_text(routes)
    (stored := tmp_path / "event.json").write_text(
        json.dumps(event("e", "b", at="2026-02-10T00:00:00Z", lasts=1.5))
    )

    run = await relay_command(environment | {"RELAY_FILE": str(file)}, "explain", str(stored), "--json")
    stored.write_text(json.dumps(event("e", "c")))
    unrouted = await relay_command(environment | {"RELAY_FILE": str(file)}, "explain", str(stored))

    found = {each["stream"]: (each["outcome"], each["rule"]) for each in run.json["streams"]}
    assert found == {"audit": ("ignore", "key is 'b' → default"), "default": ("publish", "key is 'b' → default")}
    (message,) = [each["message"] for each in run.json["streams"] if "message" in each]
    assert (message["scheduled_enqueue_time"], message["time_to_live_s"]) == ("2026-02-10T00:00:00.000Z", 1.5)
    assert unrouted.code == 1
    assert "  no-route: " in unrouted.out


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "it is set aside as message-too-large"),
        (
            {
                "RELAY_LARGE": "claim-check",
                "BLOBS": "AccountName=a;AccountKey=eA==;BlobEndpoint=http://127.0.0.1:1/a",
            },
            "its body goes to the container 'large-events', and a message that names it takes its place",
        ),
    ],
)
async def test_explain_says_what_becomes_of_a_large_event(
    environment: dict[str, str], tmp_path: Path, settings: dict[str, str], says: str
) -> None:
    (stored := tmp_path / "event.json").write_text(json.dumps(event("e", "k", text="x" * 262_144)))
    shown = await relay_command(environment | settings, "explain", str(stored))
    stored.write_text(json.dumps(event("e", "k", text="x" * 261_000)))
    smaller = await relay_command(environment | settings, "explain", str(stored), "--json")

    assert "  large: the message has 262" in shown.out
    assert f"on Premium, {says}\n" in shown.out
    (stream,) = smaller.json["streams"]
    assert (stream["bytes"] < 262_144, "large" in stream) == (True, False)


async def test_check_refuses_a_key_that_is_not_the_containers(environment: dict[str, str], tmp_path: Path) -> None:
    (file := tmp_path / "relay.toml").write_text('fields.key = "/data/customer"')

    run = await relay_command(environment | {"RELAY_FILE": str(file)}, "check", "--json")

    (finding,) = [each for each in run.json["findings"] if "partition key /partitionKey, not" in each["what"]]
    assert finding["level"] == "error"
    assert finding["what"].endswith("has the partition key /partitionKey, not /data/customer")
    assert 'set key = "/partitionKey" in [fields]' in finding["remedy"]


async def test_smoke_writes_a_cloudevent_into_an_outbox_of_cloudevents(
    cosmos: CosmosServer,
    account: CosmosClient,
    environment: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    provision(cosmos.account, [ContainerSpec.parse(f"{DATABASE}/events:/partitionkey:-1")])
    (tmp_path / "relay.toml").write_text(layout("cloudevents"))
    environment |= {"RELAY_FILE": str(tmp_path / "relay.toml"), "COSMOS_CONTAINER": "events"}
    environment |= {"RELAY_POLL_DELAY_MS": "100"}

    async with Running(ROOT, environment, monkeypatch):
        run = await relay_command(environment, *SMOKE, "--json")

    assert (run.code, run.json["differences"], run.json["leftBehind"]) == (0, [], []), run.err
    source, _, identifier = run.json["id"].partition(" ")
    assert (source, is_canary(identifier)) == ("smoke-test", True)
    container = account.get_database_client(DATABASE).get_container_client("events")
    assert [each async for each in container.read_all_items()] == []


async def test_smoke_writes_a_row_into_the_table_of_debezium(
    sql: SqlDeployment, servicebus: ServiceBusServer, tmp_path: Path
) -> None:
    sql.create(DEBEZIUM)
    (file := tmp_path / "relay.toml").write_text(f'outboxes.default.feed = "{TABLE}"\n{layout("debezium")}')
    environment = {"SQL": sql.url, "SERVICEBUS": servicebus.connection_string, "RELAY_POLL_DELAY_MS": "50"}
    environment |= {"RELAY_FILE": str(file), "RELAY_DUPLICATE_WINDOW_S": "604800"}
    words = (*SMOKE, "--json")

    async with working(only_stream(environment, tmp_path, file.read_text())):
        run = await relay_command(environment, *words)
    sql.connection.execute(f"alter table {TABLE} add column tenant uuid not null")
    refused = await relay_command(environment, *words)

    assert (run.code, run.json["differences"], run.json["leftBehind"]) == (0, [], []), run.err
    assert sql.rows(f"select id from {TABLE}") == []
    assert refused.code == 3
    assert 'null value in column "tenant"' in refused.err
    assert "It has values for payload, aggregateid, id, type, aggregatetype alone" in refused.err


async def test_explain_says_that_an_operator_discarded_the_event(
    environment: dict[str, str], account: CosmosClient
) -> None:
    document = event("e", "k")
    await account.get_database_client(DATABASE).get_container_client("data").create_item(document)
    quarantine = StoredQuarantine(open_backend(Settings.from_environment(environment)).open_store())
    await quarantine.store(rejected(Reason.MESSAGE_REFUSED, document), "i1")
    await quarantine.close()

    kept = await relay_command(environment, "explain", "e", "--key", "k")
    await relay_command(environment, "quarantine", "discard", "--all", "--yes", "--why", "a test order")
    discarded = await relay_command(environment, "explain", "e", "--key", "k")

    assert re.search("it is in quarantine since .*: message-refused", kept.out)
    assert re.search("it was discarded by .* at .*: a test order", discarded.out)
