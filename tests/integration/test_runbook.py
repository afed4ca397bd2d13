"""Each command in a row of the runbook, on a stack in that row's state: it works, and helps as the row says."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import azure.identity
import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient

from local.stack.environment import DATABASE
from outbox_relay.emulators.cosmos.authorization import EMULATOR_KEY
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from relay.backends.cosmos.backend import CosmosBackend, CosmosRelay
from relay.backends.cosmos.containers import Containers
from relay.backends.cosmos.quarantine import CosmosItems
from relay.backends.cosmos.source import ChangeBatch
from relay.config.settings import Settings
from relay.config.streams import read_streams
from relay.core.errors import ChangesError, LeaseError, PublishError, QuarantineError, SettingsError
from relay.core.events import Reason
from relay.quarantine.quarantine import StoredQuarantine
from relay.servicebus.publisher import ServiceBusPublisher
from tests.integration.conftest import RelayMaker
from tests.integration.test_operators_smoke import APP, Running
from tests.support.broker import TurnableClock, refuse, set_topic_status, stop_refusing
from tests.support.dead_letters import Topic
from tests.support.dead_letters import event as published
from tests.support.leases import TriggerLeases
from tests.support.operators import Run, relay_command
from tests.support.outbox import event, events, rejected
from tests.support.quarantine import settled
from tests.support.runbook import RUNBOOK, Operator, with_commands
from tests.support.sql_deployment import CLAIM, PATIENT, TABLE, SqlDeployment, working
from tests.support.subscriber import received
from tests.unit.test_documented_names import page

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
CONTENT = "com.microsoft:argument-error"

TestT = TypeVar("TestT", bound=Callable[..., Any])
FOLLOWED: set[str] = set()


def follows(*rows: str) -> Callable[[TestT], TestT]:
    """Marks the test that follows these rows of the page."""
    FOLLOWED.update(rows)
    return lambda test: test


@pytest.fixture
def entities() -> Entities:
    """The topic as it is deployed, as far as `check` looks at it."""
    text = (ROOT / "infra" / "emulators" / "Config.json").read_text(encoding="utf-8")
    deployed = text.replace('"PT5M"', '"PT10M"').replace('"PT1H"', '"P14D"')
    return Entities.from_document(json.loads(deployed))


@pytest.fixture
def environment(environment: dict[str, str]) -> dict[str, str]:
    return environment | {
        "RELAY_DUPLICATE_WINDOW_S": "600",
        "RELAY_SEND_TIMEOUT_S": "2",
        "RELAY_POLL_DELAY_MS": "100",
    }


@pytest.fixture
def operator(environment: dict[str, str], tmp_path: Path) -> Operator:
    operator = Operator(tmp_path)
    operator.set(environment)
    return operator


def lines(run: Run, level: str) -> str:
    return "\n".join(line for line in run.out.splitlines() if line.startswith(f"{level} "))


def test_every_row_with_a_command_is_followed() -> None:
    assert set(with_commands()) == FOLLOWED


# the quarantine


INVALID: dict[Reason, dict[str, Any]] = {
    Reason.ID_MISSING: {"id": ...},
    Reason.ID_NOT_STRING: {"id": 5},
    Reason.ID_EMPTY: {"id": ""},
    Reason.ID_TOO_LONG: {"id": "x" * 129},
    Reason.PARTITION_KEY_MISSING: {"partitionKey": ...},
    Reason.PARTITION_KEY_NOT_STRING: {"partitionKey": 5},
    Reason.PARTITION_KEY_EMPTY: {"partitionKey": ""},
    Reason.PARTITION_KEY_TOO_LONG: {"partitionKey": "x" * 129},
    Reason.DATA_NOT_OBJECT: {"data": 7},
    Reason.ACTION_NOT_STRING: {"data": {"action": 7}},
    Reason.PROPERTY_NOT_UNICODE: {"data": {"action": "\ud800"}},
    Reason.PROPERTIES_TOO_LARGE: {"data": {"action": "x" * 20_000}},
}


WRONG_RULES = """\
[properties]
amount = { from = "/data/amount", as = "long" }

[[routes]]
when = { action = "ContactNameUpdatedEvent" }
to = ["default"]
"""


async def records(environment: dict[str, str]) -> dict[str, str]:
    """The ids of the records in quarantine, as they are shown, by reason."""
    listed = await relay_command(environment, "quarantine", "list", "--json")
    return {record["reason"]: record["id"][:12] for record in listed.json["records"]}


@follows(*INVALID, "quarantine", "quota", "PoisonError")
async def test_invalid_events_are_listed_and_discarded(
    operator: Operator, environment: dict[str, str], make_relay: RelayMaker
) -> None:
    documents = [{**event(reason, f"key {reason}"), **changes} for reason, changes in INVALID.items()]
    sent = [{name: value for name, value in each.items() if value is not ...} for each in documents]
    outcome = await make_relay().handle(sent, "i1")
    assert outcome.quarantined == dict.fromkeys(INVALID, 1)
    found = await records(environment)

    listed = [await operator.follow(row) for row in ("quarantine", "quota", "PoisonError")]
    # One command for all of them.
    assert len({tuple(map(tuple, with_commands()[reason])) for reason in INVALID}) == 1
    ids = (found[Reason.ID_MISSING], found[Reason.PARTITION_KEY_MISSING])
    discarded = [await operator.follow(Reason.ID_MISSING, ID=identifier) for identifier in ids]

    assert all((run.code, reason in run.out) == (0, True) for run in listed for reason in INVALID)
    assert [(run.code, run.out) for run in discarded] == [(0, "discarded 1\n")] * 2
    assert set(found.values()) - set((await records(environment)).values()) == set(ids)


@follows("message-refused", "message-too-large", "set-aside")
async def test_events_whose_cause_is_gone_are_released(
    operator: Operator, environment: dict[str, str], servicebus: ServiceBusServer, make_relay: RelayMaker
) -> None:
    for identifier in ("refused", "aside"):
        await refuse(servicebus.admin_port, identifier, CONTENT)
    relay = make_relay()
    store = StoredQuarantine(CosmosItems(Containers(Settings.from_environment(environment).in_cosmos)))
    # As before an upgrade to Premium.
    await store.store(rejected(Reason.MESSAGE_TOO_LARGE, event("large", "b")), "i0")
    await store.close()
    await relay_command(environment, "quarantine", "add", "c", "aside", "--yes", "--force")
    await settled(relay, [event("refused", "a"), event("aside", "c")])
    found = await records(environment)
    assert set(found) == {"message-refused", "message-too-large", "set-aside"}
    await stop_refusing(servicebus.admin_port)

    runs = [await operator.follow(reason, ID=identifier) for reason, identifier in found.items()]

    assert [(run.code, run.out.splitlines()[0]) for run in runs] == [
        (0, "released 1, still invalid 0, not sent 0")
    ] * 3
    assert await records(environment) == {}
    arrived = (await received(servicebus.connection_string, 3)).ids()
    assert arrived == {"a": ["refused"], "b": ["large"], "c": ["aside"]}


@follows("not-mapped", "no-route")
async def test_events_whose_rule_was_corrected_are_released(
    operator: Operator, environment: dict[str, str], servicebus: ServiceBusServer, tmp_path: Path
) -> None:
    rules = tmp_path / "relay.toml"
    rules.write_text(WRONG_RULES)
    environment |= {"RELAY_FILE": str(rules)}
    operator.set(environment)
    (stream,) = read_streams(environment)
    relay = CosmosBackend(stream).relay
    documents = [event("much", "a", amount="much"), {**event("other", "b"), "data": {"action": "Other"}}]
    await relay.handle(documents, "i1")
    await relay.close()
    assert set(await records(environment)) == {"not-mapped", "no-route"}
    rules.write_text('[[routes]]\nto = ["default"]\n')

    runs = [await operator.follow(reason) for reason in ("not-mapped", "no-route")]

    assert [(run.code, run.out.splitlines()[0]) for run in runs] == [
        (0, "released 1, still invalid 0, not sent 0")
    ] * 2
    assert (await received(servicebus.connection_string, 2)).ids() == {"a": ["much"], "b": ["other"]}


@follows("ContentError")
async def test_a_container_of_large_events_that_cannot_be_reached_is_named(
    operator: Operator, environment: dict[str, str]
) -> None:
    account = "DefaultEndpointsProtocol=http;AccountName=a;AccountKey=YQ==;BlobEndpoint=http://127.0.0.1:1/a"
    operator.set(environment | {"RELAY_LARGE": "claim-check", "BLOBS": account})

    run = await operator.follow("ContentError")

    assert "RELAY_BLOB_CONTAINER 'large-events' cannot be written to" in lines(run, "error")


@follows("key-parked", "a parked key")
@pytest.mark.parametrize("row", ["key-parked", "a parked key"])
async def test_a_parked_key_is_released_when_its_cause_is_discarded(
    operator: Operator, environment: dict[str, str], servicebus: ServiceBusServer, make_relay: RelayMaker, row: str
) -> None:
    relay = make_relay(RELAY_ON_POISON="park")
    poison = event("k-0", "a key") | {"data": 7}
    await relay.handle([{**each, "_lsn": lsn} for lsn, each in enumerate([poison, *events("a key", 3)])], "i1")
    found = await records(environment)
    named = await operator.paste(["check", "--env-file", "relay.env"])
    assert (named.code, "'a key' is parked" in lines(named, "error")) == (1, True)

    stays = await operator.follow(row, KEY="a key")
    discarded = await operator.follow("data-not-object", ID=found["data-not-object"])
    released = await operator.follow(row, KEY="a key")

    assert [run.code for run in (stays, discarded, released)] == [1, 0, 0]
    assert "'a key' is no longer parked" in released.out
    assert (await received(servicebus.connection_string, 3)).ids() == {"a key": [f"a key-{n}" for n in range(3)]}
    assert (await operator.paste(["check", "--env-file", "relay.env"])).code == 0


# events that hold up their key


async def committed(trigger: TriggerLeases, *documents: dict[str, Any]) -> list[dict[str, Any]]:
    """The documents in the outbox, as the change feed gives them."""
    for document in documents:
        await trigger.data.create_item(document)
    await trigger.store()
    return [document async for document in trigger.data.query_items_change_feed(start_time="Beginning")]


async def attempts(relay: CosmosRelay, feed: list[dict[str, Any]], count: int) -> str:
    """Return the message of the last of several attempts that fail."""
    said = ""
    for retry_count in range(count):
        with pytest.raises(PublishError) as raised:
            await relay.handle(feed, "i1", retry_count)
        said = str(raised.value)
    return said


@follows("BlockedError")
async def test_a_blocking_event_is_set_aside(
    operator: Operator, environment: dict[str, str], trigger: TriggerLeases, make_relay: RelayMaker
) -> None:
    operator.set(environment | {"RELAY_ON_POISON": "block"})
    relay = make_relay(RELAY_ON_POISON="block")
    feed = await committed(trigger, event("b", "a key") | {"data": 7}, event("c", "a key"))
    assert "RELAY_ON_POISON is 'block'" in await attempts(relay, feed, 1)
    named = await operator.paste(["check", "--env-file", "relay.env"])
    assert (named.code, "'a key' is blocked by document 'b'" in lines(named, "error")) == (1, True)

    run = await operator.follow("BlockedError", KEY="a key", ID="b")

    assert (run.code, (await operator.paste(["check", "--env-file", "relay.env"])).code) == (0, 0)
    outcome = await relay.handle(feed, "i1", 1)
    assert (outcome.published, outcome.quarantined) == (1, {"data-not-object": 1})


@follows("RefusedAlikeError")
async def test_of_events_that_are_refused_alike_one_is_set_aside_all_the_same(
    operator: Operator, trigger: TriggerLeases, servicebus: ServiceBusServer, make_relay: RelayMaker
) -> None:
    keys = [f"k{number}" for number in range(4)]
    for key in keys:
        await refuse(servicebus.admin_port, f"e-{key}", CONTENT)
    relay = make_relay()
    feed = await committed(trigger, *(event(f"e-{key}", key) for key in keys))
    assert "refused alike" in await attempts(relay, feed, 3)

    run = await operator.follow("RefusedAlikeError", KEY="k0", ID="e-k0")
    await stop_refusing(servicebus.admin_port)

    outcome = await relay.handle(feed, "i1", 3)
    assert (run.code, outcome.published, outcome.quarantined) == (0, 3, {"set-aside": 1})


@follows("DefectError")
async def test_an_event_at_which_the_relay_fails_is_set_aside(
    operator: Operator, trigger: TriggerLeases, make_relay: RelayMaker
) -> None:
    relay = make_relay()
    publisher = cast(ServiceBusPublisher, relay._publisher)
    message_of = publisher._shared.message_of

    def fails(each: Any) -> Any:
        return message_of(each) if each.id != "b" else 1 // 0

    publisher._shared = replace(publisher._shared, message_of=fails)
    feed = await committed(trigger, *(event(identifier, "k") for identifier in "abc"))
    assert "This is a defect of the relay" in await attempts(relay, feed, 4)

    run = await operator.follow("DefectError", KEY="k", ID="b")

    outcome = await relay.handle(feed, "i1", 4)
    assert (run.code, outcome.published, outcome.quarantined) == (0, 1, {"set-aside": 1})


# what check names


@follows("failing", "ConfigurationError", "unread")
async def test_a_topic_that_is_disabled_or_missing_is_named(
    operator: Operator, environment: dict[str, str], servicebus: ServiceBusServer, make_relay: RelayMaker
) -> None:
    sound = await operator.follow("failing")
    await set_topic_status(servicebus.admin_port, "SendDisabled")
    with pytest.raises(PublishError, match="Set the topic's status to Active"):
        await make_relay().handle(events("k", 1), "i1")

    disabled = [await operator.follow(row) for row in ("failing", "ConfigurationError", "unread")]
    await set_topic_status(servicebus.admin_port, "Active")
    operator.set(environment | {"SERVICEBUS_TOPIC": "elsewhere"})
    missing = await operator.follow("ConfigurationError")

    assert sound.code == 0
    for run in disabled:
        assert (run.code, "'domain-events' is SendDisabled" in lines(run, "error")) == (1, True)
    assert (missing.code, "SERVICEBUS_TOPIC 'elsewhere' does not exist" in lines(missing, "error")) == (1, True)


@follows("SettingsError")
async def test_wrong_settings_are_named_until_they_are_corrected(
    operator: Operator, environment: dict[str, str]
) -> None:
    wrong = environment | {"RELAY_SENDER": "1", "RELAY_ON_POISON": "stop"}
    operator.set(wrong)
    with pytest.raises(SettingsError):
        Settings.from_environment(wrong)

    run = await operator.follow("SettingsError")
    operator.set(environment)
    corrected = await operator.follow("SettingsError")

    assert (run.code, corrected.code) == (2, 0)
    assert {"RELAY_SENDER", "RELAY_ON_POISON"} <= {line.split()[1] for line in run.out.splitlines()}


@follows("SourceError", "LeaseError", "RulesError", "The listener for function … was unable to start")
async def test_leases_that_cannot_be_read_are_named(
    operator: Operator, account: CosmosClient, make_relay: RelayMaker
) -> None:
    await account.get_database_client(DATABASE).delete_container("leases")
    old = [{**event("e", "k"), "_ts": 1_000_000_000, "_lsn": 1}]
    with pytest.raises(LeaseError):
        await make_relay().handle(old, "i1", 1)

    runs = [
        await operator.follow(row)
        # The rules are stored beside the leases.
        for row in ("SourceError", "LeaseError", "RulesError", "The listener for function … was unable to start")
    ]
    await account.get_database_client(DATABASE).create_container("leases", PartitionKey("/id"), default_ttl=-1)
    recreated = await operator.follow("LeaseError")

    for run in runs:
        assert run.code == 1
        assert "COSMOS_LEASE_CONTAINER 'leases' does not exist" in lines(run, "error")
    assert recreated.code == 0


@follows("QuarantineError", "StoreError")
async def test_a_quarantine_that_cannot_be_written_is_named(
    operator: Operator, account: CosmosClient, make_relay: RelayMaker
) -> None:
    database = account.get_database_client(DATABASE)
    await database.delete_container("quarantine")
    with pytest.raises(QuarantineError):
        await make_relay().handle([event("e", "k") | {"data": 7}], "i1")

    runs = [await operator.follow(row) for row in ("QuarantineError", "StoreError")]
    await database.create_container("quarantine", PartitionKey("/partitionKey"))
    recreated = await operator.follow("QuarantineError")

    for run in runs:
        assert run.code == 1
        assert "COSMOS_QUARANTINE_CONTAINER 'quarantine' does not exist" in lines(run, "error")
    assert recreated.code == 0


@follows("ServiceError")
async def test_an_account_that_cannot_be_reached_is_named(operator: Operator, cosmos: CosmosServer) -> None:
    await cosmos.stop()

    command = await operator.paste(["quarantine", "list", "--env-file", "relay.env"])
    run = await operator.follow("ServiceError")

    assert (command.code, run.code) == (3, 3)
    assert "the Cosmos DB account cannot be reached" in lines(run, "error")


@follows("ChangesError", "undelivered")
async def test_a_document_that_stops_its_partition_is_named_until_it_is_deleted(
    operator: Operator, trigger: TriggerLeases, container: ContainerProxy, make_relay: RelayMaker
) -> None:
    await trigger.store()
    await container.create_item(event("e", "k", deep=json.loads("[" * 62 + "]" * 62)))
    with pytest.raises(ChangesError):
        # A host whose parser has another limit delivers it, or a part.
        await make_relay().handle(ChangeBatch('[{"id": "e", "data": ' + "[" * 99_000), "i1")

    runs = [await operator.follow(row) for row in ("ChangesError", "undelivered")]
    await container.delete_item("e", partition_key="k")
    deleted = await operator.follow("undelivered")

    for run in runs:
        assert (run.code, "document 'e' with the partition key 'k'" in lines(run, "error")) == (1, True)
    assert deleted.code == 0


@pytest.mark.parametrize("identifier", ["e", "a%20b", "a ", "a/b", "it's"])
async def test_a_document_of_any_id_is_deleted_by_the_program_of_the_page(
    cosmos: CosmosServer, container: ContainerProxy, monkeypatch: pytest.MonkeyPatch, identifier: str
) -> None:
    deep = json.loads("[" * 62 + "]" * 62)
    documents = [event(each, "k", deep=deep) for each in (identifier, "other")]
    await container.execute_item_batch([("create", (each,)) for each in documents], "k")
    [program] = re.findall(r"<<'PY'\n(.*?)\nPY\n", page(RUNBOOK), re.DOTALL)
    place = {"COSMOS__accountEndpoint": cosmos.endpoint, "COSMOS_DATABASE": DATABASE, "COSMOS_CONTAINER": "data"}
    for name, value in {**place, "key": "k", "id": identifier}.items():
        monkeypatch.setenv(name, value)
    # The emulator takes keys, and no identities.
    monkeypatch.setattr(azure.identity, "DefaultAzureCredential", lambda: EMULATOR_KEY)

    await asyncio.to_thread(exec, program, {})

    assert [each["id"] async for each in container.read_all_items()] == ["other"]


@follows("silent")
async def test_smoke_decides_whether_a_silent_relay_works(
    operator: Operator, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Running(APP, environment, monkeypatch):
        run = await operator.follow("silent")

    assert (run.code, run.out.startswith("ok: the event arrived on 'all' unaltered")) == (0, True)


@follows("dead-letters")
async def test_dead_letters_are_published_again(
    environment: dict[str, str], entities: Entities, tmp_path: Path, quick_sdk: None
) -> None:
    clock = TurnableClock()
    # What is published now is older than the window when the clock is right.
    clock.ahead_ms = -1_200_000
    async with ServiceBusServer(entities, clock=clock) as server:
        topic, operator = Topic(server), Operator(tmp_path)
        operator.set(environment | topic.environment)
        topic.publish(published("k", 1))
        topic.dead_letter("all", "k", reason="MaxDeliveryCountExceeded")
        clock.ahead_ms = 0

        run = await operator.follow("dead-letters", NAME="all", REASON="MaxDeliveryCountExceeded")

        assert (run.code, run.out.splitlines()[0], topic.dead("all")) == (0, "resubmitted 1, left 0", [])


# an SQL outbox


@pytest.fixture
def sql_operator(sql: SqlDeployment, servicebus: ServiceBusServer, tmp_path: Path) -> Operator:
    operator = Operator(tmp_path)
    operator.set(
        {
            "SQL": sql.url,
            "SQL_CLAIM_S": "2",
            "SERVICEBUS": servicebus.connection_string,
            "SERVICEBUS_ADMIN": servicebus.admin_endpoint,
            "RELAY_DUPLICATE_WINDOW_S": "600",
        }
    )
    return operator


@follows("FeedError", "unowned", "replicas without errors")
async def test_a_feed_that_cannot_be_read_or_that_nobody_reads_is_named(
    sql_operator: Operator, sql: SqlDeployment
) -> None:
    missing = await sql_operator.follow("FeedError")
    sql.create()
    sql.connection.execute(f"insert into {CLAIM} (consumer, shard_id, owner) values ('relay', 0, null)")
    unowned = [await sql_operator.follow(row) for row in ("unowned", "replicas without errors")]
    written = (sql_operator.folder / "relay.env").read_text(encoding="utf-8").splitlines()
    environment = {name: value.strip("'") for name, value in (line.split("=", 1) for line in written)}
    settings = Settings.from_environment(environment)
    async with working(settings):
        sql.named("e1")
        await sql.until_passed()
        sql_operator.set(environment | PATIENT)
        owned = await sql_operator.follow("FeedError")

    assert (missing.code, "the schema changefeed is not installed" in lines(missing, "error")) == (1, True)
    for run in unowned:
        assert (run.code, f"no process reads shard 0 of SQL_FEED '{TABLE}'" in lines(run, "error")) == (1, True)
    assert (owned.code, f"SQL_FEED '{TABLE}' is read" in lines(owned, "ok")) == (0, True)
