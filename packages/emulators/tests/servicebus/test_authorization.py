"""Authorization rules: keys that allow to send or to listen only, of the namespace and of one entity."""

from __future__ import annotations

import asyncio
import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
)
from azure.servicebus.management import AccessRights, AuthorizationRule
from proton.utils import LinkDetached

from outbox_relay.emulators.servicebus.auth import DEFAULT_KEY, KEY_NAME
from outbox_relay.emulators.servicebus.entities import Entities, EntitiesError
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from packages.emulators.tests.servicebus.conftest import ENTITIES
from packages.emulators.tests.servicebus.plain_http import (
    management_client,
    management_connection_string,
    requested,
)
from packages.emulators.tests.servicebus.raw_amqp import Management, connected
from tests.support.watchdog import WATCHDOG_S

KIND = "SharedAccessAuthorizationRule"


def rule(name: str, *rights: str) -> dict[str, Any]:
    return {"KeyName": name, "Rights": list(rights), "PrimaryKey": f"key of {name}"}


@pytest.fixture
def entities() -> Entities:
    document = copy.deepcopy(ENTITIES)
    namespace = document["UserConfig"]["Namespaces"][0]
    namespace["AuthorizationRules"] = [rule("sends", "Send"), rule("listens", "Listen")]
    orders = next(queue for queue in namespace["Queues"] if queue["Name"] == "orders")
    orders["Properties"]["AuthorizationRules"] = [rule("orders-only", "Send", "Listen")]
    namespace["Topics"][0]["Properties"]["AuthorizationRules"] = [rule("subscriber", "Listen")]
    return Entities.from_document(document)


def with_key(text: str, name: str, key: str | None = None) -> str:
    """A connection string with the name and key of a rule."""
    return text.replace(KEY_NAME, name).replace(DEFAULT_KEY, f"key of {name}" if key is None else key)


def client_of(server: ServiceBusServer, name: str, key: str | None = None) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(
        with_key(server.connection_string, name, key), retry_total=0, socket_timeout=0.05
    )


async def test_a_send_only_key_sends_and_schedules_and_does_nothing_else(server: ServiceBusServer) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    async with client_of(server, "sends") as client, client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
        [number] = await sender.schedule_messages(ServiceBusMessage("y"), later)
        await sender.cancel_scheduled_messages(number)
        with pytest.raises(ServiceBusAuthorizationError) as refused:
            await client.get_queue_receiver("orders").__aenter__()
        assert "'Listen' claim(s) are required" in str(refused.value)
        assert f"Resource: 'sb://127.0.0.1:{server.port}/orders'" in str(refused.value)

    def manage() -> str:
        with connected(server, "sends", "key of sends") as connection:
            answer = Management(connection, "orders").ask("peek-message", from_sequence_number=0, message_count=1)
            assert (answer.status, answer.error) == (401, "amqp:unauthorized-access")
            return answer.description

    assert "'Listen' claim(s) are required" in await asyncio.to_thread(manage)


async def test_a_listen_only_key_receives_and_does_not_send(
    server: ServiceBusServer, client: ServiceBusClient
) -> None:
    async with client.get_queue_sender("chats") as sender:
        await sender.send_messages(ServiceBusMessage("x", session_id="a"))
    async with client_of(server, "listens") as listener:
        async with listener.get_queue_receiver("chats", session_id="a") as receiver:
            [message] = await receiver.receive_messages(max_wait_time=WATCHDOG_S)
            await receiver.session.set_state(b"seen")
            await receiver.complete_message(message)
        with pytest.raises(ServiceBusAuthorizationError, match=r"'Send' claim\(s\) are required"):
            await listener.get_queue_sender("orders").__aenter__()


async def test_the_key_of_an_entity_serves_for_it_alone(server: ServiceBusServer) -> None:
    async with client_of(server, "orders-only") as client:
        async with client.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("x"))
        async with client.get_queue_receiver("orders") as receiver:
            [message] = await receiver.receive_messages(max_wait_time=WATCHDOG_S)
            await receiver.complete_message(message)
        with pytest.raises(ServiceBusAuthenticationError) as refused:
            await client.get_queue_sender("chats").__aenter__()
    assert "InvalidSignature" in str(refused.value.inner_exception)

    def plain() -> None:
        with connected(server, "orders-only", "key of orders-only") as connection:
            connection.create_sender("orders")
            with pytest.raises(LinkDetached, match="unauthorized-access"):
                connection.create_sender("chats")

    await asyncio.to_thread(plain)


async def test_the_listen_only_key_of_a_topic_manages_the_rules_of_its_subscriptions_over_amqp(
    server: ServiceBusServer,
) -> None:
    def manage() -> list[int]:
        with connected(server, "subscriber", "key of subscriber") as connection:
            node = Management(connection, "events/Subscriptions/named")
            added = node.ask("add-rule", rule_name="a", rule_description={"sql-filter": {"expression": "1=1"}})
            listed = node.ask("enumerate-rules", skip=0, top=5)
            return [added.status, listed.status]

    assert await asyncio.to_thread(manage) == [200, 200]


async def test_only_a_key_that_manages_is_let_into_the_management_api(server: ServiceBusServer) -> None:
    text = with_key(management_connection_string(server), "sends")
    async with management_client(server, connection_string=text) as management:
        with pytest.raises(ClientAuthenticationError, match="Manage,EntityRead claims required"):
            await management.get_queue("orders")
        with pytest.raises(ClientAuthenticationError, match="Manage,EntityDelete claims required"):
            await management.delete_queue("orders")


async def test_rules_made_over_the_api_are_returned_and_hold_at_once(
    server: ServiceBusServer, management: Any
) -> None:
    rights: list[Any] = [AccessRights.SEND, AccessRights.MANAGE, AccessRights.LISTEN]
    rules = [
        AuthorizationRule(
            type=KIND, key_name="send", rights=rights[:1], primary_key="first", secondary_key="second"
        ),
        AuthorizationRule(type=KIND, key_name="all", rights=rights),
    ]
    await management.create_queue("new", authorization_rules=rules)

    queue = await management.get_queue("new")
    send, everything = queue.authorization_rules
    assert (send.type, send.claim_type, send.key_name) == (KIND, "SharedAccessKey", "send")
    assert (send.rights, send.primary_key, send.secondary_key) == (["Send"], "first", "second")
    assert send.created_at_utc <= send.modified_at_utc
    assert sorted(everything.rights) == ["Listen", "Manage", "Send"]
    assert len(everything.primary_key) == len(everything.secondary_key) == 44
    for key in ("first", "second"):
        async with client_of(server, "send", key) as client, client.get_queue_sender("new") as sender:
            await sender.send_messages(ServiceBusMessage("x"))
    key = everything.primary_key
    assert "<MessageCount>2</MessageCount>" in await requested(server, "GET", "new", name="all", key=key)
    refusal = await requested(server, "GET", "orders", name="all", key=key, status=401)
    assert "InvalidSignature" in refusal

    queue.authorization_rules = [everything]
    await management.update_queue(queue)

    assert [each.key_name for each in (await management.get_queue("new")).authorization_rules] == ["all"]
    async with client_of(server, "send", "first") as client:
        with pytest.raises(ServiceBusError):
            await client.get_queue_sender("new").__aenter__()


def test_a_rule_of_a_file_that_is_not_valid_is_named() -> None:
    document = copy.deepcopy(ENTITIES)
    namespace = document["UserConfig"]["Namespaces"][0]
    namespace["AuthorizationRules"] = [rule("a", "Read"), rule("A", "Send"), {"KeyName": "b", "Rights": "Send"}]

    with pytest.raises(EntitiesError) as raised:
        Entities.from_document(document)

    problems = str(raised.value)
    assert "AuthorizationRules[0].Rights is wrong: 'Read' is no right" in problems
    assert "AuthorizationRules must have different names" in problems
    assert "AuthorizationRules[2].PrimaryKey is missing" in problems
    assert "AuthorizationRules[2].Rights must be a list of strings" in problems
