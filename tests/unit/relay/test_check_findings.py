"""The findings of `check` in the facts that it has read."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus.management import SubscriptionProperties, TopicProperties

from outbox_relay.operator.cli.check import exit_code
from outbox_relay.operator.cli.servicebus_checks import Requirements, ServiceBusFacts, check_servicebus
from outbox_relay.operator.cli.terminal import ExitCode
from relay.backends.findings import Finding, Gap, Level, Why
from relay.config.clients import (
    Connection,
    Identity,
    ManagementAddress,
    administration_address,
    administration_connection,
)
from relay.config.settings import Settings
from relay.core.errors import UsageError
from tests.unit.relay.commands import ENVIRONMENT
from tests.unit.relay.deployments import subscription_properties, topic_properties

WINDOW = "duplicate_detection_history_time_window"
TTL = "default_message_time_to_live"
EXPIRY = "dead_lettering_on_message_expiration"
REQUIRED = Requirements()
SETTINGS = Settings.from_environment(ENVIRONMENT)


def servicebus(
    topic: TopicProperties | Gap | None = None,
    subscriptions: list[SubscriptionProperties] | Gap | None = None,
    sending: int | Gap = 262_144,
) -> list[Finding]:
    found = [subscription_properties()] if subscriptions is None else subscriptions
    facts = ServiceBusFacts(topic or topic_properties(), found, sending)
    return list(check_servicebus(facts, SETTINGS, REQUIRED))


def trouble(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level is not Level.OK]


def test_a_sound_deployment_gives_nothing_but_ok() -> None:
    findings = servicebus()

    assert trouble(findings) == []
    assert exit_code(findings, strict=True, allow_unknown=False) is ExitCode.OK


def test_on_premium_an_unpartitioned_topic_is_as_it_should_be_even_when_it_is_strict() -> None:
    findings = servicebus(topic_properties(enable_partitioning=False), sending=1_048_576)

    assert exit_code(findings, strict=True, allow_unknown=False) is ExitCode.OK
    assert any("ids must be unique across partition keys" in finding.what for finding in findings)


@pytest.mark.parametrize(
    ("changed", "level", "says"),
    [
        ({"status": "SendDisabled"}, Level.ERROR, "is SendDisabled"),
        ({"status": None}, Level.UNKNOWN, "does not report its status"),
        ({"requires_duplicate_detection": False}, Level.ERROR, "does not detect duplicates"),
        ({"requires_duplicate_detection": None}, Level.UNKNOWN, "whether it detects duplicates"),
        (
            {WINDOW: timedelta(seconds=599)},
            Level.ERROR,
            "within PT9M59S only, not within PT10M",
        ),
        ({WINDOW: "soon"}, Level.UNKNOWN, "its duplicate detection window"),
        ({WINDOW: None}, Level.UNKNOWN, "its duplicate detection window"),
        ({"enable_partitioning": False}, Level.WARNING, "the second is dropped"),
        ({"enable_partitioning": None}, Level.UNKNOWN, "whether it is partitioned"),
        (
            {TTL: timedelta(days=1) - timedelta(seconds=1)},
            Level.WARNING,
            "keeps messages for PT23H59M59S",
        ),
    ],
)
def test_a_topic_that_is_not_as_it_should_be(changed: dict[str, object], level: Level, says: str) -> None:
    (finding,) = trouble(servicebus(topic_properties(**changed)))

    assert finding.level is level
    assert says in finding.what
    assert finding.remedy


@pytest.mark.parametrize(
    ("changed", "level", "says"),
    [
        ({"status": "ReceiveDisabled"}, Level.WARNING, "is ReceiveDisabled"),
        ({"requires_session": False}, Level.ERROR, "receive events out of order"),
        ({"requires_session": None}, Level.UNKNOWN, "whether it requires sessions"),
        ({EXPIRY: False}, Level.ERROR, "lost without a trace"),
        (
            {EXPIRY: None},
            Level.UNKNOWN,
            "whether it dead-letters expired messages",
        ),
        ({TTL: timedelta(minutes=5)}, Level.WARNING, "keeps messages for PT5M"),
    ],
)
def test_a_subscription_that_is_not_as_it_should_be(changed: dict[str, object], level: Level, says: str) -> None:
    other = subscription_properties("names", **changed)

    (finding,) = trouble(servicebus(subscriptions=[subscription_properties(), other]))

    assert finding.level is level
    assert finding.what.startswith("subscription 'names'")
    assert says in finding.what


def test_messages_that_live_just_as_long_as_was_asked_for_are_no_finding() -> None:
    lives: dict[str, Any] = {TTL: REQUIRED.min_ttl}

    assert trouble(servicebus(topic_properties(**lives), [subscription_properties(**lives)])) == []


def test_a_topic_without_subscriptions_is_a_warning() -> None:
    (finding,) = trouble(servicebus(subscriptions=[]))

    assert (finding.level, "discards what is published" in finding.what) == (Level.WARNING, True)


@pytest.mark.parametrize(("why", "cause"), [(Why.FORBIDDEN, "these rights"), (Why.UNREACHABLE, "no management")])
def test_properties_that_cannot_be_read_are_unknown_and_the_rest_is_judged(why: Why, cause: str) -> None:
    sendable, finding = servicebus(topic=Gap(why, "said so"))

    assert sendable.level is Level.OK
    assert (finding.level, finding.unavailable) == (Level.UNKNOWN, False)
    assert "said so" in finding.what
    assert cause in finding.what


def test_subscriptions_that_cannot_be_listed_are_unknown() -> None:
    (finding,) = trouble(servicebus(subscriptions=Gap(Why.FORBIDDEN, "said so")))

    assert finding.level is Level.UNKNOWN
    assert "the subscriptions of" in finding.what


def test_subscriptions_of_a_topic_that_has_gone_meanwhile_are_an_error() -> None:
    (finding,) = trouble(servicebus(subscriptions=Gap(Why.MISSING, "404")))

    assert (finding.level, "does not exist" in finding.what) == (Level.ERROR, True)


def test_a_management_endpoint_that_does_not_know_a_topic_that_takes_messages_is_another_namespaces() -> None:
    (finding,) = trouble(servicebus(topic=Gap(Why.MISSING, "404")))

    assert (finding.level, "the topic can be sent to" in finding.what) == (Level.UNKNOWN, True)


def test_a_topic_that_neither_side_knows_does_not_exist() -> None:
    findings = servicebus(topic=Gap(Why.MISSING, "404"), sending=Gap(Why.MISSING, "not found"))

    assert [finding.level for finding in findings] == [Level.ERROR, Level.ERROR]
    assert not any(finding.unavailable for finding in findings)


@pytest.mark.parametrize(("why", "remedied"), [(Why.REFUSED, False), (Why.UNREACHABLE, True)])
def test_a_topic_that_cannot_be_reached_is_the_services_trouble(why: Why, remedied: bool) -> None:
    finding = servicebus(sending=Gap(why, "said"))[0]

    assert (finding.level, finding.unavailable) == (Level.ERROR, True)
    # What was refused says itself what to do about it.
    assert ("the network between here and there" in str(finding.remedy)) is remedied


@pytest.mark.parametrize(
    ("finding", "options", "code"),
    [
        (Finding(Level.OK, "x"), {}, ExitCode.OK),
        (Finding(Level.WARNING, "x"), {}, ExitCode.OK),
        (Finding(Level.WARNING, "x"), {"strict": True}, ExitCode.FINDINGS),
        (Finding(Level.UNKNOWN, "x"), {}, ExitCode.FINDINGS),
        (Finding(Level.UNKNOWN, "x"), {"allow_unknown": True}, ExitCode.OK),
        (Finding(Level.ERROR, "x"), {"allow_unknown": True}, ExitCode.FINDINGS),
        (Finding(Level.ERROR, "x", unavailable=True), {}, ExitCode.SERVICE),
    ],
)
def test_exit_codes_follow_the_worst_finding(finding: Finding, options: dict[str, bool], code: ExitCode) -> None:
    findings = [Finding(Level.OK, "fine"), finding]

    assert exit_code(findings, **{"strict": False, "allow_unknown": False, **options}) is code


EMULATOR = "Endpoint=sb://127.0.0.1:5672;SharedAccessKeyName=k;SharedAccessKey=YQ==;UseDevelopmentEmulator=true;"
NAMESPACE = "Endpoint=sb://n.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=YQ==;EntityPath=t"


@pytest.mark.parametrize(
    ("servicebus", "option", "expected"),
    [
        (NAMESPACE, None, NAMESPACE),
        (EMULATOR, None, EMULATOR),
        (
            EMULATOR,
            "http://127.0.0.1:5300",
            "Endpoint=sb://127.0.0.1:5300;SharedAccessKeyName=k;SharedAccessKey=YQ==;UseDevelopmentEmulator=true",
        ),
        (
            NAMESPACE,
            "https://m.example.net/",
            "Endpoint=sb://m.example.net;SharedAccessKeyName=k;SharedAccessKey=YQ==",
        ),
        (NAMESPACE, "m.example.net", "Endpoint=sb://m.example.net;SharedAccessKeyName=k;SharedAccessKey=YQ=="),
        (
            NAMESPACE,
            "Endpoint=sb://x;SharedAccessKeyName=other;SharedAccessKey=YQ==",
            "Endpoint=sb://x;SharedAccessKeyName=other;SharedAccessKey=YQ==",
        ),
    ],
)
def test_the_management_endpoint_is_where_the_option_says_with_the_settings_credentials(
    servicebus: str, option: str | None, expected: str
) -> None:
    address = None if option is None else ManagementAddress(option)

    found = administration_connection(Connection(connection_string=servicebus), address)

    assert found.connection_string == expected


def test_with_an_identity_the_management_endpoint_is_the_namespace_by_default() -> None:
    connection = Connection(address="n.servicebus.windows.net", identity=Identity(managed=True, client_id=None))

    https, http = (
        ManagementAddress(text, "ORDERS_BUS_ADMIN", "ORDERS_BUS")
        for text in ("https://m.example.net", "http://127.0.0.1:5300")
    )

    assert administration_connection(connection, None) == connection
    assert administration_connection(connection, https) == replace(connection, address="m.example.net")
    with pytest.raises(UsageError, match=r"^ORDERS_BUS_ADMIN: .* requires ORDERS_BUS to be a connection string$"):
        administration_connection(connection, http)


@pytest.mark.parametrize(
    ("option", "variable", "named"),
    [
        ("ftp://x", "http://127.0.0.1:5300", "--servicebus-admin: give a URL"),
        (None, "ftp://x", "ORDERS_BUS_ADMIN: give a URL"),
        (None, "Endpoint=sb://x", "ORDERS_BUS_ADMIN is no connection string"),
    ],
)
def test_a_wrong_address_is_an_error_of_the_option_or_variable_in_force(
    option: str | None, variable: str, named: str
) -> None:
    address = administration_address(option, {"ORDERS_BUS_ADMIN": variable, "SERVICEBUS_ADMIN": "x"}, "ORDERS_BUS")

    with pytest.raises(UsageError, match=named):
        administration_connection(Connection(connection_string=EMULATOR), address)
