"""The facts that `check` reads of a namespace: of one in memory, and over the wire with the real SDKs."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus.exceptions import ServiceBusAuthenticationError
from azure.servicebus.management import TopicProperties

from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.operator.cli.servicebus_checks import ServiceBusFacts, read_servicebus
from relay.backends.findings import Gap, Why
from relay.config.clients import ManagementAddress
from relay.config.settings import Settings
from relay.core.times import parse_duration
from tests.unit.relay.commands import ENVIRONMENT, token_error
from tests.unit.relay.deployments import Namespace, serve_namespace


class ServiceBus(ABC):
    """A namespace with a topic and one subscription."""

    @abstractmethod
    async def read(self) -> ServiceBusFacts:
        """The facts that `check` reads."""

    @abstractmethod
    def without_topic(self) -> None:
        """Have the settings name a topic that does not exist."""


class NamespaceInMemory(ServiceBus):
    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    async def read(self) -> ServiceBusFacts:
        return await read_servicebus(Settings.from_environment(ENVIRONMENT), None)

    def without_topic(self) -> None:
        self._namespace.topic = ResourceNotFoundError("none")
        self._namespace.link = ServiceBusAuthenticationError(message="404", error=token_error(404))


class NamespaceOnEmulator(ServiceBus):
    def __init__(self, server: ServiceBusServer) -> None:
        self._settings = Settings.from_environment({**ENVIRONMENT, "SERVICEBUS": server.connection_string})
        self._administration = ManagementAddress(f"http://127.0.0.1:{server.admin_port}")

    async def read(self) -> ServiceBusFacts:
        return await read_servicebus(self._settings, self._administration)

    def without_topic(self) -> None:
        self._settings = replace(self._settings, servicebus=replace(self._settings.servicebus, entity="nowhere"))


@pytest.fixture(params=["in memory", "Service Bus emulator"])
async def servicebus(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> AsyncIterator[ServiceBus]:
    if request.param == "in memory":
        namespace = Namespace()
        serve_namespace(monkeypatch, namespace)
        yield NamespaceInMemory(namespace)
        return
    async with AsyncExitStack() as stack:
        yield NamespaceOnEmulator(await stack.enter_async_context(ServiceBusServer(sound_entities(tmp_path))))


def sound_entities(folder: Path) -> Entities:
    """The entities of the namespace in memory."""
    subscription = {
        "Name": "all",
        "Properties": {
            "RequiresSession": True,
            "DeadLetteringOnMessageExpiration": True,
            "DefaultMessageTimeToLive": "P14D",
        },
    }
    topic = {
        "Name": "domain-events",
        "Properties": {
            "RequiresDuplicateDetection": True,
            "DuplicateDetectionHistoryTimeWindow": "PT10M",
            "DefaultMessageTimeToLive": "P14D",
        },
        "Subscriptions": [subscription],
    }
    file = folder / "Config.json"
    file.write_text(json.dumps({"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [], "Topics": [topic]}]}}))
    return Entities.from_file(file)


async def test_the_topic_and_its_subscriptions_have_their_properties(servicebus: ServiceBus) -> None:
    facts = await servicebus.read()

    topic = facts.topic
    assert isinstance(topic, TopicProperties)
    assert isinstance(facts.subscriptions, list)
    (subscription,) = facts.subscriptions
    window = topic.duplicate_detection_history_time_window
    assert (topic.status, topic.requires_duplicate_detection) == ("Active", True)
    assert (parse_duration(window) if isinstance(window, str) else window) == timedelta(minutes=10)
    assert (subscription.name, subscription.status, subscription.requires_session) == ("all", "Active", True)
    assert subscription.dead_lettering_on_message_expiration is True
    assert facts.sending == 262_144


async def test_a_topic_that_does_not_exist_is_missing_on_both_sides(servicebus: ServiceBus) -> None:
    servicebus.without_topic()

    facts = await servicebus.read()

    assert [why(found) for found in (facts.topic, facts.subscriptions, facts.sending)] == [Why.MISSING] * 3


def why(found: object) -> Why | None:
    return found.why if isinstance(found, Gap) else None
