"""An entity of Service Bus that is not active: every report has the command that makes it active."""

from __future__ import annotations

import shlex
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from azure.servicebus.exceptions import MessagingEntityDisabledError

from outbox_relay.operator.cli.servicebus_checks import (
    Requirements,
    ServiceBusFacts,
    check_servicebus,
    receiving_refused,
)
from outbox_relay.operator.console.application import application
from outbox_relay.operator.console.server import loopback
from outbox_relay.operator.entity_status import set_active
from relay.backends.findings import Finding, Level
from relay.config.clients import Connection
from relay.config.settings import Settings
from tests.support.console_view import InMemoryView, busy
from tests.unit.relay.deployments import subscription_properties, topic_properties

COSMOS = {"COSMOS__accountEndpoint": "https://a.documents.azure.com:443/"}
UPDATE = "--status Active --resource-group=GROUP --namespace-name=sbns-relay"


def settings_of(host: str = "sbns-relay.servicebus.windows.net", **changes: Any) -> Settings:
    found = Settings.from_environment(COSMOS | {"SERVICEBUS__fullyQualifiedNamespace": host})
    return replace(found, servicebus=replace(found.servicebus, **changes))


TOPIC = settings_of(entity="domain-events")
QUEUE = settings_of(entity="orders", is_queue=True)
OF_TOPIC = f"az servicebus topic update {UPDATE} --name=domain-events"
OF_SUBSCRIPTION = f"az servicebus topic subscription update {UPDATE} --topic-name=domain-events --name=all"


@pytest.mark.parametrize(
    ("settings", "subscription", "command"),
    [
        (TOPIC, None, OF_TOPIC),
        (TOPIC, "all", OF_SUBSCRIPTION),
        (QUEUE, None, f"az servicebus queue update {UPDATE} --name=orders"),
        (settings_of(entity="a/b"), None, f"az servicebus topic update {UPDATE} '--name=a~b'"),
        (
            settings_of("sbns-relay.servicebus.chinacloudapi.cn", entity="domain-events"),
            None,
            OF_TOPIC,
        ),
    ],
)
def test_the_remedy_is_the_command_of_the_azure_cli(
    settings: Settings, subscription: str | None, command: str
) -> None:
    assert set_active(settings, subscription) == f"Set its status to Active: {command}"


@pytest.mark.parametrize("host", ["127.0.0.1:5672", "localhost", "bus.example.org"])
def test_what_is_not_in_azure_has_no_command(host: str) -> None:
    settings = settings_of(connection=Connection(address=host))

    assert set_active(settings) == "Set its status to Active."


def test_a_resource_group_that_is_known_is_in_the_command() -> None:
    assert shlex.split(set_active(TOPIC, group="rg relay (1)"))[-3] == "--resource-group=rg relay (1)"


def test_check_says_it_of_topic_and_subscription() -> None:
    facts = ServiceBusFacts(
        topic_properties(status="SendDisabled"), [subscription_properties("all", status="Disabled")], 262_144
    )

    found = check_servicebus(facts, TOPIC, Requirements())

    assert [each.remedy for each in found if each.level is not Level.OK] == [
        f"Set its status to Active: {OF_TOPIC}",
        f"Set its status to Active: {OF_SUBSCRIPTION}",
    ]


def test_a_command_that_may_not_receive_says_it() -> None:
    said = str(receiving_refused(MessagingEntityDisabledError(message="closed"), TOPIC, "all"))

    assert said.endswith(f"is disabled for receiving. Set its status to Active: {OF_SUBSCRIPTION}")


async def test_the_page_has_the_command_whole_to_copy() -> None:
    name = "t" * 100
    found = Finding.error("the topic is Disabled", set_active(settings_of(entity=name)))
    view = InMemoryView(replace(busy(), obstacles=[found]))
    async with TestClient(TestServer(application(view, loopback))) as client:
        page = unescape(await (await client.get("/")).text())

    command = f"az servicebus topic update {UPDATE} --name={name}"
    assert f'<p class="remedy">Set its status to Active: {command}</p>' in page
    assert f'data-copy="{command}"' in page
