"""`send` and the relay of its stack read one relay.toml: what is sent is published, in its order."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from azure.cosmos.aio import CosmosClient

from local.sending.event import Event, NotCommittedError
from local.sending.outboxes import open_writer
from local.sending.routed import Outbox
from local.stack.destinations import create_containers
from local.stack.parts import PartFailed
from outbox_relay.changefeed import connect, setup_feed, shard_of
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from relay.backends.cosmos.backend import CosmosBackend
from tests.support.layouts import DEBEZIUM, delivered, layout, only_stream
from tests.support.sql_deployment import OUTBOX, TABLE, SqlDeployment, working
from tests.support.subscriber import body, properties, received

RULES = """
[[routes]]
when = { "/data/tenant" = "a" }
to = ["default"]
"""


@pytest.mark.parametrize("container", ["data", "shop"])
async def test_the_layout_of_cloudevents_is_sent_in_one_transaction_with_a_business_document(
    account: CosmosClient,
    servicebus: ServiceBusServer,
    environment: dict[str, str],
    tmp_path: Path,
    container: str,
) -> None:
    text = f'{layout("cloudevents")}\n{RULES}\n[outboxes.default]\ncontainer = "{container}"\n'
    settings = only_stream(environment, tmp_path, text)
    await create_containers([settings])
    relay = CosmosBackend(settings).relay
    try:
        async with open_writer(Outbox.of([settings])) as writer:
            sent = [await writer.commit(Event("order-7", f"Step{n}", {"n": n, "amount": n})) for n in range(3)]
            with pytest.raises(NotCommittedError, match="give another --id"):
                await writer.commit(Event("order-7", "Again", {}, id=sent[0].document.stored["id"]))
        stored = await delivered(account, container)
        await relay.handle(stored, "i")
    finally:
        await relay.close()

    messages = (await received(servicebus.connection_string, 3)).messages["order-7"]
    assert [each.message_id for each in messages] == [each.document.fields["id"] for each in sent]
    assert [each.subject for each in messages] == ["Step0", "Step1", "Step2"]
    assert [properties(each)["sequence"] for each in messages] == [1, 2, 3] == [each.number for each in sent]
    assert [properties(each)["tenant"] for each in messages] == ["a"] * 3
    (business,) = [each for each in stored if each["id"] == "sent-order-7"]
    assert (business["partitionkey"], business["data"]["n"], business["sequence"]) == ("order-7", 2, 3)
    with pytest.raises(PartFailed, match=f"The container '{container}' has the partition key /partitionkey"):
        await create_containers(
            [only_stream(environment, tmp_path, f'[outboxes.default]\ncontainer = "{container}"')]
        )


async def test_an_outbox_in_which_every_document_is_an_event_gets_no_business_document(
    account: CosmosClient, environment: dict[str, str], tmp_path: Path
) -> None:
    settings = only_stream(environment, tmp_path, 'types = []\nfields.action = "/type"')

    async with open_writer(Outbox.of([settings])) as writer:
        numbers = [(await writer.commit(Event("k", "Made", {}))).number for _ in range(2)]

    assert [(each["type"], each["sequence"]) for each in await delivered(account, "data")] == [
        ("Made", 1),
        ("Made", 2),
    ]
    assert numbers == [1, 2]


@pytest.mark.parametrize("key", ["a/b?c#d\\e", "100%25", "a ", "a\t", "..", "k" * 1100])
async def test_the_events_of_any_key_are_numbered_by_its_business_document(
    account: CosmosClient, environment: dict[str, str], tmp_path: Path, key: str
) -> None:
    settings = only_stream(environment, tmp_path, "")

    async with open_writer(Outbox.of([settings])) as writer:
        sent = [await writer.commit(Event(key, "Made", {"n": n})) for n in range(2)]

    assert [each.number for each in sent] == [1, 2]
    (business,) = [each for each in await delivered(account, "data") if each["type"] == "sent"]
    assert (business["partitionKey"], business["data"], business["sequence"]) == (key, {"n": 1}, 2)


@pytest.mark.parametrize("identifier", ["a%20", "a ", "a/b"])
async def test_an_id_that_could_not_be_read_is_refused(
    account: CosmosClient, environment: dict[str, str], tmp_path: Path, identifier: str
) -> None:
    settings = only_stream(environment, tmp_path, "")

    async with open_writer(Outbox.of([settings])) as writer:
        with pytest.raises(NotCommittedError, match=r"must not contain .* give another --id"):
            await writer.commit(Event("k", "Made", {}, id=identifier))

    assert await delivered(account, "data") == []


async def test_a_row_of_debeziums_table_is_sent_to_the_shard_of_its_key(
    sql: SqlDeployment, servicebus: ServiceBusServer, tmp_path: Path
) -> None:
    sql.create(DEBEZIUM)
    environment = {"SQL": sql.url, "SERVICEBUS": servicebus.connection_string, "RELAY_POLL_DELAY_MS": "50"}
    environment |= {"SQL_SHARDS": "4"}
    settings = only_stream(environment, tmp_path, f'outboxes.default.feed = "{TABLE}"\n{layout("debezium")}')

    async with open_writer(Outbox.of([settings])) as writer:
        sent = [await writer.commit(Event("order-7", f"Step{number}", {"n": number})) for number in range(3)]
    shards = sql.rows(f"select shard_id from {OUTBOX}")
    sql.connection.execute(f"alter table {TABLE} add column tenant uuid")
    sql.connection.execute(f"alter table {TABLE} add constraint tenants check (tenant is not null) not valid")
    with pytest.raises(NotCommittedError, match="tenants"):
        async with open_writer(Outbox.of([settings])) as writer:
            await writer.commit(Event("order-7", "Again", {}))
    async with working(settings):
        messages = (await received(servicebus.connection_string, 3)).messages["order-7"]

    assert shards == [(shard_of("order-7", 4),)] * 3
    assert [each.subject for each in messages] == ["Step0", "Step1", "Step2"]
    assert [each.message_id for each in messages] == [each.document.fields["id"] for each in sent]
    assert [b'"n": 1' in body(each) for each in messages] == [False, True, False]


async def test_the_events_of_the_stacks_own_table_are_numbered(
    sql: SqlDeployment, servicebus: ServiceBusServer, tmp_path: Path
) -> None:
    sql.create(
        "id text primary key, partition_key text not null, type text not null, action text not null, data jsonb, "
        "created_at timestamptz, sequence bigint"
    )
    environment = {"SQL": sql.url, "SERVICEBUS": servicebus.connection_string, "RELAY_POLL_DELAY_MS": "50"}
    settings = only_stream(environment, tmp_path, RULES)

    async with open_writer(Outbox.of([settings])) as writer:
        sent = [await writer.commit(Event("k", "Named", {"name": "Jane"})) for _ in range(2)]
    async with working(settings):
        messages = (await received(servicebus.connection_string, 2)).messages["k"]

    assert [each.number for each in sent] == [1, 2] == [properties(each)["sequence"] for each in messages]
    assert all(b'"tenant": "a"' in body(each) for each in messages)


async def test_a_table_of_another_name_need_not_have_what_the_stacks_has(
    sql: SqlDeployment, servicebus: ServiceBusServer, tmp_path: Path
) -> None:
    sql.create()
    table = "create table shop.orders (id text primary key, partition_key text not null, data jsonb not null)"
    sql.connection.execute(f"create schema shop; {table}")
    with closing(connect(sql.url)) as session:
        setup_feed(session, "shop.orders", keep="forever")
    environment = {"SQL": sql.url, "SERVICEBUS": servicebus.connection_string, "RELAY_POLL_DELAY_MS": "50"}
    settings = only_stream(environment, tmp_path, '[outboxes.default]\nfeed = "shop.orders"\n')

    async with open_writer(Outbox.of([settings])) as writer:
        sent = await writer.commit(Event("k", "Placed", {"n": 1}))
    async with working(settings):
        (message,) = (await received(servicebus.connection_string, 1)).messages["k"]

    assert (sent.number, message.message_id) == (None, sent.document.fields["id"])
