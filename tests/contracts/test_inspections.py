"""What `check` reads of an account and a namespace: of those in memory, and over the wire with the real SDKs."""

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
from azure.cosmos.aio import CosmosClient
from azure.servicebus.exceptions import ServiceBusAuthenticationError

from outbox_emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_emulators.cosmos.server import CosmosServer
from outbox_emulators.servicebus.entities import Entities
from outbox_emulators.servicebus.server import ServiceBusServer
from relay.cli.topic import ServiceBusFacts, SubscriptionFacts, TopicFacts, read_servicebus
from relay.cosmos.inspection import ContainerFacts, CosmosFacts, LockFacts, read_cosmos
from relay.findings import Gap, Why
from relay.settings import Settings
from tests.unit.relay.commands import ENVIRONMENT, cosmos_error, token_error
from tests.unit.relay.deployments import Account, Namespace

SPECS = ("data:/partitionKey:-1", "leases:/id:-1", "quarantine:/partitionKey")


class Cosmos(ABC):
    """A sound account with the three containers."""

    @abstractmethod
    async def read(self) -> CosmosFacts:
        """What `check` reads."""

    @abstractmethod
    async def lease(self, identifier: str) -> None:
        """Write a document to the lease container."""

    @abstractmethod
    def without_database(self) -> None:
        """Have the settings name a database that does not exist."""

    @abstractmethod
    def without_data(self) -> None:
        """Have the settings name an outbox container that does not exist."""

    @abstractmethod
    def refuse(self) -> None:
        """Have the account refuse the key."""


class AccountInMemory(Cosmos):
    def __init__(self, account: Account) -> None:
        self._account = account

    async def read(self) -> CosmosFacts:
        return await read_cosmos(Settings.from_environment(ENVIRONMENT))

    async def lease(self, identifier: str) -> None:
        self._account.items["leases"].append({"id": identifier, "_ts": 0})

    def without_database(self) -> None:
        self._account.database = cosmos_error(404)

    def without_data(self) -> None:
        self._account.containers["data"] = cosmos_error(404)

    def refuse(self) -> None:
        self._account.database = cosmos_error(401)


class AccountOnEmulator(Cosmos):
    def __init__(self, connection_string: str) -> None:
        self._settings = {**ENVIRONMENT, "COSMOS": connection_string}

    async def read(self) -> CosmosFacts:
        return await read_cosmos(Settings.from_environment(self._settings))

    async def lease(self, identifier: str) -> None:
        async with CosmosClient.from_connection_string(self._settings["COSMOS"]) as client:
            container = client.get_database_client("outbox").get_container_client("leases")
            await container.create_item({"id": identifier})

    def without_database(self) -> None:
        self._settings["COSMOS_DATABASE"] = "nowhere"

    def without_data(self) -> None:
        self._settings["COSMOS_CONTAINER"] = "nowhere"

    def refuse(self) -> None:
        self._settings["COSMOS"] = self._settings["COSMOS"].replace("AccountKey=", "AccountKey=AAAA")


@pytest.fixture(params=["in memory", "Cosmos DB emulator"])
async def cosmos(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cosmos]:
    if request.param == "in memory":
        account = Account()

        monkeypatch.setattr("relay.cosmos.containers.cosmos_client", lambda _: account)
        yield AccountInMemory(account)
        return
    async with CosmosServer() as server:
        provision(server.account, [ContainerSpec.parse(f"outbox/{spec}") for spec in SPECS])
        yield AccountOnEmulator(server.connection_string)


async def test_containers_have_their_partition_keys_and_their_time_to_live(cosmos: Cosmos) -> None:
    assert await cosmos.read() == CosmosFacts(
        database=None,
        containers={
            "COSMOS_CONTAINER": ContainerFacts(("/partitionKey",), -1),
            "COSMOS_LEASE_CONTAINER": ContainerFacts(("/id",), -1),
            "COSMOS_QUARANTINE_CONTAINER": ContainerFacts(("/partitionKey",), None),
        },
        locks=[],
    )


async def test_of_the_leases_only_locks_are_read(cosmos: Cosmos) -> None:
    for name in ("host.info", "host..0", "host.lock", "host.lock.old"):
        await cosmos.lease(name)

    locks = (await cosmos.read()).locks

    assert isinstance(locks, list)
    assert [lock.id for lock in locks if isinstance(lock, LockFacts)] == ["host.lock"]
    assert all(lock.age_s >= -1 for lock in locks)


async def test_a_database_that_does_not_exist_has_no_containers(cosmos: Cosmos) -> None:
    cosmos.without_database()

    facts = await cosmos.read()

    assert (why(facts.database), facts.containers) == (Why.MISSING, {})


async def test_a_container_that_does_not_exist_leaves_the_others(cosmos: Cosmos) -> None:
    cosmos.without_data()

    facts = await cosmos.read()

    assert facts.database is None
    assert [why(found) for found in facts.containers.values()] == [Why.MISSING, None, None]


async def test_a_key_that_is_refused_is_no_missing_database(cosmos: Cosmos) -> None:
    cosmos.refuse()

    assert why((await cosmos.read()).database) is Why.REFUSED


class ServiceBus(ABC):
    """A namespace with a topic and one subscription."""

    @abstractmethod
    async def read(self) -> ServiceBusFacts:
        """What `check` reads."""

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
        self._administration = f"http://127.0.0.1:{server.admin_port}"

    async def read(self) -> ServiceBusFacts:
        return await read_servicebus(self._settings, self._administration)

    def without_topic(self) -> None:
        self._settings = replace(self._settings, servicebus_topic="nowhere")


@pytest.fixture(params=["in memory", "Service Bus emulator"])
async def servicebus(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> AsyncIterator[ServiceBus]:
    if request.param == "in memory":
        namespace = Namespace()
        for client in ("servicebus_client", "servicebus_administration_client"):
            monkeypatch.setattr(f"relay.cli.topic.{client}", lambda *_: namespace)
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

    assert isinstance(facts.topic, TopicFacts)
    assert replace(facts.topic, partitioned=None, ttl=None) == TopicFacts(
        "Active", True, timedelta(minutes=10), None, None
    )
    assert isinstance(facts.subscriptions, list)
    assert [replace(found, ttl=None) for found in facts.subscriptions] == [
        SubscriptionFacts("all", "Active", True, True, None)
    ]
    assert facts.sending == 262_144


async def test_a_topic_that_does_not_exist_is_missing_on_both_sides(servicebus: ServiceBus) -> None:
    servicebus.without_topic()

    facts = await servicebus.read()

    assert [why(found) for found in (facts.topic, facts.subscriptions, facts.sending)] == [Why.MISSING] * 3


def why(found: object) -> Why | None:
    return found.why if isinstance(found, Gap) else None
