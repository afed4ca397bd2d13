"""The SQL of rules, and rules over AMQP as the rule managers of the .NET, JavaScript and Java SDKs have them."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.management import CorrelationRuleFilter
from proton import Described, int32, symbol, timestamp, ulong

from outbox_relay.emulators.servicebus import codec
from outbox_relay.emulators.servicebus.codec import TICKS_PER_MS, UNIX_EPOCH_TICKS, Moment
from outbox_relay.emulators.servicebus.filters import CorrelationFilter, Rule, TrueFilter, copies
from outbox_relay.emulators.servicebus.message import Message, Property
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.emulators.servicebus.sql import EvaluationError, SqlError, parse_action, parse_filter
from packages.emulators.tests.servicebus.fakes import a_message
from packages.emulators.tests.servicebus.plain_http import management_client
from packages.emulators.tests.servicebus.raw_amqp import Answer, Management, connected, management_nodes


@pytest.fixture
def message() -> Message:
    return a_message(
        message_id="m1",
        session_id="s",
        subject="Label",
        properties={"a": 1, "text": "te_st%", "half": 2.5, "yes": True, "Cased": "x"},
    )


@pytest.mark.parametrize(
    "text",
    [
        "1=1",
        "a = 1 AND text <> 'x'",
        "a > 5 OR half >= 2.5",
        "NOT a > 5",
        "user.a = 1 and sys.MessageId = 'm1' and SYS.Label = 'Label' and sys.SessionId='s'",
        "a IN (3, 2, 1)",
        "a NOT IN (2, 3)",
        "text LIKE 'te%'",
        "text LIKE 'te!_st!%' ESCAPE '!'",
        "text NOT LIKE 'te'",
        "text LIKE '_____%'",
        "missing IS NULL AND a IS NOT NULL",
        "EXISTS(a) AND NOT EXISTS(missing)",
        "[a] * 2 + 1 = 3 AND -a = -1 AND (a + 3) % 2 = 0 AND 7 / 2 = 3 AND 7.0 / 2 = 3.5",
        "\"a\" = 1 AND property('a') = 1",
        "yes = TRUE AND yes <> false",
        "text + 'x' = 'te_st%x'",
        "cased = 'x'",
        "newid() IS NOT NULL",
        "(a = 1)",
        "half = 25E-1",
        "half / 0 > 1E300 AND -half / 0 < -1E300",
        "-7.5 % 2 = -1.5 AND 7 % 2.5 = 2",
        "a = 1 OR a / 0 = 1",
        "system = 1 OR a = 1",
    ],
)
def test_true_predicates_match(text: str, message: Message) -> None:
    assert parse_filter(text).matches(message)


@pytest.mark.parametrize(
    "text",
    [
        "a = 2",
        "missing = 1",
        "NOT missing = 1",
        "missing <> 1",
        "missing IN (1)",
        "missing NOT IN (1)",
        "missing NOT LIKE 'x'",
        "a NOT IN (2, missing)",
        "text = 'TE_ST%'",
        "missing + 1 = 1",
        "missing / 0 = 1",
        "a IN ('1')",
        "a LIKE '1'",
        "text LIKE missing",
        "half / 0 < 0",
        "half % 0 = 0",
        "a = 2 AND a / 0 = 1",
        "missing = 1 AND a = 1",
    ],
)
def test_false_and_unknown_predicates_do_not_match(text: str, message: Message) -> None:
    assert not parse_filter(text).matches(message)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a / 0 = 1", "Attempted to divide by zero."),
        ("a % 0 = 1", "Attempted to divide by zero."),
        ("a / 0 = 1 OR a = 1", "Attempted to divide by zero."),
        ("a = '1'", "Operator '=' cannot be applied to operands of type 'long' and 'string'"),
        ("text > 5", "Operator '>' cannot be applied to operands of type 'string' and 'long'"),
        ("yes = 1", "Operator '=' cannot be applied to operands of type 'bool' and 'long'"),
        ("text * half = 1", "Operator '*' cannot be applied to operands of type 'string' and 'double'"),
        ("-text = 1", "Operator '-' cannot be applied"),
        ("text LIKE a", "The pattern of LIKE is not a string"),
        ("text LIKE 'x' ESCAPE '!!'", "The escape character of LIKE is not a string of length 1"),
    ],
)
def test_what_has_no_value_is_an_error_of_the_evaluation(text: str, complaint: str, message: Message) -> None:
    with pytest.raises(EvaluationError, match=re.escape(complaint)):
        parse_filter(text).matches(message)
    with pytest.raises(EvaluationError, match="divide by zero"):
        parse_action("SET b = a; SET c = b / 0").apply(message)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a", "a condition was expected"),
        ("1", "a condition was expected"),
        ("(a = 1) + 1 = 2", "a value was expected"),
        ("a = ", "line 1"),
        ("sys.Nothing = 1", "no system property 'Nothing'"),
        ("@p = 1", "the parameter @p has no value"),
        ("a = 'open", "line 1"),
        ("", "line 1"),
    ],
)
def test_what_is_not_valid_is_refused_with_the_reason(text: str, complaint: str) -> None:
    with pytest.raises(SqlError, match=complaint):
        parse_filter(text)


def test_parameters_have_the_values_given(message: Message) -> None:
    assert parse_filter("a = @one AND text LIKE @Pattern", {"@one": 1, "@pattern": "te%"}).matches(message)


def test_an_action_sets_and_removes_properties_of_its_copy_only(message: Message) -> None:
    action = parse_action("SET sys.Label = 'New'; SET b = a + 1; REMOVE text")

    changed = action.apply(message)

    assert changed.field(Property.SUBJECT) == "New"
    assert changed.application_properties == {"a": 1, "half": 2.5, "yes": True, "Cased": "x", "b": 2}
    assert message.field(Property.SUBJECT) == "Label"
    assert "text" in message.application_properties


def test_an_action_cannot_set_what_only_the_system_sets() -> None:
    with pytest.raises(SqlError, match=r"sys.PartitionKey cannot be set"):
        parse_action("SET sys.PartitionKey = 'x'")


def test_a_correlation_filter_wants_every_property_equal_and_of_the_same_case(message: Message) -> None:
    assert CorrelationFilter({Property.SUBJECT: "Label"}, {"a": 1}).matches(message)
    assert not CorrelationFilter({Property.SUBJECT: "label"}).matches(message)
    assert not CorrelationFilter({Property.SUBJECT: "Label"}, {"a": 2}).matches(message)
    assert not CorrelationFilter({}, {"missing": 1}).matches(message)


def test_names_of_properties_are_not_case_sensitive_anywhere(message: Message) -> None:
    assert CorrelationFilter({}, {"CASED": "x", "A": 1}).matches(message)
    assert not CorrelationFilter({}, {"CASED": "X"}).matches(message)
    changed = parse_action("SET CASED = 'y'; REMOVE TEXT; SET Half = cased").apply(message).application_properties
    assert changed == {"a": 1, "half": "y", "yes": True, "Cased": "y"}


def test_a_property_in_two_spellings_is_one_after_it_was_set_or_removed() -> None:
    both = a_message(properties={"color": "red", "Color": "blue"})
    assert parse_action("SET Color = 'Done'").apply(both).application_properties == {"Color": "Done"}
    assert parse_action("REMOVE COLOR").apply(both).application_properties == {}


def test_rules_without_an_action_make_one_copy_and_each_with_one_makes_its_own(message: Message) -> None:
    action = parse_action("SET copied = TRUE")
    rules = (Rule("1", TrueFilter()), Rule("2", TrueFilter()), Rule("3", TrueFilter(), action))

    found, failure = copies(rules, message)

    assert failure is None
    assert [copy.application_properties.get("copied") for copy in found] == [None, True]


@pytest.mark.parametrize(
    "text",
    [
        "PROPERTY(@name) = 1 AND p(@Name) = 1",
        "property(pointer) = 1",
        "p ('te' + 'xt') = 'te_st%'",
        "p = 'named p' AND [property] IS NULL AND property IS NULL",
        "PROPERTY('missing') IS NULL AND PROPERTY(a) IS NULL",
    ],
)
def test_a_property_is_read_whose_name_an_expression_yields(text: str) -> None:
    message = a_message(properties={"a": 1, "pointer": "a", "text": "te_st%", "p": "named p"})

    assert parse_filter(text, {"@name": "a"}).matches(message)


def test_a_moment_of_a_rule_is_compared_to_the_tick() -> None:
    whole, later = Moment(1_593_940_333_123 * TICKS_PER_MS), Moment(1_593_940_333_123 * TICKS_PER_MS + 1)
    sent = a_message(properties={"at": timestamp(1_593_940_333_123)})
    by_dotnet = a_message(
        properties={"at": Described(symbol("com.microsoft:datetime-offset"), later.ticks + UNIX_EPOCH_TICKS)}
    )

    assert [CorrelationFilter({}, {"at": each}).matches(sent) for each in (whole, later)] == [True, False]
    assert [CorrelationFilter({}, {"at": each}).matches(by_dotnet) for each in (whole, later)] == [
        False,
        True,
    ]
    for text, message in (("at = @whole AND at < @later AND @later > at", sent), ("at > @whole", by_dotnet)):
        assert parse_filter(text, {"@whole": whole, "@later": later}).matches(message)


def test_a_number_does_not_equal_a_truth_value() -> None:
    assert not CorrelationFilter({}, {"yes": 1}).matches(a_message(properties={"yes": True}))


# The rules of a subscription over AMQP, as the rule managers of the .NET, JavaScript and Java SDKs have them


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


DECIMAL = Decimal("19.99")
SPAN = codec.TimeSpan(900_000_000)


def _with(**properties: Any) -> Message:
    return a_message().with_application_properties(properties)


@pytest.mark.parametrize(
    "text",
    [
        "price > 15",
        "price < 20 AND 20 > price",
        "price * 2 = price + price",
        "price + 1 > 20 AND -price < 0",
        "(price + 1) IN (@other)",
        "price / 2 < 10 AND price % 1 < 1",
        "whole = 20 AND whole IN (19, 20)",
    ],
)
def test_a_decimal_is_calculated_and_compared_with_integers(text: str) -> None:
    message = _with(price=DECIMAL, whole=Decimal("20.00"))

    assert parse_filter(text, {"@other": Decimal("20.99")}).matches(message)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("price > 15.5", "Operator '>' cannot be applied to operands of type 'decimal' and 'double'"),
        ("price + 0.5 = 20.49", "Operator '+' cannot be applied to operands of type 'decimal' and 'double'"),
        ("price / 0 = 1", "Attempted to divide by zero."),
        ("price % 0 = 1", "Attempted to divide by zero."),
        ("largest + 1 > 0", "Value was either too large or too small for a Decimal."),
        ("span > 5", "Operator '>' cannot be applied to operands of type 'System.TimeSpan' and 'long'"),
        ("at > 5", "Operator '>' cannot be applied to operands of type 'System.DateTime' and 'long'"),
        ("span + 1 = 5", "Operator '+' cannot be applied to operands of type 'System.TimeSpan' and 'long'"),
    ],
)
def test_what_csharp_does_not_calculate_is_an_error(text: str, words: str) -> None:
    message = _with(price=DECIMAL, largest=Decimal(2**96 - 1), span=SPAN, at=codec.Timestamp(0))

    with pytest.raises(EvaluationError, match=re.escape(words)):
        parse_filter(text).matches(message)


def test_time_spans_and_guids_are_compared_with_their_like() -> None:
    message = _with(span=SPAN, id=UUID(int=7))
    values = {"@span": codec.TimeSpan(900_000_001), "@id": UUID(int=7)}

    assert parse_filter("span < @span AND id = @id", values).matches(message)
    assert CorrelationFilter({}, {"span": codec.TimeSpan(900_000_000), "id": UUID(int=7)}).matches(message)
    assert not CorrelationFilter({}, {"span": 900_000_000}).matches(message)


def test_statements_of_an_action_are_separated_by_commas_or_semicolons() -> None:
    changed = parse_action("SET a = 1, SET b = 2; REMOVE c,").apply(_with(c="x"))

    assert changed.application_properties == {"a": 1, "b": 2}
