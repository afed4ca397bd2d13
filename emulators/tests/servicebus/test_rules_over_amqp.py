"""The rules of a subscription over AMQP, as the rule managers of the .NET, JavaScript and Java SDKs have them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.management import CorrelationRuleFilter
from proton import Described, int32, symbol, timestamp, ulong

from emulators.tests.servicebus.plain_http import management_client
from emulators.tests.servicebus.raw_amqp import Answer, Management, connected, management_nodes
from outbox_emulators.servicebus.codec import UNIX_EPOCH_TICKS
from outbox_emulators.servicebus.server import ServiceBusServer

NAMED = "events/Subscriptions/named"
RULE, EMPTY_ACTION, SQL_ACTION = 0x13700000004, 0x13700000005, 0x13700000006
SQL, TRUE, FALSE, CORRELATION = 0x1370000006, 0x1370000007, 0x1370000008, 0x1370000009


def enumerated(answer: Answer) -> list[tuple[int, list[Any], int, list[Any], str]]:
    """Of each rule the filter's code and fields, the action's code and fields, and the name."""
    rules = []
    for each in answer.body["rules"]:
        rule = each["rule-description"]
        assert (rule.descriptor, type(rule.descriptor)) == (RULE, ulong)
        filter_, action, name, created = rule.value
        assert isinstance(created, timestamp)
        rules.append((filter_.descriptor, filter_.value, action.descriptor, action.value, name))
    return rules


async def test_rules_are_added_listed_and_removed(server: ServiceBusServer, client: ServiceBusClient) -> None:
    sql = {"expression": "price > 10"}
    correlation = {
        "correlation-id": "c",
        "label": "l",
        "message-id": None,
        "properties": {
            "int": int32(1),
            "yes": True,
            "at": Described(symbol("com.microsoft:datetime-offset"), 5_000_000 + UNIX_EPOCH_TICKS),
        },
    }

    def manage() -> list[Any]:
        with connected(server) as connection:
            node = Management(connection, NAMED)
            dear = {"sql-filter": sql, "sql-rule-action": {"expression": "SET dear = TRUE"}}
            answers = [
                node.ask("add-rule", rule_name="a", rule_description=dear),
                node.ask("add-rule", rule_name="b", rule_description={"correlation-filter": correlation}),
                node.ask("remove-rule", rule_name="BY-LABEL"),
            ]
            assert [answer.status for answer in answers] == [200, 200, 200]
            return enumerated(node.ask("enumerate-rules", skip=int32(0), top=int32(10)))

    dear, of_fields = await asyncio.to_thread(manage)

    assert dear == (SQL, ["price > 10"], SQL_ACTION, ["SET dear = TRUE"], "a")
    assert of_fields == (
        CORRELATION,
        ["c", None, None, None, "l", None, None, None, {"int": 1, "yes": True, "at": 500}],
        EMPTY_ACTION,
        [],
        "b",
    )
    async with (
        client.get_topic_sender("events") as sender,
        client.get_subscription_receiver(
            "events", "named", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
        ) as receiver,
    ):
        for price in (10, 11):
            await sender.send_messages(ServiceBusMessage(str(price), application_properties={"price": price}))
        [message] = await receiver.receive_messages(2, max_wait_time=0.5)
    assert (str(message), message.application_properties) == ("11", {b"price": 11, b"dear": True})


async def test_a_rule_added_over_amqp_is_described_over_http(server: ServiceBusServer) -> None:
    properties = {"at": timestamp(1_593_940_333_123), "n": int32(1), "yes": True, "text": "t"}

    async with management_nodes(server) as nodes, management_client(server) as management:
        described = {"correlation-filter": {"label": "l", "properties": properties}}
        await nodes.ask(NAMED, "add-rule", rule_name="both", rule_description=described)
        rule = await management.get_rule("events", "named", "both")

    assert isinstance(rule.filter, CorrelationRuleFilter)
    assert rule.filter.label == "l"
    moment = datetime(2020, 7, 5, 9, 12, 13, 123_000, UTC)
    assert rule.filter.properties == {"at": moment, "n": 1, "yes": True, "text": "t"}


async def test_rules_come_in_pages_and_the_true_filter_as_such(server: ServiceBusServer) -> None:
    def manage() -> None:
        with connected(server) as connection:
            node = Management(connection, "events/Subscriptions/all")
            node.ask("add-rule", rule_name="more", rule_description={"sql-filter": {"expression": "1=0"}})

            [first] = enumerated(node.ask("enumerate-rules", skip=0, top=1))
            assert first == (TRUE, [], EMPTY_ACTION, [], "$Default")
            assert [rule[-1] for rule in enumerated(node.ask("enumerate-rules", skip=1, top=5))] == ["more"]
            beyond = node.ask("enumerate-rules", skip=2, top=5)
            assert (beyond.status, beyond.body) == (204, None)

    await asyncio.to_thread(manage)


async def test_what_cannot_be_done_with_a_rule_is_refused_with_the_reason(server: ServiceBusServer) -> None:
    sql = {"sql-filter": {"expression": "1=1"}}

    def manage() -> None:
        with connected(server) as connection:
            nodes = {path: Management(connection, path) for path in (NAMED, "orders")}

            def refused(path: str, operation: str, **body: Any) -> tuple[int, str, str]:
                answer = nodes[path].ask(operation, **body)
                return answer.status, answer.error, answer.description

            taken = refused(NAMED, "add-rule", rule_name="By-Label", rule_description=sql)
            assert taken[:2] == (409, "com.microsoft:entity-already-exists")
            missing = refused(NAMED, "remove-rule", rule_name="no")
            assert missing[:2] == (404, "amqp:not-found")
            assert f"'{NAMED}/Rules/no' could not be found" in missing[2]
            assert refused("orders", "enumerate-rules", skip=0, top=1)[:2] == (400, "amqp:not-allowed")
            for description, words in (
                ({"sql-filter": {"expression": "a ="}}, "not valid"),
                ({"sql-filter": {}}, "without an expression"),
                ({"correlation-filter": {"label": None}}, "at least one property"),
                ({}, "sql-filter or a correlation-filter"),
                ("text", "needs a map"),
            ):
                wrong = refused(NAMED, "add-rule", rule_name="x", rule_description=description)
                assert wrong[:2] == (400, "com.microsoft:argument-error")
                assert words in wrong[2]
            for name in ("", "x" * 51, 5):
                assert "rule-name" in refused(NAMED, "add-rule", rule_name=name, rule_description=sql)[2]

    await asyncio.to_thread(manage)
