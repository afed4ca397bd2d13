"""Rules that fail for a message: it is dead-lettered where the subscription asks for that."""

from __future__ import annotations

from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient

from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer


def rule(name: str, expression: str, action: str | None = None) -> dict[str, Any]:
    filters: dict[str, Any] = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": expression}}
    actions = {"Action": {"SqlExpression": action}} if action else {}
    return {"Name": name, "Properties": {**filters, **actions}}


def subscription(name: str, *rules: dict[str, Any], **properties: Any) -> dict[str, Any]:
    return {"Name": name, "Properties": properties, "Rules": list(rules)}


@pytest.fixture
def entities() -> Entities:
    dear, failing = rule("dear", "price > 100"), rule("failing", "100 / discount > 5")
    subscriptions = [
        subscription("filtered", dear),
        subscription("divided", failing),
        subscription("both", failing, rule("every", "1 = 1")),
        subscription("acted", rule("all", "1 = 1", "SET share = 100 / discount")),
        subscription("lenient", dear, DeadLetteringOnFilterEvaluationExceptions=False),
        subscription("chats", dear, RequiresSession=True),
    ]
    topic = {"Name": "offers", "Subscriptions": subscriptions}
    return Entities.from_document({"UserConfig": {"Namespaces": [{"Name": "ns", "Topics": [topic]}]}})


async def dead_letters(client: ServiceBusClient, name: str) -> list[tuple[str | None, str | None, str | None]]:
    async with client.get_subscription_receiver(
        "offers", name, sub_queue=ServiceBusSubQueue.DEAD_LETTER
    ) as receiver:
        found = await receiver.peek_messages(max_message_count=10)
    return [(each.message_id, each.dead_letter_reason, each.dead_letter_error_description) for each in found]


async def test_a_message_for_which_a_rule_fails_is_dead_lettered_with_the_error(
    client: ServiceBusClient, server: ServiceBusServer
) -> None:
    properties: dict[str | bytes, Any] = {"price": "dear", "discount": 0}
    async with client.get_topic_sender("offers") as sender:
        await sender.send_messages(ServiceBusMessage("x", message_id="wrong", application_properties=properties))
        await sender.send_messages(
            ServiceBusMessage("x", message_id="good", application_properties={"price": 150, "discount": 10})
        )

    mismatch = "Operator '>' cannot be applied to operands of type 'string' and 'long'"
    by_zero = "Attempted to divide by zero."
    assert await dead_letters(client, "filtered") == [("wrong", "FilterException", mismatch)]
    assert await dead_letters(client, "divided") == [("wrong", "FilterException", by_zero)]
    assert await dead_letters(client, "both") == [("wrong", "FilterException", by_zero)]
    assert await dead_letters(client, "acted") == [("wrong", "RuleActionException", by_zero)]
    assert await dead_letters(client, "lenient") == []
    assert (await dead_letters(client, "chats"))[0] == ("wrong", "FilterException", mismatch)
    held = {
        each.name: [entry.message.message_id for entry in each.outlet.messages.peek(0, 10)]
        for each in server.broker.namespace.topics["offers"].subscriptions
    }
    assert held == {
        "filtered": ["good"],
        "divided": ["good"],
        "both": ["wrong", "good"],
        "acted": ["good"],
        "lenient": ["good"],
        "chats": [],
    }
