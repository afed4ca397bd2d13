"""Rules over the management API, and descriptions spelt as @azure/service-bus 7.9.5 wants them."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from outbox_relay.emulators.servicebus.administration.atom import CONNECT
from outbox_relay.emulators.servicebus.codec import TimeSpan
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from packages.emulators.tests.servicebus.fakes import a_message
from packages.emulators.tests.servicebus.plain_http import management_client, requested

VALUES: dict[str, Any] = {
    "string": "ü <&> x",
    "int": 2,
    "long": 2**31 + 3,
    "negative": -5,
    "bool": False,
    "double": 1.5,
    "moment": datetime(2020, 7, 5, 11, 12, 13),
    "duration": timedelta(days=1, hours=2, minutes=3),
}


def as_dict(found: Any) -> dict[str, Any]:
    """The given properties of a filter or an action, without the SDK's additions."""
    added = ("requires_preprocessing", "compatibility_level")
    fields = {name: value for name, value in vars(found).items() if name not in added and value}
    if isinstance(found, TrueRuleFilter | FalseRuleFilter):
        fields.pop("sql_expression")
    return fields


async def matching(client: ServiceBusClient, subscription: str, *messages: ServiceBusMessage) -> list[Any]:
    """Send messages; return those that a subscription got."""
    async with (
        client.get_topic_sender("events") as sender,
        client.get_subscription_receiver(
            "events", subscription, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
        ) as receiver,
    ):
        for message in messages:
            await sender.send_messages(message)
        return await receiver.receive_messages(len(messages), max_wait_time=0.5)


@pytest.mark.parametrize(
    "given",
    [
        CorrelationRuleFilter(correlation_id="c", label="l", properties=VALUES),
        SqlRuleFilter("a = @one AND b > @two", parameters={"@one": "x", "@two": 2}),
        TrueRuleFilter(),
        FalseRuleFilter(),
    ],
    ids=["correlation", "sql", "true", "false"],
)
async def test_a_rule_is_returned_as_it_was_given(management: Any, given: Any) -> None:
    action = SqlRuleAction("SET a = @value", parameters={"@value": datetime(2020, 7, 5, 11, 12, 13)})

    await management.create_rule("events", "named", "rule", filter=given, action=action)

    found = await management.get_rule("events", "named", "RULE")
    assert type(found.filter) is type(given)
    assert as_dict(found.filter) == as_dict(given)
    assert as_dict(found.action) == as_dict(action)
    listed = [each async for each in management.list_rules("events", "named")]
    assert [each.name for each in listed] == ["by-label", "rule"]
    assert as_dict(listed[1].filter) == as_dict(given)


TYPED = {
    "int": "2",
    "long": "2",
    "short": "7",
    "decimal": "1.50",
    "double": "1E3",
    "guid": str(UUID(int=0xAB)).upper(),
    "duration": "P1DT0.0000001S",
}


async def test_values_and_expressions_come_back_as_they_were_written(server: ServiceBusServer) -> None:
    """Tools that compare what they wrote with what they read report a change otherwise."""
    parameters = _pairs("Parameters", {f"@{kind}": (kind, text) for kind, text in TYPED.items()})
    expressions = [
        f"<SqlExpression>{each}</SqlExpression>{parameters}" for each in ("a = @long  ", " SET b = @long ")
    ]
    rule = _rule("SqlFilter", expressions[0], f"<Action i:type='SqlRuleAction'>{expressions[1]}</Action>")
    address = "events/subscriptions/named/rules/typed"
    await requested(server, "PUT", address, body=rule, status=201)

    found = await requested(server, "GET", address)

    assert "<SqlExpression>a = @long  </SqlExpression>" in found
    assert "<SqlExpression> SET b = @long </SqlExpression>" in found
    for kind, text in TYPED.items():
        assert found.count(f':{kind}">{text}</Value>') == 2, kind


async def test_the_rules_of_the_file_are_returned(management: Any) -> None:
    label = await management.get_rule("events", "named", "by-label")
    price = await management.get_rule("events", "dear", "by-price")
    default = await management.get_rule("events", "all", "$Default")

    assert (label.filter.label, label.action) == ("Named", None)
    assert price.filter.sql_expression == "price > 100"
    assert price.action.sql_expression == "SET sys.Label = 'Dear'; SET dear = TRUE"
    assert type(default.filter) is TrueRuleFilter


async def test_a_rule_that_is_made_changed_or_deleted_holds_at_once(
    management: Any, client: ServiceBusClient
) -> None:
    def letters() -> list[ServiceBusMessage]:
        return [ServiceBusMessage(each, application_properties={"letter": each}) for each in "ab"]

    await management.create_subscription("events", "new")
    await management.delete_rule("events", "new", "$Default")
    assert await matching(client, "new", *letters()) == []

    a = SqlRuleFilter("letter = @letter", parameters={"@letter": "a"})
    await management.create_rule("events", "new", "rule", filter=a)
    assert [str(each) for each in await matching(client, "new", *letters())] == ["a"]

    rule = await management.get_rule("events", "new", "rule")
    rule.filter = CorrelationRuleFilter(properties={"letter": "b"})
    rule.action = SqlRuleAction("SET seen = 1")
    await management.update_rule("events", "new", rule)
    [message] = await matching(client, "new", *letters())
    assert (str(message), message.application_properties[b"seen"]) == ("b", 1)


async def test_a_moment_in_a_rule_is_compared_with_that_of_a_message(
    management: Any, client: ServiceBusClient
) -> None:
    moment = datetime.fromisoformat("2020-07-05T11:12:13+02:00")
    await management.create_subscription("events", "new")
    rule = await management.get_rule("events", "new", "$Default")
    rule.filter = CorrelationRuleFilter(properties={"at": moment})
    await management.update_rule("events", "new", rule)

    moments: list[Any] = [moment, VALUES["moment"]]
    sent = [ServiceBusMessage("x", application_properties={"at": each}) for each in moments]
    found = await matching(client, "new", *sent)

    assert [message.application_properties[b"at"] for message in found] == [int(moment.timestamp() * 1000)]


_SPAN, _MORE, _PRICE = ("duration", "PT1M30S"), ("duration", "PT2M"), ("decimal", "19.990")


def _pairs(tag: str, values: dict[str, tuple[str, str]]) -> str:
    """Values of a rule with their types, as .NET writes them."""
    pairs = "".join(
        f"<KeyValueOfstringanyType><Key>{name}</Key><Value xmlns:d6p1='http://www.w3.org/2001/XMLSchema' "
        f"i:type='d6p1:{kind}'>{text}</Value></KeyValueOfstringanyType>"
        for name, (kind, text) in values.items()
    )
    return f"<{tag}>{pairs}</{tag}>"


def _rule(filter_kind: str, inside: str, action: str = "") -> str:
    return (
        f"<entry xmlns='http://www.w3.org/2005/Atom'><content type='application/xml'><RuleDescription "
        f"xmlns='{CONNECT}' xmlns:i='http://www.w3.org/2001/XMLSchema-instance'><Filter i:type='{filter_kind}'>"
        f"{inside}</Filter>{action}</RuleDescription></content></entry>"
    )


@pytest.mark.parametrize(
    ("kind", "inside"),
    [
        (
            "CorrelationFilter",
            _pairs("Properties", {"span": _SPAN, "price": _PRICE}),
        ),
        (
            "SqlFilter",
            "<SqlExpression>span = @span AND span &lt; @more AND price = @price</SqlExpression>"
            + _pairs("Parameters", {"@span": _SPAN, "@more": _MORE, "@price": _PRICE}),
        ),
    ],
    ids=["correlation", "sql"],
)
async def test_a_time_span_and_a_decimal_of_a_rule_match_those_of_a_message(
    server: ServiceBusServer, management: Any, kind: str, inside: str
) -> None:
    await management.create_subscription("events", "new")
    await management.delete_rule("events", "new", "$Default")
    address = "events/subscriptions/new/rules/typed"
    await requested(server, "PUT", address, body=_rule(kind, inside), status=201)
    values = {"span": TimeSpan(900_000_000), "price": Decimal("19.99")}
    others: list[dict[str, Any]] = [{}, {"span": 900_000_000}, {"price": 19.99}, {"price": Decimal(20)}]

    for number, more in enumerate(others):
        message = a_message(message_id=str(number)).with_application_properties({**values, **more})
        server.broker.namespace.topics["events"].publish([message])

    held = server.broker.namespace.outlet("events/Subscriptions/new").messages.peek(0, 10)
    assert [entry.message.message_id for entry in held] == ["0"]


async def test_a_moment_in_a_rule_is_kept_to_the_tick(server: ServiceBusServer) -> None:
    """The SDK has microseconds at most: .NET, which has ticks, is stood in for by its request."""
    path = "events/Subscriptions/named/Rules/to-the-tick"
    moment = "2020-07-05T11:12:13.1234567Z"
    body = (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
        f'<RuleDescription xmlns="{CONNECT}"><Filter i:type="CorrelationFilter" '
        'xmlns:i="http://www.w3.org/2001/XMLSchema-instance"><Properties><KeyValueOfstringanyType><Key>at</Key>'
        f'<Value i:type="d6p1:dateTime" xmlns:d6p1="http://www.w3.org/2001/XMLSchema">{moment}</Value>'
        "</KeyValueOfstringanyType></Properties></Filter></RuleDescription></content></entry>"
    )

    assert await requested(server, "PUT", path, body=body, status=201)

    assert f">{moment}</Value>" in await requested(server, "GET", path)


async def test_a_rule_of_a_taken_name_is_a_conflict(management: Any) -> None:
    with pytest.raises(ResourceExistsError):
        await management.create_rule("events", "named", "By-Label")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"filter": SqlRuleFilter("a =")}, "SQL of the rule"),
        ({"filter": SqlRuleFilter("a = @b")}, "the parameter @b has no value"),
        ({"filter": CorrelationRuleFilter()}, "at least one property"),
        ({"action": SqlRuleAction("SET")}, "SQL of the rule"),
    ],
    ids=["sql", "parameter", "empty", "action"],
)
async def test_a_rule_that_is_not_valid_is_refused(management: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(HttpResponseError) as raised:
        await management.create_rule("events", "named", "rule", **options)

    assert raised.value.status_code == 400
    assert words in str(raised.value)


# Descriptions as @azure/service-bus 7.9.5 wants them: it reads names by their spelling, prefixes included


async def test_names_are_spelled_as_clients_that_look_for_their_spelling_expect(
    server: ServiceBusServer,
) -> None:
    async with management_client(server) as management:
        await management.create_queue("letters", user_metadata="a < b & c")

    queue = await requested(server, "GET", "letters")
    topic = await requested(server, "GET", "events/Subscriptions/named")
    rule = await requested(server, "GET", "events/Subscriptions/named/Rules/by-label")

    for document, description in ((queue, "QueueDescription"), (topic, "SubscriptionDescription")):
        assert document.startswith('<entry xmlns="http://www.w3.org/2005/Atom"><id>')
        assert '<content type="application/xml"><' in document
        assert f'<{description} xmlns="{CONNECT}"' in document
        assert (
            '<CountDetails xmlns:d2p1="http://schemas.microsoft.com/netservices/2011/06/servicebus">'
            "<d2p1:ActiveMessageCount>0</d2p1:ActiveMessageCount>" in document
        )
        assert document.count("xmlns:d2p1=") == 1
    assert "<UserMetadata>a &lt; b &amp; c</UserMetadata>" in queue
    assert '<Filter xmlns:i="http://www.w3.org/2001/XMLSchema-instance" i:type="CorrelationFilter">' in rule
